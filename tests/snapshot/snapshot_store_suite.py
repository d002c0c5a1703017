"""Snapshot stores behind one door, and the plain model all are held to: the merge rule written by hand.

RocksDB, the one that forgets, and RocksDB written by its owner and read by another process, as secondary.
`Stage` opens any kind, again and again over the same disk, and cuts its power; `Model` says what must be in it.
The suite itself is test_snapshot_store.py, its state machine test_snapshot_store_machine.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.log.merge_model import Entry, columns_of, entries_of, merged_by_hand
from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import Damage
from warren.base.ids import Epoch, TimelineId
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns
from warren.snapshot.puller.secondary import SecondaryStore
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import NO_VERSION, Applied, SnapshotStore, StoreReader, Version
from warren.snapshot.tables.tasks import write_table
from warren.testing.fakes import SeededRandom

TIMELINE = TimelineId(11)
SMALL = SnapshotStoreSettings(write_buffer_bytes=1 << 20, block_cache_bytes=1 << 20, read_rows=3, batch_rows=5)
QUICK_PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else None  # for many short lives: no disk to wait for
KINDS = ("rocksdb", "forgetful", "secondary")


def put(version: Version, key: bytes = b"k", value: bytes = b"v", storage: int = 3, epoch: int | None = None) -> Entry:
    return Entry(EntryKind.PUT, storage, key, version, value, version[0] if epoch is None else epoch)


def remove(version: Version, key: bytes = b"k", storage: int = 3, epoch: int | None = None) -> Entry:
    return Entry(EntryKind.REMOVE, storage, key, version, b"", version[0] if epoch is None else epoch)


def about(kind: EntryKind, version: Version, storage: int = 3, epoch: int | None = None, value: bytes = b"") -> Entry:
    return Entry(kind, storage, b"", version, value, version[0] if epoch is None else epoch)


def mark(epoch: int, version: Version | None = None, timeline: TimelineId = TIMELINE) -> Applied:
    return Applied(timeline, Epoch(epoch), (epoch, 0) if version is None else version)


def apply(store: SnapshotStore, *entries: Entry, at: Applied | None = None, are_late: bool = False) -> None:
    """One batch; without a mark it gets that of its last entry."""
    newest = max(entry.version for entry in entries) if entries else store.applied.version
    at = at or mark(max([store.applied.epoch, *(entry.epoch for entry in entries)]), max(newest, store.applied.version))
    store.apply([columns_of(entries)], at, are_late=are_late)


def held_by(reading: StoreReader, storage: int | None = None) -> list[Entry]:
    return entries_of(reading.batches(storage))


class ReadBesideOwner(SecondaryStore):
    """Everything is written by an owner, flushed, and read as secondary. Is a `SnapshotStore`."""

    owner: RocksDbStore
    on_damage: Callable[[Damage], None]

    @classmethod
    def opened(cls, path: str, timeline: TimelineId, settings: SnapshotStoreSettings) -> ReadBesideOwner:
        owner = RocksDbStore.open(path, timeline, settings)
        owner.flush()
        reader = cls.open(path, f"{path}.secondary", timeline, settings)
        assert isinstance(reader, cls)
        reader.owner = owner
        return reader

    def apply(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        are_late: bool = False,
    ) -> None:
        self.owner.apply(entries, applied, counters, are_late)
        self.flush()

    def ingest(
        self,
        paths: Sequence[str],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        cleared: Iterable[int] = (),
    ) -> None:
        self.owner.ingest(paths, applied, counters, cleared)
        self.catch_up()

    @property
    def is_settled(self) -> bool:
        return self.owner.is_settled

    @property
    def is_behind(self) -> bool:
        return self.owner.is_behind

    def tidy(self) -> None:
        self.owner.tidy()

    def flush(self) -> Applied:
        mark = self.owner.flush()
        assert self.catch_up() == mark
        return mark

    @property
    def failure(self) -> str | None:
        return self.owner.failure

    def resume(self) -> None:
        self.owner.resume()

    def close(self) -> None:
        super().close()
        self.owner.close()


class Stage:
    """A place where a store of one kind can be opened over and over."""

    def __init__(self, kind: str, directory: Path, settings: SnapshotStoreSettings = SMALL) -> None:
        self.kind = kind
        self.directory = directory
        self._settings = settings
        self._life = 0
        self._seed = SeededRandom(1)
        self.store: SnapshotStore = self._opened(TIMELINE)

    @property
    def path(self) -> Path:
        return self.directory / f"store{self._life}"

    def reopen(self, timeline: TimelineId = TIMELINE) -> SnapshotStore:
        """Stop cleanly and start again."""
        self.store.close()
        old = self.store
        self.store = old.reopened(timeline) if isinstance(old, VolatileStore) else self._opened(timeline)
        return self.store

    def crash(self) -> SnapshotStore:
        """Cut the power. RocksDB's files are taken away from under it as they are, as `kill -9` would leave them."""
        old = self.store
        if isinstance(old, VolatileStore):
            self.store = old.crash(self._seed)
            return self.store
        before = self.path
        self._life += 1
        _copy_at_rest(before, self.path)
        old.close()
        shutil.rmtree(before)
        self.store = self._opened(TIMELINE)
        return self.store

    def table(self, name: str, entries: Sequence[Entry]) -> tuple[str, set[int]]:
        """A table for `ingest`: its path, and the storages that it clears."""
        path = str(self.directory / name)
        if isinstance(self.store, VolatileStore):
            self.store.tables[path] = [columns_of(entries)]
            return path, {entry.storage for entry in entries if entry.kind in CLEARING}
        figures = write_table(path, [columns_of(entries[:3]), columns_of(entries[3:])])
        return path, figures.cleared

    def close(self) -> None:
        self.store.close()

    def _opened(self, timeline: TimelineId) -> SnapshotStore:
        if self.kind == "forgetful":
            return VolatileStore(timeline)
        kind = ReadBesideOwner.opened if self.kind == "secondary" else RocksDbStore.open
        return kind(str(self.path), timeline, self._settings)


