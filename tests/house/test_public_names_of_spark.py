"""Names of the Spark source and of the tables that jobs write, pinned as in test_public_names. Starts no session."""

from __future__ import annotations

import json
import signal
from importlib import import_module
from pathlib import Path
from traceback import format_exception_only
from typing import Any

import pytest

import warren
from tests.house.public_names import error_named, read_pinned, sample
from tests.house.running_broker import keys_of
from warren.base.errors import Misuse
from warren.base.ids import Epoch, TimelineId
from warren.files.environment import Environment
from warren.files.local import LocalFiles

pytestmark = pytest.mark.spark  # delta-rs keeps descriptors open for the life of the process

PINNED = read_pinned()
SPARK: dict[str, Any] = PINNED["Spark"]
INSTALL = "the pipeline is installed by `make setup-spark`"


@pytest.fixture(scope="module")
def source() -> Any:
    pytest.importorskip("pyspark", reason=INSTALL)
    exported = import_module("pyspark_warren")
    assert list(exported.__all__) == SPARK["exports of pyspark_warren"]
    return exported.DefaultSource


def test_the_format_keeps_its_name(source: Any) -> None:
    assert source.name() == SPARK["format"]


@pytest.mark.parametrize("view", SPARK["schemas"])
def test_a_view_keeps_its_name_and_columns(source: Any, view: str) -> None:
    assert source({"path": "x", "view": view}).schema() == SPARK["schemas"][view], f"view '{view}' has changed"


@pytest.mark.parametrize("name", SPARK["options"])
def test_an_option_of_a_read_is_understood(source: Any, name: str) -> None:
    options = {"path": "x"} | {name: SPARK["options"][name]}
    source(options).schema()
    if name not in ("path", "view"):
        with pytest.raises(Misuse):
            source({"path": "x", name: "-wrong"}).schema()


def test_an_unknown_option_of_a_read_is_refused(source: Any) -> None:
    with pytest.raises(Misuse):
        source({"path": "x", "noSuchOption": "1"}).schema()


def test_columns_on_request_keep_their_names(source: Any) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason=INSTALL)
    kinds = {"bigint": types.LongType(), "tinyint": types.ByteType()}
    columns = [column.split() for column in SPARK["columns on request"]]
    schema = types.StructType([types.StructField(name, kinds[kind]) for name, kind in columns])
    source({"path": "x", "view": "entries"}).reader(schema)


def test_the_offset_of_a_stream_keeps_its_keys(source: Any, tmp_path: Path) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason=INSTALL)
    with warren.open(tmp_path) as db:
        db.kv("pinned")[b"key"] = b"value"
    schema = types.StructType([types.StructField("epoch", types.LongType())])
    before = signal.getsignal(signal.SIGTERM)
    try:
        reader = source({"path": str(tmp_path)}).streamReader(schema)
    finally:
        signal.signal(signal.SIGTERM, before)  # a reader is released when its process is terminated
    assert sorted(reader.initialOffset()) == SPARK["offset keys"]
    assert sorted(reader.reportLatestOffset()) == SPARK["offset keys"]


@pytest.mark.parametrize("application", SPARK["Delta application ids"])
def test_a_delta_table_is_known_by_its_application_id(tmp_path: Path, application: str) -> None:
    """A table with the pinned transactions, made by Delta itself, is one of ours."""
    deltalake = pytest.importorskip("deltalake", reason=INSTALL)
    arrow = import_module("pyarrow")
    tables = import_module("warren.pipeline.jobs.delta")
    properties = deltalake.CommitProperties(
        app_transactions=[
            deltalake.Transaction(application, 42),
            deltalake.Transaction(application + SPARK["Delta timeline suffix"], 7),
        ]
    )
    rows = arrow.table({"epoch": arrow.array([1], arrow.int64())})
    deltalake.write_deltalake(str(tmp_path), rows, commit_properties=properties)
    kind = {"warren-export": tables.DeltaExport, "warren-snapshot": tables.DeltaSnapshot}[application]
    position = kind(Environment.real(), str(tmp_path)).position()
    assert (position.timeline, position.epoch) == (TimelineId(7), Epoch(42))


def test_names_in_a_target_directory_stay(tmp_path: Path) -> None:
    tables = import_module("warren.pipeline.jobs.tables")
    assert SPARK["names in a target"] == [tables.MANIFEST, tables.LOCK, tables.STAGING, tables.DELTA_LOG]
    import_module("warren.pipeline.jobs.parquet").write_manifest(
        LocalFiles(), str(tmp_path), "snapshot", sample(tables.TableBatch), {}
    )
    manifest = json.loads((tmp_path / SPARK["names in a target"][0]).read_text(encoding="utf-8"))
    assert sorted(keys_of(manifest)) == SPARK["keys of a manifest in a target"]


@pytest.mark.parametrize("family", PINNED["error families"]["Spark task"])
def test_an_error_in_the_trace_of_a_spark_task_keeps_its_family(family: str) -> None:
    """The trace names the class with its module: where errors are defined is part of what is read there."""
    error_in_trace = import_module("warren.pipeline.session").error_in_trace
    trace = "".join(format_exception_only(error_named(family)))
    assert type(error_in_trace(f"PythonException: Traceback\n{trace}")).__name__ == family
