"""Key order: by storage, then by bytes, the shorter of two first; exact, whatever the keys are.

    key          b"user:000417"  in storage 3
    words        3 · "user:000" · 8 · "417" · 3        storage, then (eight bytes, how many of them are there) …

Keys are cut into words that compare like the key does. A key is padded with zeros; the count distinguishes b"a" from
b"a\\0". Compared word by word this is exactly the order of (storage, bytes, shorter first), and no word of a key is
read once the key has ended.

Most bits of these words are the same in every key: the storage, a common prefix, the upper half of each digit, the
counts of keys of equal length. Bits that never vary do not affect the order. `squeeze` drops them and packs the rest,
from the front, into as many bits as the caller has room for:

    "417" "423" "399"     0x34_31_37  0x34_32_33  0x33_39_39     varying 0x07_0B_0E     417 → 100·001·011

Cost: one pass over each word that is read; it stops where fewer than half the keys continue. Memory: two numbers per
key.

One round squeezes each key to what fits above its own number in 64 bits and sorts these by value (numpy sorts plain
numbers twice as fast as it sorts an index by them):

    | varying bits of storage and key … | number of the key |

Keys that agree in all these bits are *tied*. Most ties are equal keys, which a comparison of adjacent keys shows; the
rest enter the next round, the number of their tie in front, squeezed from where the last round stopped. When few are
left, or after a few rounds, Python's own sort finishes.

    round 1    5,000,000 keys    1,884,744 of them in ties, 2 in ties that are not all equal  (random, a fifth repeated)
    few        2 keys

Invariant: equal keys keep the order of their rows. Not here: which of equal keys is the newest (merge).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from warren.log.merge.pool import WORD_BYTES, Flags, Positions, Strings, numbers_at, spans
from warren.records.columns import U64, NumberColumn

_ALL_BITS = (1 << 64) - 1
_SAMPLED = 4096
_AT_ONCE = 1 << 16


class KeyPosition(NamedTuple):
    """Progress of a comparison: the next word, and which of its bits."""

    step: int = 0
    bits: int = _ALL_BITS


class PackedKeys(NamedTuple):
    values: U64  # one per key; they order as the words read so far
    next: KeyPosition | None  # None: all words were read, so equal values mean equal keys


class KeyWords:
    """The keys of some rows, or of all."""

    def __init__(self, storages: NumberColumn, keys: Strings, rows: Positions | None = None) -> None:
        self._storages = storages
        self._keys = keys
        self._rows = rows
        self.count = keys.count if rows is None else len(rows)
        self.shortest, self.usual, self.longest = self._lengths() if self.count else (0, 0, 0)

    def some(self, positions: Positions) -> KeyWords:
        return KeyWords(self._storages, self._keys, self.rows(positions))

    def rows(self, positions: Positions) -> Positions:
        """Which rows the keys at these positions are those of."""
        return positions if self._rows is None else self._rows[positions]

    def key(self, position: int) -> tuple[int, bytes]:
        row = position if self._rows is None else int(self._rows[position])
        return self._storages.at(row), self._keys.at(row)

    def are_equal(self, left: Positions, right: Positions) -> Flags:
        mine, other = self.rows(left), self.rows(right)
        equal = self._keys.are_equal(mine, other)
        if not self._storages.is_constant:
            equal &= numbers_at(self._storages, mine) == numbers_at(self._storages, other)
        return equal

    def word(self, step: int) -> U64 | None:
        """The word of this step of every key; None if it is the same in all, as far as that is known at once."""
        depth, is_count = divmod(step - 1, 2)
        depth *= WORD_BYTES
        is_same = self.shortest == self.longest or self.shortest >= depth + WORD_BYTES
        if (step == 0 and self._storages.is_constant) or (step > 0 and is_count and is_same):
            return None
        out = np.empty(self.count, dtype=np.uint64)
        for at in range(0, self.count, _AT_ONCE):
            rows = self._chunk(at)
            if step == 0:
                out[at : at + _AT_ONCE] = numbers_at(self._storages, rows)
            elif is_count:
                out[at : at + _AT_ONCE] = np.clip(self._keys.lengths(rows) - depth, 0, WORD_BYTES)
            else:
                out[at : at + _AT_ONCE] = self._keys.words(depth, rows)
        return out

    def _chunk(self, at: int) -> Positions:
        if self._rows is None:
            return np.arange(at, min(at + _AT_ONCE, self.count), dtype=np.int64)
        return self._rows[at : at + _AT_ONCE]

    def _lengths(self) -> tuple[int, int, int]:
        """The least length, one that about half the keys reach, and the greatest."""
        shortest, longest, sample = _ALL_BITS, 0, []
        for at in range(0, self.count, _AT_ONCE):
            lengths = self._keys.lengths(self._chunk(at))
            shortest, longest = min(shortest, int(lengths.min())), max(longest, int(lengths.max()))
            sample += lengths[:: self.count // _SAMPLED + 1].tolist()
        return shortest, sorted(sample)[len(sample) // 2], longest


def squeeze(words: KeyWords, place: KeyPosition, room_bits: int, groups: U64 | None = None) -> PackedKeys:
    """From `place` on, as many varying bits as there is room for, behind the number of each key's group."""
    values = groups
    room_bits -= 0 if groups is None else int(groups[-1]).bit_length()
    at = place
    while at.step == 0 or depth_of(at.step) < words.longest:
        if room_bits == 0 or (depth_of(at.step) >= words.usual and at.step > place.step + 1):
            break
        word = words.word(at.step)
        varying = 0 if word is None else _varying(word) & at.bits
        taken = _highest(varying, room_bits)
        if taken and word is not None:
            _pack(word, taken)
            values = word if values is None else _joined(values, word, taken.bit_count())
            room_bits -= taken.bit_count()
        rest = varying & ~taken
        at = KeyPosition(at.step, rest) if rest else KeyPosition(at.step + 1)
    is_end = at.step > 0 and depth_of(at.step) >= words.longest
    return PackedKeys(np.zeros(words.count, dtype=np.uint64) if values is None else values, None if is_end else at)


