"""Cutting a log file into parts that several readers share, by its headers alone.

    headers   |h|····|h|··|h|······|h|··|        one pass over the headers cuts a file at block borders,
    parts     [---- part 1 ----][--- part 2 ---]  each of which one reader checks and reads (log/read/parts)

The pass over the headers believes nothing for more than a place to cut at. Whatever looks odd in it — no header where
one must be, an epoch that steps back, a running checksum that is not the sealed one — makes the file one single part,
to be judged as a whole exactly as `scan_one` judges it. The blocks just outside the wanted epochs are checked, so that
none whose header lies about its epoch is passed over.

Always true: the parts of a file lie one behind the other, and an entry stands in one of them.

Checking and reading a part of a log file by itself (log/read/parts cuts it), with `scan`'s own walk.

Always true: every block of a part is checked before any entry of it is shown, with the verdicts and the damage report
of a whole scan. Beside a running store a file may be renamed at any moment, so it is known by its own header, not by
its name. Not here: what becomes of damage, which epochs are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId, lsn_of
from warren.durability.log_file import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_record import FileKind, FileRecord, FileState, Voided
from warren.log.log_files import open_by_name
from warren.log.read.blocks import WITH_ENTRIES, FileScan, Problem, ScanVerdict, ScanWalk, peek, trusted
from warren.records.block import FileIdentity, Header, check_block, require_known_format
from warren.records.columns import EntryColumns, NumberColumn
from warren.records.entries import read_entries
from warren.records.format import FORMAT_VERSION, BlockKind, BlockVerdict, crc32
from warren.records.walk import extent


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a log file that one reader checks by itself; `stop` 0 means the whole file."""

    record: FileRecord
    durable: Epoch
    witnessed: FileEnd | None = None
    start: int = 0
    stop: int = 0
    running: int = 0  # checksum over the checksums of the part's blocks
    entries: int = 0  # as the headers count them

    @property
    def is_whole(self) -> bool:
        return self.stop == 0

    @property
    def size_bytes(self) -> int:
        end = self.witnessed.end if self.witnessed else self.record.end
        return end if self.is_whole else self.stop - self.start

    def to_json(self) -> dict[str, Any]:
        end = self.witnessed
        told = [end.number, *end.identity, end.end, end.running] if end else None
        plain = {name: getattr(self, name) for name in ("durable", "start", "stop", "running", "entries")}
        return {**plain, "record": self.record.to_json(), "witnessed": told}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> FilePart:
        made = {**raw, "record": FileRecord.from_json(raw["record"])}
        if raw["witnessed"] is not None:
            number, timeline, incarnation, end, running = raw["witnessed"]
            identity = FileIdentity(TimelineId(timeline), Incarnation(incarnation))
            made["witnessed"] = FileEnd(FileNumber(number), identity, end, running)
        return cls(**made)


@dataclass(frozen=True, slots=True)
class Border:
    """A place between two blocks of a file: what lies before it, and how far reading has come."""

    at: int = 0
    running: int = 0
    epoch: Epoch = Epoch(0)  # of the block before it


class _Lost(Exception):
    """The headers do not lead from block to block."""


def cut_into_parts(
    view: memoryview, path: str, whole: FilePart, first: Epoch, last: Epoch, part_bytes: int, border: Border
) -> tuple[list[FilePart], Border]:
    """The parts that hold epochs `first` … `last`, and where the next reader may go on. `border` lies before them."""
    end = _settled_end(view, whole)
    if end is None:
        return [whole], Border()
    try:
        return _Cutting(view, path, whole, end).cut(first, last, part_bytes, border)
    except _Lost:
        return [whole], Border()


