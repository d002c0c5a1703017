"""The data pipeline on Spark: a log directory as a DataFrame or a stream. Importing this imports no Spark.

from warren.pipeline import read
read("/var/lib/app/log", view="kv", as_of="2026-01-31T12:00").show()
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    path: str,
    view: str = "entries",
    as_of: int | str | datetime | None = None,
    columns: Sequence[str] | None = None,
    spark: SparkSession | None = None,
    **options: Any,
) -> DataFrame:
    """A view of a log directory, for notebooks. Only the named `columns` are decoded. Errors in the path,
    the options or the columns are raised here, before Spark runs anything."""
    from warren.pipeline.options import ReadOptions, text_of
    from warren.pipeline.planning import Planner
    from warren.pipeline.schema import COLUMNS, SelectedColumn, checked
    from warren.pipeline.session import require_pyspark, spark_session

    require_pyspark()
    moment = as_of.isoformat() if isinstance(as_of, datetime) else as_of
    given = text_of({"path": path, "view": view, "asOf": moment, **options})
    read_options = ReadOptions.of(given)
    types = {column.name: column.types[0] for column in COLUMNS[read_options.view]}
    fields = (
        checked(read_options.view, [SelectedColumn(name, types.get(name, "")) for name in columns])
        if columns is not None
        else []
    )
    session = spark or spark_session()
    if hasattr(session, "_jsparkSession"):  # with Spark Connect the path is on the server
        planner = Planner(read_options)
        planner.last_epoch(planner.open())
    reader = session.read.format("warren").options(**given)
    if fields:
        reader = reader.schema(", ".join(f"{field.name} {field.type}" for field in fields))
    return reader.load()
