"""Reflection when something beside the log goes wrong: a buffer that cannot spill, a store that was lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.snapshot.crash_stage import CrashStage
from tests.snapshot.database_stage import DatabaseStage, State, put, rows
from tests.snapshot.test_database import FEEDS, until
from tests.snapshot.test_database_crashes import SESSIONS, Lives, check_restart
from tools.simulator.stepped_threads import SteppedThreads
from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import Damage, DiskFailure
from warren.base.ids import ChannelId, Epoch
from warren.log.file_record import FileState, Voided, active_name
from warren.log.log_files import find_file
from warren.log.read import tail as few_blocks
from warren.log.read.tail import LogTail
from warren.snapshot.reflection import Mode
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import CrashModel


@pytest.mark.parametrize("mode", FEEDS)
def test_a_buffer_that_cannot_spill_costs_no_epoch_and_no_commit(mode: Mode) -> None:
    """What could not be added is read from the log's files when there is room again; writers do not notice."""
    stage = DatabaseStage(mode, buffer_bytes=1200, retry_seconds=0.01)
    full = Fault(FaultKind.NO_SPACE, "create", "db/buffer/*", times=2)
    files = FaultyFiles(stage.disk, [full])
    database = stage.open(files)
    reflection = database.reflection
    assert reflection is not None
    reflection.pause()
    wanted: State = {}
    for number in range(8):
        put(database, {b"%d-%d" % (number, row): b"x" * 200 for row in range(4)}, channel=number % 2)
        wanted |= {(1, b"%d-%d" % (number, row)): b"x" * 200 for row in range(4)}
    reflection.resume()
    until(lambda: reflection.failure is None and database.store.applied.epoch == database.log.durable)
    assert rows(database) == wanted
    assert full.times == (2 if mode is Mode.NOTIFY else 1), "a pull takes what there is room for; a push cannot"
    database.close()
    with stage.open() as database:
        assert rows(database) == wanted


def test_a_buffer_that_cannot_spill_is_no_reason_to_open_the_store_anew() -> None:
    """Open views stay valid: the store has not failed."""
    stage = DatabaseStage(buffer_bytes=24_000, step_bytes=1 << 20, retry_seconds=0.01)
    full = Fault(FaultKind.NO_SPACE, "create", "db/buffer/*", times=5)
    with stage.open(FaultyFiles(stage.disk, [full])) as database:
        assert database.reflection is not None
        put(database, {b"a": b"1"})
        database.catch_up()
        view = database.view()
        database.reflection.pause()
        for row in range(8):
            put(database, {b"%d" % row: b"x" * 9000})  # each in a batch of its own
        database.reflection.resume()
        until(lambda: full.times == 0 and database.store.applied.epoch == database.log.durable)
        assert [row.key for row in view.range(1)] == [b"a"]
        view.close()


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.PUSH_THREADED])
def test_what_was_pushed_in_vain_is_pulled_in_any_order_of_threads(mode: Mode) -> None:
    for seed in range(12):
        lives, stage = Lives(seed), CrashStage(mode)
        stage.faults = [Fault(FaultKind.NO_SPACE, "create", "db/buffer/*", times=2)]
        stage.play(seed, lives.body)
        check_restart(stage.crashed(CrashModel.SYNCED, seed), lives.writers, stage.flushed_epoch(), continues=True)
        assert [writer.acknowledged for writer in lives.writers] == [2 * SESSIONS] * 2


@pytest.mark.parametrize("mode", FEEDS)
def test_what_a_store_did_not_take_is_in_the_buffer_still(mode: Mode) -> None:
    """X-04: nothing was lost by its failure, so nothing is read again: what was taken must have been put back."""
    stage = DatabaseStage(mode, retry_seconds=0.01)
    with stage.open() as database:
        put(database, {b"a": b"1"})
        rows(database)
        reflection = database.reflection
        assert reflection is not None and stage.store is not None
        reflection.flush()
        reflection.pause()
        put(database, {b"b": b"2"})
        stage.store.break_down("no space left")
        with pytest.raises(DiskFailure):
            reflection.catch_up()
        reflection.resume()
        until(lambda: reflection.failure is None and database.store.applied.epoch == database.log.durable)
        assert rows(database) == {(1, b"a"): b"1", (1, b"b"): b"2"}


def test_a_store_that_is_built_again_holds_the_log_until_it_is_flushed() -> None:
    """X-03, C-15: what the lost store had flushed says nothing about the new one."""
    stage = DatabaseStage()
    history = replace(stage.log_settings, retention_seconds=60.0, retention_bytes=1 << 40)
    stage.log_settings = history
    with stage.open() as database:
        put(database, {b"a": b"1"})
        database.log.rotate()
        wanted = rows(database)
    stage.store = None
    stage.clock.advance_ns(61 * 10**9)
    database = stage.open()
    database.log.purge()
    database.abandon()
    store = database.store
    assert isinstance(store, VolatileStore)
    stage.crash(CrashModel.ALL, 1)
    stage.store = store.reopened(store.applied.timeline)
    with stage.open() as database:
        assert rows(database) == wanted


