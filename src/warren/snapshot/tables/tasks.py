"""Table tasks: an epoch range of the log as RocksDB tables for the safe snapshot store, which the owner only ingests.

    TableTask      epochs after `after` up to `up_to`, one key range of them      plain data: any process that sees the
    TableResult    a table, its figures, and where reading ended                  directory can run it
    owner          ingests all tables of one mark, with a small table of its own: mark, counters, keys removed by clears

The reflection's worker process makes one table of everything, Spark's tasks one per key range. Each reads the log
through the same tail as the reflection thread, every block checked, and merges with the one merge rule, not at the
bottom: removes and clears stay, since the store may hold what they remove.

A table is ingested as a whole, so it fits only if all its entries are newer than the store and none is newer than the
mark it comes with. Versions that follow epochs always do. A writer that gives its own versions may break that: the
result has the oldest version too, the owner compares (`fits`), and otherwise applies these epochs entry by entry.

    ranges     as many as there are workers, if each gets enough to do; more if one would exceed a task's memory
    bounds     from keys of a few blocks (log/merge/external)

Every task reads the whole epoch range and keeps its own key range, so ranges are few. Equal keys are one range. Headers
are counted, and every task must have read as many entries (`check_all_read`): a block with a wrong checksum ends the
reading of a file that is still being written, and another machine may see an older state of a file; neither may pass
for the end of the log.

`write_table` needs only the library, so a Spark task or a worker process can call it. Tables are on the store's disk,
since they are linked into the store, not copied. A put is a row, a remove a tombstone of RocksDB. Entries about
storages go after the rows (row_format). A clear in a table removes nothing, since rocksdict's writer has no range
deletions: the figures name the cleared storages, and the owner's table removes their rows in the store, key by key. It
comes first in the one step, so that rows which tables put into a cleared storage stay.

Invariant: the ingest is atomic and on disk when it returns. A crash before it leaves the tables to be ingested again;
after it the mark says that it was done. Memory: 96 bytes per entry of the range; the task sets the size of the range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rocksdict import SstFileWriter

from warren.base.errors import DiskFailure
from warren.base.ids import UINT64_MAX, Epoch, FileNumber
from warren.files.local import LocalFiles
from warren.files.protocol import Files
from warren.log.manifest import read_manifest
from warren.log.merge.external import Bound, KeyRange, RangeInput, Sample, ranges_between
from warren.log.merge.merge import ABOUT_STORAGES, survivors
from warren.log.merge.pool import joined_pools
from warren.log.read.tail import LogTail
from warren.log.retention import check_not_gone
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns, NumberColumn
from warren.snapshot.rocksdb.options import SnapshotStoreSettings, rocksdb_calls, table_options
from warren.snapshot.rocksdb.row_format import COUNTER, MARK_KEY, StoreMark, about_key, mark_bytes, row_keys
from warren.snapshot.rocksdb.write_batch import check_entries, newest_version, runs_of, values_of
from warren.snapshot.store import NO_VERSION, Version
from warren.workers.process import Message
from warren.workers.tasks import Progress

TABLE_TASK = "warren.snapshot.tables.tasks:table_task"

OWNER_TABLE = "owner.table."  # followed by a number
_ANY_VERSION = ((1 << 64) - 1, (1 << 64) - 1)


@dataclass(slots=True)
class TableFigures:
    """The contents of a table in numbers. Without entries there is no file, and nothing to ingest."""

    path: str
    puts: int = 0
    removes: int = 0
    newest: Version = NO_VERSION  # of all its entries
    cleared: set[int] = field(default_factory=set)  # storages whose older rows are to be removed

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "cleared": sorted(self.cleared)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TableFigures:
        major, minor = raw["newest"]
        return cls(raw["path"], raw["puts"], raw["removes"], (major, minor), set(raw["cleared"]))

    @property
    def has_file(self) -> bool:
        return bool(self.puts or self.removes or self.newest > NO_VERSION)


def write_table(
    path: str, batches: Iterable[EntryColumns], settings: SnapshotStoreSettings | None = None
) -> TableFigures:
    """Write entries, one for each key, sorted by storage and key, to a new file at `path`."""
    figures = TableFigures(path)
    table = _Table(path, settings or SnapshotStoreSettings())
    about: dict[bytes, bytes | None] = {}
    for batch in batches:
        check_entries([batch], _ANY_VERSION)
        for run in runs_of(batch):
            figures.newest = max(figures.newest, newest_version(run))
            if run.kinds.at(0) in ABOUT_STORAGES:
                _note(about, run, figures)
            else:
                table.add(run, figures)
    for key in sorted(about):
        table.put(key, about[key])
    table.finish()
    return figures


def write_owner_table(
    path: str,
    mark: StoreMark,
    counters: Mapping[bytes, bytes | None],
    removed_keys: Iterable[bytes],
    settings: SnapshotStoreSettings,
) -> None:
    """A table of mark, counters, and removed keys (RocksDB's, in order)."""
    table = _Table(path, settings)
    table.put(MARK_KEY, mark_bytes(mark))
    for name in sorted(counters):
        table.put(COUNTER + name, counters[name])
    for key in removed_keys:
        table.put(key, None)
    table.finish()


class _Table:
    """A file that is created with the first entry: RocksDB writes none without entries."""

    def __init__(self, path: str, settings: SnapshotStoreSettings) -> None:
        self._path = path
        self._settings = settings
        self._writer: SstFileWriter | None = None

    def add(self, run: EntryColumns, figures: TableFigures) -> None:
        """Puts and removes."""
        writer, keys, values = self._opened(), row_keys(run.storages, run.keys), values_of(run)
        with rocksdb_calls(f"write the table {self._path}"):
            if run.kinds.is_constant and run.kinds.base == EntryKind.PUT:
                deque(map(writer.__setitem__, keys, values), maxlen=0)
                figures.puts += run.count
                return
            for kind, key, value in zip(run.kinds.array().tolist(), keys, values, strict=True):
                if kind == EntryKind.PUT:
                    writer[key] = value
                    figures.puts += 1
                else:
                    del writer[key]
                    figures.removes += 1

    def put(self, key: bytes, value: bytes | None) -> None:
        writer = self._opened()
        with rocksdb_calls(f"write the table {self._path}"):
            if value is None:
                del writer[key]
            else:
                writer[key] = value

    def finish(self) -> None:
        if self._writer is not None:
            with rocksdb_calls(f"write the table {self._path}"):
                self._writer.finish()

    def _opened(self) -> SstFileWriter:
        if self._writer is None:
            with rocksdb_calls(f"write the table {self._path}"):
                self._writer = SstFileWriter(table_options(self._settings))
                self._writer.open(self._path)
        return self._writer


def _note(about: dict[bytes, bytes | None], entry: EntryColumns, figures: TableFigures) -> None:
    """One entry about a storage."""
    storage, kind = entry.storages.at(0), entry.kinds.at(0)
    about[about_key(storage, kind)] = values_of(entry)[0]
    if kind in CLEARING:
        figures.cleared.add(storage)
    if kind == EntryKind.REMOVE_STORAGE:  # a newer addition may precede it here; all of the store are older
        about.setdefault(about_key(storage, EntryKind.ADD_STORAGE), None)


NEWER_THAN_ALL: Version = (UINT64_MAX, UINT64_MAX)
EVERYTHING = KeyRange()
DEFAULT_SETTINGS = SnapshotStoreSettings()


@dataclass(frozen=True, slots=True)
class TableTask:
    directory: str  # of the log
    path: str  # of the new table, on the store's disk
    after: Epoch
    up_to: Epoch
    places: tuple[tuple[FileNumber, int], ...] = ()  # start positions in files that were read before
    ends: tuple[tuple[FileNumber, int], ...] = ()  # end of the durable part of active files
    key_range: KeyRange = EVERYTHING
    share: float = 1.0  # estimated share of the entries in the range
    settings: SnapshotStoreSettings = DEFAULT_SETTINGS

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
    """The result of a task."""

    figures: TableFigures
    entries_in: int  # read, of all ranges, counted by block headers
    oldest: Version  # of those
    places: tuple[tuple[FileNumber, int], ...]  # start positions of the next task

    def fits(self, applied: Version, safe: Version) -> bool:
        """Whether it can be ingested into a store at `applied`, with the mark `safe`."""
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
    """The entries of a task, merged; figures of them afterwards."""

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

    def result(self, figures: TableFigures) -> TableResult:
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


def table_task(request: Message, progress: Progress) -> Message:
    """`make_table` in a worker process."""
    return make_table(LocalFiles(), TableTask.from_json(request)).to_json()


def make_table(files: Files, task: TableTask) -> TableResult:
    epoch_range = EpochRange(files, task)
    return epoch_range.result(write_table(task.path, epoch_range.merged(), task.settings))


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


_BLOCKS_PER_RANGE = 16
_KEYS_PER_RANGE = 1024
_SAMPLE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RangeSizes:
    """How large a task may be."""

    workers: int = 2  # how many tasks run at once
    entries_max: int = 4_000_000
    bytes_max: int = 512 << 20
    entries_worth_a_task: int = 20_000
    ranges_max: int = 64


@dataclass(frozen=True, slots=True)
class PartitionedTask:
    """One task per key range of an epoch range, and the number of entries that each must read."""

    tasks: list[TableTask]
    entries: int

    def check_all_read(self, results: Sequence[TableResult]) -> None:
        task = self.tasks[0]
        for each in results:
            if each.entries_in != self.entries:
                what = f"{each.entries_in} of {self.entries} entries of epochs {task.after + 1}–{task.up_to} were read"
                hint = "run `warren log verify DIR/log`; on a cluster, see that every node is shown the newest files"
                raise DiskFailure(f"{what} in {task.directory}", hint)


def partition(files: Files, task: TableTask, sizes: RangeSizes) -> PartitionedTask:
    """Split a task for all keys into tasks for key ranges that cover all keys."""
    state = read_manifest(files, task.directory)
    check_not_gone(state, Epoch(task.after + 1), ())
    tail = LogTail(files, task.directory, lambda: state, task.after)
    tail.skip(task.after, dict(task.places))
    entries, size_bytes = tail.extent(task.up_to)
    ranges = ranges_between(_bounds(tail, task, range_count(entries, size_bytes, sizes)))
    partitions = [replace(task, key_range=each, share=1 / len(ranges)) for each in ranges]
    return PartitionedTask(partitions, entries)


def range_count(entries: int, size_bytes: int, sizes: RangeSizes) -> int:
    needed = max(-(-entries // sizes.entries_max), -(-size_bytes // sizes.bytes_max))
    worth = min(sizes.workers, entries // sizes.entries_worth_a_task)
    wanted = max(needed, worth, 1)
    if wanted > 1:  # all workers end at about the same time
        wanted = -(-wanted // sizes.workers) * sizes.workers
    return min(wanted, sizes.ranges_max)


def _bounds(tail: LogTail, task: TableTask, ranges: int) -> list[Bound]:
    if ranges < 2:
        return []
    batches = [block.columns for block in tail.sampled(task.up_to, ranges * _BLOCKS_PER_RANGE)]
    sample = Sample(sum(batch.count for batch in batches), ranges, _SAMPLE_BYTES, _KEYS_PER_RANGE)
    for batch in batches:
        sample.add(batch)
    return sample.bounds()
