"""The bodies that are put into queues, and whether what came out is what went in.

    body n    n as eight bytes, then random bytes from a pool: the same on every machine, and no two alike

So a benchmark need not keep what it has put to know what it must get: a wrong, a missing or a doubled body, or one out
of turn, ends the run. Bodies are made by numpy a piece at a time, before a clock is started where one is; in a backlog
that is filled by a process under watch they are made between two puts, and the time that takes counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tools.bench.workload import SEED
from warren.base.errors import Damage

SMALL_BYTES = 100
LARGE_BYTES = 8192  # from 4096 on a body goes to the message store
NUMBER_BYTES = 8
_POOL_ROWS = 512


def bodies(first: int, count: int, size_bytes: int = SMALL_BYTES) -> list[bytes]:
    """Bodies first … first + count - 1."""
    pool = _pool(size_bytes)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    rows = pool[numbers % np.uint64(_POOL_ROWS)]
    rows[:, :NUMBER_BYTES] = numbers.astype(">u8").view(np.uint8).reshape(count, NUMBER_BYTES)
    raw = rows.tobytes()
    return [raw[at : at + size_bytes] for at in range(0, len(raw), size_bytes)]


def pieces(count: int, piece: int, size_bytes: int = SMALL_BYTES, first: int = 0) -> Iterator[list[bytes]]:
    """So many bodies, some at a time."""
    for start in range(first, first + count, piece):
        yield bodies(start, min(piece, first + count - start), size_bytes)


class BodyTally:
    """How many bodies there were, and a checksum over all of them in their order."""

    __slots__ = ("checksum", "count")

    def __init__(self) -> None:
        self.count = 0
        self.checksum = 0

    def add(self, some: Sequence[bytes]) -> None:
        self.count += len(some)
        self.checksum = crc32(b"".join(some), self.checksum)

    def check(self, who: str, expected: BodyTally) -> None:
        if self.count != expected.count:
            raise Damage(f"{who}: {expected.count} bodies should have come out, {self.count} did")
        if self.checksum != expected.checksum:
            raise Damage(f"{who}: other bodies came out than were put, or in another order")


def tally(count: int, size_bytes: int = SMALL_BYTES, first: int = 0) -> BodyTally:
    """What so many bodies must come to."""
    expected = BodyTally()
    for piece in pieces(count, 10_000, size_bytes, first):
        expected.add(piece)
    return expected


def check_bodies(
    who: str, got: Sequence[bytes], size_bytes: int = SMALL_BYTES, first: int = 0, count: int | None = None
) -> None:
    """Whether these are the bodies from `first` on, in order, and as many as there should be."""
    found = BodyTally()
    found.add(got)
    found.check(who, tally(len(got) if count is None else count, size_bytes, first))


@cache
def _pool(size_bytes: int) -> npt.NDArray[np.uint8]:
    raw = np.random.default_rng(SEED).bytes(_POOL_ROWS * size_bytes)
    return np.frombuffer(raw, dtype=np.uint8).reshape(_POOL_ROWS, size_bytes)
