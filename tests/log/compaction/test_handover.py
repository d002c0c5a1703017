"""Compaction done elsewhere: ordered by the owner, worked on by others, put in force by the owner, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.log.ordering import SHORT_OF_MEMORY, TINY, TINY_AND_DEALT, compact_elsewhere, work
from tests.log.upkeep_stage import DIRECTORY, Stage, names, put, remove, rows, sealed
from tests.pipeline.histories import STEPS, History, Step
from warren.base.errors import Damage, Refused, WarrenError
from warren.files.protocol import join
from warren.log.compaction.ranges import RangePlan, RangePlanSizes
from warren.log.file_record import FileKind
from warren.log.read.scan import LogInput
from warren.log.store import LogStore
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, PowerCut

SIZES = {"one pass": TINY, "two passes": TINY_AND_DEALT, "in pieces on disk": SHORT_OF_MEMORY}
Row = tuple[int, int, bytes, bytes, int, int, int]


def compacted_rows(store: LogStore) -> list[Row]:
    """Every entry of the compacted files in force, in the order of the files."""
    state = store.manifest.state
    found: list[Row] = []
    for number in state.compacted:
        for batch in LogInput(store.environment.files, DIRECTORY, state.files[number], store.durable).batches():
            assert batch.epochs is not None
            columns = (batch.kinds, batch.storages, batch.majors, batch.minors, batch.epochs)
            numbers = zip(*(column.array().tolist() for column in columns), strict=True)
            texts = zip(batch.keys.to_list(), batch.values.to_list(), strict=True)
            found += [
                (kind, storage, key, value, major, minor, epoch)
                for (kind, storage, major, minor, epoch), (key, value) in zip(numbers, texts, strict=True)
            ]
    return found


def fill(store: LogStore, count: int = 40) -> None:
    for number in range(count):
        put(store, {b"key-%03d" % (number * 7 % 23): b"value %d" % number}, storage=1 + number % 3)
        if number % 10 == 9:
            store.rotate()
    remove(store, b"key-000", b"key-001")


@pytest.mark.parametrize("how", SIZES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=15)
@given(steps=STEPS)
def test_an_ordered_compaction_equals_one_in_process_entry_for_entry(how: str, steps: list[Step]) -> None:
    """CO-09, CO-10, SO-02, ST-04: clears, tombstones, channels, crashes and earlier compactions; by key ranges, dealt
    in two passes, or short of memory: the very entries of the other way, and the store runs on."""
    results: list[list[Row]] = []
    states = []
    for compact in (lambda store: compact_elsewhere(store, SIZES[how]), LogStore.compact):
        history = History(Stage(retention_seconds=1e6, retention_bytes=1 << 40))
        store = history.play(steps)
        compact(store)
        results.append(compacted_rows(store))
        states.append((rows(store.refresh()), history.state_at(1 << 60)))
        put(store, {b"after": b"it"})
        store.abandon()
        with history.stage.store() as again:
            assert rows(again.snapshot()) == states[-1][1] | {(1, b"after"): b"it"}
    assert results[0] == results[1]
    assert states[0][0] == states[0][1] == states[1][0]


@pytest.mark.parametrize("how", SIZES)
def test_several_files_come_into_force_by_one_edit_and_lie_one_behind_the_other(how: str) -> None:
    """CO-07, CO-13: inputs are detached, the new files share them as sources; the next compaction merges them all."""
    stage = Stage(retention_seconds=0.0)
    with stage.store() as store:
        fill(store)
        inputs = {record.number for record in store.rotate().rotated}
        wanted = rows(store.refresh())
        summary = compact_elsewhere(store, SIZES[how])
        assert summary is not None
        files = sealed(store, FileKind.COMPACTED)
        assert len(files) > 2
        assert summary["entries"] == sum(record.entries for record in files) == len(wanted)
        assert all(inputs <= set(record.sources) for record in files)
        keys = [(storage, key) for _, storage, key, *_ in compacted_rows(store)]
        assert keys == sorted(wanted)
        assert not stage.disk.list(f"{DIRECTORY}/staging")
        store.purge()
        assert not sealed(store)
        put(store, {b"key-003": b"new"})
        assert compact_elsewhere(store) is not None
        assert rows(store.refresh()) == wanted | {(1, b"key-003"): b"new"}
        assert compact_elsewhere(store) is None


def test_a_clear_in_one_range_drops_keys_in_another() -> None:
    """CO-09: the clear stands at the storage's empty key, what it drops may lie in any range behind it."""
    for sizes in SIZES.values():
        stage = Stage()
        with stage.store() as store:
            fill(store)
            session = store.begin()
            session.clear_storage(2)
            session.commit()
            put(store, {b"key-999": b"behind it"}, storage=2)
            wanted = rows(store.refresh())
            assert [key for storage, key in wanted if storage == 2] == [b"key-999"]
            compact_elsewhere(store, sizes)
            store.purge()
            assert rows(store.refresh()) == wanted


