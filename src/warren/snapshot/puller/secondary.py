"""The safe snapshot store, read beside the process that owns it: a RocksDB *secondary*.

    owner (puller)     applies, flushes, compacts             <directory>/store
    secondary          catch_up: continues in its manifest    <directory>/secondary   (only RocksDB's own LOG)

A secondary sees what was flushed: the owner writes no write-ahead log, and its memtables are private. Between two calls
of `catch_up` the secondary does not change, however much the owner flushes or compacts: all files of its state are
open, and stay readable when their names go. RocksDB has no snapshots for a secondary, but an iterator keeps its state.
So a view is one iterator, for gets as well as for ranges, and so is the store itself: the newest of them.

Invariants
* `applied`, gets, ranges and batches are of one state, that of the last `catch_up`; the mark never goes back.
* A mark seen here may be slightly ahead of the owner's sync, since its manifest is written before it is synced: the log
  may be purged only up to a mark that the owner has reported as flushed (client).

Nothing here writes. The options are the owner's, so the settings must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakSet

from rocksdict import AccessType, Rdict, ReadOptions

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import DiskFailure, Misuse, Refused, WarrenError
from warren.base.ids import TimelineId
from warren.base.threads import SystemThreads, Threads
from warren.files.local import make_private
from warren.records.columns import EntryColumns
from warren.snapshot.rocksdb.options import (
    LIVE_BYTES,
    SnapshotStoreSettings,
    check_process,
    rocksdb_calls,
    store_options,
)
from warren.snapshot.rocksdb.read import Cursor, Pair, RocksDbReader, close_all
from warren.snapshot.rocksdb.row_format import MARK_KEY, StoreMark, mark_of, no_mark
from warren.snapshot.store import Applied

TRIES = 5  # the owner may remove a file after its name was read and before it is opened


class CursorView(RocksDbReader):
    """One state of the store, read by one iterator. Is a `StoreView`."""

    def __init__(self, cursor: Cursor, mark: StoreMark, settings: SnapshotStoreSettings) -> None:
        super().__init__(settings)
        self._cursor = cursor
        self.mark = mark

    @property
    def applied(self) -> Applied:
        return self.mark.applied

    def close(self) -> None:
        self._cursor.close()

    def raw_value(self, key: bytes) -> bytes | None:
        return self._cursor.value(key)

    def raw_values(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._cursor.value(key) for key in keys]

    def raw_pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]:
        return self._cursor.pieces(low, high, reverse, rows_max)


class SecondaryStore(RocksDbReader):
    """Opened by `open`. Is a `ViewedStore` with `catch_up`."""

    def __init__(self, db: Rdict, timeline: TimelineId, settings: SnapshotStoreSettings, threads: Threads) -> None:
        super().__init__(settings)
        self._db: Rdict | None = db
        self._timeline = timeline
        self._lock = threads.condition()  # held by `catch_up` and `close`
        self._threads = threads
        self._cursors: WeakSet[Cursor] = WeakSet()  # open ones keep RocksDB from closing
        call_in_children(self)
        self._latest = self.view()

    def forked(self) -> None:
        never_destroy(self, *self._cursors)

    @classmethod
    def open(
        cls,
        directory: str,
        own_directory: str,
        timeline: TimelineId,
        settings: SnapshotStoreSettings | None = None,
        threads: Threads | None = None,
    ) -> SecondaryStore:
        """Open the store of another process. It must exist."""
        settings = settings or SnapshotStoreSettings()
        check_process(directory)
        make_private(own_directory)
        options = store_options(settings)
        options.create_if_missing(False)
        options.set_max_open_files(-1)
        for left in reversed(range(TRIES)):
            try:
                with rocksdb_calls(f"read the snapshot store in {directory} beside its owner"):
                    db = Rdict(directory, options, access_type=AccessType.secondary(own_directory))
                break
            except (Refused, DiskFailure):
                if not left:
                    raise
        try:
            return cls(db, timeline, settings, threads or SystemThreads())
        except BaseException:
            with suppress(WarrenError), rocksdb_calls("close the snapshot store"):  # the first error says why
                db.close()
            raise

    @property
    def applied(self) -> Applied:
        return self._latest.applied

    @property
    def size_bytes(self) -> int:
        """Estimated size of its contents on disk."""
        with self._lock, rocksdb_calls("read figures of the snapshot store"):
            return int(self._db.property_value(LIVE_BYTES) or 0) if self._db is not None else 0

    def catch_up(self) -> Applied:
        """Read what the owner has flushed by now; the mark afterwards."""
        with self._lock:
            if self._db is None:
                raise _closed()
            with rocksdb_calls("catch up with the snapshot store"):
                self._db.try_catch_up_with_primary()
            newest = self.view()
            if newest.mark == self._latest.mark:
                newest.close()
            else:
                self._latest = newest  # open ranges keep the state before
            return self._latest.applied

    def view(self) -> CursorView:
        """A view of the state of the last `catch_up`."""
        db = self._db
        if db is None:
            raise _closed()
        with rocksdb_calls("read the snapshot store"):
            cursor = Cursor(db.iter(ReadOptions()), self._threads.condition())
        self._cursors.add(cursor)
        data = cursor.value(MARK_KEY)
        return CursorView(cursor, mark_of(data) if data else no_mark(self._timeline), self._settings)

    def close(self) -> None:
        with self._lock:
            close_all(self._cursors)
            db, self._db = self._db, None
            if db is not None:
                with rocksdb_calls("close the snapshot store"):
                    db.close()

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        return self._latest.batches(storage)

    def raw_value(self, key: bytes) -> bytes | None:
        return self._latest.raw_value(key)

    def raw_values(self, keys: list[bytes]) -> list[bytes | None]:
        return self._latest.raw_values(keys)

    def raw_pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]:
        return self._latest.raw_pieces(low, high, reverse, rows_max)


def _closed() -> Misuse:
    return Misuse("the snapshot store is closed", "open it again")
