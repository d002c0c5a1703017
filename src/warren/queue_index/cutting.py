"""Cutting what is published together into runs that fit a row.

    contents   ▪▪▪▪▪▪▪▪▪▪▪█▪▪▪▪▪▪▪▪▪▪▪▪▪▪          ▪ small   █ from the limit for embedding on
    cuts       [─────────)│[──────)[──────)         never mixed, never too many, never too many bytes

A run's contents lie in its row or all of them in the message store, so small and large ones are never in one run. Cuts
are found by searching sums of sizes: a step for each run, none for each message.

Always true: cuts follow one another, each holds a message, and together they are everything.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warren.base.runs import Sizes
from warren.queue_index.format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX

Cut = tuple[int, int]  # start, stop


def cuts(
    sizes: Sizes,
    count: int,
    embed_below: int | None = None,
    bytes_max: int = RUN_HEAP_BYTES_MAX,
    count_max: int = RUN_COUNT_MAX,
) -> list[Cut]:
    """Where to cut `count` messages of these sizes. A single one may be larger than `bytes_max`."""
    if isinstance(sizes, int):
        step = min(count_max, max(1, bytes_max // sizes) if sizes else count_max)
        return [(start, min(start + step, count)) for start in range(0, count, step)]
    edges = [0, *_changes(sizes, embed_below), count] if count else []
    ends = np.cumsum(sizes, dtype=np.int64)
    return [cut for start, stop in pairwise(edges) for cut in _within(ends, start, stop, bytes_max, count_max)]


def _changes(sizes: Sizes, embed_below: int | None) -> list[int]:
    """Where small ones follow large ones, or the other way round."""
    if embed_below is None:
        return []
    is_large = np.asarray(sizes) >= embed_below
    return (np.flatnonzero(is_large[1:] != is_large[:-1]) + 1).tolist()


def _within(ends: npt.NDArray[np.int64], start: int, stop: int, bytes_max: int, count_max: int) -> list[Cut]:
    found = []
    while start < stop:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fitting, start + 1), start + count_max, stop)
        found.append((start, end))
        start = end
    return found
