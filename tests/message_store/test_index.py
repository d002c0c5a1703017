"""The index in memory, and the one over rows of the snapshot store."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.message_store.index_suite import HERE, THERE, UNIT, IndexSuite
from tests.message_store.store_stage import CHUNK_BYTES, A, StoreStage, content, row_index
from tests.snapshot.database_stage import DatabaseStage
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.ids import FileNumber, Lsn, lsn_of
from warren.base.threads import SystemThreads
from warren.message_store.body_format import Body, BodyPlace, encode_stored
from warren.message_store.index import (
    ENTRY_BYTES,
    MOVED_STORAGE,
    BodyMove,
    IndexEntry,
    LocationIndex,
    MemoryIndex,
    RowIndex,
)


@pytest.fixture
def together() -> Callable[[list[Callable[[], None]]], None]:
    return SystemThreads().together


class TestMemoryIndex(IndexSuite):
    @pytest.fixture
    def index(self) -> LocationIndex:
        return MemoryIndex(SystemThreads().condition())


class TestRowIndex(IndexSuite):
    @pytest.fixture
    def index(self) -> Iterator[LocationIndex]:
        database = DatabaseStage().open()
        yield row_index(database)
        database.close()


def test_another_index_can_be_put_in() -> None:
    """MS-12: a store that was given the index in memory alone serves, moves and collects like any other."""
    stage = StoreStage()
    stage.stores.close()
    index = MemoryIndex(SystemThreads().condition())
    stores = type(stage.stores)(stage.log, "db", stage.rows, index, stage.settings, CHUNK_BYTES)
    stage.stores, stage.store = stores, stores.persistent
    remaining = []
    for n in range(2):
        remaining.append(stage.publish([content(n)], A)[A])
        stage.dequeue(A, stage.publish([content(n, 900)], A)[A])
        stage.seal()
    assert len(stage.collect().released) == 2
    stage.log.purge()
    assert [stage.contents(run) for run in remaining] == [[content(0)], [content(1)]]
    assert index.facts()["entries"] == 2
    stage.close()


def test_rows_of_moved_units_outlive_the_process_and_cost_no_memory() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        index = row_index(database)
        index.move([BodyMove(UNIT, HERE, THERE)])
        assert index.facts()["entries"] == 0
    with stage.open() as database, closing(database.view_now()) as view:
        assert view.get(MOVED_STORAGE, UNIT.to_bytes(8, "big")) is not None
        assert row_index(database).look_up(UNIT) == IndexEntry(1, THERE)


def entry(number: int) -> tuple[Lsn, IndexEntry]:
    place = BodyPlace(lsn_of(FileNumber(number), 96), 0)
    return place.lsn, IndexEntry(2, encode_stored([Body(place.lsn, 7, 0, 2, (place,), 3)]))


def test_the_memory_that_an_entry_costs_is_reported_truly() -> None:
    """MS-13: within a third, for as many entries as there are."""
    index = MemoryIndex(SystemThreads().condition())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            index.insert(*entry(number))
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    reported = index.facts()["memory_bytes"]
    assert ENTRY_BYTES < reported / 20_000 < 2 * ENTRY_BYTES
    assert 0.67 < used / reported < 1.5


class CountedDict(dict[Lsn, IndexEntry]):
    """Counts every access to an entry, iteration included."""

    accesses = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.accesses += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Lsn]:
        self.accesses += len(self)
        return super().__iter__()


@pytest.mark.parametrize("entries", [1_000, 4_000])
def test_a_lookup_of_a_location_that_is_not_written_is_one_access(entries: int) -> None:
    """MS-20: in memory one access to the dict; below it one row, and one read for a whole batch, however many entries
    there are."""
    memory, key_counts = MemoryIndex(SystemThreads().condition()), list[int]()
    counted = memory._entries = CountedDict()

    def read(keys: Sequence[bytes]) -> list[bytes | None]:
        key_counts.append(len(keys))
        return [None] * len(keys)

    index = RowIndex(memory, read, lambda rows: pytest.fail("a look-up writes nothing"), lambda epoch: None)
    for number in range(entries):
        index.insert(*entry(number))
    counted.accesses = 0
    assert memory.look_up(Lsn(1 << 60)) is None
    assert counted.accesses == 1
    assert index.look_up(Lsn(1 << 60)) is None
    assert key_counts == [1]
    assert index.look_up_many([Lsn((1 << 60) + number) for number in range(500)]) == [None] * 500
    assert key_counts == [1, 500], "one read for all of them"
    assert counted.accesses == 1 + 1 + 1 + 500


class Counts:
    """Threads count a unit up and down while the collector moves it, and deletes it once nothing holds it."""

    def __init__(self, index: LocationIndex, rounds: int) -> None:
        self.index, self.rounds = index, rounds
        self.added: list[int] = []
        self.deleted: list[IndexEntry] = []
        index.insert(UNIT, IndexEntry(0, HERE))

    def count(self) -> None:
        for at in range(self.rounds):
            for by in (1, -1) if at % 3 else (1, 1, -1, -1):
                if self.index.add_references(UNIT, by) is not None:
                    self.added.append(by)

    def collect(self) -> None:
        for _ in range(self.rounds):
            assert self.index.move([BodyMove(UNIT, HERE, THERE)]) == [True]
            assert self.index.move([BodyMove(UNIT, THERE, HERE)]) == [True]
            seen = self.index.look_up(UNIT)
            assert seen is not None and seen.location == HERE
            if not seen.references and self.index.delete_object([(UNIT, seen)]) == [True]:
                self.deleted.append(seen)
                return

    def check(self) -> None:
        left = self.index.look_up(UNIT)
        assert sum(self.added) == (0 if left is None else left.references)
        assert all(not entry.references for entry in self.deleted)


@pytest.mark.parametrize("seed", range(60))
def test_counts_locations_and_deletes_are_atomic_in_every_interleaving(seed: int) -> None:
    """MS-19: nothing is counted into an entry that was deleted, and nothing that is held is deleted."""
    threads = SteppedThreads(seed, switch_probability=0.6)

    def body() -> None:
        counts = Counts(MemoryIndex(threads.condition()), rounds=4)
        beside = [threads.start("one", counts.count), threads.start("two", counts.count)]
        beside.append(threads.start("collector", counts.collect))
        for each in beside:
            each.join()
        counts.check()

    threads.run(body)


def test_counts_and_deletes_are_atomic_under_threads(together: Callable[[list[Callable[[], None]]], None]) -> None:
    """MS-19: with threads of the system, which change places as often as the interpreter allows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            counts = Counts(MemoryIndex(SystemThreads().condition()), rounds=300)
            together([counts.count, counts.count, counts.collect])
            counts.check()
    finally:
        sys.setswitchinterval(interval)
