"""The version buffer in memory: columns in memory, and files when they are too many. Also: which buffer to open.

    add    →  in memory, unordered                       copied, counted; above half of memory_bytes_max …
    spill  →  buffer-<incarnation>                       … all of it goes, in order, to an immutable file
    take   →  memory and files merged up to a version    rows of a file above it return to memory with `done`

Most entries never reach the disk a second time: they came from the log, and leave for the store before memory is full.
Batches are ordered when they are taken or spilled, all at once. Small batches are joined from time to time, since the
objects of a batch take more memory than a few entries.

Three things can run at once: adding (any number of threads), one of the long operations (spilling, persisting,
beginning or ending a take), and reading what was taken. A long operation holds the *turn*, not the lock: others add
meanwhile, until there is no room; then they wait for the turn and spill. An entry that is being spilled counts as in
memory until the file is complete, and returns to memory if writing fails. `add` makes room before it puts: when it
raises, nothing of the batch is in the buffer.

Invariants
* An entry is in exactly one place: in memory, in one file, or taken. A taken entry is dropped by `done` only (checklist
  X-04), and its files then too. So everything that was added and not done is here.
* Until `done`, files of a taken range are only read, and its entries in memory are kept: `batches` returns the same
  each time, and `put_back` has nothing to restore. `persist` moves them to a file like all others.
* Memory: memory_bytes_max, half of which may be on its way to a file; while something is taken, half as much again.

A file that is wholly above the range is not read: consuming it, as seed 2 does, would write the same entries again.
Files of an earlier process are removed on opening: the log has their entries (C-15). Only files that a restore names
(`adopted`) are taken over.

Which buffer: `memory` is the default, and writes nothing as long as reflection keeps up. `rocksdb` takes no more memory
than two memtables however far the store is behind, and costs a write and a delete per entry. After a full disk RocksDB
accepts nothing until it is reopened: for that buffer, at the next start of the program. Until then an alarm says so,
the log keeps everything, and reads overlay it on the store. Both kinds start empty, whatever an earlier process of
either kind left: the log has all of it. So a buffer damaged by a crash is never opened, and the kind can change at any
start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from warren.base.environment import Random
from warren.base.errors import Misuse, SyncFailed
from warren.base.ids import ChannelId, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns
from warren.snapshot.store import Version
from warren.snapshot.version_buffer.buffer import VersionBuffer, check_added
from warren.snapshot.version_buffer.buffer_file import BufferFile, open_buffer_file, write_buffer_file
from warren.snapshot.version_buffer.entries import (
    BufferedEntries,
    BufferedPool,
    concatenate,
    merged,
    ordered,
    rows_up_to,
)
from warren.snapshot.version_buffer.rocksdb_buffer import open_buffer

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
        """No entry is too large for empty memory (LC-01); a batch may be: it is accepted alone."""
        return self.count == 0 or self.size_bytes + size_bytes <= bytes_max

    def put(self, batch: BufferedEntries, size_bytes: int | None = None) -> None:
        """`size_bytes`: the batch's `memory_bytes`, if known."""
        size_bytes = batch.memory_bytes() if size_bytes is None else size_bytes
        self.count += batch.count
        self.size_bytes += size_bytes
        if batch.count > _SMALL_ROWS:
            self._large.append(batch)
            return
        self._small.append(batch)
        self._small_bytes += size_bytes
        if len(self._small) == _SMALL_MAX:
            self._join_small()

    def put_all(self, other: MemoryRuns) -> None:
        for batch in other.batches:
            self.put(batch)

    def divide(self, up_to: Version) -> tuple[MemoryRuns, MemoryRuns]:
        """Entries with a version up to `up_to`, and those above."""
        below, above = MemoryRuns(), MemoryRuns()
        for batch in self.batches:
            flags = rows_up_to(batch.entries.majors, batch.entries.minors, up_to)
            if isinstance(flags, bool):
                (below if flags else above).put(batch)
            else:
                pool = BufferedPool([batch])
                below.put(pool.take(np.flatnonzero(flags)))
                above.put(pool.take(np.flatnonzero(~flags)))
        return below, above

    def _join_small(self) -> None:
        whole = concatenate(self._small)
        self.size_bytes += whole.memory_bytes() - self._small_bytes
        self._small, self._small_bytes = [], 0
        self._large.append(whole)


