"""Transient messages of one queue that memory had no room for.

    unit    contents of slices that left memory together, in the transient store     number → where, how many are left
    piece   positions of slices that left memory too, joined and written likewise    first, end, where

Contents go first, positions later: as for persistent messages, only that nobody has written them before. What is left
in memory of a million transient messages is a few units and pieces. A run of such messages says in `stored`, in our own
words, which unit has its contents and where in it they begin; a slice that is paged out gets a run of its own.

Always true: a unit is removed when the last of its messages is gone. All of it is scratch: the next start deletes it
and reads none of it, so its bytes have no format to keep. Not here: which slices leave memory (lanes).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from warren.base.ids import SequenceId
from warren.base.runs import Origin, Run, Sizes, Slice, sizes_of
from warren.queue_index.format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX
from warren.queues.contents import TransientContents

WORDS = struct.Struct("<QI")  # unit, index of the run's first message in it
assert WORDS.size == 12


@dataclass(slots=True)
class _SpilledUnit:
    stored: bytes
    sizes: Sizes
    left: int  # messages that are not gone


@dataclass(frozen=True, slots=True)
class SpilledSlices:
    """Positions of some slices, on disk."""

    first: SequenceId
    end: SequenceId
    count: int
    stored: bytes
    size_bytes: int


class Transients:
    def __init__(self, store: TransientContents) -> None:
        self._store = store
        self._units: dict[int, _SpilledUnit] = {}
        self._pieces: dict[bytes, None] = {}
        self._next = 0

    def write(self, slices: Sequence[Slice]) -> list[Slice]:
        """The same slices without contents, which are in the store now. Those that were there already stay there."""
        written = iter(
            [paged for unit in _units([s for s in slices if not s.run.stored]) for paged in self._write(unit)]
        )
        return [Slice(s.run, s.start, s.stop, None) if s.run.stored else next(written) for s in slices]

    def read(self, run: Run, start: int, stop: int) -> list[bytes]:
        number, base = WORDS.unpack(run.stored)
        unit = self._units[number]
        return self._store.read(unit.stored, unit.sizes, base + start, base + stop)

    def release(self, slice_: Slice) -> None:
        """These messages are gone."""
        if not slice_.run.stored:
            return
        number, _ = WORDS.unpack(slice_.run.stored)
        unit = self._units[number]
        unit.left -= len(slice_)
        if not unit.left:
            self._store.remove(unit.stored)
            del self._units[number]

    def fold(self, slices: Sequence[Slice]) -> SpilledSlices:
        """Positions of slices that are in the store, as one piece on disk."""
        data = json.dumps([_told(slice_) for slice_ in slices]).encode()
        stored = self._store.write([data])
        self._pieces[stored] = None
        count = sum(len(slice_) for slice_ in slices)
        return SpilledSlices(slices[0].first, slices[-1].end, count, stored, len(data))

    def unfold(self, piece: SpilledSlices) -> list[Slice]:
        """The slices of a piece. It stays on disk."""
        return [_heard(told) for told in json.loads(self._store.read(piece.stored, piece.size_bytes, 0, 1)[0])]

    def forget(self, piece: SpilledSlices) -> None:
        self._store.remove(piece.stored)
        del self._pieces[piece.stored]

    def clear(self) -> None:
        """All of them are gone."""
        for stored in [*self._pieces, *(unit.stored for unit in self._units.values())]:
            self._store.remove(stored)
        self._units, self._pieces = {}, {}

    def _write(self, slices: Sequence[Slice]) -> list[Slice]:
        contents = [content for slice_ in slices for content in slice_.contents or ()]
        number, self._next = self._next, self._next + 1
        self._units[number] = _SpilledUnit(self._store.write(contents), sizes_of(contents), len(contents))
        bases = accumulate((len(slice_) for slice_ in slices), initial=0)
        return [_paged(slice_, WORDS.pack(number, base)) for slice_, base in zip(slices, bases, strict=False)]


def _units(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Those that are written together."""
    units: list[list[Slice]] = []
    size_bytes = count = 0
    for slice_ in slices:
        size_bytes, count = size_bytes + slice_.size_bytes, count + len(slice_)
        if not units or size_bytes > RUN_HEAP_BYTES_MAX or count > RUN_COUNT_MAX:
            units.append([])
            size_bytes, count = slice_.size_bytes, len(slice_)
        units[-1].append(slice_)
    return units


def _paged(slice_: Slice, stored: bytes) -> Slice:
    """The slice as a run of its own, without contents."""
    run, start, stop = slice_.run, slice_.start, slice_.stop
    sizes = run.sizes if isinstance(run.sizes, int) else run.sizes[start:stop].copy()
    first = SequenceId(run.first + start)
    own = Run(first, stop - start, sizes, False, run.expires_ms, run.published_ms, run.origin, stored)
    return Slice(own, 0, stop - start, None)


def _told(slice_: Slice) -> list[object]:
    run, origin = slice_.run, slice_.run.origin
    sizes = run.sizes if isinstance(run.sizes, int) else run.sizes.tolist()
    from_ = [origin.exchange, origin.routing_key, origin.user, origin.content_kind]
    said = [run.expires_ms, run.published_ms, from_, run.stored.hex()]
    return [slice_.start, slice_.stop, run.first, run.count, sizes, *said]


def _heard(told: Any) -> Slice:
    start, stop, first, count, sizes, expires_ms, published_ms, from_, stored = told
    columns: Sizes = sizes if isinstance(sizes, int) else np.array(sizes, np.uint32)
    run = Run(first, count, columns, False, expires_ms, published_ms, Origin(*from_), bytes.fromhex(stored))
    return Slice(run, start, stop, None)
