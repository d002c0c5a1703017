"""The order of keys: by storage, then by bytes, the shorter of two first; exact, whatever the keys are.

One round squeezes each key to what fits above its own number in 64 bits and sorts these by value (numpy sorts plain
numbers twice as fast as it sorts an index by them):

    | varying bits of storage and key … | number of the key |

Keys that agree in all these bits are *tied*. Most ties are equal keys, which a comparison of neighbours shows; the rest
go into the next round, the number of their tie in front, squeezed from where the last round stopped. When few are left,
or after a few rounds, Python's own sort finishes.

    round 1    5,000,000 keys    1,884,744 of them in ties, 2 in ties that are not all equal  (random, a fifth repeated)
    few        2 keys

Always true: equal keys stand in the order of their rows. Not here: which of equal keys is the newest (merge).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from warren.log.gather import Flags, Positions, spans
from warren.log.key_words import KeyPosition, KeyWords, squeeze
from warren.records.numbers import U64

_FEW = 1024
_ROUNDS_MAX = 8
_ROWS_PER_PASS = 1 << 16
RANGES_MAX = 256


@dataclass(frozen=True, slots=True)
class KeyOrder:
    rows: Positions  # in key order
    starts: Positions  # where in `rows` each different key begins


class KeyRanges:
    """All keys dealt to ranges of about equal size, in key order; the same key never falls into two.

    A range takes memory only while it is being ordered, so many small ones need little of it; different threads may
    order different ones.
    """

    def __init__(self, words: KeyWords, count: int = 1) -> None:
        count = min(count, RANGES_MAX)
        self._words = words
        self._values, self._place = squeeze(words, KeyPosition(), 64 - number_bits(words.count))
        sample = np.sort(self._values[:: words.count // (256 * count) + 1])
        splitters = np.unique(sample[[len(sample) * i // count for i in range(1, count)]]) if len(sample) else sample
        self._range_of = np.zeros(words.count, dtype=np.uint8)
        for splitter in splitters:
            self._range_of += self._values >= splitter
        self.count = len(splitters) + 1

    def order(self, number: int) -> KeyOrder:
        """The keys of one range."""
        if self.count == 1:
            return _ordered(self._words, self._values.copy(), self._place)
        members = np.flatnonzero(self._range_of == number)
        return _ordered(self._words.some(members), self._values[members], self._place)


def key_order(words: KeyWords) -> KeyOrder:
    return KeyRanges(words).order(0)


def _ordered(words: KeyWords, values: U64, place: KeyPosition | None) -> KeyOrder:
    order, is_new = _sorted(values)
    for turn in range(_ROUNDS_MAX):
        if place is None:
            break
        tied, groups = _still_open(words, order, is_new)
        if len(tied) <= _FEW or turn == _ROUNDS_MAX - 1:
            _finish(words, order, is_new, tied)
            break
        members = order[tied]
        values, place = squeeze(words.some(members), place, 64 - number_bits(len(tied)), groups)
        turned, is_new[tied] = _sorted(values)
        order[tied] = members[turned]
    return KeyOrder(words.rows(order), np.flatnonzero(is_new))


def number_bits(count: int) -> int:
    """Bits that hold the numbers 0 … count - 1."""
    return max(count - 1, 0).bit_length()


def _sorted(values: U64) -> tuple[Positions, Flags]:
    """The order of the values (which are overwritten), and which of them, in that order, differ from the one before."""
    bits = np.uint64(number_bits(len(values)))
    for at in range(0, len(values), _ROWS_PER_PASS):
        some = values[at : at + _ROWS_PER_PASS]
        some <<= bits
        some |= np.arange(at, at + len(some), dtype=np.uint64)
    values.sort()
    is_new = np.ones(len(values), dtype=np.bool_)
    for at in range(1, len(values), _ROWS_PER_PASS):
        some, before = values[at : at + _ROWS_PER_PASS], values[at - 1 : at - 1 + _ROWS_PER_PASS]
        is_new[at : at + _ROWS_PER_PASS] = (some ^ before[: len(some)]) >> bits != 0
    values &= (np.uint64(1) << bits) - np.uint64(1)
    return values.view(np.int64), is_new


def _still_open(words: KeyWords, order: Positions, is_new: Flags) -> tuple[Positions, U64]:
    """Positions of the ties whose keys are not all equal, and which tie each belongs to."""
    followers = np.flatnonzero(~is_new)
    unequal = followers[~words.are_equal(order[followers - 1], order[followers])]
    if len(unequal) == 0:
        return unequal, np.zeros(0, dtype=np.uint64)
    starts = np.flatnonzero(is_new)
    ties = np.unique(np.searchsorted(starts, unequal, side="right") - 1)
    sizes = np.append(starts, len(order))[ties + 1] - starts[ties]
    return spans(starts[ties], sizes), np.repeat(np.arange(len(ties), dtype=np.uint64), sizes)


def _finish(words: KeyWords, order: Positions, is_new: Flags, tied: Positions) -> None:
    """Ties stand in order among each other already, so one sort by the whole key leaves each in its place."""
    members = order[tied].tolist()
    keys = [words.key(member) for member in members]
    turned = sorted(range(len(keys)), key=keys.__getitem__)
    order[tied] = [members[number] for number in turned]
    is_new[tied[1:]] = [keys[a] != keys[b] for a, b in pairwise(turned)]
