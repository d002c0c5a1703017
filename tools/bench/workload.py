"""What is written: entries from a seed, the same on every machine, as columns or as lists of bytes.

    keys     random; every fifth entry repeats the key of an earlier one (the repeated one is random too)
    values   random bytes, 50 … 150 of them
    cut      into sessions of 10,000

Everything is made before a clock is started. A session's columns have heaps of their own, as if a client had just sent
them. Keys have 16 bytes, or 4 … 200: very short ones may then meet by chance, so `distinct` is exact only for 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warren.records.columns import Heap, Texts

SEED = 20_011
SESSION_ENTRIES = 10_000
REPEATED_SHARE = 0.2
KEYS_FIXED = (16, 16)
KEYS_VARIABLE = (4, 200)
VALUES = (50, 150)
Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """One session's entries, side by side."""

    keys: Texts
    values: Texts

    @property
    def size_bytes(self) -> int:
        return self.keys.size_bytes + self.values.size_bytes


@dataclass(frozen=True, slots=True)
class LogWorkload:
    sessions: list[Entries]
    distinct: int  # keys

    @property
    def entries(self) -> int:
        return sum(session.keys.count for session in self.sessions)

    @property
    def size_bytes(self) -> int:
        """Keys and values, and nothing else."""
        return sum(session.size_bytes for session in self.sessions)

    @property
    def newest(self) -> tuple[bytes, bytes]:
        """The last entry: whatever came before, this is its key's value."""
        last = self.sessions[-1]
        return last.keys.at(last.keys.count - 1), last.values.at(last.values.count - 1)


def make(entries: int, key_bytes: tuple[int, int] = KEYS_FIXED, seed: int = SEED) -> LogWorkload:
    sessions, distinct = stream(entries, key_bytes, seed)
    return LogWorkload(list(sessions), distinct)


def stream(entries: int, key_bytes: tuple[int, int] = KEYS_FIXED, seed: int = SEED) -> tuple[Iterator[Entries], int]:
    """The same sessions, made one by one, for workloads that shall not lie in memory; and how many keys there are."""
    rng = np.random.default_rng(seed)
    chosen, distinct = _choose_keys(entries, rng)
    pool = _random_texts(distinct, key_bytes, rng)
    starts, lengths = pool.bounds()

    def sessions() -> Iterator[Entries]:
        for first, stop in pairwise([*range(0, entries, SESSION_ENTRIES), entries]):
            mine = chosen[first:stop]
            keys = Texts.of_lengths(_gather(pool.heap, starts[mine], lengths[mine]), lengths[mine])
            yield Entries(keys, _random_texts(stop - first, VALUES, rng))

    return sessions(), distinct


def as_lists(workload: LogWorkload, entries_max: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The first sessions, up to so many entries, as Python has them."""
    for session in workload.sessions[: -(-entries_max // SESSION_ENTRIES)]:
        yield session.keys.to_list(), session.values.to_list()


def _choose_keys(entries: int, rng: np.random.Generator) -> tuple[Lengths, int]:
    """Which key each entry has, by number in order of appearance, and how many keys there are."""
    is_repeated = rng.random(entries) < REPEATED_SHARE
    is_repeated[0] = False
    seen = np.cumsum(~is_repeated)
    chosen = np.where(is_repeated, (rng.random(entries) * seen).astype(np.int64), seen - 1)
    return chosen, int(seen[-1])


def _random_texts(count: int, lengths_between: tuple[int, int], rng: np.random.Generator) -> Texts:
    least, most = lengths_between
    lengths = rng.integers(least, most + 1, size=count, dtype=np.int64)
    return Texts.of_lengths(np.frombuffer(rng.bytes(int(lengths.sum())), dtype=np.uint8), lengths)


def _gather(heap: Heap, starts: Lengths, lengths: Lengths) -> Heap:
    """The strings at these places, one behind the other."""
    ends = np.cumsum(lengths)
    positions = np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)
    strings: Heap = heap[positions]
    return strings
