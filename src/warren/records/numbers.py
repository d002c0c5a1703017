"""A column of whole numbers that need not be written out: constants and steady steps cost nothing.

`NumberColumn` is what a block's column is in memory and on disk: one value for all, base + i × step, or base + data[i] in
the narrowest width that holds it. `array()` gives numpy the plain values; a 64-bit column with base 0 is a view of the
file itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
AnyUnsigned = npt.NDArray[Any]
WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


@dataclass(frozen=True, slots=True)
class NumberColumn:
    count: int
    base: int
    step: int = 0  # 0 with no deltas: constant
    deltas: AnyUnsigned | None = None

    @classmethod
    def constant(cls, count: int, value: int) -> NumberColumn:
        return cls(count, value)

    @classmethod
    def sequence(cls, count: int, start: int, step: int = 1) -> NumberColumn:
        return cls(count, start, step)

    @classmethod
    def of_array(cls, values: AnyUnsigned) -> NumberColumn:
        """The narrowest form that holds the values: constant if all are equal, else base and deltas."""
        count = len(values)
        if count == 0:
            return cls(0, 0)
        low, high = int(values.min()), int(values.max())
        if low == high:
            return cls(count, low)
        width = narrowest(high - low)
        deltas = values if low == 0 else values - np.asarray(low, dtype=values.dtype)
        return cls(count, low, 0, deltas.astype(WIDTHS[width], copy=False))

    @property
    def is_constant(self) -> bool:
        return self.deltas is None and (self.step == 0 or self.count <= 1)

    def array(self) -> U64:
        if self.deltas is not None:
            wide = self.deltas.astype(np.uint64, copy=False)
            return wide if self.base == 0 else wide + np.uint64(self.base)
        if self.step == 0:
            return np.full(self.count, self.base, dtype=np.uint64)
        steps = np.arange(self.count, dtype=np.int64) * self.step
        return steps.astype(np.uint64) + np.uint64(self.base)

    def at(self, index: int) -> int:
        if self.deltas is not None:
            return self.base + int(self.deltas[index])
        return self.base + index * self.step

    def part(self, start: int, stop: int) -> NumberColumn:
        if self.deltas is not None:
            return NumberColumn(stop - start, self.base, 0, self.deltas[start:stop])
        return NumberColumn(stop - start, self.base + start * self.step, self.step)


def narrowest(value: int) -> int:
    """Bytes needed for an unsigned value: 1, 2, 4 or 8."""
    if value < 1 << 8:
        return 1
    if value < 1 << 16:
        return 2
    return 4 if value < 1 << 32 else 8