class MemoryTakenEntries:
    """Is a `TakenEntries`: batches in memory, and files up to a row, read as one ordered sequence."""

    def __init__(
        self,
        home: MemoryBuffer,
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
        """Number of entries, with those of its files that are above the range."""
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
        """The entries in memory are in this file now."""
        self.files.append(file)
        self.stops.append(file.entries)
        self.memory = MemoryRuns()


MEMORY_BYTES_MAX = 32 << 20
BLOCK_BYTES = 256 << 10


class MemoryBuffer:
    """Is a `VersionBuffer`."""

    def __init__(
        self,
        files: Files,
        threads: Threads,
        rng: Random,
        directory: str,
        timeline: TimelineId,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        block_bytes: int = BLOCK_BYTES,
        adopted: Sequence[str] = (),
    ) -> None:
        self._disk = files
        self._rng = rng
        self._directory = directory
        self._timeline = timeline
        self._spill_bytes = memory_bytes_max // 2
        self._block_bytes = block_bytes
        self._changed = threads.condition()
        self._is_turn_taken = False
        self._memory = MemoryRuns()
        self._leaving = MemoryRuns()  # on its way to a file
        self._taken: MemoryTakenEntries | None = None
        self._sync_failure = ""
        self._files = self._begin(adopted)

    @property
    def entries(self) -> int:
        with self._changed:
            waiting = sum(file.entries for file in self._files)
            taken = 0 if self._taken is None else self._taken.entries
            return self._memory.count + self._leaving.count + waiting + taken

    @property
    def memory_bytes(self) -> int:
        with self._changed:
            taken = 0 if self._taken is None else self._taken.memory.size_bytes
            return self._memory.size_bytes + self._leaving.size_bytes + taken

    def add(self, channel: ChannelId, first_record: int, batch: EntryColumns) -> None:
        if batch.count:
            check_added(batch)
            added = BufferedEntries.of_batch(channel, first_record, batch)
            size_bytes = added.memory_bytes()
            while not self._is_put(added, size_bytes):
                with self._turn():
                    if not self._has_room_for(size_bytes):
                        self._spill()

    def take(self, up_to: Version) -> MemoryTakenEntries:
        with self._turn():
            if self._taken is not None:
                raise Misuse("a range is taken from the version buffer already", "call its done or put_back first")
            reached = [file for file in self._files if file.first_version <= up_to]
            stops = [max(file.start, file.rows_up_to(up_to)) for file in reached]
            with self._changed:
                inside, self._memory = self._memory.divide(up_to)
                self._files = [file for file in self._files if file not in reached]
                self._taken = MemoryTakenEntries(self, inside, reached, stops, self._block_bytes)
                return self._taken

    def persist(self) -> list[str]:
        with self._turn():
            self._spill()
            if self._taken is not None and self._taken.memory.count:
                self._taken.move_to(self._written(self._taken.memory))
            files = [*self._files, *([] if self._taken is None else self._taken.files)]
            self._sync(files)
            return [file.path for file in files]

    def close(self) -> None:
        """Remove everything: the log has it."""
        with self._turn():
            files = [*self._files, *([] if self._taken is None else self._taken.files)]
            self._files, self._taken, self._memory = [], None, MemoryRuns()
            for file in files:
                file.remove()

    def end(self, taken: MemoryTakenEntries, is_done: bool) -> None:
        """For `MemoryTakenEntries`: its entries are in the store, or they return."""
        with self._turn():
            with self._changed:
                if self._taken is not taken:
                    raise Misuse("this taking has ended already", "take again")
                self._taken = None
                self._files += taken.files
                if not is_done:
                    self._memory.put_all(taken.memory)
                    return
                for file, stop in zip(taken.files, taken.stops, strict=True):
                    file.start = stop
            for file in taken.files:
                self._use_up(file)

    def _begin(self, adopted: Sequence[str]) -> list[BufferFile]:
        self._disk.make_directories(self._directory)
        files = [open_buffer_file(self._disk, path, self._timeline) for path in adopted]
        for name in self._disk.list(self._directory):
            if (path := join(self._directory, name)) not in adopted:
                self._disk.remove(path)
        return files

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Exclude other long operations; others may add."""
        with self._changed:
            while self._is_turn_taken:
                self._changed.wait()
            self._is_turn_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_turn_taken = False
                self._changed.notify_all()

    def _is_put(self, added: BufferedEntries, size_bytes: int) -> bool:
        with self._changed:
            if self._memory.has_room_for(size_bytes, self._spill_bytes):
                self._memory.put(added, size_bytes)
                return True
            return False

    def _has_room_for(self, size_bytes: int) -> bool:
        with self._changed:
            return self._memory.has_room_for(size_bytes, self._spill_bytes)

    def _spill(self) -> None:
        """Write everything in memory to a file. Needs the turn."""
        with self._changed:
            self._leaving, self._memory = self._memory, MemoryRuns()
        written: list[BufferFile] = []
        try:
            if self._leaving.count:
                written.append(self._written(self._leaving))
        finally:
            with self._changed:
                self._files += written
                if not written:
                    self._memory.put_all(self._leaving)
                self._leaving = MemoryRuns()

    def _sync(self, files: Sequence[BufferFile]) -> None:
        """Sync bytes, then names. After a failure no later sync is trusted: it could succeed without having written."""
        if self._sync_failure:
            raise SyncFailed(f"cannot persist the version buffer: {self._sync_failure}", "restart: the log has it all")
        try:
            for file in files:
                file.sync()
            self._disk.sync_directory(self._directory)
        except SyncFailed as failure:
            self._sync_failure = f"an earlier sync failed ({failure.what})"
            raise

    def _written(self, memory: MemoryRuns) -> BufferFile:
        identity = FileIdentity(self._timeline, Incarnation(self._rng.id64()))
        pieces = ordered(memory.batches, 4 * self._block_bytes)
        return write_buffer_file(self._disk, self._directory, identity, pieces, self._block_bytes)

    def _use_up(self, file: BufferFile) -> None:
        """Return the remaining entries of a file to memory, spilling if needed, then remove it. Needs the turn. If it
        fails half way, the file holds the entries that did not return."""
        for block in file.blocks(file.start, file.start + file.entries):
            rest = block.owned()
            if not self._has_room_for(rest.memory_bytes()):
                self._spill()
            with self._changed:
                self._memory.put(rest)
                file.start += rest.count
        with self._changed:
            self._files.remove(file)
        file.remove()


MEMORY, ROCKSDB = "memory", "rocksdb"
MEMTABLE_BYTES_MIN = 64 << 10


def open_version_buffer(
    kind: str, environment: Environment, directory: str, timeline: TimelineId, memory_bytes: int
) -> VersionBuffer:
    if kind == MEMORY:
        return MemoryBuffer(environment.files, environment.threads, environment.rng, directory, timeline, memory_bytes)
    if kind == ROCKSDB:
        clear(environment.files, directory)
        return open_buffer(directory, environment.threads, max(memory_bytes // 2, MEMTABLE_BYTES_MIN))
    raise Misuse(f"there is no version buffer called {kind!r}", f"it may be {MEMORY} or {ROCKSDB}")


def clear(files: Files, directory: str) -> None:
    files.make_directories(directory)
    for name in files.list(directory):
        files.remove(join(directory, name))
