"""The two plans of a merge in memory: order everything at once, or fold one input after another.

    put_only        every entry of every input is taken as it comes, then ordered once by key and version. Key ranges
                    are ordered, and the output is gathered, by several threads side by side
    update_to_max   one input after another: an entry is kept only if it is newer than what is held for its key. One
                    thread; memory for the distinct keys, however often each was written

Both are those of the seed, rid of its sort database: the order of the first is what version-prefixed keys gave, the
fold of the second what get-compare-put gave. Both rest on `merge`; a differential test holds them equal.

Always true: an input is an explicit argument (nobody looks into a directory), its batches know their epochs, and it may
be read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

from warren.base.threads import Threads
from warren.log.ahead import ahead
from warren.log.merge import merge, survivors
from warren.log.pool import Pool, no_entries
from warren.log.storage_entries import NO_CLEARS, Clears
from warren.records.columns import EntryColumns

ENTRY_INDEX_BYTES = 96  # what put_only keeps in memory for each entry, at its peak
_FOLD_COST_MIN = 32 << 20


class Input(Protocol):
    """Entries to be merged: a scanned log file, a compacted file, a spill."""

    @property
    def entries(self) -> int:
        """About how many entries there are."""
        ...

    @property
    def size_bytes(self) -> int:
        """About how many bytes their keys and values have."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether batches are views of a mapped file, so that holding on to them costs no memory of ours."""
        ...

    def batches(self) -> Iterator[EntryColumns]:
        """All entries, with their epochs; may be asked for more than once."""
        ...


def memory_bytes_of(inputs: Sequence[Input]) -> int:
    """What put_only would need for these inputs: an index, and room for what is not mapped, which may be copied."""
    return sum(each.entries * ENTRY_INDEX_BYTES + (0 if each.is_mapped else 2 * each.size_bytes) for each in inputs)


def put_only(
    inputs: Sequence[Input], is_bottom: bool, threads: Threads, worker_count: int = 2, clears: Clears = NO_CLEARS
) -> Iterator[EntryColumns]:
    """Everything at once. `clears` are those known from elsewhere."""
    pool = Pool.of(_read_together(inputs, threads, worker_count))
    clears = clears.and_also(Clears.of(pool))
    rows = survivors(pool, clears, is_bottom, threads.together, worker_count)
    return ahead(threads, [partial(pool.take, piece) for piece in pool.pieces(rows)], worker_count)


def update_to_max(inputs: Sequence[Input], is_bottom: bool, clears: Clears = NO_CLEARS) -> Iterator[EntryColumns]:
    """One after another, newer over older."""
    held, waiting, waiting_cost = no_entries(), list[EntryColumns](), 0
    for batch in (batch for each in inputs for batch in each.batches()):
        waiting.append(batch)
        waiting_cost += _cost_of(batch)
        if waiting_cost >= max(_cost_of(held), _FOLD_COST_MIN):  # so that an entry is folded a few times only
            held, waiting, waiting_cost = merge([held, *waiting], is_bottom=False, clears=clears), [], 0
    pool = Pool.of([held, *waiting])
    yield from map(pool.take, pool.pieces(survivors(pool, clears.and_also(Clears.of(pool)), is_bottom)))


def _cost_of(batch: EntryColumns) -> int:
    return batch.keys.size_bytes + batch.values.size_bytes + ENTRY_INDEX_BYTES * batch.count


def _read_together(inputs: Sequence[Input], threads: Threads, worker_count: int) -> list[EntryColumns]:
    """The batches of all inputs, in order; reading them verifies them, which is work for several threads."""
    found: list[list[EntryColumns]] = [[] for _ in inputs]

    def read(worker: int) -> None:
        for number in range(worker, len(inputs), worker_count):
            found[number] = list(inputs[number].batches())

    if inputs:
        threads.together([partial(read, worker) for worker in range(min(worker_count, len(inputs)))])
    return [batch for batches in found for batch in batches]
