"""Blocks of a log file: the cursor that iterates over them, and what a scan reports of them.

    BlockCursor        block after block, verified, until the stop or the first block that is not good
    walk               the same, collected in lists, with the running checksum behind each block
    next_good, extent  the next good block behind damage; how far something was written
    trusted            the blocks of ranges that a scan has found good, by their headers alone
    ScanWalk           a whole file: over what is bad, adding up what is good

What is wrong with a file has limestone's words (`ScanVerdict`), ordered by severity as limestone numbers them:

    OK                      every block that counts is good
    REPAIRED                blocks beyond the durable epoch were marked as void by this scan
    BROKEN_AFTER_TOBE_CUT   only ever inside a cut; a scan never shows it
    BROKEN_AFTER_MARKED     what is broken stands behind a mark: do not append to this file
    NONDURABLE_ENTRIES      whole blocks beyond the durable epoch, not marked
    BROKEN_AFTER            the tail is broken, not marked
    UNEXPECTED              a block that was durable is not what was written: damage
    FAILED                  the file could not be read at all

A mark is a voided range in the manifest: no scan changes a file. What a bad range of bytes hits is derived from the
blocks around it and from what is left of its own header:

    | entries 7 | closing 7 | ??????????? | entries 8 | closing 8 |
                              ^ a block of epoch 8; its first entry is number 0, the next good one begins with number 40

This is used in messages only: a header whose checksum does not match may contain anything. Not here: which bad blocks
are damage and which a power cut left (log/recovery, log/read/scan), repairs (log/check/repair).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import UINT64_MAX, Epoch
from warren.durability.log_file import FileEnd, run_on
from warren.log.file_record import FILE_HEADER_BYTES, FileKind, FileRecord, FileState, Voided
from warren.records.block import FileIdentity, Header, check_block
from warren.records.entries import read_entries
from warren.records.format import (
    ALIGNMENT_BYTES,
    BLOCK_BYTES_MAX,
    FORMAT_VERSION,
    HEADER,
    MAGIC,
    BlockKind,
    BlockVerdict,
)

EVERY_EPOCH = Epoch(UINT64_MAX)
WITH_ENTRIES = (BlockKind.ENTRIES, BlockKind.SORTED)
Range = tuple[int, int]  # from this byte to that one, the latter not included

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_FIND_STEP_BYTES = 1 << 20


class BlockCursor:
    """Iterates over the blocks of one file, from `start` to `stop` or to the first place without a good block.

    A block is verified (checksum, own offset, incarnation) unless `is_trusted` accepts its header: then its body is not
    read. A consumer that breaks out of the iteration leaves `at` at the block it has seen last. `base` is the offset in
    the file of the first byte of `view`.
    """

    __slots__ = ("_base", "_identity", "_is_trusted", "_stop", "_view", "at", "stopped_by")

    def __init__(
        self,
        view: memoryview,
        identity: FileIdentity | None,
        start: int = 0,
        stop: int | None = None,
        is_trusted: Callable[[Header], bool] | None = None,
        base: int = 0,
    ) -> None:
        self._view = view
        self._identity = identity
        self._stop = stop
        self._is_trusted = is_trusted
        self._base = base
        self.at = start
        self.stopped_by = BlockVerdict.GOOD  # GOOD: the stop was reached

    def __iter__(self) -> Iterator[Header]:
        stop = self._stop
        while stop is None or self.at < stop:
            found = self._block()
            if isinstance(found, BlockVerdict):
                self.stopped_by = found
                return
            yield found
            self.at = found.end

    def _block(self) -> Header | BlockVerdict:
        if self._is_trusted is not None:
            header = peek(self._view, self.at - self._base)
            is_own = header is not None and header.offset == self.at and self._is_identity(header)
            if header is not None and is_own and self._is_trusted(header):
                return header
        return check_block(self._view, self.at - self._base, self._identity, self.at)

    def _is_identity(self, header: Header) -> bool:
        return self._identity is None or (header.timeline, header.incarnation) == self._identity


@dataclass(frozen=True, slots=True)
class BlockWalk:
    headers: list[Header]
    runnings: list[int]  # running checksum behind each block
    end: int
    stopped_by: BlockVerdict  # GOOD: the wanted stop was reached

    @property
    def running(self) -> int:
        return self.runnings[-1] if self.runnings else 0


def walk(
    view: memoryview, identity: FileIdentity | None, start: int = 0, stop: int | None = None, running: int = 0
) -> BlockWalk:
    """Good blocks from `start` until `stop` (or until there is none), with the running checksum behind each."""
    cursor = BlockCursor(view, identity, start, stop)
    headers = list(cursor)
    runnings: list[int] = []
    for header in headers:
        running = run_on(running, header.checksum)
        runnings.append(running)
    return BlockWalk(headers, runnings, cursor.at, cursor.stopped_by)


def sealed_walks(view: memoryview, record: FileRecord, path: str) -> Iterator[BlockWalk]:
    """The blocks of a sealed file, one walk per valid range; `Damage` where a range is not whole."""
    running = 0
    for start, stop in valid_ranges(record, record.end):
        walked = walk(view, record.identity, start, stop, running)
        if walked.end < stop:
            raise Damage(f"a sealed file is damaged: {walked.stopped_by.value}", path, walked.end)
        running = walked.running
        yield walked


def valid_ranges(record: FileRecord, stop: int) -> list[Range]:
    """The ranges of [0, stop) that are not voided."""
    ranges: list[Range] = []
    at = 0
    for voided in sorted(record.voided, key=lambda voided: voided.start):
        if at < min(voided.start, stop):
            ranges.append((at, min(voided.start, stop)))
        at = max(at, voided.end)
    return [*ranges, (at, stop)] if at < stop else ranges


def readable_ranges(view: memoryview, record: FileRecord) -> list[Range]:
    """Where blocks can be read: a sealed file up to its end, an active one as far as it is written."""
    return valid_ranges(record, len(view) if record.state is FileState.ACTIVE else record.end)


def trusted(view: memoryview, good: Collection[Range]) -> Iterator[Header]:
    """The headers of ranges that were scanned before and found good."""
    for start, stop in good:
        cursor = BlockCursor(view, None, start, stop, trust)
        yield from cursor
        assert cursor.at >= stop, "a good range holds nothing but good blocks"


def trust(header: Header) -> bool:
    """For a cursor that uses headers only."""
    return True


def peek(view: memoryview, offset: int) -> Header | None:
    """The header at `offset`, its checksum not verified. None where there is none."""
    if offset + HEADER.size > len(view):
        return None
    raw = HEADER.unpack_from(view, offset)
    return Header(raw[1], raw[2], raw[4], raw[5], *raw[6:]) if raw[0] == MAGIC else None


def next_good(view: memoryview, identity: FileIdentity | None, start: int) -> Header | None:
    """The first good block of this incarnation at or behind `start`."""
    at = start
    while at < len(view):
        chunk = bytes(view[at : at + _FIND_STEP_BYTES + len(_MAGIC_BYTES) - 1])
        found = chunk.find(_MAGIC_BYTES)
        while found >= 0:
            if (at + found) % ALIGNMENT_BYTES == 0:
                header = check_block(view, at + found, identity)
                if isinstance(header, Header):
                    return header
            found = chunk.find(_MAGIC_BYTES, found + 1)
        at += _FIND_STEP_BYTES
    return None


def good_blocks(view: memoryview, identity: FileIdentity | None, start: int) -> Iterator[Header]:
    """Every good block at or behind `start`, whatever lies between them."""
    header = next_good(view, identity, start)
    while header is not None:
        yield header
        header = next_good(view, identity, header.end)


def extent(view: memoryview, start: int) -> int:
    """The end of the last byte that is not zero, or `start`: how far something was written behind `start`."""
    end = len(view)
    while end > start:
        begin = max(start, end - _FIND_STEP_BYTES)
        written = bytes(view[begin:end]).rstrip(b"\0")
        if written:
            return begin + len(written)
        end = begin
    return start


class ScanVerdict(IntEnum):
    OK = 0
    REPAIRED = 0x01
    BROKEN_AFTER_TOBE_CUT = 0x08
    BROKEN_AFTER_MARKED = 0x11
    NONDURABLE_ENTRIES = 0x40
    BROKEN_AFTER = 0x41
    UNEXPECTED = 0x81
    FAILED = 0xFF

    @property
    def word(self) -> str:
        return self.name.lower()


class AtNondurable(Enum):
    """What to do with whole blocks beyond the durable epoch."""

    REPAIR_BY_MARK = "mark them as void"
    REPORT = "report them"
    IGNORE = "pass over them: the file is being written"


@dataclass(frozen=True, slots=True)
class Hit:
    """What a bad range of bytes hits, as far as the adjacent blocks and its own header show."""

    first_epoch: Epoch
    last_epoch: Epoch
    kind: str  # of the first block in it
    entries_max: int | None  # at most so many entries; None: unknown
    storages: tuple[int, ...]  # that it, or the adjacent blocks, contain

    def __str__(self) -> str:
        epochs = f"epoch {self.first_epoch}"
        if self.last_epoch != self.first_epoch:
            epochs = f"epochs {self.first_epoch} … {self.last_epoch}"
        entries = f", at most {self.entries_max} entries" if self.entries_max else ""
        storages = f", storage {', '.join(map(str, self.storages))}" if self.storages else ""
        return f"{self.kind} block of {epochs}{entries}{storages}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, from which byte to which, and what it hits."""

    what: str
    offset: int
    end: int
    hit: Hit | None = None
    is_tail: bool = False  # behind everything that counts: left by a power cut, or being written

    def __str__(self) -> str:
        hits = f"; hits {self.hit}" if self.hit else ""
        return f"{self.what}, bytes {self.offset} … {self.end}{hits}"