def test_two_passes_read_every_entry_twice_whatever_the_number_of_ranges() -> None:
    """Cost stays linear: the runs hold each input entry at most once, and no merge reads the inputs again."""
    stage = Stage()
    with stage.store() as store:
        fill(store, 60)
        order = store.handover.order(64)
        assert order is not None
        plan = RangePlan(stage.disk, order, TINY_AND_DEALT)
        assert len(plan.ranges) > 4
        parts = [part.record.number for task in plan.deals() for part in task.parts if part.is_whole]
        assert len(parts) == len(set(parts))
        assert sum(part.entries for task in plan.deals() for part in task.parts) == 62
        run = {"name": "run", "parts": [[0, 0, 0]] * len(plan.ranges), "clears": []}
        assert all(not task.parts and task.runs for task in plan.merges([run]))
        assert RangePlan(stage.disk, order, RangePlanSizes(workers=2)).deals() == []


def test_an_order_whose_inputs_are_no_longer_current_is_refused_and_costs_nothing() -> None:
    stage = Stage(retention_seconds=1e6)
    with stage.store() as store:
        fill(store)
        order = store.handover.order()
        assert order is not None
        results = work(store, order)
        put(store, {b"meanwhile": b"1"})
        store.compact()
        before = store.manifest.state, names(stage.disk)
        with pytest.raises(Refused, match="no longer in force"):
            store.handover.accept(order.name, results)
        assert (store.manifest.state, names(stage.disk)) == before
        assert not stage.disk.list(f"{DIRECTORY}/staging")


def test_the_owner_continues_while_others_work_and_purges_nothing_they_read() -> None:
    """CO-06: what is appended, rotated and purged meanwhile does not disturb the job, and is there afterwards."""
    stage = Stage()
    with stage.store() as store:
        fill(store)
        order = store.handover.order()
        assert order is not None
        assert store.handover.is_active()
        put(store, {b"meanwhile": b"1"})
        store.rotate()
        store.purge()
        wanted = rows(store.refresh())
        store.handover.accept(order.name, work(store, order))
        assert not store.handover.is_active()
        store.purge()
        assert rows(store.refresh()) == wanted
        assert wanted[1, b"meanwhile"] == b"1"


def test_an_order_lapses_and_what_was_made_for_it_is_cleared() -> None:
    stage = Stage()
    with stage.store() as store:
        fill(store)
        order = store.handover.order(4, seconds=60)
        assert order is not None
        results = work(store, order)
        stage.clock.set_wall_ns(stage.clock.wall_ns() + 10**15)
        assert store.handover.is_active(), "a step of the wall clock lapses no order"
        stage.advance(61)
        assert not store.handover.is_active()
        with pytest.raises(Refused, match="or its lease has expired"):
            store.handover.accept(order.name, results)
        assert not stage.disk.list(f"{DIRECTORY}/staging")
        other = store.handover.order(4)
        assert other is not None
        work(store, other)
        store.handover.cancel(other.name)
        store.handover.cancel("unknown")
        assert not stage.disk.list(f"{DIRECTORY}/staging")
        with pytest.raises(Refused, match="cannot be made"):
            store.handover.order(0)


def _other_keys(store: LogStore, results: list[dict[str, Any]]) -> None:
    results[0]["number"], results[1]["number"] = results[1]["number"], results[0]["number"]


def _far_away(store: LogStore, results: list[dict[str, Any]]) -> None:
    results[0]["name"] = "../../manifest"


def _never_made(store: LogStore, results: list[dict[str, Any]]) -> None:
    results[0]["name"] = "range-77"


def _more_entries(store: LogStore, results: list[dict[str, Any]]) -> None:
    results[0]["entries"] += 1


def _no_figures(store: LogStore, results: list[dict[str, Any]]) -> None:
    results[0]["end"] = "long"


