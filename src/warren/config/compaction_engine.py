"""The engine of a compaction that a command starts: in process (this command or the store), or Spark.

    compaction.engine = auto         Spark if it is installed and there are at least `spark_bytes_min` to merge
                        inprocess    never Spark
                        spark        always; an error says how to install it if it is missing

Merge and commit are the same with both. Compaction that a store starts automatically never uses Spark: a broker runs
without Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.log.read.read_only import ReadOnlyLog


class Engine(StrEnum):
    AUTO = "auto"
    INPROCESS = "inprocess"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    engine: Engine = Engine.AUTO
    spark_bytes_min: int = 4 << 30  # below it starting Spark takes longer than the merge


def is_for_spark(settings: CompactionSettings, directory: str) -> bool:
    """Whether Spark compacts this directory."""
    if settings.engine is not Engine.AUTO:
        return settings.engine is Engine.SPARK
    if find_spec("pyspark") is None:
        return False
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import open_for_reading

    return bytes_to_merge(open_for_reading(LocalFiles(), directory)) >= settings.spark_bytes_min


def bytes_to_merge(log: ReadOnlyLog) -> int:
    """Bytes that a compaction would read: compacted files and fresh ones, active ones up to their known end."""
    from warren.log.compaction.compaction import CompactionCatalog
    from warren.log.file_record import FileKind

    if log.state.reflected:  # nothing is merged: live values are in the safe snapshot store
        return 0
    catalog = CompactionCatalog.of(log.state)
    logs = [record for record in log.records() if record.purpose is FileKind.LOG]
    fresh = [record for record in logs if record.number not in catalog.detached]
    ends = [end.end if (end := log.witnessed(record)) else record.end for record in fresh]
    return sum(record.end for record in catalog.compacted) + sum(ends)