def depth_of(step: int) -> int:
    """How many bytes of a key lie before the word of this step (a count belongs to the bytes before it)."""
    return max(step - 1, 0) // 2 * WORD_BYTES


def _varying(word: U64) -> int:
    """The bits that are not the same in every word."""
    found = 0
    for at in range(0, len(word), _AT_ONCE):
        found |= int(np.bitwise_or.reduce(word[at : at + _AT_ONCE] ^ word[0]))
    return found


def _highest(bits: int, count: int) -> int:
    """The highest `count` of the set bits."""
    for _ in range(bits.bit_count() - count):
        bits &= bits - 1
    return bits


def _pack(word: U64, bits: int) -> None:
    """Move the chosen bits of every word to its low end, side by side."""
    runs = _runs(bits)
    for at in range(0, len(word), _AT_ONCE):
        some = word[at : at + _AT_ONCE]
        out = np.zeros(len(some), dtype=np.uint64)
        for shift, width in runs:
            out <<= np.uint64(width)
            out |= some >> np.uint64(shift) & np.uint64((1 << width) - 1)
        some[:] = out


def _joined(high: U64, low: U64, low_bits: int) -> U64:
    high <<= np.uint64(low_bits)
    high |= low
    return high


def _runs(bits: int) -> list[tuple[int, int]]:
    """(shift, width) of each run of set bits, highest first."""
    runs: list[tuple[int, int]] = []
    while bits:
        shift = (bits & -bits).bit_length() - 1
        width = ((bits >> shift) ^ ((bits >> shift) + 1)).bit_length() - 1
        runs.insert(0, (shift, width))
        bits &= ~(((1 << width) - 1) << shift)
    return runs


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
