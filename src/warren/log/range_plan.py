"""How a compaction is dealt to tasks: into how many key ranges, where they are cut, in one pass or two.

    ranges     one for every so many entries, so that each fits into a task's memory; as many as there are workers
    bounds     from a few blocks of each input: jump into the file, go on to the next good block, take some of its keys
    passes     one if there are few ranges, else inputs are first dealt into runs (log/range_tasks)

Planning touches a few blocks only. Bounds that are off make ranges uneven, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch
from warren.files.protocol import Files
from warren.log.entries import KV_STREAM
from warren.log.file_lookup import open_by_name
from warren.log.file_parts import Border, FilePart, cut_into_parts
from warren.log.file_record import FileRecord
from warren.log.handover import CompactionJob
from warren.log.key_range import Bound, KeyRange, ranges_between
from warren.log.range_tasks import MergeTask, PartitionTask, clears_from_json
from warren.log.sampling import Sample
from warren.log.scan_walk import EVERY_EPOCH, WITH_ENTRIES
from warren.log.storage_entries import NO_CLEARS
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.walk import next_good

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
            sample.look_at(batch)
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