def _copy_at_rest(source: Path, target: Path) -> None:
    """A copy that is of one moment: made once more if RocksDB worked in the background meanwhile."""
    while True:
        with suppress(shutil.Error, FileNotFoundError):  # a file went that compaction had done with
            before = _files_in(source)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))
            if before == _files_in(source):
                return
        shutil.rmtree(target, ignore_errors=True)


def _files_in(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


class Model:
    """All entries that count, and the mark. Removes are forgotten when nothing held can be offered again."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.counters: dict[bytes, bytes] = {}
        self.applied = Applied(TIMELINE, Epoch(0), NO_VERSION)
        self.highest_epoch = 0

    def copy(self) -> Model:
        other = Model()
        other.entries, other.counters = list(self.entries), dict(self.counters)
        other.applied, other.highest_epoch = self.applied, self.highest_epoch
        return other

    def take(self, entries: Sequence[Entry], applied: Applied, counters: Mapping[bytes, bytes | None]) -> None:
        self.entries += entries
        self.applied = applied
        self.highest_epoch = max([self.highest_epoch, *(entry.epoch for entry in entries)])
        every = {**self.counters, **counters}
        self.counters = {name: value for name, value in every.items() if value is not None}
        if self.highest_epoch <= applied.epoch:
            left = merged_by_hand(self.entries, is_bottom=False)
            self.entries = [entry for entry in left if entry.kind != EntryKind.REMOVE]

    def rows(self) -> list[Entry]:
        return merged_by_hand(self.entries, is_bottom=True)

    def offered_again(self) -> list[Entry]:
        """What a start-up would read from the log once more."""
        return [entry for entry in self.entries if entry.epoch > self.applied.epoch]
