"""Both snapshot stores against the merge rule written by hand, whatever is done to them and in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.log.merge_model import KEYS, Entry, columns_of, merged_by_hand
from tests.snapshot.snapshot_store_suite import KINDS, QUICK_PLACE, TIMELINE, Model, Stage, held_by
from warren.base.ids import Epoch
from warren.log.settings import EntryKind
from warren.snapshot.store import Applied, ReadView

STORAGES = st.sampled_from([0, 1, 1, 2, (1 << 64) - 1])
ENTRY_KINDS = st.sampled_from([EntryKind.PUT] * 8 + [EntryKind.REMOVE] * 4 + list(EntryKind)[2:5])
COUNTERS = st.dictionaries(st.sampled_from([b"", b"a", b"b"]), st.none() | st.binary(max_size=3), max_size=2)
ABOUT_ONE = {EntryKind.CLEAR_STORAGE, EntryKind.ADD_STORAGE, EntryKind.REMOVE_STORAGE}
HOLES = 3  # versions left free between two entries, for late ones


class StoreMachine(RuleBasedStateMachine):
    kind = ""

    @initialize()
    def begin(self) -> None:
        self.place = TemporaryDirectory(dir=QUICK_PLACE)
        self.stage = Stage(self.kind, Path(self.place.name))
        self.model = Model()
        self.since = [self.model.copy()]  # the flushed state and all behind it
        self.views: list[tuple[ReadView, Model]] = []
        self.next_version = 1
        self.tables = 0
        self.batches = 0

    @rule(data=st.data(), counters=COUNTERS, is_collapsed=st.booleans(), ahead=st.integers(0, 2))
    def apply(self, data: st.DataObject, counters: dict[bytes, bytes | None], is_collapsed: bool, ahead: int) -> None:
        entries = self._newer(data, ahead)
        offered = merged_by_hand(entries, is_bottom=False) if is_collapsed else entries
        cut = data.draw(st.integers(0, len(offered)))
        applied = self._next_mark(data)
        counters |= self._number()
        self.stage.store.apply([columns_of(offered[:cut]), columns_of(offered[cut:])], applied, counters)
        self._took(entries, applied, counters)

    @rule(data=st.data())
    def take_late_and_repeated_entries(self, data: st.DataObject) -> None:
        """Some that a start-up reads again, and some whose versions are unused."""
        again = self.model.offered_again()
        entries = data.draw(st.lists(st.sampled_from(again), max_size=6)) if again else []
        used = {entry.version for entry in self.model.entries}
        for minor in data.draw(st.lists(st.integers(0, self.next_version * HOLES), max_size=3, unique=True)):
            if (1, minor) not in used and (1, minor) <= self.model.applied.version:
                entries.append(self._entry(data, (1, minor), self.model.applied.epoch + data.draw(st.integers(0, 1))))
        entries = data.draw(st.permutations(entries))
        applied = self._next_mark(data)
        counters = self._number()
        self.stage.store.apply([columns_of(entries)], applied, counters, are_late=True)
        self._took(entries, applied, counters)

    @precondition(lambda self: self.model.highest_epoch <= self.model.applied.epoch)
    @rule(data=st.data(), counters=COUNTERS)
    def ingest(self, data: st.DataObject, counters: dict[bytes, bytes | None]) -> None:
        entries = merged_by_hand(self._newer(data, 0), is_bottom=False)
        cut = data.draw(st.integers(0, len(entries)))
        while 0 < cut < len(entries) and {entries[cut - 1].kind, entries[cut].kind} <= ABOUT_ONE:
            cut += 1  # a key range is never cut among the entries about one storage: they all have the empty key
        paths, cleared = list[str](), set[int]()
        for part in filter(None, (entries[:cut], entries[cut:])):
            self.tables += 1
            path, some = self.stage.table(f"table{self.tables}", part)
            paths.append(path)
            cleared |= some
        applied = Applied(TIMELINE, Epoch(self.model.applied.epoch + 1), (1, self.next_version * HOLES - 1))
        counters |= self._number()
        for _ in range(data.draw(st.integers(1, 2))):  # done twice it is as done once
            self.stage.store.ingest(paths, applied, counters, cleared)
        self._took(entries, applied, counters)
        self.since = self.since[-1:]

    @rule()
    def flush(self) -> None:
        assert self.stage.store.flush() == self.model.applied
        self.since = self.since[-1:]

    @precondition(lambda self: len(self.views) < 3)
    @rule()
    def look(self) -> None:
        self.views.append((self.stage.store.view(), self.model.copy()))

    @precondition(lambda self: self.views)
    @rule()
    def close_the_oldest_view(self) -> None:
        self.views.pop(0)[0].close()

    @rule()
    def reopen(self) -> None:
        self._close_views()
        self.stage.reopen()
        self.since = self.since[-1:]

    @rule()
    def crash(self) -> None:
        self._close_views()
        store = self.stage.crash()
        state = (store.applied, held_by(store), self._counters_of())
        whole = [model for model in self.since if (model.applied, model.rows(), model.counters) == state]
        assert len(whole) == 1, "a crash leaves the state behind some whole batch, the flushed one or a later one"
        self.model = whole[0].copy()
        self.since = [self.model.copy()]

    @rule(data=st.data())
    def ask_for_some(self, data: st.DataObject) -> None:
        """Keys and ranges, forwards and back."""
        storage, low, high = data.draw(STORAGES), data.draw(KEYS), data.draw(st.none() | KEYS)
        rows = [row for row in self.model.rows() if row.storage == storage and row.kind == EntryKind.PUT]
        store = self.stage.store
        wanted = {row.key: (row.value, row.version) for row in rows}
        keys = [low, *wanted, b"never"]
        assert store.get_many(storage, keys) == [wanted.get(key) for key in keys]
        assert store.get(storage, low) == wanted.get(low)
        between = [row for row in rows if low <= row.key and (high is None or row.key < high)]
        expected = [(storage, row.key, row.value, row.version) for row in between]
        assert list(store.range(storage, low, high)) == expected
        assert list(store.range(storage, low, high, reverse=True)) == expected[::-1]
        beginning = [(storage, row.key, row.value, row.version) for row in rows if row.key.startswith(low[:2])]
        assert list(store.prefix(storage, low[:2])) == beginning

    @invariant()
    def the_store_and_every_view_hold_what_the_model_holds(self) -> None:
        store = self.stage.store
        assert (store.applied, held_by(store)) == (self.model.applied, self.model.rows())
        assert self._counters_of() == self.model.counters
        for view, model in self.views:
            assert (view.applied, held_by(view)) == (model.applied, model.rows())
            assert {name: view.counter(name) for name in model.counters} == model.counters

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self._close_views()
            self.stage.close()
            self.place.cleanup()

    def _newer(self, data: st.DataObject, ahead: int) -> list[Entry]:
        """Entries newer than everything, in version order, of epochs up to `ahead` beyond the mark's."""
        entries = list[Entry]()
        for _ in range(data.draw(st.integers(0, 6))):
            version = 1, self.next_version * HOLES
            self.next_version += data.draw(st.integers(0, 3)) > 0  # else the next one has the same, as in one session
            epoch = self.model.applied.epoch + data.draw(st.integers(0, ahead))
            entry = self._entry(data, version, epoch)
            if all((entry.version, *entry[1:3]) != (old.version, *old[1:3]) for old in entries):
                entries.append(entry)
        self.next_version += 1
        return entries

    def _entry(self, data: st.DataObject, version: tuple[int, int], epoch: int) -> Entry:
        kind, storage = data.draw(ENTRY_KINDS), data.draw(STORAGES)
        key = data.draw(KEYS) if kind in (EntryKind.PUT, EntryKind.REMOVE) else b""
        value = data.draw(st.binary(max_size=12)) if kind in (EntryKind.PUT, EntryKind.ADD_STORAGE) else b""
        return Entry(kind, storage, key, version, value, epoch)

    def _next_mark(self, data: st.DataObject) -> Applied:
        epoch = Epoch(self.model.applied.epoch + data.draw(st.integers(0, 2)))
        return Applied(TIMELINE, epoch, (1, self.next_version * HOLES - 1))

    def _took(self, entries: Sequence[Entry], applied: Applied, counters: dict[bytes, bytes | None]) -> None:
        self.model.take(entries, applied, counters)
        self.since.append(self.model.copy())

    def _number(self) -> dict[bytes, bytes | None]:
        """A counter that distinguishes each batch from every other, also those that change nothing to be seen."""
        self.batches += 1
        return {b"batch": b"%d" % self.batches}

    def _counters_of(self) -> dict[bytes, bytes]:
        every = {name: self.stage.store.counter(name) for name in (b"", b"a", b"b", b"batch")}
        return {name: value for name, value in every.items() if value is not None}

    def _close_views(self) -> None:
        for view, _ in self.views:
            view.close()
        self.views.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_ss_02_any_store_behind_the_protocol_holds_what_a_merge_of_all_entries_would_leave(kind: str) -> None:
    """SS-01, SS-02: RocksDB, or any other store that keeps to the same."""
    environment = type("Machine", (StoreMachine,), {"kind": kind})
    examples = 60 if kind == "forgetful" else 25
    run_state_machine_as_test(
        environment,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
