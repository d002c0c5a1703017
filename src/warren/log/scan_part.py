"""Checking and reading a part of a log file by itself (log/file_parts cuts it), with `scan`'s own walk.

Always true: every block of a part is checked before any entry of it is shown, with the verdicts and the damage report
of a whole scan. Beside a running store a file may be renamed at any moment, so it is known by its own header, not by
its name. Not here: what becomes of damage, which epochs are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, FileNumber, Lsn, StreamId, lsn_of
from warren.files.protocol import Files, join
from warren.log.file_header import FileKind
from warren.log.file_lookup import open_by_name
from warren.log.file_parts import FilePart
from warren.log.file_record import FileState, Voided
from warren.log.scan_verdict import FileScan, Problem, ScanVerdict
from warren.log.scan_walk import WITH_ENTRIES, ScanWalk, trusted
from warren.records.block import Header
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.numbers import NumberColumn


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
