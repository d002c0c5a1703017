"""Strings from anywhere in several heaps, laid one behind the other: the hot loop of every merge.

A loop over five million values costs seconds, an index per byte as well. Here a *window* is a view of a heap with one
item of `width` bytes at every byte, so that numpy's own take copies whole items. A string of 50 bytes is then two
items of 32, its first 32 bytes and its last 32:

    string         |oooooooooooooooooooooooooooooooooo|
    first          |<------ width ------>|
    last                         |<------ width ----->|

They overlap inside the string and nowhere else, so nothing is read or written beyond it, in whatever order strings are
copied, from however many threads (numpy lets go of the interpreter while it copies). Thirteen widths, 1 … 4096, serve
every length up to 8191; longer strings are worth a slice each. Rows are dealt to their (heap, width) by one radix sort.

Always true: callers pass starts and lengths inside the heaps (`Texts` read from disk were checked when they were read);
numpy checks each window against the heap's end once more. Measured, values of 50–150 bytes at random places of 500 MB
in ten mapped files, looking them up included: 150 ns each on one core (on a busy machine 200, where a slice each took
600). An index per 8-byte word took 540.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from warren.log.heaps import HEAP_BITS
from warren.records.columns import Heap
from warren.records.numbers import U64, NumberColumn

Positions = npt.NDArray[np.int64]  # of bytes in a heap, or of rows
Flags = npt.NDArray[np.bool_]
Windows = npt.NDArray[np.void]

_WIDTH_BITS_MAX = 12
_LONG_FROM = 2 << _WIDTH_BITS_MAX
_LONG, _EMPTY = _WIDTH_BITS_MAX + 1, _WIDTH_BITS_MAX + 2
_CLASS_BITS = 4
_CLASS_OF = np.array([_EMPTY] + [n.bit_length() - 1 for n in range(1, _LONG_FROM + 1)], dtype=np.uint16)
_BYTES_AT_ONCE = 256 << 10  # what lies between take and put stays in the processor's own cache
assert _CLASS_OF[-1] == _LONG and _CLASS_OF.max() < 1 << _CLASS_BITS and HEAP_BITS + _CLASS_BITS <= 16


def copy_strings(
    heaps: Sequence[Heap], numbers: Positions, starts: Positions, lengths: Positions, target: Heap, places: Positions
) -> None:
    """Copy string i from starts[i] of heap numbers[i] to places[i] of the target. Places must not overlap."""
    classes = _CLASS_OF[np.minimum(lengths, _LONG_FROM)] | (numbers.astype(np.uint16) << np.uint16(_CLASS_BITS))
    for which, rows in _by_class(classes):
        bits = which & ((1 << _CLASS_BITS) - 1)
        if bits != _EMPTY:
            copy = _copy_long if bits == _LONG else _copy_windows
            copy(heaps[which >> _CLASS_BITS], starts[rows], target, places[rows], lengths[rows], 1 << bits)


def windows(heap: Heap, width: int) -> Windows:
    """One item of `width` bytes at every byte of the heap."""
    return np.ndarray(max(len(heap) - width + 1, 0), dtype=f"V{width}", buffer=heap, strides=(1,))


def spans(starts: Positions, sizes: Positions) -> Positions:
    """starts[0], starts[0] + 1, … starts[0] + sizes[0] - 1, starts[1], …: the members of several ranges."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(total, dtype=np.int64)


def numbers_at(numbers: NumberColumn, rows: Positions) -> U64:
    """The values of these rows."""
    if numbers.deltas is not None:
        some: U64 = numbers.deltas[rows].astype(np.uint64, copy=False)
        return some if numbers.base == 0 else some + np.uint64(numbers.base)
    if numbers.step == 0:
        return np.full(len(rows), numbers.base, dtype=np.uint64)
    return (rows * numbers.step).astype(np.uint64) + np.uint64(numbers.base)


def _by_class(classes: npt.NDArray[np.uint16]) -> Iterator[tuple[int, Positions | slice]]:
    """Each class that occurs, with the rows in it."""
    if len(classes) == 0:
        return
    if (classes == classes[0]).all():
        yield int(classes[0]), slice(None)
        return
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        yield int(ordered[start]), order[start:end]


def _copy_windows(
    source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Positions, width: int
) -> None:
    taken, put = windows(source, width), windows(target, width)
    at_once = max(_BYTES_AT_ONCE // width, 1)
    has_last = bool((lengths > width).any())
    for at in range(0, len(starts), at_once):
        some = slice(at, at + at_once)
        start, place = starts[some], places[some]
        put[place] = taken[start]
        if has_last:
            last = lengths[some] - width
            put[place + last] = taken[start + last]


def _copy_long(source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Positions, _: int) -> None:
    for start, place, length in zip(starts.tolist(), places.tolist(), lengths.tolist(), strict=True):
        target[place : place + length] = source[start : start + length]
