"""A log with its safe snapshot store: reflection by every feed, the log released, crashes, rebuilding."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.histories import SESSIONS, Change, State, Step, changed, fill
from tests.snapshot.database_stage import DIRECTORY, DatabaseStage, put, rows, safe_rows
from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch
from warren.log.file_record import FileKind, FileState
from warren.log.read.tail import LogTail, TailBlock, blocks_of_part
from warren.log.store import LogStore
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

FEEDS = [Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED]
_UPKEEP = st.tuples(
    st.sampled_from(["rotate", "flush", "purge", "stop", "kill", "power_cut", "pause", "resume"]),
    st.just(0),
    st.just(list[Change]()),
)
STEPS = st.lists(st.one_of(SESSIONS, SESSIONS, SESSIONS, _UPKEEP), min_size=3, max_size=20)


def log_files(database: Database) -> int:
    files = database.log.manifest.state.files.values()
    return sum(1 for record in files if record.purpose is FileKind.LOG and record.state is FileState.SEALED)


@pytest.mark.parametrize("mode", FEEDS)
def test_what_is_durable_reaches_the_store_and_is_there_after_a_stop(mode: Mode) -> None:
    """VO-01: whichever way entries are handed over."""
    stage = DatabaseStage(mode)
    with stage.open() as database:
        put(database, {b"a": b"1", b"b": b"2"})
        put(database, {b"a": b"3"}, channel=1)
        session = database.begin()
        session.remove(1, b"b")
        epoch = session.commit()
        assert rows(database) == {(1, b"a"): b"3"}
        assert database.store.applied.epoch == epoch == database.log.durable
    with stage.open() as database:
        assert rows(database) == {(1, b"a"): b"3"}


@pytest.mark.parametrize(("mode", "bulk_bytes"), [(mode, bulk) for mode in FEEDS for bulk in (0, 400)])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(steps=STEPS, seed=st.integers(0, 1 << 20))
def test_the_store_equals_the_model_whatever_happens(mode: Mode, bulk_bytes: int, steps: list[Step], seed: int) -> None:
    """VO-02, X-03, X-04, C-15: sessions on two channels, clears, rotations, flushes, purges, stops, kills and power
    cuts, with limits so tiny that everything is cut, spilled and chunked."""
    stage = DatabaseStage(mode, seed, bulk_bytes=bulk_bytes)
    database = stage.open()
    model: State = {}
    for verb, channel, changes in steps:
        reflection = database.reflection
        assert reflection is not None
        if verb == "session":
            commit(database, channel, changes)
            model = changed(model, changes)
        elif verb == "rotate":
            database.log.rotate()
        elif verb == "purge":
            database.log.purge()
        elif verb in ("flush", "pause", "resume"):
            getattr(reflection, verb)()
        else:
            (database.close if verb == "stop" else database.abandon)()
            if verb == "power_cut":
                stage.crash(CrashModel.REORDERED, seed + len(model))
            elif verb == "kill":
                stage.crash(CrashModel.ALL, seed)
            database = stage.open()
        assert database.store.applied.epoch <= database.log.durable
        assert not reflection.failure
    assert rows(database) == model
    database.abandon()


def commit(database: Database, channel: int, changes: list[Change]) -> Epoch:
    session = database.begin(channel)
    fill(session, changes)
    return session.commit()


def test_log_files_go_behind_a_flush_and_not_before() -> None:
    """X-03, C-15: applied is not enough: the mark must be on the store's disk and in the manifest."""
    stage = DatabaseStage()
    with stage.open() as database:
        assert database.reflection is not None
        for number in range(6):
            put(database, {b"key-%d" % number: b"value"})
            database.log.rotate()
        wanted = rows(database)
        database.log.purge()
        assert log_files(database) == 6
        assert database.log.manifest.state.reflected == 0
        database.reflection.flush()
        assert database.log.manifest.state.reflected == database.store.applied.epoch
        database.log.purge()
        assert log_files(database) == 0
    with stage.open() as database:
        assert rows(database) == wanted


def test_a_start_reads_only_what_lies_behind_the_mark() -> None:
    """VO-01: files up to the mark are not even read."""
    stage = DatabaseStage()
    with stage.open() as database:
        for number in range(5):
            put(database, {b"key-%d" % number: b"value"})
            database.log.rotate()
    read: list[int] = []
    original = LogTail.read

    def watched(self: LogTail, up_to: Epoch) -> object:
        for block in original(self, up_to):
            read.append(block.epoch)
            yield block

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogTail, "read", watched)
        database = stage.open()
        assert read == []
        assert database.reflection is not None
        database.reflection.pause()
        put(database, {b"late": b"1"})
        database.abandon()
        stage.crash(CrashModel.ALL, 1)
        with stage.open() as database:
            assert read == [6]
            assert len(rows(database)) == 6


