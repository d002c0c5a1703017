"""Rows of RocksDB as columns, with what is known about their storages woven in.

`batches` shows what a merge of everything up to the mark would leave: the rows, and in front of a storage's rows the
ADD_STORAGE entry that is in force, if there is one. Removes and clears have done their work and are not shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from warren.log.entries import EntryKind
from warren.records.columns import EntryColumns, Texts
from warren.records.numbers import NumberColumn
from warren.snapshot.row_format import ROW_PREFIX_BYTES, columns_of_values, row_prefix, storage_of

Pair = tuple[bytes, bytes]  # a key and a value of RocksDB


class StorageRows:
    """The ADD_STORAGE entries that are left, to be put in front of the rows of their storages."""

    def __init__(self, about: Iterable[Pair]) -> None:
        self._left = [(row_prefix(storage_of(key)), data) for key, data in about if key[-1] == EntryKind.ADD_STORAGE]

    def woven_into(self, pairs: list[Pair]) -> EntryColumns:
        """The rows of the pairs, with what was added up to the last one."""
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
