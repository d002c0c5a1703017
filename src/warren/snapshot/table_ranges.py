"""How a stretch of the log is dealt to several makers of tables: a task for each key range.

    ranges     as many as there are workers, if each gets enough to do; more if one would not fit into a task's memory
    bounds     from keys of a few blocks (log/sampling)

Every task reads the whole stretch and keeps its own range, so ranges are few. Keys that are all alike are one range.

Headers are counted on the way, and every maker must have read as many entries (`check_all_read`). A block whose
checksum does not fit ends the reading of a file that is still being written, and a machine elsewhere may be shown an
older state of a file: neither may pass for the end of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from warren.base.errors import DiskFailure
from warren.base.ids import Epoch
from warren.files.protocol import Files
from warren.log.key_range import Bound, ranges_between
from warren.log.manifest import read_manifest
from warren.log.pins import check_not_gone
from warren.log.sampling import Sample
from warren.log.tail import LogTail
from warren.snapshot.table_tasks import TableResult, TableTask

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
class PartitionedRange:
    """The tasks of one stretch, and how many entries each of them must come by."""

    tasks: list[TableTask]
    entries: int

    def check_all_read(self, made: Sequence[TableResult]) -> None:
        task = self.tasks[0]
        for each in made:
            if each.entries_in != self.entries:
                what = f"{each.entries_in} of {self.entries} entries of epochs {task.after + 1}–{task.up_to} were read"
                hint = "run `warren log verify DIR/log`; on a cluster, see that every node is shown the newest files"
                raise DiskFailure(f"{what} in {task.directory}", hint)


def deal(files: Files, task: TableTask, sizes: RangeSizes) -> PartitionedRange:
    """A task about all keys as tasks about key ranges, which are everything together."""
    state = read_manifest(files, task.directory)
    check_not_gone(state, Epoch(task.after + 1), ())
    tail = LogTail(files, task.directory, lambda: state, task.after)
    tail.skip(task.after, dict(task.places))
    entries, size_bytes = tail.extent(task.up_to)
    ranges = ranges_between(_bounds(tail, task, range_count(entries, size_bytes, sizes)))
    dealt = [replace(task, key_range=each, share=1 / len(ranges)) for each in ranges]
    return PartitionedRange(dealt, entries)


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
        sample.look_at(batch)
    return sample.bounds()
