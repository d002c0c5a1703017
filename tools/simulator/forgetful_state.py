"""What the forgetful store holds at one mark, and how it is read: plain dicts, searched from end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from warren.base.errors import Misuse
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.snapshot.store import NO_VERSION, Applied, StoredVersion, StoreRow, Version


class HeldRow(NamedTuple):
    version: Version
    epoch: int
    value: bytes


@dataclass(frozen=True, slots=True)
class StoreState:
    """All that the store holds at one mark. Never changed once it is in force."""

    applied: Applied
    highest_epoch: int = 0
    rows: dict[tuple[int, bytes], HeldRow] = field(default_factory=dict)
    graves: dict[tuple[int, bytes], Version] = field(default_factory=dict)
    about: dict[tuple[int, int], HeldRow] = field(default_factory=dict)  # by storage and kind
    counters: dict[bytes, bytes] = field(default_factory=dict)

    def copy(self) -> StoreState:
        return replace(
            self, rows={**self.rows}, graves={**self.graves}, about={**self.about}, counters={**self.counters}
        )

    def cleared_at(self, storage: int) -> Version:
        return max(self.version_about(storage, kind) for kind in CLEARING)

    def version_about(self, storage: int, kind: int) -> Version:
        held = self.about.get((storage, kind))
        return held.version if held else NO_VERSION


class StateReading:
    """Is a `StoreView`; and what the store reads by."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._is_closed = False

    @property
    def state(self) -> StoreState:
        if self._is_closed:
            raise Misuse("this view of the snapshot store is closed", "take another one with `view()`")
        return self._state

    @property
    def applied(self) -> Applied:
        return self._state.applied

    def get(self, storage: int, key: bytes) -> StoredVersion | None:
        held = self.state.rows.get((storage, key))
        return StoredVersion(held.value, held.version) if held else None

    def get_many(self, storage: int, keys: Sequence[bytes]) -> list[StoredVersion | None]:
        return [self.get(storage, key) for key in keys]

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]:
        rows = self.state.rows
        names = [name for name in rows if name[0] == storage and low <= name[1] and (high is None or name[1] < high)]
        return iter([StoreRow(*name, rows[name].value, rows[name].version) for name in sorted(names, reverse=reverse)])

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[StoreRow]:
        return (row for row in self.range(storage, reverse=reverse) if row.key.startswith(start))

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        state = self.state
        added = {(where, -1, b""): held for (where, kind), held in state.about.items() if kind == EntryKind.ADD_STORAGE}
        named = {(where, 0, key): held for (where, key), held in state.rows.items()} | added
        entries = [(*name, named[name]) for name in sorted(named) if storage in (None, name[0])]
        if entries:
            yield _columns(entries)

    def counter(self, name: bytes) -> bytes | None:
        return self.state.counters.get(name)

    def removed_at(self, storage: int, keys: Sequence[bytes]) -> list[Version | None]:
        return [self.state.graves.get((storage, key)) for key in keys]

    def about_at(self, storage: int) -> dict[int, Version]:
        return {kind: held.version for (where, kind), held in self.state.about.items() if where == storage}

    def close(self) -> None:
        self._is_closed = True


def _columns(entries: Sequence[tuple[int, int, bytes, HeldRow]]) -> EntryColumns:
    """Of (storage, -1 for an addition and 0 for a row, key, what is held)."""
    none = NumberColumn.constant(len(entries), 0)
    return EntryColumns(
        _numbers([EntryKind.PUT if place == 0 else EntryKind.ADD_STORAGE for _, place, _, _ in entries]),
        _numbers([storage for storage, _, _, _ in entries]),
        _numbers([held.version[0] for *_, held in entries]),
        _numbers([held.version[1] for *_, held in entries]),
        Texts.of_list([key for _, _, key, _ in entries]),
        Texts.of_list([held.value for *_, held in entries]),
        none,
        none,
        _numbers([held.epoch for *_, held in entries]),
    )


def _numbers(values: Sequence[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))