def test_nothing_newer_than_the_safe_snapshot_version_is_visible() -> None:
    """VO-03: a writer that gives versions of its own moves the safe snapshot version; what is above waits, and holds
    back the mark's epoch, so that a crash does not lose it."""
    stage = DatabaseStage(lag_seconds=0.0)
    database = stage.open()
    session = database.begin()
    session.put(1, b"early", b"1", version=(1, 0))
    session.put(1, b"late", b"1", version=(1000, 7))
    session.commit()
    assert safe_rows(database) == {(1, b"early"): b"1"}
    assert rows(database) == {(1, b"early"): b"1", (1, b"late"): b"1"}, "now is everything that is durable"
    assert database.store.applied.epoch == 0
    assert database.reflection is not None
    database.reflection.flush()
    database.abandon()
    stage.crash(CrashModel.SYNCED, 3)
    with stage.open() as database:
        assert safe_rows(database) == {(1, b"early"): b"1"}
        assert database.reflection is not None
        database.reflection.advance((1000, 7))
        assert safe_rows(database) == rows(database) == {(1, b"early"): b"1", (1, b"late"): b"1"}
        assert database.store.applied.epoch == database.log.durable


@pytest.mark.parametrize("mode", FEEDS)
def test_no_session_is_ever_seen_in_part(mode: Mode) -> None:
    """VO-02: whatever mark a reader finds the store at, each epoch is in it whole, or not at all."""
    stage = DatabaseStage(mode)
    database = stage.open()
    assert database.reflection is not None
    database.reflection.pause()
    for number in range(8):
        put(database, {b"key-%d" % key: b"%d" % number for key in range(9)}, channel=number % 2)
    assert stage.store is not None
    seen: list[set[bytes]] = []
    apply = stage.store.apply

    def watched(*arguments: Any, **named: Any) -> None:
        apply(*arguments, **named)
        assert stage.store is not None
        seen.append({row.value for row in stage.store.range(1)})

    stage.store.apply = watched  # type: ignore[method-assign]
    database.reflection.resume()
    rows(database)
    assert len(seen) > 4
    assert all(len(values) <= 1 for values in seen), seen
    database.abandon()


def test_a_store_that_breaks_down_stops_reflection_and_nothing_is_lost() -> None:
    """The log grows, an alarm says why, and when the store is well again everything is brought, also what it forgot."""
    stage = DatabaseStage(retry_seconds=0.01)
    with stage.open() as database:
        put(database, {b"a": b"1"})
        rows(database)
        assert stage.store is not None
        stage.store.break_down("no space left")
        put(database, {b"b": b"2"})
        reflection = database.reflection
        assert reflection is not None
        until(lambda: reflection.failure is None and stage.store is not None and stage.store.failure is None)
        assert rows(database) == {(1, b"a"): b"1", (1, b"b"): b"2"}


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def test_a_store_that_cannot_be_used_is_built_again_while_the_log_has_everything() -> None:
    """A missing one, one of another timeline, one ahead of the log."""
    stage = DatabaseStage()
    stage.log_settings = replace(stage.log_settings, retention_seconds=1e6, retention_bytes=1 << 40)
    with stage.open() as database:
        put(database, {b"a": b"1", b"b": b"2"})
        database.log.rotate()
        wanted = rows(database)
    stage.store = None
    with stage.open() as database:
        assert rows(database) == wanted


def test_a_store_that_is_gone_with_the_log_it_stood_for_is_refused() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        put(database, {b"a": b"1"})
        database.log.rotate()
        rows(database)
        assert database.reflection is not None
        database.reflection.flush()
        database.log.purge()
    stage.store = None
    with pytest.raises(Damage, match="safe snapshot store cannot be used"):
        stage.open()


def test_a_log_whose_state_left_it_is_not_taken_for_the_state() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        put(database, {b"a": b"1"})
    with pytest.raises(Refused, match="has left the log"):
        LogStore.open(f"{DIRECTORY}/log", stage.log_settings, stage.environment())
    with stage.open() as database:
        put(database, {b"a": b"2"})
        assert database.log.compact()["message"] == "nothing to compact"
        with pytest.raises(Refused, match="has left the log"):
            database.log.cut()


def test_a_pull_and_a_push_hand_over_the_same_entries() -> None:
    """From memory or from the file, where small blocks come as one."""
    stage = DatabaseStage(Mode.OFF)
    with stage.open() as database:
        log = database.log
        pushed: list[TailBlock] = []
        log.commit.call_with_parts(
            lambda epoch, parts: pushed.extend(
                block for part in parts for block in blocks_of_part(database._channel_of(part), part, ())
            )
        )
        tail = LogTail(stage.disk, log.directory, lambda: log.manifest.state, log.durable)
        pulled: list[TailBlock] = []
        for number in range(12):
            put(database, {b"key-%d" % key: b"value %d" % number for key in range(number + 1)}, channel=number % 2)
            if number % 5 == 4:
                log.rotate()
            if number % 3 == 0:
                pulled += tail.read(log.durable)
        pulled += tail.read(log.durable)
        assert len(pulled) < len(pushed)
        for channel in (0, 1):
            assert facts_of(pulled, channel) == facts_of(pushed, channel)
        tail.rewind(Epoch(0))
        again = list(tail.read(Epoch(5)))
        early = [block for block in pushed if block.epoch <= 5]
        assert facts_of(again, 0) + facts_of(again, 1) == facts_of(early, 0) + facts_of(early, 1)
        assert tail.epoch_within(log.durable, 1) == 6
        assert tail.epoch_within(log.durable, 1 << 30) == log.durable


