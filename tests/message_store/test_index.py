"""The index in memory, and the one over rows of the snapshot store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from timeit import timeit

import pytest

from tests.message_store.index_suite import HERE, THERE, UNIT, IndexSuite
from tests.message_store.store_stage import CHUNK_BYTES, A, StoreStage, content, row_index
from tests.snapshot.database_stage import DatabaseStage
from warren.base.ids import FileNumber, Lsn, lsn_of
from warren.base.threads import SystemThreads
from warren.message_store.format import Place, Unit, encode_stored
from warren.message_store.index import Entry, LocationIndex, Move
from warren.message_store.memory_index import ENTRY_BYTES, MemoryIndex
from warren.message_store.row_index import MOVED_STORAGE


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
    kept = []
    for n in range(2):
        kept.append(stage.publish([content(n)], A)[A])
        stage.dequeue(A, stage.publish([content(n, 900)], A)[A])
        stage.seal()
    assert len(stage.collect().released) == 2
    stage.log.purge()
    assert [stage.contents(run) for run in kept] == [[content(0)], [content(1)]]
    assert index.facts()["entries"] == 2
    stage.close()


def test_rows_of_moved_units_outlive_the_process_and_cost_no_memory() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        index = row_index(database)
        index.move([Move(UNIT, HERE, THERE)])
        assert index.facts()["entries"] == 0
    with stage.open() as database, closing(database.view_now()) as view:
        assert view.get(MOVED_STORAGE, UNIT.to_bytes(8, "big")) is not None
        assert row_index(database).look_up(UNIT) == Entry(1, THERE)


def entry(number: int) -> tuple[Lsn, Entry]:
    place = Place(lsn_of(FileNumber(number), 96), 0)
    return place.lsn, Entry(2, encode_stored([Unit(place.lsn, 7, 0, 2, (place,), 3)]))


def test_the_memory_that_an_entry_costs_is_told_truly() -> None:
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
    told = index.facts()["memory_bytes"]
    assert ENTRY_BYTES < told / 20_000 < 2 * ENTRY_BYTES
    assert 0.67 < used / told < 1.5


def test_looking_up_what_is_not_there_costs_no_more_than_a_dict() -> None:
    """MS-20: however many entries there are; a hundred thousand look-ups are done at once."""
    index = MemoryIndex(SystemThreads().condition())
    for number in range(20_000):
        index.insert(*entry(number))
    missing = Lsn(1 << 60)
    assert timeit(lambda: index.look_up(missing), number=100_000) < 1.0
