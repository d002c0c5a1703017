"""The driver of a stream in the kill test, in a process of its own with its JVM.

    python -m tests.pipeline.kill_driver FOLDER going        until it is killed, at most so many epochs in a batch
    python -m tests.pipeline.kill_driver FOLDER to-the-end   what is there, then it ends

    FOLDER/sink/QUERY/BATCH.json    the rows of a batch, [epoch, lsn, storage, key, value] each
    FOLDER/attempts                 a line for each time that a batch was about to be written: QUERY BATCH
    FOLDER/hold                     while this is there, a batch that has been written is not committed …
    FOLDER/held                     … and stands here, as a line: QUERY BATCH

The sink is idempotent by (query, batch): a file is written beside and renamed, and a batch that is done again after a
kill writes the same file again. All that makes the result exactly once is then the source's: the same batch must be the
same rows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests.pipeline.spark_kinds import LOCAL, Place, session_at

EPOCHS_PER_BATCH_MAX = 100
PIN_SECONDS = 5  # what a killed driver has pinned is free again that soon
COLUMNS = "epoch long, lsn long, storage long, key binary, value binary"
_BETWEEN_LOOKS_SECONDS = 0.02


class Sink:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pause = threading.Event()

    def keep(self, batch: Any, number: int) -> None:
        """Write the batch's file, whole or not at all."""
        query = json.loads((self._folder / "checkpoint" / "metadata").read_text(encoding="utf-8"))["id"]
        rows = [[r.epoch, r.lsn, r.storage, r.key.decode(), r.value.decode()] for r in batch.collect()]
        home = self._folder / "sink" / query
        home.mkdir(parents=True, exist_ok=True)
        fresh = home / f"{number}.{os.getpid()}.fresh"
        fresh.write_text(json.dumps(rows), encoding="utf-8")
        name = f"{query} {number}\n"
        with (self._folder / "attempts").open("a", encoding="utf-8") as attempts:
            attempts.write(name)
        fresh.replace(home / f"{number}.json")
        hold = self._folder / "hold"
        if is_held := hold.exists():
            (self._folder / "held").write_text(name, encoding="utf-8")
        while is_held and hold.exists():
            self._pause.wait(_BETWEEN_LOOKS_SECONDS)


def main(folder: Path, mode: str) -> None:
    spark = session_at(Place(LOCAL, "local[2]", ""))
    stream = spark.readStream.format("warren").schema(COLUMNS).option("pinSeconds", PIN_SECONDS)
    if mode == "going":
        stream = stream.option("maxEpochsPerTrigger", EPOCHS_PER_BATCH_MAX)
    writing = stream.load(str(folder / "log")).writeStream.foreachBatch(Sink(folder).keep)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    if mode == "to-the-end":
        writing = writing.trigger(availableNow=True)
    writing.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