@dataclass(frozen=True, slots=True)
class FileScan:
    """One file, scanned."""

    record: FileRecord
    path: str
    view: memoryview
    verdict: ScanVerdict
    good: tuple[Range, ...] = ()  # ranges of the blocks that count, in order
    blocks: int = 0
    entries: int = 0
    max_epoch: Epoch = Epoch(0)  # highest epoch that appeared, durable or not
    running: int = 0  # checksum over the checksums of the good blocks
    problems: tuple[Problem, ...] = field(default=())
    marks: tuple[Voided, ...] = ()  # marks of this scan, to be committed by the owner of the manifest

    @property
    def is_detached(self) -> bool:
        return self.record.state is not FileState.ACTIVE

    @property
    def end(self) -> int:
        return self.good[-1][1] if self.good else 0

    @property
    def is_modified(self) -> bool:
        return bool(self.marks)


_STORAGES_SHOWN_MAX = 8


def bad_range(
    view: memoryview, identity: FileIdentity, start: int, end: int, before: Header | None, behind: Header | None
) -> Problem:
    """The problem of the bytes between two good blocks."""
    own = peek(view, start)
    if own is not None and (own.offset != start or (own.timeline, own.incarnation) != identity):
        own = None
    what = "a block's checksum does not hold" if own else "there is no block where one was written"
    if start == 0 and behind is not None and end == FILE_HEADER_BYTES:
        return Problem(what, start, end, Hit(Epoch(0), Epoch(0), "file header", 0, ()))
    return Problem(what, start, end, _hit(view, own, before, behind))