def _settled_end(view: memoryview, whole: FilePart) -> FileEnd | None:
    """Where the blocks that count end, and their running checksum; None where only a whole scan can tell."""
    record, witnessed = whole.record, whole.witnessed
    if record.state is FileState.ACTIVE:
        is_told = witnessed is not None and not record.voided and _nothing_durable_at(view, whole, witnessed.end)
        return witnessed if is_told else None
    if any(voided.start < record.end for voided in record.voided):
        return None
    return FileEnd(record.number, record.identity, record.end, record.running)


def _nothing_durable_at(view: memoryview, whole: FilePart, end: int) -> bool:
    """Is what stands behind the witnessed end a writer's work, or nothing? An older witness may have said less."""
    found = check_block(view, end, whole.record.identity)
    if isinstance(found, Header):
        return found.epoch > whole.durable
    return found is BlockVerdict.EMPTY and extent(view, end) == end


class _Cutting:
    def __init__(self, view: memoryview, path: str, whole: FilePart, end: FileEnd) -> None:
        self._view = view
        self._path = path
        self._whole = whole
        self._end = end
        self._parts: list[FilePart] = []
        self._open: FilePart | None = None

    def cut(self, first: Epoch, last: Epoch, part_bytes: int, border: Border) -> tuple[list[FilePart], Border]:
        before: Header | None = None
        behind = border
        for header in self.headers(border):
            border = _behind(border, header)
            if header.epoch > last:
                self._check(before)
                self._check(header)
                break
            if header.epoch < first or header.offset == 0:
                before = header
            else:
                self._check(before)
                before = None
                self._take(header)
            behind = border
            if self._open is not None and self._open.size_bytes >= part_bytes:
                self._close()
        else:
            if border.running != self._end.running:
                raise _Lost
        self._close()
        return self._parts, behind

    def _check(self, neighbour: Header | None) -> None:
        """A block just outside the wanted epochs must be good: else its header may lie about its epoch or its size."""
        if neighbour is not None and not isinstance(
            check_block(self._view, neighbour.offset, self._end.identity), Header
        ):
            raise _Lost

    def headers(self, border: Border) -> Iterator[Header]:
        at, epoch = border.at, border.epoch
        while at < self._end.end:
            header = peek(self._view, at)
            if header is None or not self._is_plausible(header, at, epoch):
                raise _Lost
            yield header
            at, epoch = header.end, max(header.epoch, epoch)

    def _is_plausible(self, header: Header, at: int, epoch: Epoch) -> bool:
        identity = self._end.identity
        if header.format > FORMAT_VERSION and isinstance(check_block(self._view, at, identity), Header):
            require_known_format(header, self._path)
        is_ours = header.offset == at and (header.timeline, header.incarnation) == identity
        is_ordered = header.epoch >= epoch or header.kind == BlockKind.FILE_HEADER
        return is_ours and is_ordered and header.format <= FORMAT_VERSION and header.end <= self._end.end

    def _take(self, header: Header) -> None:
        part = self._open or replace(self._whole, start=header.offset, stop=header.offset, running=0, entries=0)
        counted = header.entries if header.kind in WITH_ENTRIES else 0
        running = _running(part.running, header)
        self._open = replace(part, stop=header.end, running=running, entries=part.entries + counted)

    def _close(self) -> None:
        if self._open is not None:
            self._parts.append(self._open)
            self._open = None


def _running(before: int, header: Header) -> int:
    return crc32(header.checksum.to_bytes(4, "little"), before)


def _behind(border: Border, header: Header) -> Border:
    return Border(header.end, _running(border.running, header), max(border.epoch, header.epoch))


def epoch_sizes(view: memoryview, whole: FilePart, border: Border, after: Epoch, bytes_max: int) -> dict[Epoch, int]:
    """The bytes of each epoch behind `after`, as far as the headers lead, or into the first one beyond `bytes_max`."""
    sizes: dict[Epoch, int] = {}
    end = _settled_end(view, whole)
    total = 0
    try:
        for header in _Cutting(view, "", whole, end).headers(border) if end else ():
            if header.epoch <= after:
                continue
            is_enough = total > bytes_max and header.epoch not in sizes
            total += header.end - header.offset
            sizes[header.epoch] = sizes.get(header.epoch, 0) + header.end - header.offset
            if is_enough:
                break
    except _Lost:
        pass
    return sizes


