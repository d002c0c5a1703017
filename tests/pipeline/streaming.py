"""A stream of a log directory into Parquet files, with Spark's own sink: exactly once if the source repeats itself.

    folder/checkpoint    offsets/N: batch N was planned      commits/N: it was done
    folder/table         what came

As a program it is a client that can be killed: python -m tests.pipeline.streaming KIND URL TOKEN LOG FOLDER
It takes one epoch at a time, so that there is always more to come.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.pipeline.spark_kinds import Place, session_at


def stream_to_end(spark: Any, log: str, folder: Path, **options: Any) -> None:
    """Read what is durable now and was not read yet, and end (`availableNow`)."""
    query = (
        spark.readStream.format("warren")
        .schema("epoch long, key binary")
        .options(**options)
        .load(log)
        .writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def epochs_in(spark: Any, folder: Path) -> list[int]:
    """The epoch of every row that came, in order."""
    return sorted(row.epoch for row in spark.read.parquet(str(folder / "table")).select("epoch").collect())


def planned(checkpoint: Path) -> set[int]:
    return _numbers(checkpoint / "offsets")


def committed(checkpoint: Path) -> set[int]:
    return _numbers(checkpoint / "commits")


def _numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()}


if __name__ == "__main__":
    kind, url, token, log, folder = sys.argv[1:]
    session = session_at(
        Place(kind, url, token), **{"spark.cores.max": "1"}
    )  # a single executor is enough, and there sooner
    stream_to_end(session, log, Path(folder), maxEpochsPerTrigger=1)
