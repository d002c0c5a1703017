"""The safe snapshot store on RocksDB. Implements the `SnapshotStore` protocol.

    apply      one write batch: rows, counters, mark. Atomic, in memory, without a write-ahead log
    flush      memtable → file, file → manifest, both synced. The mark goes with its rows: they are one column family
    ingest     tables made by others, one more table with the mark, all of them in one atomic step
    view       a snapshot

One column family holds everything: mark, counters, rows (row_format). With two, a manual flush takes only one of them,
atomic or not, and a snapshot covers one only: after a crash, or in a view, rows and mark could differ.

When RocksDB reports an error on writing, `failure` says so and nothing more is accepted until `resume`. That reopens
it: `applied` may fall back to the last mark on disk, views are closed, and applying continues from there. A reopening
closes every view of readers, so `resume` first writes a probe file of the size of a memtable (`check_room`): while the
disk is full, readers keep their views.

Late entries may be older than what the store holds: each is compared before it is applied. They come when the log is
read again after the mark (some of it may be in the store already), or when a writer gives versions below the safe one.
An entry is applied only if it is newer than the row, than the grave of a removed row and than the newest clear of its
storage; a clear removes only rows older than itself, one by one. An entry about a storage is applied if it is newer
than the last of its kind.

Invariants
* The disk holds the state at one mark, whole. A mark that `flush` or `ingest` returned is on disk. Nothing newer than
  the mark is in the store.
* One thread applies; any may read.
* Applying entries again changes nothing, in whatever order and pieces. Graves are kept as long as anything in the store
  can be offered again (`StoreMark.is_settled`), clears for ever.

Limits: a put that was *never* offered before and is older than a remove whose grave is gone becomes visible, as it
would after a compaction at the bottom, which drops tombstones too. A late clear is one delete per removed row, in one
batch: memory for about 30 bytes and a key each. Elsewhere: whether the mark is durable in the log (the caller compares
`applied` after opening), and what to do if not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from weakref import WeakSet

import numpy as np
from rocksdict import Rdict, ReadOptions

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import Damage, DiskFailure, Misuse, OutOfRoom, Refused, WarrenError
from warren.base.ids import TimelineId
from warren.base.threads import SystemThreads, Threads
from warren.files.local import LocalFiles, make_private
from warren.files.protocol import Files, join
from warren.log.merge.merge import ABOUT_STORAGES, merge
from warren.log.merge.pool import Pool
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns
from warren.snapshot.rocksdb.options import (
    FILES_BEHIND,
    LIVE_BYTES,
    NO_SUCH_FILE,
    REBUILD,
    SnapshotStoreSettings,
    check_process,
    moving,
    rocksdb_calls,
    store_options,
    without_wal,
)
from warren.snapshot.rocksdb.read import Cursor, Pair, RocksDbReader, RocksDbView, close_all, value_in
from warren.snapshot.rocksdb.row_format import (
    BEHIND_ALL,
    COUNTER,
    FORMAT,
    GRAVE,
    MARK_KEY,
    ROW,
    StoreMark,
    about_key,
    behind_storage,
    format_of_mark,
    mark_bytes,
    mark_of,
    no_mark,
    row_keys,
    row_prefix,
    version_of,
)
from warren.snapshot.rocksdb.write_batch import BatchWriter, check_entries, highest_epoch, runs_of, values_of
from warren.snapshot.store import NO_VERSION, Applied, Version
from warren.snapshot.tables.tasks import OWNER_TABLE, write_owner_table

_PIECE_ROWS = 512


def add_late(writer: BatchWriter, stored: RocksDbReader, entries: Sequence[EntryColumns]) -> None:
    """Write those entries that are newer than the store's."""
    collapsed = merge(entries, is_bottom=False)
    about: dict[int, dict[int, Version]] = {
        storage: {key[-1]: version_of(data) for key, data in stored.about(storage)}
        for storage in np.unique(collapsed.storages.array()).tolist()
    }
    for run in runs_of(collapsed):
        if run.kinds.at(0) in ABOUT_STORAGES:
            _add_about(writer, stored, run, about[run.storages.at(0)])
        else:
            newer = _newer_rows(stored, run, {storage: _clear_of(here) for storage, here in about.items()})
            if newer:
                writer.keyed(Pool.of([run]).take(np.array(newer, dtype=np.int64)))


