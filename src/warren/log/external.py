"""A merge that is larger than memory: in pieces, each of which fits.

    inputs ──survey──► splitters (from real keys), clears
    inputs ──loads───► each sorted and merged in memory, then dealt to its key ranges ──► spills
    spills ──────────► one after another merged in memory ──► output, in key order

Every entry is written once and read twice more, however large the log: the cost is linear. A range that came out too
large all the same (skewed keys) is dealt again, with splitters of its own. A single key that was written very often
collapses when its load is merged; a range that holds one key only is folded, which needs memory for one entry.

Always true: a key falls into one range, and entries about a storage fall to where its first key would. All clears are
known before anything is dealt, so each range drops for itself what they cover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.ahead import ahead
from warren.log.gather import Positions
from warren.log.key_range import Bound
from warren.log.merge import survivors
from warren.log.plans import ENTRY_INDEX_BYTES, Input, memory_bytes_of, put_only, update_to_max
from warren.log.pool import Pool
from warren.log.sampling import Sample
from warren.log.spill import SpillFile
from warren.log.storage_entries import KEYED, NO_CLEARS, Clears
from warren.records.columns import EntryColumns

_RANGES_MAX = 256


@dataclass(frozen=True, slots=True)
class MergeResources:
    """Where and with what a merge works."""

    threads: Threads
    files: Files
    directory: str  # for spills; cleared first
    memory_bytes_max: int = 512 << 20  # beyond it the merge works in pieces on disk
    worker_count: int = 2


def external(
    inputs: Sequence[Input], is_bottom: bool, workshop: MergeResources, clears: Clears = NO_CLEARS
) -> Iterator[EntryColumns]:
    """All inputs merged, in key order. `clears` are those known from elsewhere."""
    return _External(workshop, is_bottom, clears).merged(inputs)


class _External:
    def __init__(self, workshop: MergeResources, is_bottom: bool, clears: Clears) -> None:
        self._workshop = workshop
        self._is_bottom = is_bottom
        self._clears = clears
        self._numbers = count()

    def merged(self, inputs: Sequence[Input]) -> Iterator[EntryColumns]:
        splitters = self._survey(inputs)
        spills = deque(self._new_spill() for _ in range(len(splitters) + 1))
        try:
            for load in self._loads(inputs):
                self._deal(Pool.of(load), splitters, spills)
            while spills:
                yield from self._of_range(spills[0], is_whole=not splitters)
                spills.popleft().remove()
        finally:
            for spill in spills:
                spill.remove()

    def _of_range(self, spill: SpillFile, is_whole: bool) -> Iterator[EntryColumns]:
        workshop = self._workshop
        if memory_bytes_of([spill]) <= workshop.memory_bytes_max:
            return put_only([spill], self._is_bottom, workshop.threads, workshop.worker_count, self._clears)
        if is_whole:
            return update_to_max([spill], self._is_bottom, self._clears)
        return self.merged([spill])

    def _survey(self, inputs: Sequence[Input]) -> list[Bound]:
        """Bounds between ranges that will each fit into half the memory. On the way all clears are noted."""
        wanted = min(2 * memory_bytes_of(inputs) // self._workshop.memory_bytes_max + 2, _RANGES_MAX)
        sample = Sample(sum(each.entries for each in inputs), wanted, self._workshop.memory_bytes_max // 8)
        for batch in (batch for each in inputs for batch in each.batches()):
            self._note_clears(batch)
            sample.look_at(batch)
        return sample.bounds()

    def _note_clears(self, batch: EntryColumns) -> None:
        if (not batch.kinds.is_constant or batch.kinds.base not in KEYED) and batch.count:
            found = Clears.of(Pool.of([batch]))
            self._clears = self._clears.and_also(found) if found.versions else self._clears

    def _new_spill(self) -> SpillFile:
        return SpillFile(self._workshop.files, join(self._workshop.directory, f"spill-{next(self._numbers):06}"))

    def _deal(self, load: Pool, splitters: list[Bound], spills: Iterable[SpillFile]) -> None:
        """Merge one load by itself and append to each spill its share."""
        threads, workers = self._workshop.threads, self._workshop.worker_count
        rows = survivors(load, self._clears, False, threads.together, workers)
        shares = zip(spills, partitions(load, rows, splitters), strict=True)
        pieces = [(spill, piece) for spill, share in shares for piece in load.pieces(share)]
        taken = ahead(threads, [partial(load.take, piece) for _, piece in pieces], workers)
        for (spill, _), columns in zip(pieces, taken, strict=True):
            spill.add(columns)

    def _loads(self, inputs: Sequence[Input]) -> Iterator[list[EntryColumns]]:
        """Batches until half the memory is used."""
        load, used = list[EntryColumns](), 0
        for each in inputs:
            for batch in each.batches():
                load.append(batch)
                used += batch.count * ENTRY_INDEX_BYTES
                used += 0 if each.is_mapped else 2 * (batch.keys.size_bytes + batch.values.size_bytes)
                if 2 * used >= self._workshop.memory_bytes_max:
                    yield load
                    load, used = [], 0
        if load:
            yield load


def partitions(pool: Pool, rows: Positions, splitters: Sequence[Bound]) -> list[Positions]:
    """The rows of each range; rows come in key order."""

    def bound_of(row: np.int64) -> Bound:
        return pool.storages.at(int(row)), pool.keys.at(int(row))

    edges = [bisect_left(rows, splitter, key=bound_of) for splitter in splitters]
    return np.split(rows, edges)
