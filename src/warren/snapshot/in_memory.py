"""What a version buffer holds in memory: batches as they came, and about how many bytes they take.

Nothing is ordered here: that is done when it is taken or written out, for everything at once. Small batches are joined
from time to time, since the objects of a batch weigh more than a few entries do.

Not here: threads (whoever holds one of these also holds a lock).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from warren.snapshot.applied import Version
from warren.snapshot.kept import BufferedEntries, BufferedPool, one_behind_the_other
from warren.snapshot.version_order import rows_up_to

_SMALL_ROWS = 64
_SMALL_MAX = 64  # so many small batches are joined to one


class MemoryRuns:
    def __init__(self, batches: Iterable[BufferedEntries] = ()) -> None:
        self._large: list[BufferedEntries] = []
        self._small: list[BufferedEntries] = []
        self._small_bytes = 0
        self.count = 0
        self.size_bytes = 0
        for batch in batches:
            self.put(batch)

    @property
    def batches(self) -> list[BufferedEntries]:
        return [*self._large, *self._small]

    def has_room_for(self, size_bytes: int, bytes_max: int) -> bool:
        """An entry too large for empty memory does not exist (LC-01); a batch may be that large: it comes in alone."""
        return self.count == 0 or self.size_bytes + size_bytes <= bytes_max

    def put(self, kept: BufferedEntries, size_bytes: int | None = None) -> None:
        """Keep it; `size_bytes` is its `memory_bytes`, if that is known."""
        size_bytes = kept.memory_bytes() if size_bytes is None else size_bytes
        self.count += kept.count
        self.size_bytes += size_bytes
        if kept.count > _SMALL_ROWS:
            self._large.append(kept)
            return
        self._small.append(kept)
        self._small_bytes += size_bytes
        if len(self._small) == _SMALL_MAX:
            self._join_small()

    def put_all(self, other: MemoryRuns) -> None:
        for batch in other.batches:
            self.put(batch)

    def divide(self, up_to: Version) -> tuple[MemoryRuns, MemoryRuns]:
        """Those whose version is not above `up_to`, and the others."""
        inside, outside = MemoryRuns(), MemoryRuns()
        for batch in self.batches:
            flags = rows_up_to(batch.entries.majors, batch.entries.minors, up_to)
            if isinstance(flags, bool):
                (inside if flags else outside).put(batch)
            else:
                pool = BufferedPool([batch])
                inside.put(pool.take(np.flatnonzero(flags)))
                outside.put(pool.take(np.flatnonzero(~flags)))
        return inside, outside

    def _join_small(self) -> None:
        whole = one_behind_the_other(self._small)
        self.size_bytes += whole.memory_bytes() - self._small_bytes
        self._small, self._small_bytes = [], 0
        self._large.append(whole)
