"""Makes the golden checkpoint of a Spark stream: `python -m tests.formats.make_stream_checkpoint COMMIT`.

    data/              `warren.open`: key-values of many epochs in several log files, and a store filled by `sync`
    checkpoint/        of `readStream.format("warren")` on `data`, one epoch per batch
    table/             Parquet sink of that stream, with Spark's `_spark_metadata`
    entries/           Delta table of `warren pipeline export`, with app transactions `warren-export`
    entries_parquet/   the same in format `parquet`
    made.json          commit, and `home`: the directory in which all of it was made

`pipeline_v1.tar.xz` was made by the build of commit f0551bd with PySpark 4.3.0 and deltalake 1.6.6, in the way that
`make_broker_directories` describes. It is never made again.

Absolute paths. The sink's log `table/_spark_metadata` names each Parquet file by an absolute URL in the field `path`;
`unpack_at` replaces `file://<home>` by the directory of the test. The checkpoint holds none: its offsets are timeline
and epoch. The Delta log has relative paths; `source` in its commit metadata and in `_MANIFEST.json` is information only
and stays as it is.

`--catch-up HOME …` runs stream, exports and sync of each directory up to what is durable, in a process with a JVM of
its own, and prints what it did as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import warren
from tests.formats.golden_archive import ARCHIVES, check_absent, pack, unpack

ARCHIVE = ARCHIVES / "pipeline_v1.tar.xz"
LOG = warren.LogSettings(
    container_bytes=512 << 10,
    rotate_bytes=64 << 10,
    retention_seconds=1e9,  # the archive grows old, and every epoch must stay readable
    retention_bytes=1 << 40,
    compaction_garbage_ratio=0.0,
)
REFLECTION = warren.ReflectionSettings(reflection=warren.Mode.OFF)  # the store is left to `sync`
STORAGE = "events"
EPOCHS = 12
KEYS_PER_EPOCH = 4
BATCH_EPOCHS_MAX = 5
CATCH_UP_SECONDS_MAX = 240


def keys_of(number: int) -> dict[bytes, bytes]:
    """What one session puts: some keys are new, one is overwritten by every session."""
    new = {b"key-%03d-%d" % (number, place): b"value %d.%d " % (number, place) * 500 for place in range(KEYS_PER_EPOCH)}
    return {**new, b"newest": b"%d" % number}


def write(home: Path, numbers: range) -> None:
    with warren.open(str(home / "data"), log_settings=LOG, reflection=REFLECTION) as db:
        events = db.kv(STORAGE)
        for number in numbers:
            events.put_many(keys_of(number))


def catch_up(spark: Any, home: Path) -> dict[str, Any]:
    """Stream and exports run twice: the second time has nothing to do."""
    from tests.pipeline.streaming import stream_to_end
    from tests.pipeline.sync_stage import SMALL
    from warren.pipeline.jobs.export import export
    from warren.pipeline.jobs.sync import SyncOptions, sync

    data = str(home / "data")
    exported: dict[str, list[tuple[int, int]]] = {"delta": [], "parquet": []}
    for _ in range(2):
        stream_to_end(spark, data, home, maxEpochsPerTrigger=1)
        for format, target in (("delta", "entries"), ("parquet", "entries_parquet")):
            done = export(spark, data, str(home / target), format=format, batch_epochs_max=BATCH_EPOCHS_MAX)
            exported[format].append((done.batches, done.rows))
    streamed = spark.read.parquet(str(home / "table")).select("epoch", "key").collect()
    synced = sync(spark, data, options=SyncOptions(sizes=SMALL))  # last: its owner's settings may purge the log
    rows = sorted([row.epoch, bytes(row.key).hex()] for row in streamed)
    return {"streamed": rows, "exported": exported, "synced": synced}


def catch_up_all(homes: list[Path]) -> list[dict[str, Any]]:
    """In this process, which gets a Spark session."""
    from tests.pipeline.spark_kinds import LOCAL, Place, session_at

    spark = session_at(Place(LOCAL, "local[2,2]", "golden"))
    try:
        return [catch_up(spark, home) for home in homes]
    finally:
        spark.stop()


def catch_up_in_process(*homes: Path) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "tests.formats.make_stream_checkpoint", "--catch-up", *map(str, homes)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=CATCH_UP_SECONDS_MAX, check=False)
    assert ended.returncode == 0, ended.stderr
    done: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return done


def unpack_at(archive: Path, home: Path) -> None:
    """The URLs of the sink's log are changed to those of this directory."""
    unpack(archive, home)
    facts = json.loads((home / "made.json").read_text(encoding="utf-8"))
    for path in (home / "table" / "_spark_metadata").iterdir():
        if not path.name.startswith("."):
            text = path.read_text(encoding="utf-8")
            assert f"file://{facts['home']}/" in text
            path.write_text(text.replace(f"file://{facts['home']}/", f"file://{home}/"), encoding="utf-8")
            path.with_name(f".{path.name}.crc").unlink()  # Hadoop's checksum of the text as it was


def main() -> None:
    if sys.argv[1] == "--catch-up":
        print(json.dumps(catch_up_all([Path(word) for word in sys.argv[2:]])))
        return
    check_absent(ARCHIVE)
    print("warren is", warren.__file__)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        write(home, range(EPOCHS // 2))
        print(catch_up_in_process(home))
        write(home, range(EPOCHS // 2, EPOCHS))
        print(catch_up_in_process(home))
        facts = {"commit": sys.argv[1], "home": str(home)}
        (home / "made.json").write_text(json.dumps(facts), encoding="utf-8")
        pack(ARCHIVE, home)


if __name__ == "__main__":
    main()
