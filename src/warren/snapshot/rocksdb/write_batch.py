"""Entries as one RocksDB write batch.

    put             the row
    remove          deletes the row; while its put may be offered again, a grave records the remove (row_format)
    clear           deletes all rows of the storage, by one range; the entry is kept, to be compared with late ones
    add, remove     of a storage: the entry is kept; a removal deletes the addition before it

RocksDB applies a batch in its order, so entries in version order are written one after another. Keyed entries between
two clears are sorted by key first, those of one key in their order: memtables accept sorted rows a third faster. A
clear keeps rows of its own version, by the merge rule, so it comes first among equal versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import le

import numpy as np
from rocksdict import WriteBatch

from warren.base.errors import Misuse, Refused
from warren.log.merge.merge import ABOUT_STORAGES, KEYED
from warren.log.merge.pool import Flags, Pool, concatenated
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns
from warren.snapshot.rocksdb.row_format import (
    BEHIND_ALL,
    COUNTER,
    GRAVE,
    MARK_KEY,
    ROW,
    StoreMark,
    about_key,
    behind_storage,
    mark_bytes,
    row_keys,
    row_prefix,
    row_values,
)
from warren.snapshot.store import Version


class BatchWriter:
    """Fills one write batch. `has_graves`: removes leave a grave."""

    def __init__(self, has_graves: bool) -> None:
        self.batch = WriteBatch(raw_mode=True)
        self.wrote_graves = False
        self._has_graves = has_graves

    def add(self, entries: Sequence[EntryColumns]) -> None:
        """Entries in version order, or collapsed to one for each key."""
        kinds = [kinds_of(piece) for piece in entries]
        if any(not here.isdisjoint(CLEARING) for here in kinds):
            entries = [clears_first_among_equals(concatenated(entries))]
        for piece in entries:
            for run in runs_of(piece):
                if run.kinds.at(0) in ABOUT_STORAGES:
                    self._about(run)
                else:
                    self.keyed(run)

    def keyed(self, entries: EntryColumns) -> None:
        """Puts and removes."""
        keys, values = row_keys(entries.storages, entries.keys), values_of(entries)
        order = None if all(map(le, keys, islice(keys, 1, None))) else sorted(range(len(keys)), key=keys.__getitem__)
        if order:
            keys, values = [keys[at] for at in order], [values[at] for at in order]
        if entries.kinds.is_constant and entries.kinds.base == EntryKind.PUT:
            deque(map(self.batch.put, keys, values), maxlen=0)
            return
        kinds = entries.kinds.array().tolist()
        for kind, key, value in zip([kinds[at] for at in order] if order else kinds, keys, values, strict=True):
            if kind == EntryKind.PUT:
                self.batch.put(key, value)
            else:
                self.remove(key, value)

    def remove(self, key: bytes, header: bytes) -> None:
        self.batch.delete(key)
        if self._has_graves:
            self.wrote_graves = True
            self.batch.put(GRAVE + key[len(ROW) :], header)

    def note(self, storage: int, kind: int, value: bytes) -> None:
        """Store an entry about a storage, the newest of its kind."""
        self.batch.put(about_key(storage, kind), value)

    def close_graves(self) -> None:
        self.batch.delete_range(GRAVE, BEHIND_ALL)

    def finish(self, counters: Mapping[bytes, bytes | None], mark: StoreMark) -> WriteBatch:
        for name, value in counters.items():
            if value is None:
                self.batch.delete(COUNTER + name)
            else:
                self.batch.put(COUNTER + name, value)
        self.batch.put(MARK_KEY, mark_bytes(mark))
        return self.batch

    def _about(self, entries: EntryColumns) -> None:
        for row, value in enumerate(values_of(entries)):
            storage, kind = entries.storages.at(row), entries.kinds.at(row)
            if kind in CLEARING:
                self.batch.delete_range(row_prefix(storage), behind_storage(storage))
            if kind == EntryKind.REMOVE_STORAGE:
                self.batch.delete(about_key(storage, EntryKind.ADD_STORAGE))
            self.note(storage, kind, value)


def values_of(entries: EntryColumns) -> list[bytes]:
    assert entries.epochs is not None, "entries read from the log have their epochs"
    return row_values(entries.majors, entries.minors, entries.epochs, entries.values)


def kinds_of(entries: EntryColumns) -> set[int]:
    if entries.kinds.is_constant:
        return {entries.kinds.base} if entries.count else set()
    return set(np.unique(entries.kinds.array()).tolist())


def check_entries(entries: Sequence[EntryColumns], version: Version) -> None:
    """Refuse kinds that the store does not hold, and versions above the mark's."""
    for piece in entries:
        kinds = kinds_of(piece)
        if EntryKind.RECORD in kinds:
            raise Misuse("records of a stream do not belong in the snapshot store: they have no key")
        if unknown := kinds - set(KEYED) - set(ABOUT_STORAGES):
            raise Refused(f"an entry is of kind {min(unknown)}, which this version does not know", "use a newer warren")
        if piece.count and newest_version(piece) > version:
            newest = "{}.{}".format(*newest_version(piece))
            raise Misuse(
                f"an entry of version {newest} is newer than the mark it comes with, {version[0]}.{version[1]}"
            )


def newest_version(entries: EntryColumns) -> Version:
    majors, minors = entries.majors, entries.minors
    if majors.is_constant:
        return majors.base, minors.base if minors.is_constant else int(minors.array().max())
    every = majors.array()
    return int(every.max()), int(minors.array()[every == every.max()].max())


def highest_epoch(entries: Sequence[EntryColumns]) -> int:
    epochs = [piece.epochs for piece in entries if piece.count and piece.epochs is not None]
    return max((some.base if some.is_constant else int(some.array().max()) for some in epochs), default=0)


def clears_first_among_equals(entries: EntryColumns) -> EntryColumns:
    """In version order; of equal versions clears and removals of storages first, the others stable."""
    is_clear: Flags = np.isin(entries.kinds.array(), CLEARING)
    order = np.lexsort((~is_clear, entries.minors.array(), entries.majors.array()))
    return Pool.of([entries]).take(order.astype(np.int64))


def runs_of(entries: EntryColumns) -> Iterator[EntryColumns]:
    """Consecutive keyed entries together, and entries about storages one by one."""
    if entries.kinds.is_constant and entries.kinds.base in KEYED:
        if entries.count:
            yield entries
        return
    start = 0
    for at in np.flatnonzero(np.isin(entries.kinds.array(), ABOUT_STORAGES)).tolist():
        if start < at:
            yield entries.part(start, at)
        yield entries.part(at, at + 1)
        start = at + 1
    if start < entries.count:
        yield entries.part(start, entries.count)