def test_a_voided_range_is_passed_over_and_what_stands_behind_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-15: a repair may void bytes in the middle of a file; they do not count, and hide nothing."""
    stage = DatabaseStage(Mode.OFF)
    with stage.open() as database:
        epochs = [put(database, {b"%d" % number: b"x"}) for number in range(4)]
        database.log.rotate()
        state, directory = database.log.manifest.state, database.log.directory
        tail = LogTail(stage.disk, directory, lambda: state, Epoch(0))
        with monkeypatch.context() as alone:
            alone.setattr(few_blocks, "ENTRIES_MAX", 0)
            blocks = list(tail.read(Epoch(epochs[-1])))
        assert [block.epoch for block in blocks] == epochs
        record = next(each for each in state.files.values() if each.last_epoch == epochs[-1])
        start, stop = (block.first & 0xFFFFFFFF for block in blocks[1:3])
        voided = record.changed(voided=(Voided(start, stop, "repair"),))
        state = replace(state, files={**state.files, record.number: voided})
        tail.rewind(Epoch(0))
        [joined] = tail.read(Epoch(epochs[-1]))
        assert joined.columns.epochs is not None
        assert joined.columns.epochs.array().tolist() == [epochs[0], *epochs[2:]]


@pytest.mark.parametrize("bulk_bytes", [0, 1])
def test_damage_in_the_active_file_stops_reflection_where_it_stands(bulk_bytes: int) -> None:
    """X-03: a bad block in what is durable is not taken for the end of the log: the mark would pass it by, and the log
    behind the mark may go."""
    stage = DatabaseStage(bulk_bytes=bulk_bytes)
    database = stage.open()
    reflection = database.reflection
    assert reflection is not None
    first = put(database, {b"a": b"1"})
    database.catch_up()
    reflection.pause()
    for number in range(3):
        put(database, {b"damaged %d" % number: b"x" * 100})
    active = next(each for each in database.log.manifest.state.files.values() if each.state is FileState.ACTIVE)
    path = find_file(stage.disk, database.log.directory, active)
    file = stage.disk.open(path, writable=True)
    raw = file.read_at(0, stage.disk.stat(path).size_bytes)
    file.write_at(raw.index(b"damaged 1"), [b"DAMAGED 1"])
    file.close()
    reflection.resume()
    with pytest.raises(Damage, match=active_name(ChannelId(0))):
        database.catch_up()
    until(lambda: reflection.failure is not None)
    assert any("damaged" in alarm for alarm in database.alarms())
    assert database.store.applied.epoch == first
    with pytest.raises(Damage):
        rows(database)
    database.abandon()


def test_a_log_that_has_no_room_for_another_file_holds_reflection_up_in_nothing() -> None:
    """It asks for a rotation, so that what is in the store can go; on a full disk the commit waits for room, and
    that must not be the one who brings into the store what takes the room."""
    stage = DatabaseStage(flush_seconds=1e6)
    full = Fault(FaultKind.NO_SPACE, "create", "db/log/*", times=10**6)
    files = FaultyFiles(stage.disk)
    database = stage.open(files)
    reflection = database.reflection
    assert reflection is not None
    wanted: State = {}
    for number in range(10):
        put(database, {b"again": b"%d" % number * 150_000})
        wanted = {(1, b"again"): b"%d" % number * 150_000}
    files.faults.append(full)
    database.catch_up()
    reflection.flush()
    assert rows(database) == wanted
    assert database.log.manifest.state.reflected == database.log.durable
    files.faults.clear()
    until(lambda: database.log.rotation.rotations > 0)
    database.close()


def test_commits_do_not_cut_the_pause_before_a_broken_store_is_tried_again_short() -> None:
    stage = DatabaseStage(retry_seconds=1.0)
    threads = SteppedThreads(7, stage.clock)
    tries: list[int] = []

    def fail_to_resume() -> None:
        tries.append(stage.clock.monotonic_ns())
        raise DiskFailure("the store does not open")

    def body() -> None:
        database = stage.open(threads=threads)
        store: Any = stage.store
        store.resume, store._failure = fail_to_resume, "broken"
        pause = threads.condition()
        for number in range(40):
            put(database, {b"%d" % number: b"x"})
            with pause:
                pause.wait(0.1)
        assert any("the store does not open" in alarm for alarm in database.alarms())
        del store.resume
        with pause:
            pause.wait(1.1)
        assert database.alarms() == []
        database.close()

    threads.run(body)
    gaps = [after - before for before, after in pairwise(tries)]
    assert 3 <= len(tries) <= 5 and min(gaps) >= 1_000_000_000, "once in a second, however many commits there are"


def test_a_defect_in_a_round_is_an_alarm_and_reflection_continues_after_it() -> None:
    stage = DatabaseStage(retry_seconds=0.01)
    with stage.open() as database:
        reflection: Any = database.reflection
        gather, calls = reflection._feed.gather, list[int]()

        def fail_twice(durable: Epoch) -> Epoch:
            calls.append(durable)
            if len(calls) <= 2:
                raise ValueError("a defect")
            return Epoch(gather(durable))

        reflection._feed.gather = fail_twice
        put(database, {b"a": b"1"})
        until(lambda: len(calls) >= 3 and reflection.failure is None)
        until(lambda: database.store.applied.epoch == database.log.durable)
        assert database.log.environment.background.failures()["reflection"] == 2


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.PUSH_THREADED])
def test_a_defect_in_a_push_fails_no_commit_and_the_epoch_is_pulled(mode: Mode) -> None:
    stage = DatabaseStage(mode, retry_seconds=0.01)
    with stage.open() as database:
        reflection: Any = database.reflection
        applying = reflection._applying
        add, calls = applying.add, list[int]()

        def fail_once(block: Any) -> None:
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("a defect")
            add(block)

        applying.add = fail_once
        put(database, {b"a": b"1"})
        put(database, {b"b": b"2"})
        until(lambda: database.store.applied.epoch == database.log.durable)
        assert rows(database) == {(1, b"a"): b"1", (1, b"b"): b"2"}
