"""Strings from anywhere in a heap, laid one behind the other: the hot loop of every merge.

A loop over five million values costs seconds, an index per byte as well. Here a *window* is a view of the heap with one
item of `width` bytes at every byte, so that numpy's own take copies whole items. A string of 50 bytes is then two
items of 32, its first 32 bytes and its last 32:

    string         |oooooooooooooooooooooooooooooooooo|
    first          |<------ width ------>|
    last                         |<------ width ----->|

They overlap inside the string and nowhere else, so nothing is read or written beyond it, in whatever order strings are
copied, from however many threads (numpy lets go of the interpreter while it copies). Thirteen widths, 1 … 4096, serve
every length up to 8191; longer strings are worth a slice each.

Always true: callers pass starts and lengths inside the heap (`Texts` read from disk were checked when they were read);
numpy checks each window against the heap's end once more. Measured, values of 50–150 bytes at random places of 500 MB:
90–110 ns each on one core, 57 on two. An index per 8-byte word took 540 ns, a slice each about 200.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from warren.records.columns import Heap

Positions = npt.NDArray[np.int64]  # of bytes in a heap, or of rows
Lengths = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Windows = npt.NDArray[np.void]

LONG = 0  # in the place of a width: too long for windows
_WIDTH_BITS_MAX = 12
_ROWS_AT_ONCE = 8192
_BYTES_AT_ONCE = 1 << 20  # what lies between take and put stays in the processor's own cache


def copy_strings(source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Lengths) -> None:
    """Copy string i from starts[i] of the source to places[i] of the target. Targets must not overlap."""
    for at in range(0, len(starts), _ROWS_AT_ONCE):
        some = slice(at, at + _ROWS_AT_ONCE)
        _copy_some(source, starts[some], target, places[some], lengths[some])


def windows(heap: Heap, width: int) -> Windows:
    """One item of `width` bytes at every byte of the heap."""
    return np.ndarray(max(len(heap) - width + 1, 0), dtype=f"V{width}", buffer=heap, strides=(1,))


def runs_joined(starts: Positions, lengths: Lengths) -> tuple[Positions, Lengths]:
    """Strings that stand one behind the other already, as one long string: what was sorted before is copied, not
    gathered. Left as they are when it would not halve their number."""
    follows = starts[1:] == starts[:-1] + lengths[:-1]
    if 2 * np.count_nonzero(follows) <= len(starts):
        return starts, lengths
    firsts = np.flatnonzero(np.concatenate(([True], ~follows)))
    return starts[firsts], np.add.reduceat(lengths, firsts, dtype=np.int64)


def spans(starts: Positions, sizes: Lengths) -> Positions:
    """starts[0], starts[0] + 1, … starts[0] + sizes[0] - 1, starts[1], …: the members of several ranges."""
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(total, dtype=np.int64)


def _copy_some(source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Lengths) -> None:
    for width, rows in _by_width(lengths):
        at, to, size = starts[rows], places[rows], lengths[rows]
        if width == LONG:
            _copy_long(source, at, target, to, size)
            continue
        taken, put, last = windows(source, width), windows(target, width), size - width
        put[to] = taken[at]
        if width > 1:
            put[to + last] = taken[at + last]


def _copy_long(source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Lengths) -> None:
    for start, place, length in zip(starts.tolist(), places.tolist(), lengths.tolist(), strict=True):
        target[place : place + length] = source[start : start + length]


def _by_width(lengths: Lengths) -> Iterator[tuple[int, Positions | slice]]:
    """Which rows have lengths of width … 2 × width - 1, for each width that occurs, at most a cache full at once."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    low, high = max(shortest.bit_length() - 1, 0), longest.bit_length() - 1
    for bits in range(low, min(high, _WIDTH_BITS_MAX) + 1):
        at_once = _BYTES_AT_ONCE >> bits
        if shortest > 0 and low == high and len(lengths) <= at_once:
            yield 1 << bits, slice(None)
            return
        rows = np.flatnonzero(lengths >> bits == 1)
        yield from ((1 << bits, rows[at : at + at_once]) for at in range(0, len(rows), at_once))
    if high > _WIDTH_BITS_MAX:
        yield LONG, np.flatnonzero(lengths >> (_WIDTH_BITS_MAX + 1) > 0)
