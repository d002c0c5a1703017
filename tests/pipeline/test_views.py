"""The views of the log against what recovery makes of it, on stores with any history."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import DIRECTORY, Stage, put, remove
from tests.pipeline.histories import STEPS, History, Step
from tests.pipeline.looking import look, plan_of, rows_of, state
from warren.base.errors import Gone, Misuse, Refused
from warren.base.ids import lsn_of
from warren.base.threads import SystemThreads
from warren.catalog.rows import CATALOG, RowKind, encode, key_of
from warren.log.file_record import FileState
from warren.log.manifest import Manifest, read_manifest
from warren.log.retention import Pins

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(steps=STEPS, buckets=st.integers(1, 4), retention=st.sampled_from([0.0, 1e6]))
def test_kv_is_what_recovery_restores(steps: list[Step], buckets: int, retention: float) -> None:
    """X-11: the state that Spark shows is that of the start-up snapshot, row for row, at every epoch that is left."""
    history = History(Stage(retention_seconds=retention, retention_bytes=1 << 40 if retention else 0))
    store = history.play([("session", 0, [("put", 1, b"a", b"first")]), *steps])
    shown = sorted(
        (row["storage"], row["key"], row["value"], (row["major"], row["minor"]))
        for row in look(history.stage, view="kv", buckets=buckets)
    )
    assert shown == [(row.storage, row.key, row.value, row.version) for row in store.refresh().cursor()]
    assert state(history.stage, buckets=buckets) == history.state_at(store.durable)
    for epoch in history.committed:
        try:
            assert state(history.stage, asOf=epoch) == history.state_at(epoch)
        except Gone:
            assert epoch < max(
                store.manifest.state.horizon, *(r.last_epoch for r in store.manifest.state.files.values())
            )
    store.abandon()


@FEW
@given(steps=STEPS, partition_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_entries_are_the_durable_ones_each_once(steps: list[Step], partition_bytes: int) -> None:
    """X-11: every durable entry behind the horizon is shown exactly once, in whatever files it lies."""
    history = History(Stage(retention_seconds=1e6, retention_bytes=1 << 40))
    store = history.play(steps)
    rows = look(history.stage, partitionBytes=partition_bytes)
    shown = sorted((r["epoch"], r["minor"], r["kind"], r["storage"], r["key"], r["value"]) for r in rows)
    assert [(r[0], *r[2:]) for r in shown] == history.entries(1, store.durable)
    assert len({row["lsn"] for row in rows}) == len(rows)
    store.abandon()


def test_nothing_beyond_the_witness_is_shown() -> None:
    """X-11: what lies in the page cache behind the durable witness is not there for a reader."""
    stage = Stage()
    with stage.store() as store:
        first = put(store, {b"a": b"1"})
        store.witness()
        second = put(store, {b"b": b"2"})
        assert [row["epoch"] for row in look(stage)] == [first]
        store.witness()
        assert [row["epoch"] for row in look(stage)] == [first, second]


def test_a_row_has_the_position_of_its_entry() -> None:
    stage = Stage()
    with stage.store(channel_count=2) as store:
        epoch = put(store, {b"a": b"1", b"b": b""}, storage=9, channel=1)
        store.witness()
        [record] = [r for r in store.manifest.state.of_state(FileState.ACTIVE) if r.channel == 1]
        first, second = look(stage)
    assert first == {
        "epoch": epoch, "kind": "put", "storage": 9, "key": b"a", "value": b"1", "major": epoch, "minor": 0,
        "stream": 0, "file": record.number, "lsn": second["lsn"] - 1,
    }  # fmt: skip
    assert lsn_of(record.number, 0) < first["lsn"] < lsn_of(record.number, 1 << 30)


def test_only_the_columns_that_are_asked_for_are_shown() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        remove(store, b"a")
        store.witness()
        assert look(stage, "key", "kind") == [{"kind": "put", "key": b"a"}, {"kind": "remove", "key": b"a"}]
        assert look(stage, "undo_prev", "epoch") == [{"epoch": 1, "undo_prev": 0}, {"epoch": 2, "undo_prev": 0}]
        assert look(stage, "storage", view="kv") == []


def test_records_of_streams_are_entries_and_no_state() -> None:
    stage = Stage()
    with stage.store() as store:
        stream = store.stream("orders")
        put(store, {b"a": b"1"})
        session = stream.begin()
        session.record(b"one")
        session.record(b"two")
        session.commit()
        store.rotate()
        assert [row["value"] for row in look(stage, view="kv")] == [b"1"]
        shown = look(stage, "kind", "stream", "value", "lsn")
        assert [(row["kind"], row["stream"], row["value"]) for row in shown] == [
            ("put", 0, b"1"), ("record", stream.id, b"one"), ("record", stream.id, b"two"),
        ]  # fmt: skip
        assert [row["lsn"] for row in shown[1:]] == [first := next(stream.read())[0], first + 1]


def test_epochs_outside_the_range_are_not_read() -> None:
    """Zone maps: whole files by what the manifest says of them, blocks by their headers."""
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 40)
    with stage.store() as store:
        epochs = [put(store, {b"k%d" % i: b"v" * 600}) for i in range(6)]
        store.rotate()
        epochs += [put(store, {b"k%d" % i: b"v" * 600}) for i in range(6)]
        store.witness()
        [task] = plan_of(stage, fromEpoch=epochs[2], toEpoch=epochs[3]).tasks
        assert 2 * 600 < task.parts[0].size_bytes < 5 * 700
        assert [row["epoch"] for row in look(stage, fromEpoch=epochs[2], toEpoch=epochs[3])] == epochs[2:4]
        assert len(plan_of(stage).tasks) == 2 and len(plan_of(stage, partitionBytes=1500).tasks) > 4
        assert [row["epoch"] for row in look(stage, partitionBytes=1500)] == epochs


def test_as_of_a_time_is_the_last_epoch_noted_before_it() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        stage.advance(60)
        noon = stage.clock.wall_ns()
        stage.advance(60)
        put(store, {b"a": b"2"})
        store.witness()
        assert state(stage, asOf=_iso(noon)) == {(1, b"a"): b"1"}
        assert state(stage, asOf=_iso(stage.clock.wall_ns())) == {(1, b"a"): b"2"}
        with pytest.raises(Gone, match="horizon is 0"):
            state(stage, asOf="1999-01-01T00:00")


def _iso(wall_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(wall_ns / 1e9 + 0.001, tz=UTC).isoformat()


def test_what_retention_purged_is_refused_by_name() -> None:
    """X-06: before the horizon there is no gap but an error that names it; behind it everything is there."""
    stage = Stage()
    with stage.store() as store:
        old = [put(store, {b"a": b"%d" % i}) for i in range(3)]
        store.compact()
        store.purge()
        new = put(store, {b"b": b"9"})
        store.witness()
        assert store.manifest.state.horizon >= old[-1]
        for options in ({"fromEpoch": old[0]}, {"asOf": old[0]}, {"asOf": old[0], "view": "kv"}):
            with pytest.raises(Gone, match=f"horizon is {store.manifest.state.horizon}"):
                look(stage, **options)
        assert [row["epoch"] for row in look(stage)] == [new]
        assert state(stage) == {(1, b"a"): b"2", (1, b"b"): b"9"}


@pytest.mark.parametrize(
    ("options", "family", "words"),
    [
        ({"path": "nowhere"}, Refused, "no log directory"),
        ({"asOf": 99}, Refused, "epoch 99 is not durable"),
        ({"toEpoch": 99}, Refused, "epoch 99 is not durable"),
        ({"asOf": "yesterday"}, Misuse, "neither an epoch nor a time"),
        ({"asOf": 1, "toEpoch": 1}, Misuse, "both name the last epoch"),
        ({"view": "kv", "fromEpoch": 1}, Misuse, "not a range"),
        ({"view": "tables"}, Misuse, "it may be entries or kv or damage"),
        ({"onDamge": "skip"}, Misuse, "'onDamge' is no option"),
        ({"onDamage": "ignore"}, Misuse, "onDamage is 'ignore'"),
        ({"buckets": -1}, Misuse, "buckets is not a whole number"),
        ({"path": ""}, Misuse, "needs a path"),
    ],
)
def test_what_cannot_be_read_is_said_at_planning(options: dict[str, object], family: type, words: str) -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.witness()
        with pytest.raises(family, match=words):
            plan_of(stage, **options)


def test_a_newer_format_is_refused_at_planning() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
    newer = replace(read_manifest(stage.disk, DIRECTORY), format=9)
    Manifest(stage.disk, DIRECTORY, SystemThreads(), stage.rng, newer).close()
    with pytest.raises(Refused, match="format 9, this warren reads up to 1"):
        plan_of(stage)


def test_a_reader_holds_its_files_until_it_is_done() -> None:
    """X-06: what a plan names stays through compaction and purge; a reader that died holds it until its pin lapses."""
    stage = Stage()
    with stage.store() as store:
        epochs = [put(store, {b"k%d" % i: b"v"}) for i in range(4)]
        store.rotate()
        store.witness()
        plan = plan_of(stage, pinSeconds=60)
        store.compact()
        assert store.purge().files == ()
        assert [row["epoch"] for row in rows_of(stage, plan)] == epochs
        pins = Pins(stage.disk, DIRECTORY, stage.clock, stage.rng)
        assert [pin.id for pin in pins.live()] == [plan.pin.id if plan.pin else ""], "tasks have released theirs"
        stage.advance(61)
        assert len(store.purge().files) == 1
        with pytest.raises(Gone, match="horizon is"):
            rows_of(stage, plan)


def test_without_a_pin_nothing_is_written() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.witness()
        assert len(look(stage, pinSeconds=0)) == 1
        assert stage.disk.list(f"{DIRECTORY}/pins") == []


def test_a_plan_survives_rotation_between_planning_and_reading() -> None:
    stage = Stage()
    with stage.store() as store:
        epochs = [put(store, {b"k%d" % i: b"v"}) for i in range(3)]
        store.witness()
        plan, kv = plan_of(stage), plan_of(stage, view="kv")
        store.rotate()
        put(store, {b"later": b"v"})
        store.rotate()
        assert [row["epoch"] for row in rows_of(stage, plan)] == epochs
        assert len(rows_of(stage, kv)) == 3


@pytest.mark.parametrize("view", ["entries", "kv"])
def test_password_hashes_are_shown_only_if_they_are_asked_for(view: str) -> None:
    user, hashed = key_of(RowKind.USER, 7), encode({"name": "ada", "password_hash": "c2VjcmV0"})
    stage = Stage()
    with stage.store() as store:
        put(store, {user: hashed, b"other": b"password"}, storage=CATALOG)
    shown = {row["key"]: row["value"] for row in look(stage, view=view)}
    assert shown == {user: encode({"name": "ada", "password_hash": ""}), b"other": b"password"}
    assert {row["key"] for row in look(stage, "key", view=view)} == set(shown)
    asked = {row["key"]: row["value"] for row in look(stage, view=view, credentials=True)}
    assert asked == {user: hashed, b"other": b"password"}
