"""Key ranges of a compaction: how it is partitioned into tasks, and the two kinds of task.

    ranges     one for every so many entries, so that each fits into a task's memory; as many as there are workers
    bounds     from a few blocks of each input: seek into the file, find the next good block, take some of its keys
    passes     one if there are few ranges, else inputs are first partitioned into runs

Planning reads a few blocks only. Inexact bounds make ranges uneven, and nothing else.

Tasks and their results are plain data, so that they run in any process which sees the directory, for instance Spark's
executors (pipeline/jobs/compact):

    merge    one key range of all inputs          ──▶  one sorted file, synced; the file of that range
    deal     all key ranges of some inputs, which ──▶  one run: a sorted file with a part for each range
             fit into memory

A few ranges are merged directly from the inputs: each task reads everything and selects its own rows. That reads all
keys once per range, so for many ranges the inputs are first partitioned into runs, each entry once, and a range is then
merged from its part of every run: two passes, whatever the size, so that the cost stays linear.

A task writes below `home` only, under a name that no other attempt has. Its result is a proposal's figures. Memory: 96
bytes an entry of a range or load. A range that is larger nevertheless (a misleading sample, a key that was written very
often) is merged in pieces on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.compaction.handover import CompactionJob
from warren.log.compaction.jobs import OutputSlot, write_sorted
from warren.log.file_record import FileHeader, FileKind, FileRecord
from warren.log.log_files import open_by_name
from warren.log.merge.external import (
    ENTRY_INDEX_BYTES,
    Bound,
    Input,
    KeyRange,
    MergeResources,
    RangeInput,
    Sample,
    SpillFile,
    SpillPart,
    external,
    partitions,
    ranges_between,
)
from warren.log.merge.merge import NO_CLEARS, Clears, survivors
from warren.log.merge.pool import Pool, joined_pools
from warren.log.read.blocks import EVERY_EPOCH, WITH_ENTRIES, FileScan, next_good
from warren.log.read.parts import Border, FilePart, PartInput, cut_into_parts, scan_part
from warren.log.read.scan import refuse_damage
from warren.log.settings import KV_STREAM
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries

SPILLS = "spills"


@dataclass(frozen=True, slots=True)
class PartitionTask:
    directory: str
    home: str
    parts: tuple[FilePart, ...]
    epoch: Epoch
    bounds: tuple[Bound, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "home": self.home,
            "parts": [part.to_json() for part in self.parts],
            "epoch": self.epoch,
            "bounds": [[storage, key.hex()] for storage, key in self.bounds],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PartitionTask:
        parts = tuple(map(FilePart.from_json, raw["parts"]))
        bounds = tuple((storage, bytes.fromhex(key)) for storage, key in raw["bounds"])
        return cls(raw["directory"], raw["home"], parts, Epoch(raw["epoch"]), bounds)


@dataclass(frozen=True, slots=True)
class MergeTask:
    directory: str
    home: str
    place: OutputSlot
    key_range: KeyRange
    share: float  # about how much of the parts lies in the range
    epoch: Epoch
    created_ns: int
    memory_bytes: int
    parts: tuple[FilePart, ...] = ()  # one pass: of the inputs …
    runs: tuple[tuple[str, int, int, int], ...] = ()  # … two: name, start, stop and entries of the range in each run
    clears: Clears = NO_CLEARS  # those found while dealing

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "home": self.home,
            "place": [self.place.number, *self.place.identity],
            "key_range": self.key_range.to_json(),
            "share": self.share,
            "epoch": self.epoch,
            "created_ns": self.created_ns,
            "memory_bytes": self.memory_bytes,
            "parts": [part.to_json() for part in self.parts],
            "runs": [list(run) for run in self.runs],
            "clears": clears_to_json(self.clears),
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> MergeTask:
        number, timeline, incarnation = raw["place"]
        values = {
            **raw,
            "place": OutputSlot(FileNumber(number), FileIdentity(TimelineId(timeline), Incarnation(incarnation))),
            "key_range": KeyRange.from_json(raw["key_range"]),
            "parts": tuple(map(FilePart.from_json, raw["parts"])),
            "runs": tuple((name, start, stop, entries) for name, start, stop, entries in raw["runs"]),
            "clears": clears_from_json(raw["clears"]),
        }
        return cls(**values)


def clears_to_json(clears: Clears) -> list[list[int]]:
    return [[storage, *version] for storage, version in sorted(clears.versions.items())]


def clears_from_json(raw: Sequence[Sequence[int]]) -> Clears:
    return Clears({storage: (major, minor) for storage, major, minor in raw})


def deal(files: Files, task: PartitionTask, name: str) -> dict[str, Any]:
    """Sort a load and write it as a run called `name`; where in it each range lies, and the clears that were found."""
    inputs = _inputs(files, task.directory, task.parts, task.epoch)
    load = Pool.of([batch for each in inputs for batch in each.batches()])
    clears = Clears.of(load)
    run = SpillFile(files, join(task.home, name))
    parts: list[list[int]] = []
    try:
        for share in partitions(load, survivors(load, clears, False), task.bounds):
            start, entries = run.size_bytes, run.entries
            for piece in load.pieces(share):
                run.add(load.take(piece))
            parts.append([start, run.size_bytes, run.entries - entries])
    finally:
        run.close()
    return {"name": name, "parts": parts, "clears": clears_to_json(clears), "entries_in": load.count}


def merge_range(files: Files, threads: Threads, task: MergeTask, name: str) -> dict[str, Any]:
    """Merge a range into a sorted file called `name`; its figures."""
    header = FileHeader(task.place.number, ChannelId(0), FileKind.COMPACTED, 0, task.created_ns)
    path = join(task.home, name)
    batches = _merged(files, threads, task, join(task.home, f"{name}.{SPILLS}"))
    figures = write_sorted(files, path, header, task.place.identity, task.epoch, batches)
    return {"name": name, "number": task.place.number, **figures}


def _merged(files: Files, threads: Threads, task: MergeTask, spills: str) -> Iterator[EntryColumns]:
    sources: list[RangeInput] = [
        RangeInput(each, task.key_range, task.share) for each in _inputs(files, task.directory, task.parts, task.epoch)
    ]
    sources += [RangeInput(SpillPart(files, join(task.home, run[0]), *run[1:]), KeyRange(), 1.0) for run in task.runs]
    pools: list[Pool] = []
    room = task.memory_bytes // ENTRY_INDEX_BYTES
    is_small = True
    for source in sources:
        for pool in source.pools():
            room -= pool.count
            is_small = is_small and room >= 0
            pools = [*pools, pool] if is_small else []
    clears = task.clears
    for source in sources:
        clears = clears.and_also(source.clears)
    if not is_small:
        workshop = MergeResources(threads, files, spills, task.memory_bytes, 1)
        files.make_directories(spills)
        yield from external(sources, True, workshop, clears)
        return
    whole = joined_pools(pools)
    yield from map(whole.take, whole.pieces(survivors(whole, clears, True)))


def _inputs(files: Files, directory: str, parts: Sequence[FilePart], epoch: Epoch) -> list[Input]:
    return [PartInput(_Once(partial(_scanned, files, directory, part)), part, epoch, (KV_STREAM,)) for part in parts]


def _scanned(files: Files, directory: str, part: FilePart) -> FileScan:
    scan = scan_part(files, directory, part)
    refuse_damage(scan)
    return scan


class _Once:
    """A scan, run at its first use."""

    def __init__(self, scan: partial[FileScan]) -> None:
        self._scan = scan
        self._result: FileScan | None = None

    def __call__(self) -> FileScan:
        if self._result is None:
            self._result = self._scan()
        return self._result


_BLOCKS_PER_RANGE = 16
_KEYS_PER_RANGE = 1024
_SAMPLE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RangePlanSizes:
    """How large a task may be."""

    workers: int = 2  # how many tasks run at once
    entries_per_range: int = 5_000_000
    entries_worth_a_task: int = 100_000
    ranges_at_once_max: int = 6  # more of them are made in two passes
    memory_bytes: int = 768 << 20  # of one task; above it a merge works in pieces on disk


class RangePlan:
    """The tasks of one order. First `deals`, if there are any, then `merges` of what they answered."""

    def __init__(self, files: Files, order: CompactionJob, sizes: RangePlanSizes) -> None:
        self._files = files
        self._order = order
        self._sizes = sizes
        self._bounds = self._choose_bounds(order, sizes)
        self.ranges: list[KeyRange] = ranges_between(self._bounds)

    def deals(self) -> list[PartitionTask]:
        """One task for every load of the inputs; none, if one pass will do."""
        if len(self.ranges) <= self._sizes.ranges_at_once_max:
            return []
        order = self._order
        return [
            PartitionTask(order.directory, order.home, tuple(load), order.epoch, tuple(self._bounds))
            for load in self._loads()
        ]

    def merges(self, runs: Sequence[dict[str, Any]]) -> list[MergeTask]:
        """One task for every range: of the runs, or of the inputs themselves if nothing was dealt."""
        order, clears = self._order, NO_CLEARS
        for run in runs:
            clears = clears.and_also(clears_from_json(run["clears"]))
        parts = () if runs else tuple(FilePart(r, order.epoch, entries=r.entries) for r in order.inputs)
        return [
            MergeTask(
                order.directory,
                order.home,
                order.places[number],
                key_range,
                1 / len(self.ranges),
                order.epoch,
                order.created_ns,
                self._sizes.memory_bytes,
                parts,
                tuple((run["name"], *run["parts"][number]) for run in runs),
                clears,
            )
            for number, key_range in enumerate(self.ranges)
        ]

    def _choose_bounds(self, order: CompactionJob, sizes: RangePlanSizes) -> list[Bound]:
        entries = sum(record.entries for record in order.inputs)
        wanted = max(-(-entries // sizes.entries_per_range), min(sizes.workers, entries // sizes.entries_worth_a_task))
        wanted = min(-(-wanted // sizes.workers) * sizes.workers if wanted > 1 else 1, len(order.places))
        if wanted < 2:
            return []
        batches = list(sampled_batches(self._files, order.directory, order.inputs, wanted * _BLOCKS_PER_RANGE))
        sample = Sample(sum(batch.count for batch in batches), wanted, _SAMPLE_BYTES, _KEYS_PER_RANGE)
        for batch in batches:
            sample.add(batch)
        return sample.bounds()

    def _loads(self) -> Iterator[list[FilePart]]:
        """Parts of the inputs, as many at a time as a task has memory for."""
        load, entries = list[FilePart](), 0
        for record in self._order.inputs:
            for part in self._parts(record):
                if load and entries + part.entries > self._sizes.entries_per_range:
                    yield load
                    load, entries = [], 0
                load.append(part)
                entries += part.entries
        if load:
            yield load

    def _parts(self, record: FileRecord) -> list[FilePart]:
        whole = FilePart(record, self._order.epoch, entries=record.entries)
        if record.entries <= self._sizes.entries_per_range:
            return [whole]
        view, path = open_by_name(self._files, self._order.directory, record).map()
        part_bytes = record.end * self._sizes.entries_per_range // (2 * record.entries) + 1
        return cut_into_parts(view, path, whole, Epoch(0), EVERY_EPOCH, part_bytes, Border())[0]


def sampled_batches(files: Files, directory: str, records: Sequence[FileRecord], blocks: int) -> Iterator[EntryColumns]:
    """About so many blocks of key-values, spread over the files by their size; each of them is checked."""
    total = sum(record.end for record in records)
    for record in records:
        view, _ = open_by_name(files, directory, record).map()
        valid = view[: record.end]
        wanted = max(1, round(blocks * record.end / max(total, 1)))
        for number in range(wanted):
            header = next_good(valid, record.identity, number * record.end // wanted)
            while header is not None and (header.kind not in WITH_ENTRIES or header.stream != KV_STREAM):
                header = next_good(valid, record.identity, header.end)
            if header is None or any(voided.start <= header.offset < voided.end for voided in record.voided):
                continue
            try:
                yield read_entries(view, header)
            except (Damage, Refused):
                continue  # the task that merges this file says what is wrong with it
