"""What was taken from a memory buffer: some batches in memory, some files up to a row, read as one ordered sequence.

Nothing of it is gone before `done`: files are only read, and what was in memory is held here. So `batches` gives the
same each time, and `put_back` has nothing to make good. If the buffer is persisted meanwhile, what is held here moves
to a file as everything else does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from warren.records.columns import EntryColumns
from warren.snapshot.buffer_file import BufferFile
from warren.snapshot.in_memory import MemoryRuns
from warren.snapshot.kept import ordered
from warren.snapshot.run_merge import merged


class TakenRangeOwner(Protocol):
    """Where it was taken from."""

    def end(self, taken: MemoryTakenRange, is_done: bool) -> None: ...


class MemoryTakenRange:
    """Is a `Taken`."""

    def __init__(
        self,
        home: TakenRangeOwner,
        memory: MemoryRuns,
        files: Sequence[BufferFile],
        stops: Sequence[int],
        batch_bytes: int,
    ) -> None:
        self._home = home
        self._batch_bytes = batch_bytes
        self.memory = memory
        self.files = list(files)
        self.stops = list(stops)  # where the range ends in each

    @property
    def entries(self) -> int:
        """How many are held here, those of its files that lie above the range included."""
        return self.memory.count + sum(file.entries for file in self.files)

    def batches(self) -> Iterator[EntryColumns]:
        pairs = zip(self.files, self.stops, strict=True)
        runs = [file.blocks(file.start, stop) for file, stop in pairs if stop > file.start]
        if self.memory.count:
            runs.append(ordered(self.memory.batches, self._batch_bytes))
        return merged(runs, self._batch_bytes)

    def done(self) -> None:
        self._home.end(self, is_done=True)

    def put_back(self) -> None:
        self._home.end(self, is_done=False)

    def move_to(self, file: BufferFile) -> None:
        """What was held in memory stands in this file now."""
        self.files.append(file)
        self.stops.append(file.entries)
        self.memory = MemoryRuns()
