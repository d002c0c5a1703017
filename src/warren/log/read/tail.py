"""Log tail: the key-value blocks that became durable since the last reading.

    LogTail.read(up_to)        every block of epochs behind the last reading, up to this one, from the files
    blocks_of_part(part)       the same of one file's part of one epoch, out of the memory it was written from
    Follower.read()            the same from another process, up to what the epoch file witnesses

The first is for readers that pull: it remembers its position in each file and verifies every block on the way. The
second is for push, and reads no file. Both give the same entries, those of one channel in their order. Of streams that
are referred to (log/pointers) large values come as pointers; blocks of other streams are skipped.

A busy broker writes a block of a few rows with every commit. `FewBlocks` combines such blocks: columns are made once
for thousands of rows, with the same contents as block by block.

A follower needs nothing from the owner: files may be rotated, renamed and purged between two readings, and each is
opened anew under its current name. A follower that was too slow, whose next epoch has been purged, gets `Gone`: never a
gap. It holds no pin.

Invariants
* An epoch is given whole or not at all, and never before it is durable: the caller guarantees `up_to`.
* Batches are views of the mapped file, or of the bytes that were written; they stay valid even if the file is removed.

Not here: waiting for a change (log/read/read_only), records of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from warren.base.errors import Damage
from warren.base.ids import ChannelId, Epoch, FileNumber, Lsn, StreamId, lsn_of
from warren.durability.log_file import EpochWrite
from warren.files.protocol import Files
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.log_files import open_record
from warren.log.manifest import ManifestState
from warren.log.pointers import ROW_BYTES, VALUE_BYTES_MAX, Pointer, by_reference
from warren.log.read.blocks import BlockCursor, readable_ranges, trust
from warren.log.read.parts import last_within
from warren.log.read.read_only import ReadOnlyLog, open_for_reading
from warren.log.retention import check_not_gone
from warren.log.session import EntryRows, numbers
from warren.log.settings import KV_STREAM, EntryKind
from warren.records.block import Header, check_block
from warren.records.columns import EntryColumns, NumberColumn
from warren.records.entries import read_entries
from warren.records.format import BlockKind, BlockVerdict
from warren.records.small_blocks import read_few

ENTRIES_MAX = 64  # of one block: above that columns are quicker
HEAD_BYTES = 8 << 10  # in which its columns and keys must be
ROWS_MAX = 4096  # of a combined batch
BYTES_MAX = 1 << 20  # of a combined batch
_RECORD = int(EntryKind.RECORD)


class FewBlocks:
    """Small blocks of one file, combined to one batch. The blocks were verified before."""

    def __init__(self, channel: ChannelId, number: FileNumber) -> None:
        self.channel = channel
        self._number = number
        self._clear()

    def _clear(self) -> None:
        self._rows = EntryRows()
        self._minors: list[int] = []
        self._epochs: list[int] = []
        self.first = Lsn(0)
        self.epoch = Epoch(0)

    def __len__(self) -> int:
        return len(self._minors)

    def is_full(self) -> bool:
        return len(self._minors) >= ROWS_MAX or self._rows.size_bytes >= BYTES_MAX

    def add(self, view: memoryview, header: Header, is_referring: bool) -> bool:
        """Add a block. False: it is too large to be combined."""
        body_at, count = header.body_at, header.entries
        body_bytes = header.end - body_at
        if count > ENTRIES_MAX or (not is_referring and body_bytes > HEAD_BYTES):
            return False
        found = read_few(bytes(view[body_at : body_at + min(body_bytes, HEAD_BYTES)]), count, body_bytes)
        if found is None or found.key_edges[count] > HEAD_BYTES:
            return False
        block, block_bytes = lsn_of(self._number, header.offset), header.end - header.offset
        if not self._minors:
            self.first, self.epoch = block, header.epoch
        keys, values, minors = found.key_edges, found.value_edges, found.minors
        for row in range(count):
            kind = found.kinds[row]
            if is_referring and kind == _RECORD:
                continue
            start, stop = body_at + values[row], body_at + values[row + 1]
            if is_referring and stop - start > VALUE_BYTES_MAX:
                value = Pointer(block, row, stop - start, block_bytes).encode()
            else:
                value = bytes(view[start:stop])
            key = bytes(view[body_at + keys[row] : body_at + keys[row + 1]])
            self._rows.add(kind, found.storages[row], key, value)
            self._minors.append(header.first + row if minors is None else minors[row])
            self._epochs.append(header.epoch)
        return True

    def take(self) -> EntryColumns:
        """The combined batch; clears it."""
        columns = replace(self._rows.columns(self._minors, self._epochs), epochs=numbers(self._epochs))
        self._clear()
        return columns


READ_AHEAD_BYTES_MAX = 1 << 30

Ends = Mapping[FileNumber, int]  # of active files


@dataclass(frozen=True, slots=True)
class TailBlock:
    """Entries of one channel that became durable together, or one behind the other."""

    channel: ChannelId
    first: Lsn  # of the first entry
    epoch: Epoch  # of the first
    columns: EntryColumns


class LogTail:
    def __init__(
        self,
        files: Files,
        directory: str,
        state: Callable[[], ManifestState],
        after: Epoch,
        ends: Callable[[], Ends] = dict,
    ) -> None:
        """`ends`: known durable ends of active files. A bad block before such an end is damage; behind it, it is being
        written."""
        self._files = files
        self._directory = directory
        self._state = state
        self.ends = ends
        self.after = after  # everything up to this epoch was read or skipped
        self.entries_read = 0  # by the last `read`, as headers count them: also records, which are not given
        self._places: dict[FileNumber, int] = {}  # where the next block of each file begins
        self._known: tuple[ManifestState, frozenset[StreamId]] | None = None  # which streams a state refers to

    def read(self, up_to: Epoch) -> Iterator[TailBlock]:
        """The blocks of epochs behind `after`, up to this one. They count as read when all of them were."""
        places: dict[FileNumber, int] = {}
        ends = self.ends()
        self.entries_read = 0
        for record in self._records():
            view, path = self._mapped(record)
            yield from self._of_file(record, view, path, up_to, places, ends.get(record.number, 0))
        self._places = places
        self.after = max(self.after, up_to)

    def expect(self, bytes_max: int = READ_AHEAD_BYTES_MAX) -> None:
        """Read-ahead hint for everything unread, up to so many bytes."""
        for record in self._records():
            file = open_record(self._files, self._directory, record).file
            try:
                start = self._places.get(record.number, 0)
                size = min(file.size() - start, bytes_max)
                file.expect(start, size)
                bytes_max -= size
            finally:
                file.close()

    def rewind(self, after: Epoch) -> None:
        """Read again from behind this epoch."""
        self.after, self._places = after, {}

    @property
    def reflected(self) -> Epoch:
        """Up to here everything is in the snapshot store and may be gone from the files."""
        return self._state().reflected

    @property
    def places(self) -> dict[FileNumber, int]:
        """Where reading continues in each file that was read."""
        return dict(self._places)

    def skip(self, up_to: Epoch, places: Mapping[FileNumber, int]) -> None:
        """Another reader has read up to this epoch, and reached these places."""
        self.after, self._places = max(self.after, up_to), dict(places)

    def waiting_bytes(self, durable: Epoch, bytes_max: int) -> int:
        """How much there is to read up to this epoch; not counted further than `bytes_max`."""
        return sum(self._sizes(durable, bytes_max).values())

    def epoch_within(self, durable: Epoch, bytes_max: int) -> Epoch:
        """The last epoch such that what is read up to it comes to at most so many bytes; always at least one epoch."""
        return last_within(self._sizes(durable, bytes_max), bytes_max, durable)

    def extent(self, up_to: Epoch) -> tuple[int, int]:
        """How many entries there are to read up to this epoch, and in how many bytes, by the headers: what a `read`
        up to it counts in `entries_read`."""
        entries = size_bytes = 0
        for record in self._records():
            view, _ = self._mapped(record)
            for header in self._unread(record, view, up_to):
                if self._is_ours(header):
                    entries += header.entries
                    size_bytes += self._weight(header)
        return entries, size_bytes

    def sampled(self, up_to: Epoch, blocks: int) -> Iterator[TailBlock]:
        """About so many of the blocks that are to be read, spread evenly: to sample the keys."""
        found: list[tuple[FileRecord, memoryview, int]] = []
        for record in self._records():
            view, _ = self._mapped(record)
            unread = self._unread(record, view, up_to)
            found += [(record, view, header.offset) for header in unread if self._is_ours(header)]
        for record, view, at in found[:: len(found) // blocks + 1]:
            block = check_block(view, at, record.identity)
            if isinstance(block, Header):  # `read` reports the damage
                yield block_of(record.channel, record.number, view, block, self.referring)

    def _sizes(self, durable: Epoch, bytes_max: int) -> dict[Epoch, int]:
        """Bytes of each epoch to be read, by unverified headers."""
        sizes: dict[Epoch, int] = {}
        for record in self._records():
            view, _ = self._mapped(record)
            total = 0
            for header in self._unread(record, view, durable):
                weight = self._weight(header)
                total += weight
                sizes[header.epoch] = sizes.get(header.epoch, 0) + weight
                if total > bytes_max:
                    break
        return sizes

    def _unread(self, record: FileRecord, view: memoryview, up_to: Epoch) -> Iterator[Header]:
        """The headers of the blocks of a file that are to be read, not verified."""
        at = self._places.get(record.number, 0)
        for start, stop in readable_ranges(view, record):
            for header in BlockCursor(view, record.identity, max(at, start), stop, trust):
                if header.epoch > up_to:
                    return
                if header.epoch > self.after:
                    yield header

    @property
    def referring(self) -> frozenset[StreamId]:
        """The streams whose large values are given as pointers."""
        state = self._state()
        if self._known is None or self._known[0] is not state:
            self._known = state, state.referring
        return self._known[1]

    def _is_ours(self, header: Header) -> bool:
        return is_entries(header, self.referring)

    def _weight(self, header: Header) -> int:
        """About how many bytes of a block go to the store."""
        if header.kind == BlockKind.ENTRIES and header.stream != KV_STREAM:
            return min(header.end - header.offset, header.entries * ROW_BYTES) if self._is_ours(header) else 0
        return header.end - header.offset

    def _records(self) -> list[FileRecord]:
        """The files that may hold something behind `after`, oldest first."""
        logs = [record for _, record in sorted(self._state().files.items()) if record.purpose is FileKind.LOG]
        streams = self.referring | {KV_STREAM}
        ours = [r for r in logs if any(stream in streams for stream, _ in r.stream_ends)]
        sealed = [r for r in ours if r.state is FileState.SEALED and r.last_epoch > self.after]
        return sealed + [record for record in logs if record.state is FileState.ACTIVE]

    def _of_file(
        self, record: FileRecord, view: memoryview, path: str, up_to: Epoch, places: dict[FileNumber, int], end: int
    ) -> Iterator[TailBlock]:
        is_active = record.state is FileState.ACTIVE
        at = self._places.get(record.number, 0)
        few = FewBlocks(record.channel, record.number)
        for start, stop in readable_ranges(view, record):
            durable_end = end if is_active else stop
            is_skipped = partial(self._is_skipped, up_to, durable_end)
            cursor = BlockCursor(view, record.identity, max(at, start), stop, is_skipped)
            for header in cursor:
                if header.epoch > up_to:
                    break
                if self._is_ours(header) and header.epoch > self.after:
                    self.entries_read += header.entries
                    yield from self._blocks(record, view, header, few)
            at = cursor.at
            if cursor.stopped_by is not BlockVerdict.GOOD and at < durable_end:
                raise Damage(f"the log is damaged: {cursor.stopped_by.value}", path, at)
        yield from _combined(few)
        places[record.number] = at

    def _blocks(self, record: FileRecord, view: memoryview, header: Header, few: FewBlocks) -> Iterator[TailBlock]:
        if few.add(view, header, header.stream in self.referring):
            if few.is_full():
                yield from _combined(few)
            return
        yield from _combined(few)
        block = block_of(record.channel, record.number, view, header, self.referring)
        if block.columns.count:
            yield block

    def _is_skipped(self, up_to: Epoch, durable_end: int, header: Header) -> bool:
        """A durable block of another stream: its bytes are not read."""
        is_other = header.kind == BlockKind.ENTRIES and not self._is_ours(header)
        return is_other and header.end <= durable_end and header.epoch <= up_to

    def _mapped(self, record: FileRecord) -> tuple[memoryview, str]:
        return open_record(self._files, self._directory, record).map()


def _combined(few: FewBlocks) -> Iterator[TailBlock]:
    if len(few):
        first, epoch = few.first, few.epoch
        yield TailBlock(few.channel, first, epoch, few.take())


def is_entries(header: Header, referring: Collection[StreamId]) -> bool:
    is_keyed = header.stream == KV_STREAM or header.stream in referring
    return header.kind == BlockKind.ENTRIES and is_keyed and header.entries > 0


def block_of(
    channel: ChannelId,
    number: FileNumber,
    view: memoryview,
    header: Header,
    referring: Collection[StreamId],
    shift: int = 0,
) -> TailBlock:
    """A block whose bytes begin at its own offset less `shift`."""
    columns = read_entries(view, header._replace(offset=header.offset - shift) if shift else header)
    if columns.epochs is None:
        columns = replace(columns, epochs=NumberColumn.constant(columns.count, header.epoch))
    first = lsn_of(number, header.offset)
    if header.stream in referring:
        columns = by_reference(columns, first, header.end - header.offset)
    return TailBlock(channel, first, header.epoch, columns)


def blocks_of_part(channel: ChannelId, part: EpochWrite, referring: Collection[StreamId]) -> Iterator[TailBlock]:
    """The key-value blocks of what one file contributed to one epoch."""
    raw = memoryview(b"".join(part.pieces))
    stop = part.start + len(raw)
    cursor = BlockCursor(raw, part.participant.identity, part.start, stop, trust, part.start)
    for header in cursor:
        if is_entries(header, referring):
            block = block_of(channel, part.participant.number, raw, header, referring, part.start)
            if block.columns.count:
                yield block
    assert cursor.at == stop, "a part is blocks, one behind the other"


class Follower:
    def __init__(self, files: Files, directory: str, after: Epoch | None = None) -> None:
        """Begin behind an epoch; None: with what becomes durable from now on."""
        self._files = files
        self._directory = directory
        self._log = open_for_reading(files, directory)
        begun = self._log.durable if after is None else after
        self._tail = LogTail(files, directory, lambda: self._log.state, begun, self._ends)

    @property
    def after(self) -> Epoch:
        """Everything up to this epoch was read or skipped."""
        return self._tail.after

    def read(self) -> Iterator[TailBlock]:
        """What became durable since the last time."""
        self._log = self._opened()
        if self._log.durable > self._tail.after:
            yield from self._tail.read(self._log.durable)

    def _ends(self) -> Ends:
        return self._log.durable_ends()

    def _opened(self) -> ReadOnlyLog:
        log = open_for_reading(self._files, self._directory)
        if log.durable > self._tail.after:
            check_not_gone(log.state, Epoch(self._tail.after + 1), ())
        return log
