"""Sorting the entries of several inputs into one sequence of batches, merged, in key order.

    put_only        in memory, everything at once, several threads            plans
    update_to_max   in memory, one input after another, one thread            plans
    external        in pieces on disk, each piece by put_only                 external

`sorted_merge` takes put_only where it fits into the memory it was given, else external; update_to_max is what external
falls back to, and the plan to choose where few keys are written very often. All give the same.

The inputs are an explicit list: a start-up snapshot takes all files, an online compaction some. The working directory
is cleared first, whatever an earlier merge left there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warren.log.external import MergeResources, external
from warren.log.plans import Input, memory_bytes_of, put_only, update_to_max
from warren.log.spill import clear_directory
from warren.records.columns import EntryColumns

__all__ = ["Input", "MergeResources", "external", "memory_bytes_of", "put_only", "sorted_merge", "update_to_max"]


def sorted_merge(inputs: Sequence[Input], is_bottom: bool, workshop: MergeResources) -> Iterator[EntryColumns]:
    """All inputs merged, in key order, within the memory of the workshop."""
    clear_directory(workshop.files, workshop.directory)
    if memory_bytes_of(inputs) <= workshop.memory_bytes_max:
        return put_only(inputs, is_bottom, workshop.threads, workshop.worker_count)
    return external(inputs, is_bottom, workshop)