def _newer_rows(stored: RocksDbReader, run: EntryColumns, clears: dict[int, Version]) -> list[int]:
    """The puts and removes that are newer than row, grave and clear of their keys."""
    keys = row_keys(run.storages, run.keys)
    rows, graves = stored.raw_values(keys), stored.raw_values([GRAVE + key[len(ROW) :] for key in keys])
    newer: list[int] = []
    for at, (row, grave) in enumerate(zip(rows, graves, strict=True)):
        version = run.majors.at(at), run.minors.at(at)
        is_newer = all(data is None or version > version_of(data) for data in (row, grave))
        if is_newer and version >= clears[run.storages.at(at)]:
            newer.append(at)
    return newer


def _add_about(writer: BatchWriter, stored: RocksDbReader, entry: EntryColumns, known: dict[int, Version]) -> None:
    """One entry about a storage. `known`: the newest version in the store, by kind."""
    kind, storage, version = entry.kinds.at(0), entry.storages.at(0), (entry.majors.at(0), entry.minors.at(0))
    if version <= known.get(kind, NO_VERSION):
        return
    if kind == EntryKind.ADD_STORAGE and version < known.get(EntryKind.REMOVE_STORAGE, NO_VERSION):
        return
    if kind in CLEARING and version > _clear_of(known):
        for key in _rows_older(stored, storage, version):
            writer.batch.delete(key)
    if kind == EntryKind.REMOVE_STORAGE and known.get(EntryKind.ADD_STORAGE, version) < version:
        writer.batch.delete(about_key(storage, EntryKind.ADD_STORAGE))
    writer.note(storage, kind, values_of(entry)[0])


def _rows_older(stored: RocksDbReader, storage: int, version: Version) -> Iterator[bytes]:
    for pairs in stored.raw_pieces(row_prefix(storage), behind_storage(storage), False, _PIECE_ROWS):
        yield from (key for key, data in pairs if version_of(data) < version)


def _clear_of(known: dict[int, Version]) -> Version:
    return max(known.get(kind, NO_VERSION) for kind in CLEARING)


PROBE = "room.probe"


def check_room(files: Files, directory: str, size_bytes: int) -> None:
    """Raise the disk's error if so many bytes cannot be written. The probe file is removed."""
    path = join(directory, PROBE)
    if files.exists(path):
        files.remove(path)  # left by a killed process
    file = files.create(path)
    try:
        file.allocate(0, size_bytes)
        file.sync()
    finally:
        file.close()
        files.remove(path)


_NEW_FILES = "rocksdb.num-files-at-level0"
_ALL_BYTES = "rocksdb.total-sst-files-size"
_TIDY_FROM = 1.5  # times the live data
_TIDY_SLACK_BYTES = 256 << 10
_TIDY_BYTES_MAX = 512 << 20  # compacted in some seconds; a larger store has levels, which waste little


