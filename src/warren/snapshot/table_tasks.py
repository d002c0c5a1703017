"""A stretch of the log as a table for the safe snapshot store: what is done elsewhere, so that the owner only ingests.

    task      epochs behind `after` up to `up_to`, one key range of them     plain data: any process that sees the
    answer    a table (sorted_tables), its figures, and where reading ended  directory can do it

The reflection's worker process makes one table of everything, Spark's tasks one for each key range. Each reads the log
through the same tail as the reflection's own thread, every block checked, and merges with the one merge rule, not at
the bottom: removes and clears stay, since what they are about may lie in the store.

A table is taken as a whole, so it fits only if all its entries are newer than the store and none is newer than the mark
it will come with. Epochs give such versions by themselves. Writers who give their own may not: the answer tells the
oldest version too, and whoever gets it compares (`fits`), and else applies these epochs entry by entry.

Memory: 96 bytes an entry of the range. Whoever makes a task says how much of the log it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from warren.base.ids import UINT64_MAX, Epoch, FileNumber
from warren.files.protocol import Files
from warren.log.key_range import KeyRange, RangeInput
from warren.log.manifest import read_manifest
from warren.log.merge import survivors
from warren.log.pins import check_not_gone
from warren.log.pool_parts import joined_pools
from warren.log.tail import LogTail
from warren.records.columns import EntryColumns
from warren.records.numbers import NumberColumn
from warren.snapshot.applied import Version
from warren.snapshot.rocksdb_options import SnapshotStoreSettings
from warren.snapshot.sorted_tables import TableFigures, write_table

NEWER_THAN_ALL: Version = (UINT64_MAX, UINT64_MAX)
EVERYTHING = KeyRange()
AS_USUAL = SnapshotStoreSettings()


@dataclass(frozen=True, slots=True)
class TableTask:
    directory: str  # of the log
    path: str  # of the table to be made, on the store's disk
    after: Epoch
    up_to: Epoch
    places: tuple[tuple[FileNumber, int], ...] = ()  # where to begin in files that were read before
    ends: tuple[tuple[FileNumber, int], ...] = ()  # where what is durable ends in active files
    key_range: KeyRange = EVERYTHING
    share: float = 1.0  # about how much of the entries lies in the range
    settings: SnapshotStoreSettings = AS_USUAL

    def to_json(self) -> dict[str, Any]:
        names = ("directory", "path", "after", "up_to", "places", "ends", "share")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "key_range": self.key_range.to_json(), "settings": asdict(self.settings)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TableTask:
        return cls(
            raw["directory"],
            raw["path"],
            Epoch(raw["after"]),
            Epoch(raw["up_to"]),
            tuple((FileNumber(number), place) for number, place in raw["places"]),
            tuple((FileNumber(number), end) for number, end in raw["ends"]),
            KeyRange.from_json(raw["key_range"]),
            raw["share"],
            SnapshotStoreSettings(**raw["settings"]),
        )


@dataclass(frozen=True, slots=True)
class TableResult:
    """The answer to a task."""

    figures: TableFigures
    entries_in: int  # read, of all ranges, as the headers of their blocks count them
    oldest: Version  # of those
    places: tuple[tuple[FileNumber, int], ...]  # where the next task may begin

    def fits(self, applied: Version, safe: Version) -> bool:
        """Can it be ingested into a store at `applied`, with the mark `safe`?"""
        return self.oldest > applied and self.figures.newest <= safe

    def to_json(self) -> dict[str, Any]:
        plain = {"entries_in": self.entries_in, "oldest": self.oldest, "places": self.places}
        return {**plain, "figures": self.figures.to_json()}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TableResult:
        major, minor = raw["oldest"]
        places = tuple((FileNumber(number), place) for number, place in raw["places"])
        return cls(TableFigures.from_json(raw["figures"]), raw["entries_in"], (major, minor), places)


class EpochRange:
    """The entries of a task, merged; what is known of them behind that."""

    def __init__(self, files: Files, task: TableTask) -> None:
        state = read_manifest(files, task.directory)
        check_not_gone(state, Epoch(task.after + 1), ())
        self._task = task
        self._tail = LogTail(files, task.directory, lambda: state, task.after, lambda: dict(task.ends))
        self._tail.skip(task.after, dict(task.places))
        self.entries = 0  # as an input of a merge: without records, which say nothing about keys
        self.oldest = NEWER_THAN_ALL

    def merged(self) -> Iterator[EntryColumns]:
        source = RangeInput(self, self._task.key_range, self._task.share)
        pools = list(source.pools())
        if pools:
            whole = joined_pools(pools)
            yield from map(whole.take, whole.pieces(survivors(whole, source.clears, is_bottom=False)))

    def made(self, figures: TableFigures) -> TableResult:
        return TableResult(figures, self._tail.entries_read, self.oldest, tuple(sorted(self._tail.places.items())))

    # As an input of a merge.

    is_mapped = True

    @property
    def size_bytes(self) -> int:
        return 0

    def batches(self) -> Iterator[EntryColumns]:
        for block in self._tail.read(self._task.up_to):
            self.entries += block.columns.count
            self.oldest = min(self.oldest, lowest_version(block.columns))
            yield block.columns


def make_table(files: Files, task: TableTask) -> TableResult:
    stretch = EpochRange(files, task)
    return stretch.made(write_table(task.path, stretch.merged(), task.settings))


def lowest_version(batch: EntryColumns) -> Version:
    """Of a batch in any order."""
    majors, minors = batch.majors, batch.minors
    if majors.is_constant:
        return majors.base, _least(minors)
    least = _least(majors)
    return least, int(minors.array()[majors.array() == least].min())


def _least(numbers: NumberColumn) -> int:
    if numbers.deltas is None:
        return min(numbers.at(0), numbers.at(numbers.count - 1))
    return numbers.base + int(numbers.deltas.min())
