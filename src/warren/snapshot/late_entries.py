"""Entries that may be older than what the store holds: each is compared before it is taken.

They come when the log is read again behind the mark (some of it may be in the store already), or when a writer gives
versions below the safe one. An entry counts only if it is newer than the row, than the grave of a removed row and than
the newest clear of its storage; a clear takes only rows older than itself, one by one. Entries about a storage count if
they are newer than the last of their kind.

Always true: taking entries again that were taken before changes nothing, in whatever order and pieces. Graves are kept
as long as anything in the store can be offered again (`Mark.is_settled`), clears for ever.

Left out: a put that was *never* offered before and is older than a remove whose grave is gone. It comes to life, as it
would after a compaction at the bottom, which drops tombstones too. And a late clear is one delete for each row that
it takes, in one batch: memory for about 30 bytes and a key each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from warren.log.entries import CLEARING, EntryKind
from warren.log.merge import merge
from warren.log.pool import Pool
from warren.log.storage_entries import ABOUT_STORAGES
from warren.records.columns import EntryColumns
from warren.snapshot.applied import NO_VERSION, Version
from warren.snapshot.rocksdb_batch import BatchWriter, runs_of, values_of
from warren.snapshot.rocksdb_reading import RocksDbReader
from warren.snapshot.row_format import GRAVE, ROW, about_key, behind_storage, row_keys, row_prefix, version_of

_PIECE_ROWS = 512


def add_late(writer: BatchWriter, stored: RocksDbReader, entries: Sequence[EntryColumns]) -> None:
    """Write what counts of the entries."""
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
    """Which of these puts and removes are newer than everything that the store knows of their keys."""
    keys = row_keys(run.storages, run.keys)
    rows, graves = stored.raw_values(keys), stored.raw_values([GRAVE + key[len(ROW) :] for key in keys])
    newer: list[int] = []
    for at, (row, grave) in enumerate(zip(rows, graves, strict=True)):
        version = run.majors.at(at), run.minors.at(at)
        is_newer = all(held is None or version > version_of(held) for held in (row, grave))
        if is_newer and version >= clears[run.storages.at(at)]:
            newer.append(at)
    return newer


def _add_about(writer: BatchWriter, stored: RocksDbReader, entry: EntryColumns, held: dict[int, Version]) -> None:
    """One entry about a storage. What the store held is compared: `held` has the versions by kind."""
    kind, storage, version = entry.kinds.at(0), entry.storages.at(0), (entry.majors.at(0), entry.minors.at(0))
    if version <= held.get(kind, NO_VERSION):
        return
    if kind == EntryKind.ADD_STORAGE and version < held.get(EntryKind.REMOVE_STORAGE, NO_VERSION):
        return
    if kind in CLEARING and version > _clear_of(held):
        for key in _rows_older(stored, storage, version):
            writer.batch.delete(key)
    if kind == EntryKind.REMOVE_STORAGE and held.get(EntryKind.ADD_STORAGE, version) < version:
        writer.batch.delete(about_key(storage, EntryKind.ADD_STORAGE))
    writer.note(storage, kind, values_of(entry)[0])


def _rows_older(stored: RocksDbReader, storage: int, version: Version) -> Iterator[bytes]:
    for pairs in stored.raw_pieces(row_prefix(storage), behind_storage(storage), False, _PIECE_ROWS):
        yield from (key for key, data in pairs if version_of(data) < version)


def _clear_of(held: dict[int, Version]) -> Version:
    return max(held.get(kind, NO_VERSION) for kind in CLEARING)
