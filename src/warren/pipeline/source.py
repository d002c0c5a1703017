"""`spark.read.format("warren")`: the log as a DataFrame, through Spark's own interface for sources in Python.

    driver      WarrenSource ─▶ WarrenReader.partitions()     options and schema checked, a plan made and pinned
    executors   WarrenReader.read(partition)                  one task of the plan, as Arrow batches; the last one
                                                              releases the pin (pipeline/plan_pin)

Spark refuses a reader that knows `pushFilters` unless its own setting allows that, so filters are a class apart, made
with option `pushdown=true`. Filters on `epoch` narrow the plan; Spark still applies every filter to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warren.base.ids import Epoch
from warren.pipeline.ending import call_at_sigterm
from warren.pipeline.options import ReadOptions
from warren.pipeline.plan_pin import share
from warren.pipeline.planning import Planner
from warren.pipeline.schema import TableView, fields_of, usual_schema
from warren.pipeline.tasks import run

FORMAT = "warren"


class WarrenSource(DataSource):
    """The format. `pyspark_warren` makes Spark find it by itself."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return usual_schema(ReadOptions.of(self.options).view)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.of(self.options)
        takes_filters = options.pushdown and options.view is TableView.ENTRIES
        return (FilteringReader if takes_filters else WarrenReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from warren.pipeline.stream_source import WarrenStreamReader

        reader = WarrenStreamReader(ReadOptions.of(self.options), schema)
        call_at_sigterm(reader.stop)
        return reader


class WarrenReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._fields = fields_of(options.view, schema)

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        tasks = share(planner.machine, planner.plan())
        return [InputPartition(task) for task in tasks] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:  # Spark asks for at least one partition; here is nothing to read
            return iter(())
        return run(partition.value, self._fields, to_arrow_schema(self._schema))


class FilteringReader(WarrenReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._options = narrowed(self._options, each)
            yield each


def narrowed(options: ReadOptions, told: Filter) -> ReadOptions:
    """The options with a smaller range of epochs, if this filter is about them. A range that was asked for stays the
    widest: what lies outside of it is still an error, not an empty result."""
    if getattr(told, "attribute", None) != ("epoch",) or not isinstance(getattr(told, "value", None), int):
        return options
    value = told.value
    if isinstance(told, EqualTo | GreaterThan | GreaterThanOrEqual):
        low = value + 1 if isinstance(told, GreaterThan) else value
        options = replace(options, only_from=Epoch(max(options.only_from, low, 0)))
    if isinstance(told, EqualTo | LessThan | LessThanOrEqual):
        high = value - 1 if isinstance(told, LessThan) else value
        options = replace(options, only_to=Epoch(max(min(options.only_to, high), 0)))
    return options
