"""How contents become units, and which bytes of a unit a message has.

    contents    | c₀ | c₁ | c₂ |        large c₃        | c₄ | c₅ |
    units       |--- one unit --|-- start, chunk, chunk -|- one --|

Contents that come together are joined up to 512 KiB; a larger one is a unit by itself and cut into chunks. So most
units are one record, one block and one read, and no content shares its chunks with others.

Always true: units follow one another without a gap, and each has at least one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from warren.base.runs import Sizes
from warren.message_store.format import CHUNK_BYTES, UNIT_MESSAGES_MAX, Body

Edges = npt.NDArray[np.int64]


class BodyPart(NamedTuple):
    """Messages that become one unit."""

    first: int
    messages: int
    size_bytes: int


def cut(sizes: Sizes, count: int, bytes_max: int = CHUNK_BYTES) -> list[BodyPart]:
    """The units that contents of these sizes become."""
    edges = np.concatenate(([0], np.cumsum(of_messages(sizes, 0, count))))
    parts: list[BodyPart] = []
    first = 0
    while first < count:
        stop = int(np.searchsorted(edges, edges[first] + bytes_max, side="right")) - 1
        stop = min(max(stop, first + 1), first + UNIT_MESSAGES_MAX, count)
        parts.append(BodyPart(first, stop - first, int(edges[stop] - edges[first])))
        first = stop
    return parts


def of_messages(sizes: Sizes, start: int, stop: int) -> Edges:
    """The sizes of some messages, one by one."""
    if isinstance(sizes, int):
        return np.full(stop - start, sizes, dtype=np.int64)
    return sizes[start:stop].astype(np.int64)


def edges_of(unit: Body, sizes: Sizes) -> Edges:
    """Where in a unit's bytes each of its messages begins, and behind them where the unit ends. A message that is not
    kept has no bytes."""
    own = of_messages(sizes, unit.first, unit.first + unit.messages)
    if not unit.is_whole:
        own[~flags(unit.kept, unit.messages)] = 0
    edges = np.zeros(unit.messages + 1, dtype=np.int64)
    np.cumsum(own, out=edges[1:])
    return edges


def flags(bitmap: int, count: int) -> npt.NDArray[np.bool_]:
    raw = np.frombuffer(bitmap.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(raw, count=count, bitorder="little").astype(np.bool_)


def pieces_of(size_bytes: int, chunk_bytes: int) -> list[tuple[int, int]]:
    """The byte ranges of a unit's records; one that is empty for a unit without bytes."""
    edges = [*range(0, size_bytes, chunk_bytes), size_bytes]
    return list(pairwise(edges)) or [(0, 0)]


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """A number dealt out by weight; nothing is lost by rounding."""
    sums = [0, *accumulate(weights)]
    edges = [total * each // (sums[-1] or 1) for each in sums]
    return [high - low for low, high in pairwise(edges)]