def _hit(view: memoryview, own: Header | None, before: Header | None, behind: Header | None) -> Hit:
    first = _epoch_behind(before)
    last = behind.epoch if behind else first
    if own is not None and first <= own.epoch <= max(last, first + 1):
        first = own.epoch
    entries, storages = _entries_max(own, before, behind), _storages(view, own, before, behind)
    return Hit(first, max(first, last), _kind_of(own), entries, storages)


def _epoch_behind(before: Header | None) -> Epoch:
    """The epoch that the block behind this one belongs to, at the earliest."""
    if before is None:
        return Epoch(0)
    return Epoch(before.epoch + 1) if before.kind == BlockKind.CLOSING else before.epoch


def _kind_of(own: Header | None) -> str:
    if own is not None and own.kind in BlockKind._value2member_map_:
        return BlockKind(own.kind).name.lower().replace("_", " ")
    return "unreadable"


def _entries_max(own: Header | None, before: Header | None, behind: Header | None) -> int | None:
    """Entries of an epoch are numbered one by one, so the gap between two blocks bounds what stood there."""
    if own is not None and own.kind == BlockKind.CLOSING:
        return 0
    if before is not None and behind is not None and behind.kind in WITH_ENTRIES:
        if before.kind in WITH_ENTRIES and before.epoch == behind.epoch:
            return max(0, behind.first - before.first - before.entries)
        if before.kind == BlockKind.CLOSING and behind.epoch == before.epoch + 1:
            return behind.first
    if own is not None and own.kind in WITH_ENTRIES and own.entries <= BLOCK_BYTES_MAX:
        return own.entries
    return None


def _storages(view: memoryview, own: Header | None, before: Header | None, behind: Header | None) -> tuple[int, ...]:
    found = _storages_in(view, own)
    if not found and own is None:
        found = _storages_in(view, before) | _storages_in(view, behind)
    return tuple(sorted(found)[:_STORAGES_SHOWN_MAX])