def facts_of(blocks: list[TailBlock], channel: int) -> list[tuple[Any, ...]]:
    """The entries of one channel."""
    found: list[tuple[Any, ...]] = []
    for columns in (block.columns for block in blocks if block.channel == channel):
        assert columns.epochs is not None
        numbers = (columns.kinds, columns.storages, columns.majors, columns.minors, columns.epochs)
        plain = [column.array().tolist() for column in numbers]
        found += zip(*plain, columns.keys.to_list(), columns.values.to_list(), strict=True)
    return found


def test_the_lag_is_kept_however_often_the_bell_rings() -> None:
    """VB-03: what is removed within it never reaches the store, and what stays goes there in one batch."""
    stage = DatabaseStage(lag_seconds=30.0)
    database = stage.open()
    begun = database.store.applied.epoch
    for number in range(20):
        put(database, {b"%d" % number: b"soon gone"})
        time.sleep(0.01)
    assert database.store.applied.epoch == begun, "everything waits for more"
    began = time.monotonic()
    database.close()
    assert time.monotonic() - began < 20, "the end is not waited for"
    with stage.open() as database:
        assert len(rows(database)) == 20


def test_little_waits_for_more_and_much_does_not() -> None:
    """VB-03: a spell of little is one round; who reads, or closes, does not wait for it."""
    stage = DatabaseStage(lag_seconds=0.01, quiet_seconds=1e6, quiet_bytes=20_000)
    database = stage.open()
    begun = database.store.applied.epoch
    for number in range(10):
        put(database, {b"%d" % number: b"little"})
        time.sleep(0.02)
    assert database.store.applied.epoch == begun, "the lag is over, and less than 20,000 bytes came"
    assert len(rows(database)) == 10
    put(database, {b"much": bytes(20_000)})
    until(lambda: database.store.applied.epoch == database.log.durable)
    put(database, {b"little": b"again"})
    time.sleep(0.1)
    assert database.store.applied.epoch < database.log.durable
    database.close()
    with stage.open() as database:
        assert len(rows(database)) == 12


def test_little_is_reflected_when_the_quiet_spell_is_over() -> None:
    stage = DatabaseStage(lag_seconds=0.0, quiet_seconds=0.3, quiet_bytes=20_000)
    with stage.open() as database:
        begun, began = database.store.applied.epoch, time.monotonic()
        put(database, {b"a": b"little"})
        until(lambda: database.store.applied.epoch > begun)
        assert time.monotonic() - began >= 0.3


def test_a_store_that_is_behind_is_left_alone_unless_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        monkeypatch.setattr(VolatileStore, "is_behind", True)
        put(database, {b"a": b"1"})
        time.sleep(0.3)
        assert database.store.applied.epoch < database.log.durable, "what can wait waits"
        assert rows(database) == {(1, b"a"): b"1"}
        put(database, {b"b": b"2"})
        monkeypatch.setattr(VolatileStore, "is_behind", False)
        until(lambda: database.store.applied.epoch == database.log.durable)


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.OFF])
def test_a_compaction_before_the_store_has_taken_anything_loses_nothing(mode: Mode) -> None:
    """The store reads log files only: what a merge put into a compacted file would never reach it."""
    stage = DatabaseStage(mode)
    with stage.open() as database:
        if database.reflection is not None:
            database.reflection.pause()
        put(database, {b"a": b"1"})
        assert database.log.manifest.state.reflected == 0
        database.log.compact()
        database.log.purge()
        if database.reflection is not None:
            database.reflection.resume()
            database.catch_up()
        assert rows(database) == {(1, b"a"): b"1"}
    with stage.open() as database:
        assert rows(database) == {(1, b"a"): b"1"}


def test_a_view_shows_what_was_applied_before_the_store_was_opened_anew() -> None:
    """A store that is opened anew is back at its last flush; readers without an epoch must not see that."""
    stage = DatabaseStage()
    with stage.open() as database:
        put(database, {b"key": b"value"})
        database.catch_up()
        assert database.indexed == database.log.durable
        assert stage.store is not None
        database.store = stage.store.reopened(database.log.manifest.state.timeline.id)
        assert database.store.applied.epoch < database.indexed
        with closing(database.view_at(Epoch(0))) as view:
            found = view.get(1, b"key")
        assert found is not None and found.value == b"value"
