"""Two version buffers behind one door, and the plain model both are held to: a sorted list.

`Stage` opens either kind with tiny limits, again and again over the same disk; `Model` says what must come out.
The suite itself is test_version_buffer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocksdict import Options, Rdict

from tests.log.merge_model import Entry, columns_of, entries_of
from warren.base.ids import ChannelId, TimelineId
from warren.base.threads import SystemThreads
from warren.log.settings import EntryKind
from warren.snapshot.store import Version
from warren.snapshot.version_buffer.buffer import TakenEntries, VersionBuffer
from warren.snapshot.version_buffer.memory_buffer import MemoryBuffer
from warren.snapshot.version_buffer.rocksdb_buffer import FAMILY, RocksdbBuffer, family_options
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import MemoryFiles

TIMELINE = TimelineId(11)
DIRECTORY = "/buffer"
SPILLS_SOON_BYTES = 20_000  # a batch counts as 2 KiB at least, so half of this is a handful of them
KINDS = ("memory", "rocksdb")


def put(version: Version, key: bytes = b"k", value: bytes = b"v", storage: int = 3) -> Entry:
    return Entry(EntryKind.PUT, storage, key, version, value, epoch=version[0] + 1, undo=(7, version[1]))


class Stage:
    """A place where a buffer of one kind can be opened over and over."""

    def __init__(self, kind: str, directory: Path, memory_bytes_max: int = SPILLS_SOON_BYTES) -> None:
        self.kind = kind
        self.memory_bytes_max = memory_bytes_max
        self.disk = MemoryFiles()
        self._rng = SeededRandom(1)
        self._database: Rdict | None = None
        self._opened: list[RocksdbBuffer] = []
        if kind == "rocksdb":
            options = Options(raw_mode=True)
            options.create_if_missing(True)
            options.create_missing_column_families(True)
            self._database = Rdict(str(directory / "database"), options, {FAMILY: family_options(64 << 10)})

    def open(self, restored: Sequence[str] | None = None) -> VersionBuffer:
        """A buffer; `restored` are the files of a persisted one to continue with."""
        if self._database is not None:
            buffer = RocksdbBuffer(self._database, SystemThreads(), is_restored=restored is not None, batch_bytes=200)
            self._opened.append(buffer)
            return buffer
        return MemoryBuffer(
            self.disk,
            SystemThreads(),
            self._rng,
            DIRECTORY,
            TIMELINE,
            self.memory_bytes_max,
            block_bytes=100,
            adopted=restored or (),
        )

    def close(self) -> None:
        """RocksDB works in the background until the last reference is gone."""
        for buffer in self._opened:
            buffer.close()
        if self._database is not None:
            self._database.close()


Named = tuple[Version, int, int, Entry]  # in the order of the buffer: version, channel, record


@dataclass
class Model:
    """Everything that was added and is not done, in a list."""

    waiting: list[Named] = field(default_factory=list)
    taken: list[Named] | None = None
    records: dict[int, int] = field(default_factory=dict)

    def add(self, buffer: VersionBuffer, channel: int, entries: Sequence[Entry]) -> None:
        first = self.records.get(channel, 0)
        buffer.add(ChannelId(channel), first, columns_of(entries))
        self.waiting += [(entry.version, channel, first + n, entry) for n, entry in enumerate(entries)]
        self.records[channel] = first + len(entries)

    def take(self, up_to: Version) -> list[Entry]:
        self.taken = sorted(named for named in self.waiting if named[0] <= up_to)
        self.waiting = [named for named in self.waiting if named[0] > up_to]
        return [named[3] for named in self.taken]

    def end(self, is_done: bool) -> None:
        self.waiting += [] if is_done else self.taken or []
        self.taken = None

    @property
    def entries(self) -> int:
        return len(self.waiting) + len(self.taken or [])


def all_of(taken: TakenEntries) -> list[Entry]:
    return entries_of(taken.batches())


def emptied(buffer: VersionBuffer) -> list[Entry]:
    """Everything in the buffer, in order; it is empty afterwards."""
    taken = buffer.take(((1 << 64) - 1, (1 << 64) - 1))
    found = all_of(taken)
    taken.done()
    return found
