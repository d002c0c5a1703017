"""`export`: every durable entry exactly once, whatever happens to the job, the store and its files between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import Stage, put
from tests.pipeline.histories import STEPS, History, Step
from tests.pipeline.table_stage import (
    delta,
    entries_in,
    inline,
    leftovers,
    machine_with,
    manifest_in,
    parquet_export,
    pins_in,
    poured,
)
from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, ten_epochs, write
from warren.base.errors import Gone, Misuse, Refused
from warren.base.ids import Epoch
from warren.catalog.rows import CATALOG, RowKind, encode, key_of
from warren.files.local import LocalFiles
from warren.log.store import LogStore
from warren.pipeline.jobs import export as module
from warren.pipeline.jobs.export import ExportOptions, export, opened_export
from warren.pipeline.jobs.snapshot import snapshot
from warren.pipeline.jobs.tables import table_schema
from warren.pipeline.schema import TableFormat, TableView
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import PowerCut

pytestmark = pytest.mark.spark
FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
READERS: dict[str, Callable[[Any], Any]] = {"parquet": parquet_export, "delta": delta}
FORMATS = pytest.mark.parametrize("format", list(READERS))
NO_SPARK: Any = None  # tasks are done inline


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with ten_epochs(str(tmp_path / "log")) as store:
        yield store


def epochs_of(table: Any) -> list[int]:
    return [entry[0] for entry in entries_in(table)]


def each_once(first: int, last: int) -> list[int]:
    return [epoch for epoch in range(first, last + 1) for _ in range(ENTRIES_PER_EPOCH)]


@FORMATS
def test_an_export_resumes_where_the_table_stands(spark: Any, store: LogStore, tmp_path: Path, format: str) -> None:
    """X-11, RF-06: batch by batch, run by run, while the owner appends, rotates and compacts between."""
    target = str(tmp_path / "deep" / "entries")
    first = export(spark, store.directory, target, format=format, batch_epochs_max=4)
    assert (first.batches, first.rows) == (3, 60) and first.position is not None
    assert export(spark, store.directory, target, format=format).batches == 0
    write(store, 20)
    store.compact()
    write(store, 21)
    store.witness()
    again = export(spark, store.directory, target, format=format)
    assert (again.batches, again.rows) == (1, 12)
    assert leftovers(target) == [] and pins_in(store.directory) == []
    shown = READERS[format](target)
    assert epochs_of(shown) == each_once(1, 12)
    source = spark.read.format("warren").load(store.directory).toArrow()
    assert entries_in(shown) == entries_in(source) and shown.column_names == source.column_names


@FEW
@given(steps=STEPS, epochs=st.integers(1, 4), format=st.sampled_from(list(READERS)))
def test_an_export_of_any_history_is_its_entries(spark: Any, steps: list[Step], epochs: int, format: str) -> None:
    """X-11: clears, tombstones, several channels, crashes, compactions: every durable entry once."""
    history = History(Stage(retention_seconds=1e6, retention_bytes=1 << 40))
    store = history.play([("session", 0, [("put", 1, b"a", b"first")]), *steps])
    with tempfile.TemporaryDirectory() as folder:
        directory = poured(history.stage, Path(folder, "log"))
        export(spark, directory, f"{folder}/entries", format=format, batch_epochs_max=epochs)
        shown = entries_in(READERS[format](f"{folder}/entries"))
        assert [(epoch, *change) for epoch, _, *change in shown] == history.entries(1, store.durable)
    store.abandon()


def test_a_delta_commit_is_a_batch_with_its_position(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """The table's own log says which epochs a version added, of which past, and where they are."""
    target = str(tmp_path / "entries")
    export(spark, store.directory, target, batch_epochs_max=5)
    table = DeltaTable(target)
    timeline = store.manifest.state.timeline.id
    assert table.transaction_version("warren-export") == 10
    assert table.transaction_version("warren-export.timeline") == timeline
    manifest = [(commit["first_epoch"], commit["epoch"], commit["timeline"]) for commit in reversed(table.history())]
    assert manifest == [(1, 5, f"{timeline:016x}"), (6, 10, f"{timeline:016x}")]
    ranges = table.get_add_actions(flatten=True)
    lows = ranges.column("min.epoch").to_pylist()
    assert min(lows) == 1 and max(ranges.column("max.epoch").to_pylist()) == 10
    assert table.to_pyarrow_table(filters=[("epoch", "=", 7)]).num_rows == ENTRIES_PER_EPOCH


def test_a_parquet_batch_is_a_directory_with_a_manifest(spark: Any, store: LogStore, tmp_path: Path) -> None:
    target = tmp_path / "entries"
    export(spark, store.directory, str(target), format="parquet", batch_epochs_max=5)
    names = sorted(path.name for path in target.glob("batch-*"))
    assert names == [f"batch-{first:020d}-{last:020d}" for first, last in ((1, 5), (6, 10))]
    manifest = manifest_in(target / names[1])
    assert (manifest["first_epoch"], manifest["epoch"], manifest["rows"]) == (6, 10, 30)
    assert spark.read.parquet(f"{target}/batch-*").count() == 60


