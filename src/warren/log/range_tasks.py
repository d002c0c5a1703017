"""The two kinds of task that a compaction is dealt to. Both are plain data, and their answers too, so that they run in
any process which sees the directory: Spark's executors (pipeline/jobs/compact), or whoever else.

    merge    one key range of all inputs          ──▶  one sorted file, synced; the file of that range
    deal     all key ranges of some inputs, which ──▶  one run: a sorted file with a part for each range
             fit into memory

A few ranges are merged straight from the inputs, of which each task reads everything and keeps its own. That reads all
keys once per range, so for many ranges the inputs are first dealt into runs, each entry once, and a range is then
merged from its part of every run: two passes, whatever the size, so that the cost stays linear.

A task writes below `home` only, under a name that no other attempt has. What it answers is a proposal's figures.
Memory: 96 bytes an entry of a range or load. A range that is larger all the same (a sample misled, a key was written
very often) is merged in pieces on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.entries import KV_STREAM
from warren.log.external import MergeResources, external, partitions
from warren.log.file_header import FileHeader, FileKind
from warren.log.file_parts import FilePart
from warren.log.jobs import write_sorted
from warren.log.key_range import Bound, KeyRange, RangeInput
from warren.log.merge import survivors
from warren.log.outputs import OutputSlot
from warren.log.plans import ENTRY_INDEX_BYTES, Input
from warren.log.pool import Pool
from warren.log.pool_parts import joined_pools
from warren.log.scan import refuse_damage
from warren.log.scan_part import PartInput, scan_part
from warren.log.scan_verdict import FileScan
from warren.log.spill import SpillFile, SpillPart
from warren.log.storage_entries import NO_CLEARS, Clears
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns

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
        made = {
            **raw,
            "place": OutputSlot(FileNumber(number), FileIdentity(TimelineId(timeline), Incarnation(incarnation))),
            "key_range": KeyRange.from_json(raw["key_range"]),
            "parts": tuple(map(FilePart.from_json, raw["parts"])),
            "runs": tuple((name, start, stop, entries) for name, start, stop, entries in raw["runs"]),
            "clears": clears_from_json(raw["clears"]),
        }
        return cls(**made)


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
    """A scan, made when it is first asked for."""

    def __init__(self, scan: partial[FileScan]) -> None:
        self._scan = scan
        self._made: FileScan | None = None

    def __call__(self) -> FileScan:
        if self._made is None:
            self._made = self._scan()
        return self._made
