"""`snapshot`: a table shows one epoch's state, whole, and is there or not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import Stage, put, remove
from tests.pipeline.histories import STEPS, History, Step
from tests.pipeline.table_stage import (
    delta,
    inline,
    leftovers,
    machine_with,
    manifest_in,
    parquet_snapshot,
    pins_in,
    poured,
    state_in,
    state_of,
)
from tests.pipeline.ten_epochs import ten_epochs, write
from warren.base.errors import DiskFailure, Gone, Misuse, OutOfRoom, Refused, WarrenError
from warren.files.local import LocalFiles
from warren.log.store import LogStore
from warren.pipeline.jobs import snapshot as module
from warren.pipeline.jobs.snapshot import snapshot
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import PowerCut

pytestmark = pytest.mark.spark
FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
READERS: dict[str, Callable[[Any], Any]] = {"parquet": parquet_snapshot, "delta": delta}
COLUMNS = ["storage", "key", "value", "major", "minor", "epoch"]
NO_SPARK: Any = None  # tasks are done inline
FORMATS = pytest.mark.parametrize("format", list(READERS))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with ten_epochs(str(tmp_path / "log")) as store:
        yield store


@FORMATS
def test_a_snapshot_is_what_recovery_restores(spark: Any, store: LogStore, tmp_path: Path, format: str) -> None:
    """X-11: row for row the start-up snapshot, in as many files as there are buckets that have a key."""
    target = tmp_path / "deep" / "state"
    made = snapshot(spark, store.directory, str(target), format=format, buckets=3)
    assert state_in(READERS[format](target)) == state_of(store)
    assert (made.position.epoch, made.rows, made.files) == (10, len(state_of(store)), 3)
    assert leftovers(target) == [] and pins_in(store.directory) == []


@FEW
@given(steps=STEPS, buckets=st.integers(1, 3), retention=st.sampled_from([0.0, 1e6]))
def test_a_snapshot_of_any_history_is_its_state(spark: Any, steps: list[Step], buckets: int, retention: float) -> None:
    """X-11: clears, tombstones, several channels, crashes, compactions: at every epoch that is left."""
    history = History(Stage(retention_seconds=retention, retention_bytes=1 << 40 if retention else 0))
    store = history.play([("session", 0, [("put", 1, b"a", b"first")]), *steps])
    with tempfile.TemporaryDirectory() as folder:
        directory = poured(history.stage, Path(folder, "log"))
        snapshot(spark, directory, f"{folder}/newest", buckets=buckets)
        assert state_in(parquet_snapshot(f"{folder}/newest")) == state_of(store)
        for epoch in sorted(history.committed)[-2:]:
            try:
                snapshot(spark, directory, f"{folder}/{epoch}", as_of=epoch, format="delta")
            except Gone:
                assert retention == 0.0
                continue
            shown = {(row[0], row[1]): row[2] for row in state_in(delta(f"{folder}/{epoch}"))}
            assert shown == history.state_at(epoch)
    store.abandon()


@FORMATS
def test_as_of_is_an_epoch_or_a_time(spark: Any, tmp_path: Path, format: str) -> None:
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 40)
    moments = []
    with stage.store() as store:
        for number in range(3):
            put(store, {b"k": b"%d" % number, b"only %d" % number: b""})
            moments.append(datetime.fromtimestamp(stage.clock.wall_ns() / 1e9, UTC))
            stage.advance(60)
        remove(store, b"k")
        store.rotate()
    directory = poured(stage, tmp_path / "log")
    for as_of in (2, moments[1], moments[1].isoformat()):
        target = tmp_path / str(as_of)
        assert snapshot(spark, directory, str(target), as_of=as_of, format=format).position.epoch == 2
        assert [row[1:3] for row in state_in(READERS[format](target))] == [
            (b"k", b"1"),
            (b"only 0", b""),
            (b"only 1", b""),
        ]


def test_the_manifest_describes_the_snapshot(spark: Any, store: LogStore, tmp_path: Path) -> None:
    target = tmp_path / "state"
    made = snapshot(spark, store.directory, str(target), as_of=7, buckets=2)
    manifest = manifest_in(target)
    assert (manifest["what"], manifest["epoch"], manifest["as_of"], manifest["rows"]) == (
        "warren snapshot",
        7,
        7,
        made.rows,
    )
    assert manifest["timeline"] == f"{store.manifest.state.timeline.id:016x}"
    assert {file["name"]: file["bytes"] for file in manifest["files"]} == {
        path.name: path.stat().st_size for path in target.glob("*.parquet")
    }
    assert spark.read.parquet(str(target)).count() == sum(file["rows"] for file in manifest["files"]) == made.rows


def test_a_delta_table_shows_a_state_in_every_version(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """A later snapshot is a new version; the same one again is none."""
    target = str(tmp_path / "state")
    for as_of in (3, 8, 8):
        made = snapshot(spark, store.directory, target, as_of=as_of, format="delta", buckets=2)
    assert not made.is_new and made.position.epoch == 8
    table = DeltaTable(target)
    assert table.version() == 1 and table.transaction_version("warren-snapshot") == 8
    commit = table.history(1)[0]
    assert (commit["epoch"], commit["as_of"]) == (8, 8)
    assert commit["timeline"] == f"{store.manifest.state.timeline.id:016x}"
    for version, as_of in ((0, 3), (1, 8)):
        snapshot(spark, store.directory, f"{tmp_path}/{as_of}", as_of=as_of)
        shown = DeltaTable(target, version=version).to_pyarrow_table()
        assert state_in(shown) == state_in(parquet_snapshot(f"{tmp_path}/{as_of}"))


@FORMATS
def test_an_owner_at_work_does_not_change_the_snapshot(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str
) -> None:
    """X-06, X-11: appended, rotated, compacted and purged between plan and tasks; the pin keeps what was planned."""
    with ten_epochs(str(tmp_path / "log"), retention_seconds=0.0, retention_bytes=0) as store:

        def work_on() -> None:
            write(store, 99)
            store.compact()
            assert store.purge().files == (), "the plan's pin holds them"

        expected = state_of(store)
        assert inline(monkeypatch, module, work_on) == []
        target = str(tmp_path / "state")
        assert snapshot(spark, store.directory, target, format=format, buckets=2).position.epoch == 10
        assert state_in(READERS[format](target)) == expected
        store.purge()
        assert store.manifest.state.horizon >= 10 and pins_in(store.directory) == []


@FORMATS
def test_an_empty_store_makes_an_empty_table(spark: Any, tmp_path: Path, format: str) -> None:
    LogStore.open(str(tmp_path / "log")).close()
    made = snapshot(spark, str(tmp_path / "log"), str(tmp_path / "state"), format=format)
    shown = READERS[format](tmp_path / "state")
    assert (made.rows, shown.num_rows, shown.column_names) == (0, 0, COLUMNS)


def test_a_snapshot_is_replaced_only_if_that_is_said(spark: Any, store: LogStore, tmp_path: Path) -> None:
    target = str(tmp_path / "state")
    snapshot(spark, store.directory, target, as_of=3)
    with pytest.raises(Refused, match="has the snapshot of epoch 3 already"):
        snapshot(spark, store.directory, target)
    assert manifest_in(target)["epoch"] == 3
    snapshot(spark, store.directory, target, overwrite=True)
    assert state_in(parquet_snapshot(target)) == state_of(store)
    assert leftovers(target) == []


@FORMATS
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_target_that_is_not_ours_is_left_alone(
    spark: Any, store: LogStore, tmp_path: Path, format: str, overwrite: bool
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "_MANIFEST.json").write_text('{"what": "something else"}')
    for target in ("mine", "file", "file/below", "odd", "log/inside", "log"):
        with pytest.raises((Refused, Misuse)):
            snapshot(spark, store.directory, str(tmp_path / target), format=format, overwrite=overwrite)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert (tmp_path / "file").read_text() == "keep me" and leftovers(tmp_path / "mine") == []


def test_a_delta_table_of_another_hand_or_store_is_refused(spark: Any, store: LogStore, tmp_path: Path) -> None:
    foreign, target = str(tmp_path / "foreign"), str(tmp_path / "state")
    DeltaTable.create(foreign, parquet_schema())
    with pytest.raises(Refused, match="was not made by warren-snapshot"):
        snapshot(spark, store.directory, foreign, format="delta")
    snapshot(spark, store.directory, target, format="delta")
    with ten_epochs(str(tmp_path / "other")) as other, pytest.raises(Refused, match="not in this store's past"):
        snapshot(spark, other.directory, target, format="delta")
    assert DeltaTable(target).version() == 0


def parquet_schema() -> Any:
    from warren.pipeline.jobs.tables import table_schema
    from warren.pipeline.schema import TableView

    return table_schema(TableView.KV)


@pytest.mark.parametrize(
    ("as_of", "family", "words"),
    [
        (99, Refused, "epoch 99 is not durable"),
        ("1999-01-01", Gone, "no epoch is known"),
        ("yesterday", Misuse, "neither an epoch nor a time"),
    ],
)
def test_a_bad_as_of_is_said_and_nothing_is_made(
    spark: Any, store: LogStore, tmp_path: Path, as_of: Any, family: type[WarrenError], words: str
) -> None:
    with pytest.raises(family, match=words):
        snapshot(spark, store.directory, str(tmp_path / "state"), as_of=as_of)
    assert not (tmp_path / "state").exists() and leftovers(tmp_path / "state") == []
    with pytest.raises(Misuse, match="no absolute path"):
        snapshot(spark, store.directory, "state")
    with pytest.raises(Refused, match="no log directory"):
        snapshot(spark, str(tmp_path / "nothing"), str(tmp_path / "state"))


@FORMATS
def test_what_a_task_cannot_do_is_one_error_and_leaves_nothing(
    spark: Any, store: LogStore, tmp_path: Path, format: str
) -> None:
    """A task that fails on an executor: our own sentence on the driver, the target as it was."""
    [record, *_] = [record for record in store.manifest.state.files.values() if record.entries]
    path = Path(store.directory, record.name)
    raw = bytearray(path.read_bytes())
    raw[record.end - 300] ^= 1
    path.write_bytes(raw)
    target = tmp_path / "state"
    with pytest.raises(WarrenError, match=str(path)):
        snapshot(spark, store.directory, str(target), format=format)
    assert leftovers(target) == [] and list(target.glob("*")) == [] and pins_in(store.directory) == []


@FORMATS
def test_a_full_disk_is_said_and_leaves_nothing(
    spark: Any, store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    inline(monkeypatch, module)
    target = tmp_path / "state"
    for fault in (
        Fault(FaultKind.NO_SPACE, "make_directory", "*/whole"),
        Fault(FaultKind.IO_ERROR, "rename", "*/whole*"),
    ):
        with pytest.raises((OutOfRoom, DiskFailure)):
            snapshot(
                spark,
                store.directory,
                str(target),
                format=format,
                environment=machine_with(FaultyFiles(LocalFiles(), [fault])),
            )
        assert leftovers(target) == [] and list(target.glob("*")) == []


@FORMATS
def test_a_job_that_dies_at_any_step_leaves_the_old_state_or_the_new(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Cut at every change of the disk, while an older snapshot is replaced; then run again."""
    inline(monkeypatch, module)
    read, spark = READERS[format], NO_SPARK
    snapshot(spark, store.directory, str(tmp_path / "3"), as_of=3)
    old, new = state_in(parquet_snapshot(tmp_path / "3")), state_of(store)
    steps, number = 1, 0
    while number < steps:
        target = str(tmp_path / f"cut-{number}")
        snapshot(spark, store.directory, target, as_of=3, format=format)
        disk = FaultyFiles(LocalFiles(), cut_at=number)
        try:
            snapshot(
                spark,
                store.directory,
                target,
                format=format,
                overwrite=True,
                environment=machine_with(disk),
            )
        except PowerCut:
            steps = number + 2
        if Path(target).exists():
            assert state_in(read(target)) in (old, new), disk.steps[-1]
        snapshot(spark, store.directory, target, format=format, overwrite=True)
        assert state_in(read(target)) == new and leftovers(target) == [], disk.steps[-1]
        number += 1
    assert steps > 15