def test_a_batch_has_at_most_so_many_bytes(store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch, module)
    target = str(tmp_path / "entries")
    done = export(NO_SPARK, store.directory, target, batch_bytes_max=1)
    assert done.batches == 10 and epochs_of(delta(target)) == each_once(1, 10)
    assert export(NO_SPARK, store.directory, str(tmp_path / "all"), batch_bytes_max=0).batches == 1
    assert export(NO_SPARK, store.directory, str(tmp_path / "usual")).batches == 1


def test_a_new_table_begins_at_the_given_epoch(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing one resumes at its position, whatever is given."""
    inline(monkeypatch, module)
    target = str(tmp_path / "entries")
    export(NO_SPARK, store.directory, target, from_epoch=4)
    assert epochs_of(delta(target)) == each_once(4, 10)
    write(store, 20)
    store.witness()
    export(NO_SPARK, store.directory, target, from_epoch=2)
    assert epochs_of(delta(target)) == each_once(4, 11)
    assert export(NO_SPARK, store.directory, str(tmp_path / "later"), from_epoch=40).position is None


@FORMATS
def test_an_export_slower_than_retention_gets_the_horizon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """X-06: what is purged between two runs is never a gap; what a run has planned is not purged."""
    with ten_epochs(str(tmp_path / "log"), retention_seconds=0.0, retention_bytes=0) as store:

        def tidy_up() -> None:
            store.compact()
            assert store.purge().files == (), "the plan's pin holds them"

        inline(monkeypatch, module, tidy_up)
        target = str(tmp_path / "entries")
        export(NO_SPARK, store.directory, target, format=format)
        assert epochs_of(READERS[format](target)) == each_once(1, 10)
        write(store, 20)
        store.compact()
        store.purge()
        horizon = store.manifest.state.horizon
        assert horizon >= 11
        with pytest.raises(Gone, match=f"epoch 11 is gone, horizon is {horizon}") as raised:
            export(NO_SPARK, store.directory, target, format=format)
        assert "export into a new one" in raised.value.hint
        with pytest.raises(Gone, match=f"epoch 2 is gone, horizon is {horizon}"):
            export(NO_SPARK, store.directory, f"{target}-2", format=format, from_epoch=2)
        assert not Path(f"{target}-2").exists()


@FORMATS
def test_a_store_of_another_past_is_refused_with_the_fork(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """X-11: a table that stands at or before the fork continues with the fork; one beyond it is refused."""
    inline(monkeypatch, module)
    before, beyond = str(tmp_path / "before"), str(tmp_path / "beyond")
    environment = store.environment
    export(NO_SPARK, store.directory, before, format=format)
    store.cut().write_to(environment.files, environment.threads, environment.rng, str(tmp_path / "fork"))
    write(store, 20)
    store.witness()
    export(NO_SPARK, store.directory, beyond, format=format)
    fork = LogStore.open(str(tmp_path / "fork"), store.settings)
    write(fork, 30)
    fork.witness()
    with pytest.raises(Refused, match=r"epoch 11 of timeline .* was abandoned.* at epoch 10"):
        export(NO_SPARK, fork.directory, beyond, format=format)
    done = export(NO_SPARK, fork.directory, before, format=format)
    assert done.position is not None and done.position.timeline == fork.manifest.state.timeline.id
    assert epochs_of(READERS[format](before)) == each_once(1, 10) + each_once(fork.durable, fork.durable)
    with pytest.raises(Refused, match="not part of this store's past"):
        export(NO_SPARK, store.directory, before, format=format)
    with ten_epochs(str(tmp_path / "other")) as other, pytest.raises(Refused, match="belongs to another store"):
        export(NO_SPARK, other.directory, beyond, format=format)
    assert epochs_of(READERS[format](beyond)) == each_once(1, 11)
    fork.abandon()


def test_a_table_ahead_of_the_store_is_refused(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the directory from earlier has the same timeline and knows less."""
    inline(monkeypatch, module)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in Path(store.directory).iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    write(store, 20)
    store.witness()
    export(NO_SPARK, store.directory, str(tmp_path / "entries"))
    with pytest.raises(Refused, match="the table has come to epoch 11, this store is durable up to 10"):
        export(NO_SPARK, str(copy), str(tmp_path / "entries"))


@FORMATS
def test_a_target_that_is_not_ours_is_left_alone(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    inline(monkeypatch, module)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    DeltaTable.create(str(tmp_path / "foreign"), table_schema(TableView.ENTRIES))
    other = {"parquet": "delta", "delta": "parquet"}[format]
    export(NO_SPARK, store.directory, str(tmp_path / "other"), format=other)
    for target in ("mine", "file", "file/below", "foreign", "other", "log/inside", "log"):
        with pytest.raises((Refused, Misuse)):
            export(NO_SPARK, store.directory, str(tmp_path / target), format=format)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "foreign" / "_lock").exists()
    assert epochs_of(READERS[other](tmp_path / "other")) == each_once(1, 10)


def test_two_exports_into_one_table_do_not_happen(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline(monkeypatch, module)
    options = ExportOptions(store.directory, str(tmp_path / "entries"), TableFormat.PARQUET)
    with (
        opened_export(NO_SPARK, options) as first,
        pytest.raises(Refused, match="is locked by process"),
        opened_export(NO_SPARK, options),
    ):
        pytest.fail("the first one holds the lock")
    assert first.epochs_left() == 10


def test_another_writer_of_the_delta_table_is_not_overrun(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks two exports may meet: Delta admits one of them, and the other says so."""
    target = str(tmp_path / "entries")
    inline(monkeypatch, module)
    export(NO_SPARK, store.directory, target, batch_epochs_max=5)
    old = DeltaTable(target, version=0)
    monkeypatch.setattr("warren.pipeline.jobs.delta._load", lambda path: old)
    with pytest.raises(Refused, match=r"the commit .* failed"):
        export(NO_SPARK, store.directory, target)
    monkeypatch.undo()
    assert epochs_of(delta(target)) == each_once(1, 10)


@FORMATS
def test_an_export_that_dies_at_any_step_and_runs_again_has_each_entry_once(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """X-11: cut before every change of the disk that the driver makes, among them the commits."""
    inline(monkeypatch, module)
    steps, number = 1, 0
    while number < steps:
        target = str(tmp_path / f"cut-{number}")
        disk = FaultyFiles(LocalFiles(), cut_at=number)
        options = ExportOptions(store.directory, target, TableFormat(format), batch_epochs_max=5)
        try:
            with opened_export(NO_SPARK, options, machine_with(disk)) as opened:
                opened.catch_up()
        except PowerCut:
            steps = number + 2
        export(NO_SPARK, store.directory, target, format=format)
        assert epochs_of(READERS[format](target)) == each_once(1, 10), disk.steps[-1]
        assert leftovers(target) == [], disk.steps[-1]
        assert len(list(Path(target).glob("batch-*"))) == 2 or number < 20, "committed batches are kept"
        number += 1
    assert steps > 30


@pytest.mark.parametrize("point", ["files are written", "a batch is renamed", "a batch is committed"])
def test_an_export_that_dies_between_files_and_commit(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """X-11: the two places that matter, and between two batches; what was not committed is cleared away."""
    inline(monkeypatch, module)
    target = tmp_path / "entries"
    place = {
        "files are written": "warren.pipeline.jobs.tables.Staging.gather",
        "a batch is renamed": "warren.pipeline.jobs.delta.DeltaTableOf.commit",
        "a batch is committed": "warren.pipeline.jobs.delta._sync",
    }[point]

    def die(*_: Any) -> None:
        raise PowerCut(point)

    with monkeypatch.context() as dying:
        dying.setattr(place, die)
        with pytest.raises(PowerCut):
            export(NO_SPARK, store.directory, str(target), batch_epochs_max=6)
    assert DeltaTable.is_deltatable(str(target)) == (point == "a batch is committed")
    assert len(list(target.glob("batch-*"))) == (point != "files are written")
    export(NO_SPARK, store.directory, str(target), batch_epochs_max=5)
    assert epochs_of(delta(target)) == each_once(1, 10)
    assert len(list(target.glob("batch-*"))) == 2, "what the dead one left under another name is gone"


def test_a_stop_between_two_batches_is_clean(store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch, module)
    target = str(tmp_path / "entries")
    with opened_export(NO_SPARK, ExportOptions(store.directory, target, batch_epochs_max=4)) as opened:
        ends: list[Epoch] = []
        done = opened.catch_up(lambda: bool(ends), lambda batch: ends.append(batch.last))
        assert ends == [4] and done.batches == 1 and opened.epochs_left() == 6
        done = done.and_then(opened.catch_up())
    assert (done.batches, done.rows) == (3, 60) and epochs_of(delta(target)) == each_once(1, 10)


def test_bad_options_are_said_before_anything_is_done(store: LogStore, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no absolute path"):
        export(NO_SPARK, store.directory, "entries")
    with pytest.raises(Misuse, match="cannot be negative"):
        export(NO_SPARK, store.directory, str(tmp_path / "entries"), batch_epochs_max=-1)
    with pytest.raises(Refused, match="no log directory"):
        export(NO_SPARK, str(tmp_path / "nothing"), str(tmp_path / "entries"))
    assert not (tmp_path / "entries").exists()


def test_an_export_has_no_password_hashes_unless_they_are_asked_for(spark: Any, tmp_path: Path) -> None:
    user, row = key_of(RowKind.USER, 7), encode({"name": "ada", "password_hash": "c2VjcmV0"})
    with LogStore.open(str(tmp_path / "log")) as store:
        put(store, {user: row}, storage=CATALOG)
    for credentials, shown in ((False, encode({"name": "ada", "password_hash": ""})), (True, row)):
        target = str(tmp_path / f"table-{credentials}")
        export(spark, store.directory, target, format="parquet", credentials=credentials)
        snapshot(spark, store.directory, f"{target}-state", credentials=credentials)
        for table in (f"{target}/batch-*", f"{target}-state"):
            assert [bytes(found.value) for found in spark.read.parquet(table).collect()] == [shown]
