"""Where to cut the keys of a merge so that the pieces are about equally large: bounds taken from real keys.

A sample that is off makes pieces uneven, and nothing else. (log/range_plan shows it a few blocks of each file.)
"""

from __future__ import annotations

from warren.log.key_range import Bound
from warren.records.columns import EntryColumns

_SAMPLED_PER_RANGE = 64
_SAMPLED_MIN = 4


class Sample:
    """Every so many-th key, each once; fewer of them if they are long."""

    def __init__(self, entries: int, ranges: int, bytes_max: int, per_range: int | None = None) -> None:
        self._ranges = ranges
        self._bytes_max = bytes_max
        self._step = entries // (ranges * (per_range or _SAMPLED_PER_RANGE)) + 1
        self._seen = 0
        self._keys: set[Bound] = set()
        self._bytes = 0

    def look_at(self, batch: EntryColumns) -> None:
        for row in range(-self._seen % self._step, batch.count, self._step):
            key = (batch.storages.at(row), batch.keys.at(row))
            self._bytes += 0 if key in self._keys else len(key[1])
            self._keys.add(key)
            if self._bytes > self._bytes_max and len(self._keys) > _SAMPLED_MIN:
                self._thin_out()
        self._seen += batch.count

    def bounds(self) -> list[Bound]:
        """Bounds that cut the different keys evenly, one less than ranges; at least one if there are two keys."""
        keys = sorted(self._keys)
        chosen = {max(len(keys) * number // self._ranges, 1) for number in range(1, self._ranges)}
        return [keys[number] for number in sorted(chosen) if number < len(keys)]

    def _thin_out(self) -> None:
        self._step *= 2
        self._keys = set(sorted(self._keys)[::2])
        self._bytes = sum(len(key) for _, key in self._keys)
