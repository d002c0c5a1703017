"""Reading a store as Spark would, without Spark: planned by the driver's planner, done by the executors' tasks.

look(stage, view="kv", asOf=7)     rows as dicts, in the order of the tasks
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, StringType, StructType

from tests.log.upkeep_stage import DIRECTORY, Stage
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.planning import Plan, Planner
from warren.pipeline.schema import COLUMNS, SelectedColumn, TableView
from warren.pipeline.tasks import run

Row = dict[str, Any]
ARROW = {"bigint": pa.int64(), "int": pa.int32(), "tinyint": pa.int8(), "binary": pa.binary(), "string": pa.string()}
SPARK = {"bigint": LongType, "int": IntegerType, "tinyint": ByteType, "binary": BinaryType, "string": StringType}


def fields_of_view(view: TableView, *names: str) -> list[SelectedColumn]:
    columns = [column for column in COLUMNS[view] if column.name in names or (not names and column.is_usual)]
    return [SelectedColumn(column.name, column.types[0]) for column in columns]


def arrow_schema(fields: list[SelectedColumn]) -> Any:
    return pa.schema([(field.name, ARROW[field.type]) for field in fields])


def struct_type(fields: list[SelectedColumn]) -> Any:
    made = StructType()
    for field in fields:
        made = made.add(field.name, SPARK[field.type]())
    return made


def plan_of(stage: Stage, **options: Any) -> Plan:
    return Planner(ReadOptions.of(text_of({"path": DIRECTORY, **options})), stage.environment()).plan()


def rows_of(stage: Stage, plan: Plan, *names: str) -> list[Row]:
    if not plan.tasks:
        return []
    fields = fields_of_view(plan.tasks[0].view, *names)
    schema = arrow_schema(fields)
    batches = [batch for task in plan.tasks for batch in run(task, fields, schema, stage.environment())]
    return [row for batch in batches for row in batch.to_pylist()]


def look(stage: Stage, *names: str, **options: Any) -> list[Row]:
    return rows_of(stage, plan_of(stage, **options), *names)


def state(stage: Stage, **options: Any) -> dict[tuple[int, bytes], bytes]:
    rows = look(stage, view="kv", **options)
    assert len({(row["storage"], row["key"]) for row in rows}) == len(rows), "a key is shown once"
    return {(row["storage"], row["key"]): row["value"] for row in rows}


def spoil(stage: Stage, store_or_path: LogStore | str, offset: int) -> None:
    """Flip a bit of a file."""
    path = store_or_path if isinstance(store_or_path, str) else store_or_path.directory
    raw = bytearray(stage.disk.contents(path))
    raw[offset] ^= 16
    stage.disk.set_contents(path, bytes(raw))
