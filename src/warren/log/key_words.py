"""Keys as numbers: storage and key cut into words that compare like the key does, and squeezed into few bits.

    key          b"user:000417"  in storage 3
    words        3 · "user:000" · 8 · "417" · 3        storage, then (eight bytes, how many of them are there) …

Zeros stand behind a key's end; the count tells b"a" from b"a\\0". Compared word by word this is exactly the order of
(storage, bytes, shorter first), and no word of a key is looked at once the key has ended.

Most bits of these words are the same in every key: the storage, a common prefix, the upper half of each digit, the
counts of keys that are equally long. Bits that never vary say nothing about the order. `squeeze` leaves them out and
packs what is left, from the front, into as many bits as the caller has room for:

    "417" "423" "399"     0x34_31_37  0x34_32_33  0x33_39_39     varying 0x07_0B_0E     417 → 100·001·011

Cost: one pass over each word it looks at; it stops where fewer than half the keys go on. Memory: two numbers per key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warren.log.gather import Flags, Positions, numbers_at
from warren.log.strings import WORD_BYTES, Strings
from warren.records.numbers import U64, NumberColumn

_ALL_BITS = (1 << 64) - 1
_SAMPLED = 4096
_AT_ONCE = 1 << 16


class KeyPosition(NamedTuple):
    """How far comparing has come: the word to look at next, and which of its bits."""

    step: int = 0
    bits: int = _ALL_BITS


class PackedKeys(NamedTuple):
    values: U64  # one per key; they order as the words looked at do
    next: KeyPosition | None  # None: the words were looked at to their end, so equal values mean equal keys


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
