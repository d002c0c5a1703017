"""Snapshot store in memory that loses unflushed batches in a crash: stands in for RocksDB in the simulator.

    apply    state 4 → state 5                      a new immutable state; older ones stay for views and for the crash
    flush    the last state is on disk
    crash    the store after a power cut            the flushed state or a later one: RocksDB may have flushed more than
                                                    requested, but whole batches only

`VolatileStore` implements `SnapshotStore`. It applies entries one by one by the merge rule and shares no code with
the RocksDB store: where both agree, both are likely right. A state is plain dicts, searched linearly. It is stricter
than RocksDB in one respect: an entry older than the stored version that was not announced as late raises `Misuse`.

`VolatileTables` implements `TableMaker`: the entries that a worker process would write to a table file, stored under
the path of that file until they are ingested.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from warren.base.environment import Random
from warren.base.errors import Damage, DiskFailure, Misuse, Refused
from warren.base.ids import Epoch, TimelineId
from warren.files.protocol import Files
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.snapshot.rocksdb.write_batch import newest_version
from warren.snapshot.store import NO_VERSION, Applied, StoredVersion, StoreRow, Version
from warren.snapshot.tables.tasks import EpochRange, TableFigures, TableResult, TableTask


class VersionedRow(NamedTuple):
    version: Version
    epoch: int
    value: bytes


@dataclass(frozen=True, slots=True)
class StoreState:
    """Content of the store at one mark. Immutable once it is current."""

    applied: Applied
    highest_epoch: int = 0
    rows: dict[tuple[int, bytes], VersionedRow] = field(default_factory=dict)
    graves: dict[tuple[int, bytes], Version] = field(default_factory=dict)
    about: dict[tuple[int, int], VersionedRow] = field(default_factory=dict)  # by storage and kind
    counters: dict[bytes, bytes] = field(default_factory=dict)

    def copy(self) -> StoreState:
        return replace(
            self, rows={**self.rows}, graves={**self.graves}, about={**self.about}, counters={**self.counters}
        )

    def cleared_at(self, storage: int) -> Version:
        return max(self.version_about(storage, kind) for kind in CLEARING)

    def version_about(self, storage: int, kind: int) -> Version:
        stored = self.about.get((storage, kind))
        return stored.version if stored else NO_VERSION


class StateReading:
    """Implements `StoreView`; the store reads through it too."""

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
        stored = self.state.rows.get((storage, key))
        return StoredVersion(stored.value, stored.version) if stored else None

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
        added = {
            (where, -1, b""): stored for (where, kind), stored in state.about.items() if kind == EntryKind.ADD_STORAGE
        }
        named = {(where, 0, key): stored for (where, key), stored in state.rows.items()} | added
        entries = [(*name, named[name]) for name in sorted(named) if storage in (None, name[0])]
        if entries:
            yield _columns(entries)

    def counter(self, name: bytes) -> bytes | None:
        return self.state.counters.get(name)

    def removed_at(self, storage: int, keys: Sequence[bytes]) -> list[Version | None]:
        return [self.state.graves.get((storage, key)) for key in keys]

    def about_at(self, storage: int) -> dict[int, Version]:
        return {kind: stored.version for (where, kind), stored in self.state.about.items() if where == storage}

    def close(self) -> None:
        self._is_closed = True


def _columns(entries: Sequence[tuple[int, int, bytes, VersionedRow]]) -> EntryColumns:
    """Of (storage, -1 for an addition and 0 for a row, key, stored version)."""
    none = NumberColumn.constant(len(entries), 0)
    return EntryColumns(
        _numbers([EntryKind.PUT if place == 0 else EntryKind.ADD_STORAGE for _, place, _, _ in entries]),
        _numbers([storage for storage, _, _, _ in entries]),
        _numbers([stored.version[0] for *_, stored in entries]),
        _numbers([stored.version[1] for *_, stored in entries]),
        Texts.of_list([key for _, _, key, _ in entries]),
        Texts.of_list([stored.value for *_, stored in entries]),
        none,
        none,
        _numbers([stored.epoch for *_, stored in entries]),
    )


def _numbers(values: Sequence[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


class VolatileStore(StateReading):
    def __init__(self, timeline: TimelineId, flushed: StoreState | None = None) -> None:
        super().__init__(flushed or StoreState(Applied(timeline, Epoch(0), NO_VERSION)))
        if self._state.applied.timeline != timeline:
            raise Refused(f"the snapshot store is of timeline {self._state.applied.timeline:x}, not {timeline:x}")
        self._since = [self._state]  # the flushed state and all later ones
        self._failure: str | None = None
        self._views: list[StateReading] = []
        self.tables: dict[str, list[EntryColumns]] = {}
        self.on_damage: Callable[[Damage], None] = lambda damage: None  # never called

    def apply(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        are_late: bool = False,
    ) -> None:
        self._take(entries, applied, counters or {}, are_late)

    def ingest(
        self,
        paths: Sequence[str],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        cleared: Iterable[int] = (),
    ) -> None:
        if any(path not in self.tables for path in paths) and applied == self.applied:
            return
        entries = [batch for path in paths for batch in self.tables[path]]
        self._take(entries, applied, counters or {}, False, set(cleared))
        self.flush()
        for path in paths:
            del self.tables[path]

    @property
    def is_settled(self) -> bool:
        return self._state.highest_epoch <= self.applied.epoch

    @property
    def size_bytes(self) -> int:
        return sum(len(key) + len(stored.value) for (_, key), stored in self._state.rows.items())

    def tidy(self) -> None:
        """Nothing to do: it stores everything once."""

    @property
    def is_behind(self) -> bool:
        return False

    def flush(self) -> Applied:
        self._check_well()
        self._since = [self._state]
        return self.applied

    def view(self) -> StateReading:
        self._views.append(StateReading(self.state))
        return self._views[-1]

    @property
    def failure(self) -> str | None:
        return self._failure

    def break_down(self, reason: str) -> None:
        """Refuse writes from now on, like RocksDB after a background error."""
        self._failure = reason

    def resume(self) -> None:
        self._close_views()
        self._failure = None
        self._state = self._since[0]
        self._since = [self._state]

    def close(self) -> None:
        if self._failure is None and not self._is_closed:
            self.flush()
        self._close_views()
        self._is_closed = True

    def reopened(self, timeline: TimelineId) -> VolatileStore:
        """The store after a clean stop."""
        return self._found(timeline, self._since[0])

    def crash(self, rng: Random) -> VolatileStore:
        """The store after a power cut. This one does not change."""
        return self._found(self.applied.timeline, random.Random(rng.id64()).choice(self._since))

    def _found(self, timeline: TimelineId, state: StoreState) -> VolatileStore:
        found = VolatileStore(timeline, state)
        found.tables = dict(self.tables)
        return found

    def _close_views(self) -> None:
        for view in self._views:
            view.close()
        self._views.clear()

    def _check_well(self) -> None:
        if self._failure is not None:
            raise DiskFailure(f"the snapshot store accepts no writes: {self._failure}", "mend the cause, then resume")

    def _take(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None],
        are_late: bool,
        cleared: set[int] | None = None,
    ) -> None:
        old = self.applied
        if applied.timeline != old.timeline or applied.epoch < old.epoch or applied.version < old.version:
            raise Misuse(f"the mark {applied} can not follow {old}")
        self._check_well()
        batch = _Batch(self.state.copy(), are_late)
        for entry in (entry for piece in entries for entry in _entries_of(piece)):
            batch.take(entry, applied.version)
        if cleared is not None and batch.cleared != cleared:
            raise Misuse(f"the tables clear the storages {batch.cleared}, and {cleared} were named")
        self._state = batch.finished(applied, counters)
        self._since.append(self._state)


class _StoreEntry(NamedTuple):
    kind: int
    storage: int
    key: bytes
    stored: VersionedRow


class _Batch:
    """Builds the next state."""

    def __init__(self, state: StoreState, are_late: bool) -> None:
        self._state = state
        self._old = state.copy()
        self._are_late = are_late
        self._highest_epoch = state.highest_epoch
        self.cleared: set[int] = set()

    def take(self, entry: _StoreEntry, version_max: Version) -> None:
        if entry.kind == EntryKind.RECORD:
            raise Misuse("records of a stream do not belong in the snapshot store: they have no key")
        if entry.stored.version > version_max:
            raise Misuse(
                f"an entry of version {entry.stored.version} is newer than the mark it comes with, {version_max}"
            )
        self._highest_epoch = max(self._highest_epoch, entry.stored.epoch)
        if entry.kind in (EntryKind.PUT, EntryKind.REMOVE):
            self._take_keyed(entry)
        else:
            self._take_about(entry)

    def finished(self, applied: Applied, counters: Mapping[bytes, bytes | None]) -> StoreState:
        counters_after = {**self._state.counters, **counters}
        return replace(
            self._state,
            applied=applied,
            highest_epoch=self._highest_epoch,
            graves={} if self._highest_epoch <= applied.epoch else self._state.graves,
            counters={name: value for name, value in counters_after.items() if value is not None},
        )

    def _take_keyed(self, entry: _StoreEntry) -> None:
        name, version = (entry.storage, entry.key), entry.stored.version
        row, grave = self._state.rows.get(name), self._state.graves.get(name, NO_VERSION)
        if version < self._state.cleared_at(entry.storage) or (row and row.version >= version) or grave >= version:
            self._check_late(name, version)
        elif entry.kind == EntryKind.PUT:
            self._state.rows[name] = entry.stored
        else:
            self._state.rows.pop(name, None)
            self._state.graves[name] = version

    def _check_late(self, name: tuple[int, bytes], version: Version) -> None:
        stored = self._old.rows.get(name)
        if not self._are_late and stored is not None and stored.version > version:
            raise Misuse(f"storage {name[0]}, key {name[1].hex()}: version {version} is late and was not announced so")

    def _take_about(self, entry: _StoreEntry) -> None:
        state, storage, version = self._state, entry.storage, entry.stored.version
        if entry.kind in CLEARING:
            self.cleared.add(storage)
            for name in [name for name, row in state.rows.items() if name[0] == storage and row.version < version]:
                del state.rows[name]
        if entry.kind == EntryKind.REMOVE_STORAGE and state.version_about(storage, EntryKind.ADD_STORAGE) < version:
            state.about.pop((storage, EntryKind.ADD_STORAGE), None)
        is_undone = entry.kind == EntryKind.ADD_STORAGE and version < state.version_about(
            storage, EntryKind.REMOVE_STORAGE
        )
        if not is_undone and version > state.version_about(storage, entry.kind):
            state.about[storage, entry.kind] = entry.stored


def _entries_of(batch: EntryColumns) -> Iterator[_StoreEntry]:
    assert batch.epochs is not None
    versions = zip(batch.majors.array().tolist(), batch.minors.array().tolist(), strict=True)
    rows = map(VersionedRow, versions, batch.epochs.array().tolist(), batch.values.to_list())
    return map(_StoreEntry, batch.kinds.array().tolist(), batch.storages.array().tolist(), batch.keys.to_list(), rows)


class VolatileTables:
    """Implements `TableMaker`."""

    def __init__(self, files: Files, store: Callable[[], VolatileStore]) -> None:
        self._files = files
        self._store = store

    def make(self, task: TableTask) -> Sequence[TableResult]:
        epoch_range = EpochRange(self._files, task)
        entries = list(epoch_range.merged())
        figures = TableFigures(task.path)
        for batch in entries:
            _count(figures, batch)
        if figures.has_file:
            self._store().tables[task.path] = entries
        return [epoch_range.result(figures)]

    def rest(self) -> None:
        """Nothing to release."""


def _count(figures: TableFigures, batch: EntryColumns) -> None:
    for row in range(batch.count):
        kind = batch.kinds.at(row)
        figures.puts += kind == EntryKind.PUT
        figures.removes += kind == EntryKind.REMOVE
        if kind in CLEARING:
            figures.cleared.add(batch.storages.at(row))
    figures.newest = max(figures.newest, newest_version(batch))
