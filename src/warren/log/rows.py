"""Entries one by one, gathered in lists until they become columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warren.records.columns import EntryColumns, Texts
from warren.records.numbers import NumberColumn


@dataclass(slots=True)
class EntryRows:
    kinds: list[int] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    undo_prev: list[int] = field(default_factory=list)
    undo_next: list[int] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, kind: int, storage: int, key: bytes, value: bytes, undo_prev: int = 0, undo_next: int = 0) -> None:
        self.kinds.append(kind)
        self.storages.append(storage)
        self.keys.append(key)
        self.values.append(value)
        self.undo_prev.append(undo_prev)
        self.undo_next.append(undo_next)
        self.size_bytes += len(key) + len(value)

    def extend(self, other: EntryRows) -> None:
        self.kinds += other.kinds
        self.storages += other.storages
        self.keys += other.keys
        self.values += other.values
        self.undo_prev += other.undo_prev
        self.undo_next += other.undo_next
        self.size_bytes += other.size_bytes

    def columns(self, minors: list[int] | None = None, majors: list[int] | None = None) -> EntryColumns:
        count = len(self)
        return EntryColumns(
            numbers(self.kinds),
            numbers(self.storages),
            NumberColumn(count, 0) if majors is None else numbers(majors),
            NumberColumn(count, 0) if minors is None else numbers(minors),
            Texts.of_list(self.keys),
            Texts.of_list(self.values),
            numbers(self.undo_prev),
            numbers(self.undo_next),
        )


def numbers(values: list[int]) -> NumberColumn:
    first = values[0]
    if values.count(first) == len(values):
        return NumberColumn(len(values), first)
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))
