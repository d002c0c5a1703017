"""Tables for the snapshot store, made elsewhere: RocksDB files that the store takes in one step (`ingest`).

    task k      entries of a key range, merged, sorted by storage and key  →  a table, and its figures
    owner       ingests all tables of one mark, with one small table of his own: mark, counters, keys that a clear takes

`write_table` needs nothing but the library, so a Spark task or a worker process can call it; the tables lie on the
store's disk, for they are linked into the store, not copied. A put is a row, a remove a tombstone of RocksDB. Entries
about storages go behind the rows (row_format). A clear in a table removes nothing by itself, for rocksdict's writer has
no ranges: the figures name the cleared storages, and the owner's table removes, key by key, what the store holds of
them. It comes first in the one step, so that what tables put into a cleared storage stays.

Always true: the step is atomic and on disk when it returns. A crash before it leaves the tables where they are, to be
ingested again; after it the mark says that it was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rocksdict import SstFileWriter

from warren.log.entries import CLEARING, EntryKind
from warren.log.storage_entries import ABOUT_STORAGES
from warren.records.columns import EntryColumns
from warren.snapshot.applied import NO_VERSION, Version
from warren.snapshot.rocksdb_batch import check_entries, newest_version, runs_of, values_of
from warren.snapshot.rocksdb_errors import rocksdb_calls
from warren.snapshot.rocksdb_options import SnapshotStoreSettings, table_options
from warren.snapshot.row_format import COUNTER, MARK_KEY, StoreMark, about_key, mark_bytes, row_keys

OWNER_TABLE = "owner.table."  # and a number
_ANY_VERSION = ((1 << 64) - 1, (1 << 64) - 1)


@dataclass(slots=True)
class TableFigures:
    """What a table holds. Without entries there is no file, and nothing to ingest."""

    path: str
    puts: int = 0
    removes: int = 0
    newest: Version = NO_VERSION  # of all its entries
    cleared: set[int] = field(default_factory=set)  # storages whose older rows must go

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "cleared": sorted(self.cleared)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TableFigures:
        major, minor = raw["newest"]
        return cls(raw["path"], raw["puts"], raw["removes"], (major, minor), set(raw["cleared"]))

    @property
    def has_file(self) -> bool:
        return bool(self.puts or self.removes or self.newest > NO_VERSION)


def write_table(
    path: str, batches: Iterable[EntryColumns], settings: SnapshotStoreSettings | None = None
) -> TableFigures:
    """Write entries, one for each key, sorted by storage and key, to a new file at `path`."""
    figures = TableFigures(path)
    table = _Table(path, settings or SnapshotStoreSettings())
    about: dict[bytes, bytes | None] = {}
    for batch in batches:
        check_entries([batch], _ANY_VERSION)
        for run in runs_of(batch):
            figures.newest = max(figures.newest, newest_version(run))
            if run.kinds.at(0) in ABOUT_STORAGES:
                _note(about, run, figures)
            else:
                table.add(run, figures)
    for key in sorted(about):
        table.put(key, about[key])
    table.finish()
    return figures


def write_owner_table(
    path: str,
    mark: StoreMark,
    counters: Mapping[bytes, bytes | None],
    removed_keys: Iterable[bytes],
    settings: SnapshotStoreSettings,
) -> None:
    """Mark, counters, and keys (RocksDB's, in order) that go."""
    table = _Table(path, settings)
    table.put(MARK_KEY, mark_bytes(mark))
    for name in sorted(counters):
        table.put(COUNTER + name, counters[name])
    for key in removed_keys:
        table.put(key, None)
    table.finish()


class _Table:
    """A file that is made when the first entry comes, for RocksDB makes none without entries."""

    def __init__(self, path: str, settings: SnapshotStoreSettings) -> None:
        self._path = path
        self._settings = settings
        self._writer: SstFileWriter | None = None

    def add(self, run: EntryColumns, figures: TableFigures) -> None:
        """Puts and removes."""
        writer, keys, values = self._opened(), row_keys(run.storages, run.keys), values_of(run)
        with rocksdb_calls(f"write the table {self._path}"):
            if run.kinds.is_constant and run.kinds.base == EntryKind.PUT:
                deque(map(writer.__setitem__, keys, values), maxlen=0)
                figures.puts += run.count
                return
            for kind, key, value in zip(run.kinds.array().tolist(), keys, values, strict=True):
                if kind == EntryKind.PUT:
                    writer[key] = value
                    figures.puts += 1
                else:
                    del writer[key]
                    figures.removes += 1

    def put(self, key: bytes, value: bytes | None) -> None:
        writer = self._opened()
        with rocksdb_calls(f"write the table {self._path}"):
            if value is None:
                del writer[key]
            else:
                writer[key] = value

    def finish(self) -> None:
        if self._writer is not None:
            with rocksdb_calls(f"write the table {self._path}"):
                self._writer.finish()

    def _opened(self) -> SstFileWriter:
        if self._writer is None:
            with rocksdb_calls(f"write the table {self._path}"):
                self._writer = SstFileWriter(table_options(self._settings))
                self._writer.open(self._path)
        return self._writer


def _note(about: dict[bytes, bytes | None], entry: EntryColumns, figures: TableFigures) -> None:
    """One entry about a storage."""
    storage, kind = entry.storages.at(0), entry.kinds.at(0)
    about[about_key(storage, kind)] = values_of(entry)[0]
    if kind in CLEARING:
        figures.cleared.add(storage)
    if kind == EntryKind.REMOVE_STORAGE:  # in front of it an addition that is newer may stand; none of the store's is
        about.setdefault(about_key(storage, EntryKind.ADD_STORAGE), None)
