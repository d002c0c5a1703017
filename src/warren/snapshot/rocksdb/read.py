"""Reads of the safe snapshot store: keys, ranges and batches, of the store itself or of a view.

    store     each get sees the present state; each range the state at its beginning
    view      everything sees the state at which the view was opened

A range reads some rows at once (`read_rows`, or a megabyte of them), so it takes little memory however long it is, and
blocks nothing. At its end the status of the RocksDB iterator is checked: iterators just stop at a damaged block, and
missing rows must not look like the end.

A view is a RocksDB snapshot, for gets, and one iterator opened at the same state, for ranges: iterators that rocksdict
makes of a snapshot see the present (0.3.29). So all ranges of a view share one iterator, each seeking back to its
position. The iterator pins the memtables of its state: a view may cost as much memory as two of them.

`batches` returns what a merge of everything up to the mark would leave: the rows as columns, and before the rows of a
storage its ADD_STORAGE entry, if there is one. Removes and clears are applied and not shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
from rocksdict import RdictIter, Snapshot

from warren.base.errors import Damage, Misuse
from warren.base.threads import Condition
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.snapshot.rocksdb.options import SnapshotStoreSettings, rocksdb_calls
from warren.snapshot.rocksdb.row_format import (
    ABOUT,
    COUNTER,
    GRAVE,
    ROW,
    ROW_PREFIX_BYTES,
    StoreMark,
    behind_prefix,
    behind_storage,
    columns_of_values,
    row_prefix,
    storage_of,
    version_and_value,
    version_of,
)
from warren.snapshot.store import Applied, StoredVersion, StoreRow, Version

Pair = tuple[bytes, bytes]  # a key and a value of RocksDB


class StorageRows:
    """The remaining ADD_STORAGE entries, each to precede the rows of its storage."""

    def __init__(self, about: Iterable[Pair]) -> None:
        self._left = [(row_prefix(storage_of(key)), data) for key, data in about if key[-1] == EntryKind.ADD_STORAGE]

    def woven_into(self, pairs: list[Pair]) -> EntryColumns:
        """The rows of the pairs, with the ADD_STORAGE entries up to the last one."""
        keys, datas = [key for key, _ in pairs], [data for _, data in pairs]
        kinds = [int(EntryKind.PUT)] * len(keys)
        count = bisect_left(self._left, (keys[-1][:ROW_PREFIX_BYTES] + b"\x00",))
        for key, data in reversed(self._left[:count]):
            at = bisect_left(keys, key)
            keys.insert(at, key)
            datas.insert(at, data)
            kinds.insert(at, EntryKind.ADD_STORAGE)
        del self._left[:count]
        return _columns(kinds, keys, datas)

    def rest(self) -> EntryColumns | None:
        keys, datas = [key for key, _ in self._left], [data for _, data in self._left]
        return _columns([EntryKind.ADD_STORAGE] * len(keys), keys, datas) if keys else None


def _columns(kinds: Sequence[int], keys: Sequence[bytes], datas: Sequence[bytes]) -> EntryColumns:
    majors, minors, epochs, values = columns_of_values(datas)
    none = NumberColumn.constant(len(keys), 0)
    return EntryColumns(
        _numbers(kinds),
        _numbers([storage_of(key) for key in keys]),
        majors,
        minors,
        Texts.of_list([key[ROW_PREFIX_BYTES:] for key in keys]),
        values,
        none,
        none,
        epochs,
    )


def _numbers(values: Sequence[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


_PIECE_BYTES = 1 << 20

OnDamage = Callable[[Damage], None]


class RocksDbReader(ABC):
    """Common to store and view, which differ in the source of values and pairs. Is a `StoreReader`."""

    def __init__(self, settings: SnapshotStoreSettings) -> None:
        self._settings = settings

    @property
    @abstractmethod
    def applied(self) -> Applied: ...

    def get(self, storage: int, key: bytes) -> StoredVersion | None:
        data = self.raw_value(row_prefix(storage) + key)
        return None if data is None else _found(data)

    def get_many(self, storage: int, keys: Sequence[bytes]) -> list[StoredVersion | None]:
        prefix = row_prefix(storage)
        return [None if data is None else _found(data) for data in self.raw_values([prefix + key for key in keys])]

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]:
        """Rows with low <= key < high, in key order or backwards."""
        prefix = row_prefix(storage)
        end = behind_storage(storage) if high is None else prefix + high
        for pairs in self.raw_pieces(prefix + low, end, reverse, self._settings.read_rows):
            for key, data in pairs:
                version, value = version_and_value(data)
                yield StoreRow(storage, key[ROW_PREFIX_BYTES:], value, version)

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[StoreRow]:
        return self.range(storage, start, behind_prefix(start), reverse)

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        """All rows as columns, and before the rows of a storage its ADD_STORAGE entry."""
        start, end = (ROW, ABOUT) if storage is None else (row_prefix(storage), behind_storage(storage))
        added = StorageRows(self.about(storage))
        for pairs in self.raw_pieces(start, end, False, self._settings.batch_rows):
            yield added.woven_into(pairs)
        if rest := added.rest():
            yield rest

    def counter(self, name: bytes) -> bytes | None:
        return self.raw_value(COUNTER + name)

    def removed_at(self, storage: int, keys: Sequence[bytes]) -> list[Version | None]:
        prefix = row_prefix(storage, GRAVE)
        graves = self.raw_values([prefix + key for key in keys])
        return [None if grave is None else version_of(grave) for grave in graves]

    def about_at(self, storage: int) -> dict[int, Version]:
        return {key[-1]: version_of(data) for key, data in self.about(storage)}

    def about(self, storage: int | None) -> Iterator[Pair]:
        """Entries about one storage, or all, as a whole."""
        start, end = (ABOUT, GRAVE) if storage is None else _about_range(storage)
        for pairs in self.raw_pieces(start, end, False, self._settings.read_rows):
            yield from pairs

    @abstractmethod
    def raw_value(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def raw_values(self, keys: list[bytes]) -> list[bytes | None]: ...

    @abstractmethod
    def raw_pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]: ...


class Cursor:
    """One iterator of RocksDB, and so one state; for any number of ranges at once, in any thread."""

    def __init__(self, iterator: RdictIter, lock: Condition, on_damage: OnDamage | None = None) -> None:
        self._iterator: RdictIter | None = iterator
        self._lock = lock
        self._on_damage = on_damage

    def pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]:
        """Pairs with low <= key < high, in order or backwards, in pieces."""
        while pairs := self._next_piece(low, high, reverse, rows_max):
            low, high = (low, pairs[-1][0]) if reverse else (pairs[-1][0] + b"\x00", high)
            yield pairs

    def value(self, key: bytes) -> bytes | None:
        pairs = self._next_piece(key, key + b"\x00", False, 1)
        return pairs[0][1] if pairs else None

    def close(self) -> None:
        """Release the iterator: RocksDB cannot close before."""
        with self._lock:
            self._iterator = None

    def _next_piece(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> list[Pair]:
        if low >= high:
            return []
        with self._lock, rocksdb_calls("read the snapshot store", self._on_damage):
            if self._iterator is None:
                raise Misuse("this view or range of the snapshot store is closed", "begin another one")
            read = _read_down if reverse else _read_up
            pairs = read(self._iterator, low, high, rows_max)
            self._iterator.status()
            return pairs


class RocksDbView(RocksDbReader):
    """Is a `StoreView`."""

    def __init__(
        self,
        snapshot: Snapshot,
        cursor: Cursor,
        mark: StoreMark,
        settings: SnapshotStoreSettings,
        on_damage: OnDamage | None = None,
    ) -> None:
        super().__init__(settings)
        self._on_damage = on_damage
        self._snapshot: Snapshot | None = snapshot
        self._cursor = cursor
        self._mark = mark

    @property
    def applied(self) -> Applied:
        return self._mark.applied

    def close(self) -> None:
        self._snapshot = None
        self._cursor.close()

    def raw_value(self, key: bytes) -> bytes | None:
        if self._snapshot is None:
            raise Misuse("this view of the snapshot store is closed", "take another one with `view()`")
        return value_in(self._snapshot, key, self._on_damage)

    def raw_values(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.raw_value(key) for key in keys]

    def raw_pieces(self, low: bytes, high: bytes, reverse: bool, rows_max: int) -> Iterator[list[Pair]]:
        return self._cursor.pieces(low, high, reverse, rows_max)


def close_all(resources: WeakSet[Any]) -> None:
    """Close views and cursors, one by one: other threads may open some meanwhile, and a growing set cannot be
    iterated."""
    for _ in range(len(resources)):  # not those opened meanwhile: this might never end
        try:
            each = resources.pop()
        except KeyError:  # the last one was garbage-collected
            return
        each.close()


def value_in(snapshot: Snapshot, key: bytes, on_damage: OnDamage | None = None) -> bytes | None:
    with rocksdb_calls("read the snapshot store", on_damage):
        try:
            data: bytes = snapshot[key]
        except Exception as error:
            if str(error) != "key not found":  # rocksdict has no other sign of it
                raise
            return None
    return data


def _read_up(iterator: RdictIter, low: bytes, high: bytes, rows_max: int) -> list[Pair]:
    pairs: list[Pair] = []
    room = _PIECE_BYTES
    valid, key_here, value_here, step = iterator.valid, iterator.key, iterator.value, iterator.next
    iterator.seek(low)
    while valid() and room > 0 and len(pairs) < rows_max:
        key = key_here()
        if key >= high:
            break
        value = value_here()
        pairs.append((key, value))
        room -= len(value)
        step()
    return pairs


def _read_down(iterator: RdictIter, low: bytes, high: bytes, rows_max: int) -> list[Pair]:
    pairs: list[Pair] = []
    room = _PIECE_BYTES
    iterator.seek_for_prev(high)
    if iterator.valid() and iterator.key() == high:
        iterator.prev()
    while iterator.valid() and room > 0 and len(pairs) < rows_max:
        key = iterator.key()
        if key < low:
            break
        value = iterator.value()
        pairs.append((key, value))
        room -= len(value)
        iterator.prev()
    return pairs


def _found(data: bytes) -> StoredVersion:
    version, value = version_and_value(data)
    return StoredVersion(value, version)


def _about_range(storage: int) -> tuple[bytes, bytes]:
    return row_prefix(storage, ABOUT), row_prefix(storage, ABOUT) + b"\xff"
