"""Which heaps a number of texts lie in: views of one mapped file are places in one heap, the file itself.

numpy keeps for every view what it is a view of; following that to its end finds the file's mapping (or whatever array
the bytes were made in), and the difference of two addresses is the place in it. Nothing is copied, unless the heaps are
too many to be numbered, or one is too large: then windows of it count as heaps of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warren.records.columns import EMPTY_HEAP, Heap, Texts

HEAP_BITS = 12
START_BITS = 31
_WINDOW_BYTES = 1 << (START_BITS - 1)


def heaps_of(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    """The heaps, and for each part the number of its heap and where in it the part's own heap begins."""
    roots: dict[int, _Root] = {}
    found: dict[tuple[int, int], int] = {}
    heaps: list[Heap] = [EMPTY_HEAP]
    origins: list[tuple[int, int]] = []
    for part in parts:
        if len(part.heap) == 0:
            origins.append((0, 0))
            continue
        buffer = _buffer_of(part.heap)
        root = roots.get(id(buffer)) or roots.setdefault(id(buffer), _Root(buffer))
        window, origin = divmod(_address(part.heap) - root.address, _WINDOW_BYTES)
        number = found.setdefault((root.address, window), len(heaps))
        if number == len(heaps):
            heaps.append(root.whole[window * _WINDOW_BYTES : (window + 2) * _WINDOW_BYTES])
        origins.append((number, origin))
    return (heaps, origins) if len(heaps) <= 1 << HEAP_BITS else _copied_into_one(parts)


class _Root:
    """What views are views of, as bytes."""

    __slots__ = ("address", "buffer", "whole")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.whole: Heap = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
        self.address = _address(self.whole)


def _copied_into_one(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    ends = np.cumsum([part.size_bytes for part in parts])
    origins = [(0, int(end) - part.end) for part, end in zip(parts, ends, strict=True)]
    return [np.concatenate([part.heap[part.start : part.end] for part in parts])], origins


def _buffer_of(heap: Heap) -> Any:
    """The array or buffer that `heap` is a view of; itself where that can not be seen as bytes."""
    base: Any = heap
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    if isinstance(base, np.ndarray):
        return base if base.dtype == np.uint8 and base.ndim == 1 and base.flags.c_contiguous else heap
    return base.obj if isinstance(base, memoryview) else base


def _address(heap: Heap) -> int:
    return int(heap.__array_interface__["data"][0])