def last_within(sizes: Mapping[Epoch, int], bytes_max: int, newest: Epoch) -> Epoch:
    """The last epoch such that those up to it come to at most so many bytes, at least one; `newest` if all do."""
    total, chosen = 0, Epoch(0)
    for epoch, size in sorted(sizes.items()):
        total += size
        if chosen and total > bytes_max:
            return chosen
        chosen = epoch
    return newest


def scan_part(files: Files, directory: str, part: FilePart) -> FileScan:
    """Check a part; its entries are then read with `entry_blocks`."""
    view, path = open_by_name(files, directory, part.record).map()
    record = part.record
    if part.is_whole:
        walk = ScanWalk(view, record)
        if record.state is FileState.ACTIVE:
            walk.active(part.durable, part.witnessed)
        else:
            walk.sealed()
        return walk.result(path)
    others = (Voided(0, part.start, "another part"),) if part.start else ()
    own = record.changed(state=FileState.SEALED, end=part.stop, running=part.running, voided=others)
    walk = ScanWalk(view, own)
    walk.sealed()
    return walk.result(path)


def missing(part: FilePart, directory: str, error: Damage | Refused) -> FileScan:
    """The scan of a part whose file could not be read at all."""
    problem = Problem(error.what, part.start, part.start + part.size_bytes)
    path = join(directory, part.record.name)
    return FileScan(part.record, path, memoryview(b""), ScanVerdict.FAILED, problems=(problem,))


@dataclass(frozen=True, slots=True)
class EntryBlock:
    """One checked block of entries, decoded when its columns are asked for."""

    view: memoryview
    path: str
    number: FileNumber
    header: Header

    @property
    def count(self) -> int:
        return self.header.entries

    @property
    def first_lsn(self) -> Lsn:
        return lsn_of(self.number, self.header.offset)

    def columns(self) -> EntryColumns:
        try:
            columns = read_entries(self.view, self.header)
        except Damage as damage:
            raise Damage(damage.bare, self.path, self.header.offset) from None
        if columns.epochs is None:
            columns = replace(columns, epochs=NumberColumn.constant(self.count, self.header.epoch))
        return columns


def entry_blocks(
    scan: FileScan, first: Epoch, last: Epoch, streams: Collection[StreamId] | None = None
) -> Iterator[EntryBlock]:
    """The blocks of a scanned part with entries of epochs `first` … `last`. Compacted files are read whole: whoever
    chose one chose it for its epoch."""
    is_log = scan.record.purpose is FileKind.LOG
    for header in trusted(scan.view, scan.good):
        if header.kind not in WITH_ENTRIES or not header.entries:
            continue
        if streams is not None and header.stream not in streams:
            continue
        if first <= header.epoch <= last or not is_log:
            yield EntryBlock(scan.view, scan.path, scan.record.number, header)


@dataclass(slots=True)
class PartInput:
    """Parts of the log as one input of a merge. `pass_over` is told of what is damaged; without it that is an error."""

    scan: Callable[[], FileScan]
    part: FilePart
    up_to_epoch: Epoch
    streams: Collection[StreamId]
    pass_over: Callable[[Damage], None] | None = None
    is_mapped: bool = True

    @property
    def entries(self) -> int:
        return self.part.entries or self.part.record.entries or self.part.size_bytes // 64

    @property
    def size_bytes(self) -> int:
        return self.part.size_bytes

    def batches(self) -> Iterator[EntryColumns]:
        for block in entry_blocks(self.scan(), Epoch(0), self.up_to_epoch, self.streams):
            try:
                yield block.columns()
            except Damage as damage:
                if self.pass_over is None:
                    raise
                self.pass_over(damage)
