"""`spark.read.format("warren")` and `spark.readStream.format("warren")`: the log as a DataFrame or a stream, through
Spark's interface for data sources in Python.

    driver      WarrenSource ─▶ WarrenReader.partitions()     options and schema checked, a plan made and pinned
    executors   WarrenReader.read(partition)                  one task of the plan, as Arrow batches; the last one
                                                              releases the pin (pipeline/planning)

Spark refuses a reader with `pushFilters` unless its own setting allows that, so such readers are a separate class, used
with option `pushdown=true`. Filters on `epoch` narrow the plan; Spark still applies every filter to the rows.

A stream reads the raw log as it becomes durable:

    offset    {"timeline": "9f3c…", "epoch": 4711}        everything up to this epoch has been read

An offset names a timeline and an epoch, not a file position: it stays valid when files are rotated, compacted and
purged. A micro-batch is the epochs after its start up to its end, each whole. Replayed after a crash it is the same, so
a sink that is idempotent by batch gets every durable entry exactly once. A stream behind the horizon fails, or resumes
at the horizon and logs a warning (`failOnDataLoss`). A stream on a timeline that the store left (restore, fork) fails
with the epoch of the fork.

Each micro-batch pins the files it reads. Only planned files are held: a stream slower than retention must not fill the
disk. Spark's `commit` may come late or never; only the early release of the pin depends on it. Spark does not call
`stop` when a query ends, although its protocol defines it: the process that plans the batches gets a SIGTERM, which
would leave its last pin to lapse, after an hour by default. So the reader stops on SIGTERM (`call_at_sigterm`).
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
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
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, TimelineId
from warren.files.environment import Environment
from warren.log.read.read_only import ReadOnlyLog
from warren.log.retention import Pin, check_not_gone
from warren.pipeline.options import ReadOptions
from warren.pipeline.planning import Planner, Task, share
from warren.pipeline.schema import TableView, fields_of, usual_schema
from warren.pipeline.tasks import run


def call_at_sigterm(stop: Callable[[], None]) -> None:
    """Call `stop` before SIGTERM ends the process, unless the process has a handler of its own."""

    def end(number: int, frame: object) -> None:
        stop()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):  # not the main thread, so not Spark's process for a reader
            signal.signal(signal.SIGTERM, end)


FORMAT = "warren"


class WarrenSource(DataSource):
    """The format. Spark finds it through the module `pyspark_warren`."""

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
        tasks = share(planner.environment, planner.plan())
        return [InputPartition(task) for task in tasks] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:  # Spark needs at least one partition; this one is empty
            return iter(())
        return run(partition.value, self._fields, to_arrow_schema(self._schema))


class FilteringReader(WarrenReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._options = narrowed(self._options, each)
            yield each


def narrowed(options: ReadOptions, filter_: Filter) -> ReadOptions:
    """The options with a smaller range of epochs if the filter is on `epoch`. The requested range stays as it is: an
    epoch outside of it is still an error, not an empty result."""
    if getattr(filter_, "attribute", None) != ("epoch",) or not isinstance(getattr(filter_, "value", None), int):
        return options
    value = filter_.value
    if isinstance(filter_, EqualTo | GreaterThan | GreaterThanOrEqual):
        low = value + 1 if isinstance(filter_, GreaterThan) else value
        options = replace(options, only_from=Epoch(max(options.only_from, low, 0)))
    if isinstance(filter_, EqualTo | LessThan | LessThanOrEqual):
        high = value - 1 if isinstance(filter_, LessThan) else value
        options = replace(options, only_to=Epoch(max(min(options.only_to, high), 0)))
    return options


Offset = dict[str, Any]
_BYTES_WITHOUT_END = (1 << 63) - 1
_log = logging.getLogger("warren.pipeline")


class WarrenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType, environment: Environment | None = None) -> None:
        _check_for_stream(options)
        self._options = options
        self._schema = schema
        self._fields = fields_of(options.view, schema)
        self._begin(environment)

    def _begin(self, environment: Environment | None = None) -> None:
        self._planner = Planner(self._options, environment)
        self._target: Epoch | None = None
        self._pin: Pin | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Executors get options and schema, not the state of the driver."""
        return {"_options": self._options, "_schema": self._schema, "_fields": self._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    # -- called by Spark on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        log = self._planner.open()
        first = self._options.from_epoch
        return _offset(log, log.state.horizon if first is None else Epoch(max(first, 1) - 1))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if not options.epochs_per_trigger_max and not options.bytes_per_trigger_max:
            return ReadAllAvailable()
        return ReadMaxBytes(options.bytes_per_trigger_max or _BYTES_WITHOUT_END)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planner.open().durable

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        log = self._planner.open()
        after = self._position(log, start)
        newest = log.durable if self._target is None else min(log.durable, self._target)
        if newest <= after:
            return start
        return _offset(log, newest if isinstance(limit, ReadAllAvailable) else self._limited(log, after, newest, limit))

    def reportLatestOffset(self) -> Offset:
        log = self._planner.open()
        return _offset(log, log.durable)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        plan = self._planner.pinned(lambda log: self._between(log, start, end))
        self._release()  # Spark plans a batch after the previous one is done
        self._pin = plan.pin
        return [InputPartition(task) for task in plan.tasks]

    def commit(self, end: Offset) -> None:
        """Nothing up to `end` is read again. The current pin belongs to the batch in progress and stays."""

    def stop(self) -> None:
        self._release()

    # -- called on executors ---------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return run(partition.value, self._fields, to_arrow_schema(self._schema), self._planner.environment)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _between(self, log: ReadOnlyLog, start: Offset, end: Offset) -> list[Task]:
        after, last = self._position(log, start), _admitted(log, end)
        if last > log.durable:
            raise Refused(
                f"the checkpoint has read up to epoch {last}, this store is durable up to {log.durable}",
                "open the store first if it was stopped, or name the directory that the stream has read so far",
            )
        return self._planner.tasks_between(log, Epoch(after + 1), last) if after < last else []

    def _position(self, log: ReadOnlyLog, start: Offset) -> Epoch:
        """The epoch after which the stream resumes."""
        after = _admitted(log, start)
        horizon = log.state.horizon
        if self._options.fails_on_data_loss:
            check_not_gone(log.state, Epoch(after + 1), ())
        elif after < horizon:
            _log.warning("epochs %d … %d are gone: the stream resumes at the horizon", after + 1, horizon)
            return horizon
        return after

    def _limited(self, log: ReadOnlyLog, after: Epoch, newest: Epoch, limit: ReadLimit) -> Epoch:
        epochs_max = self._options.epochs_per_trigger_max
        last = min(newest, after + epochs_max) if epochs_max else newest
        if isinstance(limit, ReadMaxBytes) and limit.max_bytes < _BYTES_WITHOUT_END:
            last = min(last, self._planner.epoch_within(log, after, limit.max_bytes))
        return Epoch(last)

    def _release(self) -> None:
        if self._pin is not None:
            self._planner.pins.release(self._pin)
            self._pin = None


def _check_for_stream(options: ReadOptions) -> None:
    if options.view is not TableView.ENTRIES:
        raise Misuse(f"a stream shows view 'entries', not '{options.view}'", "read other views with spark.read")
    if options.to_epoch is not None or options.as_of_epoch is not None or options.as_of_ns is not None:
        raise Misuse("a stream has no last epoch", "use trigger(availableNow=True), or spark.read with toEpoch")


def _offset(log: ReadOnlyLog, epoch: Epoch) -> Offset:
    return {"timeline": f"{log.state.timeline.id:016x}", "epoch": epoch}


def _admitted(log: ReadOnlyLog, offset: Offset) -> Epoch:
    """The epoch of an offset, if its timeline belongs to the history of this store."""
    try:
        timeline, epoch = TimelineId(int(offset["timeline"], 16)), Epoch(int(offset["epoch"]))
    except (KeyError, ValueError, TypeError):
        raise Refused(f"{offset} is no offset of a warren stream", "the checkpoint is another source's") from None
    log.state.timeline.admit(timeline, epoch)
    return epoch
