"""File parts: a log file cut into parts for several readers, by its headers alone; each part is checked separately.

    headers   |h|····|h|··|h|······|h|··|        one pass over the headers cuts a file at block borders,
    parts     [---- part 1 ----][--- part 2 ---]  each of which one reader checks and reads

The pass over the headers uses them only to find places to cut. If anything is odd — no header where one must be, an
epoch that decreases, a running checksum that is not the sealed one — the file becomes one single part, to be judged as
a whole exactly as `scan_one` judges it. The blocks just outside the wanted epochs are verified, so that none whose
header has a wrong epoch is skipped.

Invariants
* The parts of a file lie one behind the other, and an entry is in exactly one of them.
* Every block of a part is verified before any entry of it is shown, with the verdicts and the damage report of a whole
  scan. Beside a running store a file may be renamed at any moment, so it is identified by its header, not its name.

Not here: what is done about damage, which epochs are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId, lsn_of
from warren.durability.log_file import FileEnd, run_on
from warren.files.protocol import Files, join
from warren.log.file_record import FileKind, FileRecord, FileState, Voided
from warren.log.log_files import open_by_name
from warren.log.read.blocks import (
    WITH_ENTRIES,
    BlockCursor,
    FileScan,
    Problem,
    ScanVerdict,
    ScanWalk,
    extent,
    trust,
    trusted,
)
from warren.records.block import FileIdentity, Header, check_block, require_known_format
from warren.records.columns import EntryColumns, NumberColumn
from warren.records.entries import read_entries
from warren.records.format import FORMAT_VERSION, BlockKind, BlockVerdict


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a log file that one reader checks; `stop` 0 means the whole file."""

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
        witnessed = [end.number, *end.identity, end.end, end.running] if end else None
        plain = {name: getattr(self, name) for name in ("durable", "start", "stop", "running", "entries")}
        return {**plain, "record": self.record.to_json(), "witnessed": witnessed}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> FilePart:
        values = {**raw, "record": FileRecord.from_json(raw["record"])}
        if raw["witnessed"] is not None:
            number, timeline, incarnation, end, running = raw["witnessed"]
            identity = FileIdentity(TimelineId(timeline), Incarnation(incarnation))
            values["witnessed"] = FileEnd(FileNumber(number), identity, end, running)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Border:
    """A position between two blocks of a file, with the running checksum and the epoch before it."""

    at: int = 0
    running: int = 0
    epoch: Epoch = Epoch(0)  # of the block before it


class _Lost(Exception):
    """The headers do not lead from block to block."""


def cut_into_parts(
    view: memoryview, path: str, whole: FilePart, first: Epoch, last: Epoch, part_bytes: int, border: Border
) -> tuple[list[FilePart], Border]:
    """The parts that hold epochs `first` … `last`, and where the next reader continues. `border` lies before them."""
    end = _settled_end(view, whole)
    if end is None:
        return [whole], Border()
    try:
        return _Cutting(view, path, whole, end).cut(first, last, part_bytes, border)
    except _Lost:
        return [whole], Border()


def _settled_end(view: memoryview, whole: FilePart) -> FileEnd | None:
    """Where the blocks that count end, and their running checksum; None where that takes a whole scan."""
    record, witnessed = whole.record, whole.witnessed
    if record.state is FileState.ACTIVE:
        is_settled = witnessed is not None and not record.voided and _nothing_durable_at(view, whole, witnessed.end)
        return witnessed if is_settled else None
    if any(voided.start < record.end for voided in record.voided):
        return None
    return FileEnd(record.number, record.identity, record.end, record.running)


def _nothing_durable_at(view: memoryview, whole: FilePart, end: int) -> bool:
    """Whether nothing durable follows the witnessed end: an older witness may name less."""
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

    def _check(self, adjacent: Header | None) -> None:
        """A block just outside the wanted epochs must be good: else its header may have a wrong epoch or size."""
        if adjacent is not None and not isinstance(
            check_block(self._view, adjacent.offset, self._end.identity), Header
        ):
            raise _Lost

    def headers(self, border: Border) -> Iterator[Header]:
        epoch = border.epoch
        cursor = BlockCursor(self._view, self._end.identity, border.at, self._end.end, trust)
        for header in cursor:
            if not self._is_plausible(header, epoch):
                raise _Lost
            yield header
            epoch = max(header.epoch, epoch)
        if cursor.at < self._end.end:
            raise _Lost

    def _is_plausible(self, header: Header, epoch: Epoch) -> bool:
        if header.format > FORMAT_VERSION and isinstance(
            check_block(self._view, header.offset, self._end.identity), Header
        ):
            require_known_format(header, self._path)
        is_ordered = header.epoch >= epoch or header.kind == BlockKind.FILE_HEADER
        return is_ordered and header.format <= FORMAT_VERSION and header.end <= self._end.end

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
    return run_on(before, header.checksum)


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
    """One checked block of entries, decoded by `columns`."""

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
    """The blocks of a scanned part with entries of epochs `first` … `last`. Compacted files are read whole: they
    are chosen by their epoch."""
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
    """Parts of the log as one input of a merge. `on_damage` is called for damage; without it that is an error."""

    scan: Callable[[], FileScan]
    part: FilePart
    up_to_epoch: Epoch
    streams: Collection[StreamId]
    on_damage: Callable[[Damage], None] | None = None
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
                if self.on_damage is None:
                    raise
                self.on_damage(damage)
