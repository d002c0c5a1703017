"""Which heaps a number of texts lie in: views of one mapped file are places in one heap, the file itself.

numpy keeps for every view what it is a view of; following that to its end finds the file's mapping (or whatever array
the bytes were made in), and the difference of two addresses is the place in it. Nothing is copied, unless the heaps are
too many to be numbered, or one is too large: then windows of it count as heaps of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warren.records.columns import Heap, Texts

HEAP_BITS = 6
START_BITS = 37
_WINDOW_BYTES = 1 << (START_BITS - 1)


def heaps_of(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    """The heaps, and for each part the number of its heap and where in it the part's own heap begins."""
    found: dict[tuple[int, int], int] = {}
    heaps: list[Heap] = []
    origins: list[tuple[int, int]] = []
    for part in parts:
        whole = _whole_of(part.heap)
        window, origin = divmod(_address(part.heap) - _address(whole), _WINDOW_BYTES)
        number = found.setdefault((_address(whole), window), len(heaps))
        if number == len(heaps):
            heaps.append(whole[window * _WINDOW_BYTES : (window + 2) * _WINDOW_BYTES])
        origins.append((number, origin))
    return (heaps, origins) if len(heaps) <= 1 << HEAP_BITS else _copied_into_one(parts)


def _copied_into_one(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    ends = np.cumsum([part.size_bytes for part in parts])
    origins = [(0, int(end) - part.end) for part, end in zip(parts, ends, strict=True)]
    return [np.concatenate([part.heap[part.start : part.end] for part in parts])], origins


def _whole_of(heap: Heap) -> Heap:
    """The array or buffer that `heap` is a view of, whole."""
    if len(heap) == 0:
        return heap
    base: Any = heap
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    if isinstance(base, np.ndarray):
        return base if base.dtype == np.uint8 and base.ndim == 1 and base.flags.c_contiguous else heap
    buffer: Any = base.obj if isinstance(base, memoryview) else base
    return np.frombuffer(buffer, dtype=np.uint8)


def _address(heap: Heap) -> int:
    return int(heap.__array_interface__["data"][0])