def _storages_in(view: memoryview, header: Header | None) -> set[int]:
    if header is None or header.kind not in WITH_ENTRIES or header.end > len(view) or not header.entries:
        return set()
    if header.entries > header.body_bytes:
        return set()
    try:
        storages = read_entries(view, header).storages
    except WarrenError:
        return set()
    return {storages.base} if storages.is_constant else set(map(int, storages.array()))


class ScanWalk:
    """Iterates over a whole file, skips what is bad and adds up what is good."""

    def __init__(self, view: memoryview, record: FileRecord) -> None:
        self._view = view
        self._record = record
        self._good: list[Range] = []
        self._blocks = self._entries = self._running = 0
        self._last: Header | None = None  # the last good block
        self._problems: list[Problem] = []

    def sealed(self) -> None:
        record = self._record
        for start, stop in valid_ranges(record, record.end):
            self._over(start, stop)
        if not self._problems and self._running != record.running:
            what = "the blocks are not those that were sealed: their running checksum differs"
            self._problems.append(Problem(what, 0, record.end))

    def active(self, durable: Epoch, witnessed: FileEnd | None) -> None:
        """As far as blocks are good and durable; then over what is bad, if something durable stands behind it."""
        voided = min((voided.start for voided in self._record.voided), default=UINT64_MAX)
        at = self._follow(0, min(voided, len(self._view)), durable)
        wanted = min(max(witnessed.end if witnessed else 0, self._last_durable(at, durable)), voided)
        self._over(at, wanted, durable)
        if witnessed and not self._problems and self._running_at(witnessed.end) != witnessed.running:
            what = "the blocks are not those that were synced: their running checksum differs"
            self._problems.append(Problem(what, 0, witnessed.end))

    def result(self, path: str) -> FileScan:
        verdict = ScanVerdict.UNEXPECTED if self._problems else ScanVerdict.OK
        max_epoch = self._last.epoch if self._last else Epoch(0)
        return FileScan(
            self._record,
            path,
            self._view,
            verdict,
            tuple(self._good),
            self._blocks,
            self._entries,
            max_epoch,
            self._running,
            tuple(self._problems),
        )

    def _over(self, start: int, stop: int, durable: Epoch = EVERY_EPOCH) -> None:
        """Everything from `start` to `stop` must be good; the rest becomes problems."""
        at = start
        while at < stop:
            at = self._follow(at, stop, durable)
            if at > stop:
                self._problems.append(Problem("a block reaches beyond the file's valid end", stop, at))
            if at >= stop:
                return
            behind = next_good(self._view[:stop], self._record.identity, at + 8)
            end = behind.offset if behind else stop
            self._problems.append(bad_range(self._view, self._record.identity, at, end, self._last, behind))
            at = end

    def _follow(self, start: int, stop: int, durable: Epoch) -> int:
        """Good blocks from `start` on, up to `stop` or to the durable epoch's end; where they end."""
        cursor = BlockCursor(self._view, self._record.identity, start, stop)
        for header in cursor:
            if header.epoch > durable:
                break
            self._add(header)
        if cursor.at > start:
            self._good.append((start, cursor.at))
        return cursor.at

    def _add(self, header: Header) -> None:
        if header.format > FORMAT_VERSION:
            what = f"log file {self._record.number} has blocks of format {header.format}"
            raise Refused(f"{what}, this warren reads up to {FORMAT_VERSION}", "use a newer warren")
        if self._last is not None and header.epoch < self._last.epoch and self._record.purpose is FileKind.LOG:
            what = f"epoch {header.epoch} stands behind epoch {self._last.epoch}"
            self._problems.append(Problem(what, header.offset, header.end))
        if (header.kind == BlockKind.FILE_HEADER) != (header.offset == 0):
            self._problems.append(Problem("a file header is missing or misplaced", header.offset, header.end))
        self._blocks += 1
        self._entries += header.entries if header.kind in WITH_ENTRIES else 0
        self._running = run_on(self._running, header.checksum)
        self._last = header

    def _last_durable(self, start: int, durable: Epoch) -> int:
        """The end of the last durable block behind `start`, or `start`."""
        found = good_blocks(self._view, self._record.identity, start)
        return max((header.end for header in found if header.epoch <= durable), default=start)

    def _running_at(self, end: int) -> int | None:
        running = 0
        for header in trusted(self._view, self._good):
            running = run_on(running, header.checksum)
            if header.end == end:
                return running
        return None