def _twice(store: LogStore, results: list[dict[str, Any]]) -> None:
    results.append(results[0])


def _backwards(store: LogStore, results: list[dict[str, Any]]) -> None:
    results.reverse()


def _nothing(store: LogStore, results: list[dict[str, Any]]) -> None:
    results.clear()


@pytest.mark.parametrize(
    ("spoil", "family", "words"),
    [
        (_other_keys, Damage, "not the file that was ordered"),
        (_far_away, Refused, "no name of a staged file"),
        (_never_made, Refused, "was never made"),
        (_more_entries, Damage, "entries, not"),
        (_no_figures, Refused, "figures of"),
        (_nothing, Refused, "numbers"),
        (_twice, Refused, "numbers"),
        (_backwards, Damage, "do not begin behind"),
    ],
)
def test_what_is_not_what_was_ordered_is_refused(
    spoil: Callable[[LogStore, list[dict[str, Any]]], None], family: type[WarrenError], words: str
) -> None:
    stage = Stage()
    with stage.store() as store:
        fill(store)
        wanted = rows(store.refresh())
        order = store.handover.order()
        assert order is not None
        results = work(store, order)
        spoil(store, results)
        before = store.manifest.state
        with pytest.raises(family, match=words):
            store.handover.accept(order.name, results)
        assert store.manifest.state == before
        assert rows(store.refresh()) == wanted


def test_files_whose_ranges_overlap_are_refused() -> None:
    """A worker that merged the wrong range must not hide keys: adjacent ranges are compared."""
    stage = Stage()
    with stage.store() as store:
        fill(store)
        order = store.handover.order()
        assert order is not None
        plan = RangePlan(stage.disk, order, TINY)
        plan.ranges[1] = plan.ranges[0]
        results = work_on(store, plan)
        with pytest.raises(Damage, match="do not begin behind"):
            store.handover.accept(order.name, results)


def work_on(store: LogStore, plan: RangePlan) -> list[dict[str, Any]]:
    from warren.log.compaction.ranges import merge_range

    files, threads = store.environment.files, store.environment.threads
    return [merge_range(files, threads, task, f"range-{n}") for n, task in enumerate(plan.merges([]))]


def test_a_damaged_input_is_reported_by_the_task_with_file_and_offset() -> None:
    stage = Stage()
    store = stage.open()
    fill(store)
    order = store.handover.order()
    assert order is not None
    record = order.inputs[1]
    path = join(DIRECTORY, record.name)
    raw = bytearray(stage.disk.contents(path))
    raw[record.end - 100] ^= 1
    file = stage.disk.open(path, writable=True)
    file.write_at(0, [bytes(raw)])
    file.close()
    for sizes in SIZES.values():
        with pytest.raises(Damage, match=record.name):
            work(store, order, sizes)
        for name in stage.disk.list(order.home):
            if not stage.disk.stat(join(order.home, name)).is_directory:
                stage.disk.remove(join(order.home, name))
    store.abandon()


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_of_an_acceptance_leaves_the_same_state(model: CrashModel) -> None:
    """X-10: several files are renamed, then named in one edit; whatever is cut, what is read is the same."""
    steps, wanted = _steps_of_acceptance()
    assert len(steps) > 8
    for step in steps:
        stage = Stage()
        files = FaultyFiles(stage.disk, cut_at=step)
        with pytest.raises(PowerCut):
            stage.play(5, _ordered_and_accepted, files)
        stage = Stage(stage.disk.crash(model, SeededRandom(step)))
        with stage.store() as store:
            assert rows(store.snapshot()) == wanted, step
            assert stage.disk.list(f"{DIRECTORY}/staging") == []
            store.compact()
            assert rows(store.refresh()) == wanted, step


def _ordered_and_accepted(store: LogStore) -> range:
    fill(store, 20)
    order = store.handover.order()
    assert order is not None
    results = work(store, order)
    files = store.environment.files
    assert isinstance(files, FaultyFiles)
    first = len(files.steps)
    store.handover.accept(order.name, results)
    return range(first, len(files.steps))


def _steps_of_acceptance() -> tuple[range, dict[tuple[int, bytes], bytes]]:
    stage = Stage()
    steps = stage.play(5, _ordered_and_accepted, FaultyFiles(stage.disk))
    with Stage(stage.disk.crash(ALL, SeededRandom(0))).store() as store:
        return steps, rows(store.snapshot())
