"""The order of the version buffer: by write version, then channel, then record number. Columns in, positions out.

    | major | minor | channel | record |      most significant first; no two entries agree in all four

Most of the bits of these columns never vary. What is left of them is packed, from the front, above the entry's own
position into 64 bits, and the numbers are sorted as they are (numpy sorts plain numbers several times faster than it
sorts an index by four columns). What does not fit decides only among entries that agree in all that did: usually none.
Entries that came in order are seen to be so, and not sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from warren.log.gather import Flags, Positions
from warren.log.key_order import number_bits
from warren.records.numbers import U64, AnyUnsigned, NumberColumn
from warren.snapshot.applied import Version

OrderKey = tuple[int, int, int, int]  # major, minor, channel, record


class _Column(NamedTuple):
    above: AnyUnsigned  # how far each value lies above some number
    bits: int


def version_order(columns: Sequence[NumberColumn], count: int) -> Positions:
    """Positions in the order of these columns, the first of which weighs most."""
    varying = [_varying(column) for column in columns if not column.is_constant]
    packed, fitted = _packed(varying, 64 - number_bits(count), count)
    if _is_rising(packed, fitted == len(varying)):
        return np.arange(count, dtype=np.int64)
    if fitted == 0:
        return np.lexsort([column.above for column in reversed(varying)])
    bits = np.uint64(number_bits(count))
    packed = (packed << bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    if fitted < len(varying):
        _settle_ties(packed >> bits, order, varying[fitted:])
    return order


def is_in_order(columns: Sequence[NumberColumn], count: int) -> bool:
    """Whether entries stand in the order of these columns; now and then it does not see that they do."""
    varying = [_varying(column) for column in columns if not column.is_constant]
    packed, fitted = _packed(varying, 64, count)
    return _is_rising(packed, fitted == len(varying))


def rows_up_to(majors: NumberColumn, minors: NumberColumn, up_to: Version) -> Flags | bool:
    """Which rows have a version not above `up_to`; True or False if that is all or none of them."""
    major, minor = up_to
    if majors.is_constant and majors.base != major:
        return majors.base < major
    if majors.is_constant:
        is_inside: Flags = minors.array() <= np.uint64(minor)
    else:
        mine = majors.array()
        is_inside = (mine < np.uint64(major)) | ((mine == np.uint64(major)) & (minors.array() <= np.uint64(minor)))
    inside = int(np.count_nonzero(is_inside))
    return is_inside if 0 < inside < len(is_inside) else inside > 0


def rows_not_above(columns: Sequence[U64], key: Sequence[int]) -> int:
    """How many rows of ordered columns are not above the key; of a key with fewer parts, not above all it begins."""
    start, stop = 0, len(columns[0])
    for column, value in zip(columns, key, strict=False):
        part = column[start:stop]
        low, high = np.searchsorted(part, np.uint64(value), "left"), np.searchsorted(part, np.uint64(value), "right")
        start, stop = start + int(low), start + int(high)
    return stop


def _varying(column: NumberColumn) -> _Column:
    if column.deltas is not None:
        return _Column(column.deltas, int(column.deltas.max()).bit_length())
    values = column.array()
    low = min(column.base, column.at(column.count - 1))
    return _Column(values - np.uint64(low), (abs(column.step) * (column.count - 1)).bit_length())


def _packed(columns: Sequence[_Column], room_bits: int, count: int) -> tuple[U64, int]:
    """As many whole columns as there is room for, side by side in one number, and how many those are."""
    packed = np.zeros(count, dtype=np.uint64)
    for number, column in enumerate(columns):
        room_bits -= column.bits
        if room_bits < 0:
            return packed, number
        packed <<= np.uint64(column.bits)
        packed |= column.above.astype(np.uint64, copy=False)
    return packed, len(columns)


def _is_rising(packed: U64, is_all: bool) -> bool:
    before, behind = packed[:-1], packed[1:]
    return bool((before <= behind).all() if is_all else (before < behind).all())


def _settle_ties(values: U64, order: Positions, columns: Sequence[_Column]) -> None:
    """Bring entries with equal values, which stand side by side, into the order of the other columns."""
    same = values[1:] == values[:-1]
    is_tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    places = np.flatnonzero(is_tied)
    if len(places):
        members = order[places]
        rest = [column.above[members] for column in reversed(columns)]
        order[places] = members[np.lexsort([*rest, values[places]])]


def key_at(columns: Sequence[NumberColumn], row: int) -> OrderKey:
    major, minor, channel, record = (column.at(row) for column in columns)
    return major, minor, channel, record
