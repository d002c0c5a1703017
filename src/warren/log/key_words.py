"""Keys as numbers: storage and key cut into words that compare like the key does, and squeezed into few bits.

    key          b"user:000417"  in storage 3
    words        3 · "user:000" · 8 · "417" · 3                 storage, then (eight bytes, how many of them are there) …

Zeros stand behind a key's end; the count tells b"a" from b"a\\0". Compared word by word this is exactly the order of
(storage, bytes, shorter first), and no word of a key is looked at once the key has ended.

Most bits of these words are the same in every key: the storage, a common prefix, the upper half of each digit, the
counts of keys that are equally long. Bits that never vary say nothing about the order. `squeeze` leaves them out and
packs what is left, from the front, into as many bits as the caller has room for:

    "user:000417" "user:000423" "user:000399"      varying bits      417 → 0b1·01·0111 …

Cost: one pass over each word it looks at; it stops where fewer than half the keys go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warren.log.gather import Flags, Positions
from warren.log.strings import WORD_BYTES, Strings
from warren.records.numbers import U64, Numbers

_ALL_BITS = (1 << 64) - 1
_STORAGE_STEP = 0


class Place(NamedTuple):
    """How far comparing has come: the word to look at next, and which of its bits."""

    step: int = _STORAGE_STEP
    bits: int = _ALL_BITS


class Squeezed(NamedTuple):
    values: U64  # one per row; they order as the words looked at do
    width_bits: int
    next: Place | None  # None: the words were looked at to their end, so equal values mean equal keys


class KeyWords:
    def __init__(self, storages: Numbers, keys: Strings) -> None:
        self._storages = storages
        self.keys = keys

    def word(self, step: int, rows: Positions) -> U64:
        if step == _STORAGE_STEP:
            return self.storages(rows)
        depth, is_count = divmod(step - 1, 2)
        depth *= WORD_BYTES
        if not is_count:
            return self.keys.words(depth, rows)
        return np.clip(self.keys.lengths[rows] - depth, 0, WORD_BYTES).astype(np.uint64)

    def storages(self, rows: Positions) -> U64:
        if self._storages.is_constant:
            return np.full(len(rows), self._storages.base, dtype=np.uint64)
        return self._storages.array()[rows]

    def are_equal(self, left: Positions, right: Positions) -> Flags:
        equal = self.keys.are_equal(left, right)
        return equal if self._storages.is_constant else equal & (self.storages(left) == self.storages(right))


def squeeze(words: KeyWords, rows: Positions, place: Place, room_bits: int, groups: U64 | None = None) -> Squeezed:
    """From `place` on, as many varying bits as there is room for, behind the number of each row's group."""
    values = np.zeros(len(rows), dtype=np.uint64) if groups is None else groups
    width = 0 if groups is None else int(groups[-1]).bit_length()
    lengths = words.keys.lengths[rows]
    longest, usual = int(lengths.max()), int(np.median(lengths)) if len(rows) else 0
    first_step, at = place.step, place
    while depth_of(at.step) < longest or at.step == _STORAGE_STEP:
        if width == room_bits or (depth_of(at.step) >= usual and at.step > first_step + 1):
            return Squeezed(values, width, at)
        word = words.word(at.step, rows)
        varying = int(np.bitwise_or.reduce(word ^ word[0])) & at.bits
        taken = _highest(varying, room_bits - width)
        if taken:
            values = (values << np.uint64(taken.bit_count())) | _packed(word, taken)
        width += taken.bit_count()
        rest = varying & ~taken
        at = Place(at.step, rest) if rest else Place(at.step + 1)
    return Squeezed(values, width, None)


def depth_of(step: int) -> int:
    """How many bytes of a key lie before the word of this step (a count belongs to the bytes before it)."""
    return max(step - 1, 0) // 2 * WORD_BYTES


def _highest(bits: int, count: int) -> int:
    """The highest `count` of the set bits."""
    surplus = bits.bit_count() - count
    for _ in range(surplus):
        bits &= bits - 1
    return bits


def _packed(word: U64, bits: int) -> U64:
    """The chosen bits of every word side by side."""
    out: U64 | None = None
    for shift, width in _runs(bits):
        part = word >> np.uint64(shift) & np.uint64((1 << width) - 1)
        out = part if out is None else (out << np.uint64(width)) | part
    assert out is not None
    return out


def _runs(bits: int) -> list[tuple[int, int]]:
    """(shift, width) of each run of set bits, highest first."""
    runs: list[tuple[int, int]] = []
    while bits:
        shift = (bits & -bits).bit_length() - 1
        width = ((bits >> shift) ^ ((bits >> shift) + 1)).bit_length() - 1
        runs.insert(0, (shift, width))
        bits &= ~(((1 << width) - 1) << shift)
    return runs