class RocksDbStore(RocksDbReader):
    """Opened by `open`."""

    def __init__(
        self, db: Rdict, directory: str, timeline: TimelineId, settings: SnapshotStoreSettings, threads: Threads
    ) -> None:
        super().__init__(settings)
        self._db: Rdict | None = db
        self._directory = directory
        self._timeline = timeline
        self._threads = threads
        self._open: WeakSet[RocksDbView | Cursor] = WeakSet()  # views and cursors keep RocksDB from closing
        self._failure: str | None = None
        self.on_damage: Callable[[Damage], None] = lambda damage: None
        self._write_options = without_wal()
        self._mark = no_mark(timeline)
        self._has_graves = False
        call_in_children(self)
        self._load_mark()

    @classmethod
    def open(
        cls,
        directory: str,
        timeline: TimelineId,
        settings: SnapshotStoreSettings | None = None,
        threads: Threads | None = None,
    ) -> RocksDbStore:
        """Open it, or create an empty one. One of another timeline, or of a newer format, is refused."""
        settings = settings or SnapshotStoreSettings()
        db = _opened(directory, settings)
        try:
            return cls(db, directory, timeline, settings, threads or SystemThreads())
        except BaseException:
            with suppress(WarrenError), rocksdb_calls("close the snapshot store"):  # the first error says why
                db.close()
            raise

    def forked(self) -> None:
        never_destroy(self, *self._open)

    @property
    def _rocksdb(self) -> Rdict:
        if self._db is None:
            raise Misuse("the snapshot store is closed", "open it again")
        return self._db

    @property
    def applied(self) -> Applied:
        return self._mark.applied

    @property
    def is_settled(self) -> bool:
        return self._mark.is_settled

    @property
    def size_bytes(self) -> int:
        return self._figure(LIVE_BYTES)

    def tidy(self) -> None:
        total = self._figure(_ALL_BYTES)
        if total <= _TIDY_BYTES_MAX and total > _TIDY_FROM * self.size_bytes + _TIDY_SLACK_BYTES:
            self.compact()

    @property
    def is_behind(self) -> bool:
        return self._db is not None and self._figure(_NEW_FILES) >= FILES_BEHIND

    def apply(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        are_late: bool = False,
    ) -> None:
        entries = [piece for piece in entries if piece.count]
        mark = self._mark_after(applied, highest_epoch(entries))
        check_entries(entries, applied.version)
        writer = BatchWriter(has_graves=not mark.is_settled)
        if are_late and entries:
            add_late(writer, self, entries)
        else:
            writer.add(entries)
        if mark.is_settled and self._has_graves:
            writer.close_graves()
        batch = writer.finish(counters or {}, mark)
        self._write("apply to", lambda: self._rocksdb.write(batch, self._write_options))
        self._mark = mark
        self._has_graves = writer.wrote_graves or (self._has_graves and not mark.is_settled)

    def ingest(
        self,
        paths: Sequence[str],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        cleared: Iterable[int] = (),
    ) -> None:
        mark = self._mark_after(applied, 0)
        if not mark.is_settled:
            what = f"tables up to epoch {applied.epoch} come behind an entry of epoch {mark.highest_epoch}"
            raise Misuse(what, "ingest up to the durable epoch")
        self.flush()
        own = f"{self._directory}/{OWNER_TABLE}{mark.batch}"  # a name that RocksDB does not use any more
        keys = (key for storage in sorted(set(cleared)) for key in self._keys_of(storage))
        self._write("write a table for", lambda: write_owner_table(own, mark, counters or {}, keys, self._settings))
        try:
            self._write("ingest into", lambda: self._rocksdb.ingest_external_file([own, *paths], moving()))
        except Refused as refused:
            if applied != self._mark.applied or NO_SUCH_FILE not in refused.what:
                raise  # else it was ingested before, which consumed the files
            return
        self._mark = mark

    def flush(self) -> Applied:
        applied = self._mark.applied
        self._write("flush", self._rocksdb.flush)
        return applied

    def compact(self) -> None:
        """Run RocksDB's compaction of everything now."""
        self._write("compact", lambda: self._rocksdb.compact_range(None, None))

    def view(self) -> RocksDbView:
        while True:
            with rocksdb_calls("read the snapshot store"):
                snapshot = self._rocksdb.snapshot()
            cursor = self._cursor(ReadOptions())
            if (mark := cursor.value(MARK_KEY)) == value_in(snapshot, MARK_KEY):
                break
            cursor.close()  # a batch was applied between the two
        seen = mark_of(mark) if mark else no_mark(self._timeline)
        view = RocksDbView(snapshot, cursor, seen, self._settings, self._damaged)
        self._open.add(view)
        return view

    @property
    def failure(self) -> str | None:
        if self._failure is None and self._figure("rocksdb.background-errors"):
            self._failure = f"RocksDB could not flush or compact: see the file LOG in {self._directory}"
        return self._failure

    def resume(self) -> None:
        self._failure = self._failure or "it could not be opened again"
        check_room(LocalFiles(), self._directory, self._settings.write_buffer_bytes)
        self._release()
        self._db = _opened(self._directory, self._settings)
        self._load_mark()
        self._failure = None

    def close(self) -> None:
        try:
            if self._db is not None and self.failure is None:
                self.flush()
        finally:
            self._release()

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        view = self.view()
        try:
            yield from view.batches(storage)
        finally:
            view.close()

    def raw_value(self, key: bytes) -> bytes | None:
        with rocksdb_calls("read the snapshot store", self._damaged):
            data: bytes | None = self._rocksdb.get(key)
        return data

    def raw_values(self, keys: list[bytes]) -> list[bytes | None]:
        with rocksdb_calls("read the snapshot store", self._damaged):
            datas = self._rocksdb.get(cast(Any, keys)) if keys else []
        return cast(list[bytes | None], datas)

    def raw_pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]:
        bounds = ReadOptions()
        bounds.set_iterate_lower_bound(low)
        bounds.set_iterate_upper_bound(high)
        cursor = self._cursor(bounds)
        try:
            yield from cursor.pieces(low, high, reverse, rows_max)
        finally:
            cursor.close()

    def _damaged(self, damage: Damage) -> None:
        self.on_damage(damage)

    def _figure(self, name: str) -> int:
        with rocksdb_calls("read figures of the snapshot store"):
            return int(self._rocksdb.property_value(name) or 0)

    def _cursor(self, bounds: ReadOptions) -> Cursor:
        with rocksdb_calls("read the snapshot store"):
            cursor = Cursor(self._rocksdb.iter(bounds), self._threads.condition(), self._damaged)
        self._open.add(cursor)
        return cursor

    def _keys_of(self, storage: int) -> Iterator[bytes]:
        for pairs in self.raw_pieces(row_prefix(storage), behind_storage(storage), False, self._settings.batch_rows):
            yield from (key for key, _ in pairs)

    def _mark_after(self, applied: Applied, epoch: int) -> StoreMark:
        """The next mark, with the highest epoch of the new entries."""
        old = self._mark.applied
        if applied.timeline != old.timeline:
            raise Misuse(f"a mark of timeline {applied.timeline:x} for a store of timeline {old.timeline:x}")
        if applied.epoch < old.epoch or applied.version < old.version:
            raise Misuse(f"the mark would go back, from {_text(old)} to {_text(applied)}")
        return StoreMark(applied, max(self._mark.highest_epoch, epoch), self._mark.batch + 1)

    def _write(self, operation: str, call: Callable[[], None]) -> None:
        if (failure := self.failure) is not None:
            raise DiskFailure(f"the snapshot store accepts no writes: {failure}", "remove the cause, then resume")
        try:
            with rocksdb_calls(f"{operation} the snapshot store"):
                call()
        except (DiskFailure, OutOfRoom) as error:
            self._failure = error.what
            raise

    def _load_mark(self) -> None:
        """Read the mark on disk, and check it."""
        data = self.raw_value(MARK_KEY)
        if data is None and any(True for _ in self.raw_pieces(COUNTER, BEHIND_ALL, False, 1)):
            raise Damage(f"the snapshot store in {self._directory} has rows and no mark", hint=REBUILD)
        if data is not None and format_of_mark(data) > FORMAT:
            theirs = f"the snapshot store in {self._directory} has format {format_of_mark(data)}"
            raise Refused(f"{theirs}; this version knows {FORMAT}", f"use a newer warren, or {REBUILD}")
        mark = no_mark(self._timeline) if data is None else mark_of(data)
        if mark.applied.timeline != self._timeline:
            theirs = f"the snapshot store in {self._directory} is of timeline {mark.applied.timeline:x}"
            raise Refused(f"{theirs}, not {self._timeline:x}", REBUILD)
        self._mark = mark
        self._has_graves = any(True for _ in self.raw_pieces(GRAVE, BEHIND_ALL, False, 1))
        if data is None:
            # RocksDB 9.8 confuses a snapshot taken before the first write with none, and its compaction then drops rows
            # of ingested files: so there is a write before there can be a snapshot or a file.
            with rocksdb_calls("mark the snapshot store"):
                self._rocksdb.put(MARK_KEY, mark_bytes(mark), self._write_options)

    def _release(self) -> None:
        """Close views and cursors, then RocksDB."""
        close_all(self._open)
        db, self._db = self._db, None
        if db is not None and self._failure is None:
            with rocksdb_calls("close the snapshot store"):
                db.close()
        # After a failure it is only dropped: `close` would flush, and raise the same error again.


def _opened(directory: str, settings: SnapshotStoreSettings) -> Rdict:
    check_process(directory)
    make_private(directory)
    with rocksdb_calls(f"open the snapshot store in {directory}"):
        return Rdict(directory, store_options(settings))


def _text(applied: Applied) -> str:
    return "epoch {}, version {}.{}".format(applied.epoch, *applied.version)
