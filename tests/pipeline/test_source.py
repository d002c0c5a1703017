"""The source's classes as Spark calls them, without Spark: what they answer, what filters leave, what is pickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

import pyspark_warren
from tests.log.upkeep_stage import QUIET, put
from tests.pipeline.looking import fields_of_view, struct_type
from warren.base.errors import Misuse, Refused
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions
from warren.pipeline.planning import Planner
from warren.pipeline.schema import TableView
from warren.pipeline.source import FilteringReader, WarrenReader, WarrenSource, WarrenStreamReader, narrowed

EPOCH = ("epoch",)
ALL_COLUMNS = struct_type(fields_of_view(TableView.ENTRIES))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Nine epochs in three files, stopped."""
    with LogStore.open(str(tmp_path), QUIET) as store:
        for number in range(9):
            put(store, {b"key": b"%d" % number})
            if number % 3 == 2:
                store.rotate()
    return str(tmp_path)


def epochs(reader: WarrenReader) -> list[int]:
    batches = [batch for part in reader.partitions() for batch in reader.read(pickle.loads(pickle.dumps(part)))]
    return sorted(row["epoch"] for batch in batches for row in batch.to_pylist())


def test_spark_finds_the_format_under_its_name() -> None:
    assert pyspark_warren.DefaultSource is WarrenSource and WarrenSource.name() == "warren"
    assert WarrenSource({"path": "x"}).schema().startswith("epoch bigint, kind string")
    assert WarrenSource({"path": "x", "VIEW": "kv"}).schema().startswith("storage bigint, key binary")
    assert isinstance(WarrenSource({"path": "x"}).streamReader(ALL_COLUMNS), WarrenStreamReader)


def test_filters_are_taken_only_where_they_are_asked_for(path: str) -> None:
    plain, asked = WarrenSource({"path": path}), WarrenSource({"path": path, "pushdown": "true"})
    assert type(plain.reader(ALL_COLUMNS)) is WarrenReader and type(asked.reader(ALL_COLUMNS)) is FilteringReader
    of_state = WarrenSource({"path": path, "pushdown": "true", "view": "kv"})
    assert type(of_state.reader(struct_type(fields_of_view(TableView.KV)))) is WarrenReader


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], range(1, 10)),
        ([GreaterThan(EPOCH, 7)], [8, 9]),
        ([GreaterThanOrEqual(EPOCH, 7), LessThan(EPOCH, 9)], [7, 8]),
        ([EqualTo(EPOCH, 4)], [4]),
        ([LessThanOrEqual(EPOCH, 2), GreaterThan(EPOCH, -5)], [1, 2]),
        ([GreaterThan(EPOCH, 99)], []),
        ([LessThan(EPOCH, -1)], []),
        ([EqualTo(("storage",), 1), In(EPOCH, (3,)), EqualTo(EPOCH, "4")], range(1, 10)),
    ],
)
def test_filters_narrow_the_range(path: str, filters: list[Any], left: Any) -> None:
    """Zone maps: Spark gets every filter back and applies it once more; what it would drop is mostly not read."""
    reader = FilteringReader(ReadOptions(path), ALL_COLUMNS)
    assert list(reader.pushFilters(filters)) == filters
    assert epochs(reader) == list(left)
    files = {part.value.parts[0].record.number for part in reader.partitions() if part.value}
    assert len(files) <= -(-len(left) // 3) + 1


def test_a_filter_does_not_change_what_was_asked_for(path: str) -> None:
    assert narrowed(ReadOptions(path, from_epoch=5), GreaterThan(EPOCH, 2)).from_epoch == 5  # type: ignore[arg-type]
    with pytest.raises(Refused, match="epoch 77 is not durable"):
        FilteringReader(narrowed(ReadOptions(path, to_epoch=77), LessThan(EPOCH, 3)), ALL_COLUMNS).partitions()  # type: ignore[arg-type]


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    LogStore.open(str(tmp_path), QUIET).close()
    for view in TableView:
        reader = WarrenReader(ReadOptions(str(tmp_path), view), struct_type(fields_of_view(view)))
        assert [list(reader.read(part)) for part in reader.partitions()] in ([[]], [[], []])


def test_a_directory_that_may_not_be_written_says_how_to_read_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused("pins/ is on a read-only file system")

    monkeypatch.setattr("warren.log.retention.Pins.take", refuse)
    with pytest.raises(Refused, match="no pin could be taken: pins/ is on a read-only") as raised:
        WarrenReader(ReadOptions(path), ALL_COLUMNS).partitions()
    assert "pinSeconds=0" in raised.value.hint
    assert epochs(WarrenReader(ReadOptions(path, pin_seconds=0), ALL_COLUMNS)) == list(range(1, 10))


def test_a_schema_that_does_not_fit_is_refused_by_the_reader(path: str) -> None:
    source = WarrenSource({"path": path})
    with pytest.raises(Refused, match="has no column 'path'"):
        source.reader(struct_type(fields_of_view(TableView.DAMAGE)))
    with pytest.raises(Misuse, match="needs a path"):
        WarrenSource({}).schema()


def test_the_data_directory_of_a_log_is_as_good_as_the_log(tmp_path: Path) -> None:
    LogStore.open(str(tmp_path / "log"), QUIET).close()
    planner = Planner(ReadOptions(str(tmp_path)))
    assert planner.options.path == str(tmp_path / "log") and planner.open().durable == 0
