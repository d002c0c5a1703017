"""Chance from a seed: the same seed gives the same ids, so that one seed is one run."""

from __future__ import annotations

import random


class SeededRandom:
    """Is a `base.chance.Chance`."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def id64(self) -> int:
        return self._random.randrange(1, 1 << 63)
