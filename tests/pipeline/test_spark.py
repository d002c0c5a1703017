"""The format in a real Spark session: what the other tests of this package ask of the parts, asked of the whole."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.house.source_tree import DOCS
from tests.log.upkeep_stage import QUIET
from warren.base.errors import Damage, Gone, Misuse, Refused, WarrenError
from warren.log.store import LogStore
from warren.pipeline import read
from warren.pipeline.session import clear_errors

pytestmark = pytest.mark.spark
SETTINGS = replace(QUIET, channel_count=2, retention_seconds=1e6, retention_bytes=1 << 40)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Ten epochs on two channels in several files, on the real disk."""
    store = LogStore.open(str(tmp_path / "log"), SETTINGS)
    for number in range(10):
        write(store, number)
        if number == 4:
            store.rotate()
    store.witness()
    yield store
    store.abandon()


def write(store: LogStore, number: int) -> int:
    session = store.begin(number % 2)
    for key in range(5):
        session.put(1 + key % 2, b"key-%d" % (key * number % 7), b"value %d.%d" % (number, key))
    session.remove(1, b"key-%d" % number)
    return session.commit()


def test_kv_and_entries_through_spark(spark: Any, store: LogStore) -> None:
    """X-11: `kv` equals the snapshot row for row, `entries` are the durable ones."""
    frame = spark.read.format("warren").load(store.directory)
    assert frame.schema.simpleString() == (
        "struct<epoch:bigint,kind:string,storage:bigint,key:binary,value:binary,major:bigint,minor:bigint,"
        "stream:int,lsn:bigint,file:bigint>"
    )
    assert [tuple(row) for row in frame.groupBy("epoch").count().orderBy("epoch").collect()] == [
        (epoch, 6) for epoch in range(1, 11)
    ]
    state = spark.read.format("warren").option("view", "kv").option("buckets", 3).load(store.directory)
    rows = sorted((r.storage, bytes(r.key), bytes(r.value), (r.major, r.minor)) for r in state.collect())
    assert rows == [(r.storage, r.key, r.value, r.version) for r in store.refresh().cursor()]


def test_narrow_schema_and_filters_through_spark(spark: Any, store: LogStore) -> None:
    narrow = spark.read.format("warren").schema("kind byte, epoch long").load(store.directory)
    assert sorted({tuple(row) for row in narrow.collect()})[:2] == [(1, 1), (1, 2)]
    pushed = spark.read.format("warren").option("pushdown", True).load(store.directory)
    assert pushed.where("epoch >= 3 and epoch < 5 and kind = 'remove'").count() == 2
    assert pushed.where("epoch > 10").count() == 0
    assert read(store.directory, view="kv", as_of=2, columns=["key"], spark=spark).count() == 6


def test_bad_input_is_one_python_error(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """No store, no view, an epoch that is not there, a schema that does not fit: said on the driver, in our words."""
    source = spark.read.format("warren")
    asks: list[tuple[type[WarrenError], str, Callable[[], Any]]]
    asks = [
        (Refused, "no log directory", lambda: source.load(str(tmp_path)).count()),
        (Misuse, "view is 'x'", lambda: spark.read.format("warren").option("view", "x").load(store.directory)),
        (Refused, "epoch 99 is not durable", lambda: read(store.directory, as_of=99, spark=spark)),
        (Gone, "no epoch is known", lambda: read(store.directory, as_of="1999-01-01", spark=spark)),
        (Refused, "has no column 'kye'", lambda: read(store.directory, columns=["kye"], spark=spark)),
        (
            Refused,
            "is bigint, not string",
            lambda: spark.read.format("warren").schema("epoch string").load(store.directory).count(),
        ),
    ]
    for family, words, ask in asks:
        with pytest.raises(family, match=words), clear_errors():
            ask()


def test_damage_through_spark(spark: Any, store: LogStore) -> None:
    """A damaged block is named with file and offset; skipped, it is a row of view `damage`."""
    [record, *_] = [record for record in store.manifest.state.files.values() if record.entries]
    path = Path(store.directory, record.name)
    raw = bytearray(path.read_bytes())
    raw[record.end - 300] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damage, match=re.escape(str(path))) as told, clear_errors():
        read(store.directory, spark=spark).count()
    [row] = read(store.directory, view="damage", spark=spark).collect()
    assert (row.path, row.offset) == (told.value.path, told.value.offset)
    assert read(store.directory, spark=spark, onDamage="skip").count() in (54, 60)


def test_a_stream_ends_restarts_and_goes_on(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """X-11: every durable epoch once, over two runs of one checkpoint, while the owner compacts between them."""

    def run() -> list[int]:
        batches.clear()
        frame = spark.readStream.format("warren").schema("epoch long").option("maxEpochsPerTrigger", 4)
        query = (
            frame.load(store.directory)
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return list(batches)

    def keep(batch: Any, number: int) -> None:
        batches.append(number)
        seen.extend(row.epoch for row in batch.collect())

    seen, batches = list[int](), list[int]()
    assert run() == [0, 1, 2]
    store.compact()
    write(store, 20)
    store.witness()
    assert run() == [3]
    assert sorted(seen) == [epoch for epoch in range(1, 12) for _ in range(6)]


def test_the_examples_of_the_page_run(spark: Any, store: LogStore, tmp_path: Path) -> None:
    page = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 5
    names: dict[str, Any] = {}
    for example in examples:
        code = example.replace("/var/lib/app/log", store.directory).replace("/var/lib/app", str(tmp_path))
        exec(compile(code, "docs/pipeline.md", "exec"), names)
    assert spark.read.parquet(str(tmp_path / "table")).count() == 60


def test_an_owner_in_another_process_does_not_disturb(spark: Any, tmp_path: Path) -> None:
    """X-06, X-11, RF-06: a process appends, rotates, compacts and purges while Spark reads; what is read is whole."""
    path = str(tmp_path / "log")
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdin is not None
    try:
        assert writer.stdout.readline() == b"ready\n"
        for _ in range(3):
            counts = read(path, columns=["epoch"], spark=spark).groupBy("epoch").count().collect()
            epochs = sorted(row.epoch for row in counts)
            assert all(row["count"] == 10 for row in counts) and len(set(epochs)) == len(epochs)
            assert not epochs or epochs == list(range(epochs[0], epochs[-1] + 1)), "no gap behind the horizon"
            state = read(path, view="kv", columns=["key", "major"], spark=spark).collect()
            assert len(state) == 10 and len({row.major for row in state}) == 1, "one epoch wrote every key"
    finally:
        writer.stdin.close()
        writer.wait(30)
        writer.stdout.close()


_WRITER = """
import sys, threading
from dataclasses import replace
from warren.log.settings import LogSettings
from warren.log.store import LogStore
settings = LogSettings(use_worker_process=False, retention_seconds=0.5, snapshot_at_stop=False)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
store = LogStore.open(sys.argv[1], settings)
turn = 0
while not ended.wait(0.002):
    session = store.begin()
    for key in range(10):
        session.put(1, b'key-%d' % key, b'%d' % turn)
    session.commit()
    turn += 1
    if turn % 40 == 0:
        store.compact()
        store.purge()
    if turn == 60:
        store.witness()
        print('ready', flush=True)
store.close()
"""
