"""An epoch range as tasks for key ranges: together they cover everything, and each reads all of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.upkeep_stage import QUIET
from warren.base.errors import Damage, DiskFailure, Gone
from warren.base.ids import Epoch
from warren.files.local import LocalFiles
from warren.log.manifest import set_change
from warren.log.store import LogStore
from warren.snapshot.tables.tasks import RangeSizes, TableResult, TableTask, make_table, partition, range_count

SETTINGS = replace(QUIET, channel_count=2)
SMALL = RangeSizes(workers=3, entries_worth_a_task=10)


def filled(home: Path, keys: Sequence[bytes], sessions: int = 20) -> LogStore:
    store = LogStore.open(str(home / "log"), SETTINGS)
    for number in range(sessions):
        session = store.begin(number % 2)
        for key in keys[number::sessions]:
            session.put(1 + key[0] % 2, key, b"value")
        session.commit()
        if number == sessions // 2:
            store.rotate()
    return store


def task_of(store: LogStore, home: Path, after: int = 0) -> TableTask:
    return TableTask(store.directory, str(home / "a.table"), Epoch(after), store.durable)


def results_of(tasks: Sequence[TableTask], home: Path) -> list[TableResult]:
    files = LocalFiles()
    paths = [str(home / f"a.table.{number}") for number in range(len(tasks))]
    changed = [TableTask.from_json({**task.to_json(), "path": path}) for task, path in zip(tasks, paths, strict=True)]
    return [make_table(files, each) for each in changed]


def test_ranges_are_even_and_together_everything(tmp_path: Path) -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(8) for _ in range(3000)]
    with filled(tmp_path, keys) as store:
        partitions = partition(LocalFiles(), task_of(store, tmp_path), SMALL)
        assert (len(partitions.tasks), partitions.entries) == (3, 3000)
        ranges = [task.key_range for task in partitions.tasks]
        assert (ranges[0].low, ranges[-1].high) == (None, None)
        assert [each.high for each in ranges[:-1]] == [each.low for each in ranges[1:]]
        assert sum(task.share for task in partitions.tasks) == pytest.approx(1)
        results = results_of(partitions.tasks, tmp_path)
        partitions.check_all_read(results)
        puts = [each.figures.puts for each in results]
        assert sum(puts) == len(set(keys))
        assert min(puts) > 600


@pytest.mark.parametrize(("keys", "ranges"), [([b"one"] * 500, 1), ([b"one", b"onf"] * 250, 2)])
def test_keys_that_are_alike_make_fewer_ranges(tmp_path: Path, keys: list[bytes], ranges: int) -> None:
    with filled(tmp_path, keys) as store:
        partitions = partition(LocalFiles(), task_of(store, tmp_path), SMALL)
        results = results_of(partitions.tasks, tmp_path)
        assert len([each for each in results if each.figures.puts]) == ranges
        assert sum(each.figures.puts for each in results) == len(set(keys))


def test_there_are_as_many_ranges_as_workers_and_more_if_one_would_be_too_large() -> None:
    sizes = RangeSizes(workers=4, entries_max=1000, bytes_max=1 << 20, entries_worth_a_task=100, ranges_max=40)
    assert [range_count(entries, 1, sizes) for entries in (0, 1, 199, 200, 400, 4000, 4001, 10**9)] == [
        *(1, 1, 1, 4),
        *(4, 4, 8, 40),
    ]
    assert range_count(1, 5 << 20, sizes) == 8
    assert range_count(10**6, 1, RangeSizes(workers=1)) == 1


def test_only_what_lies_behind_is_dealt(tmp_path: Path) -> None:
    with filled(tmp_path, [b"%04d" % number for number in range(1000)]) as store:
        behind = partition(LocalFiles(), task_of(store, tmp_path, store.durable - 1), SMALL)
        assert (len(behind.tasks), behind.entries) == (3, 50)
        none = partition(LocalFiles(), task_of(store, tmp_path, store.durable), SMALL)
        assert (len(none.tasks), none.entries) == (1, 0)


def test_a_block_that_is_damaged_in_a_file_being_written_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    """Reading such a file ends at the first block that does not fit, which may be the writer's own next one."""
    with filled(tmp_path, [b"%04d" % number for number in range(1000)]) as store:
        partitions = partition(LocalFiles(), task_of(store, tmp_path), SMALL)
        spoil(tmp_path / "log" / "pwal_0000", 0.5)
        with pytest.raises(DiskFailure, match=r"of 1000 entries of epochs 1–\d+ were read .*/log"):
            partitions.check_all_read(results_of(partitions.tasks, tmp_path))


def test_records_of_a_referring_stream_are_read_though_no_table_has_them(tmp_path: Path) -> None:
    """A history record (an ack, a reject, an expiry) says nothing about keys; a block of records gives no entry."""
    with LogStore.open(str(tmp_path / "log"), SETTINGS) as store:
        stream = store.stream("messages", is_referring=True)
        for number in range(30):
            with stream.begin() as session:
                if number % 3:
                    session.put(7, b"key-%02d" % number, b"v" * 300)
                session.record(b"history")
            assert session.epoch is not None
            store.wait(session.epoch)
        partitions = partition(LocalFiles(), task_of(store, tmp_path), SMALL)
        results = results_of(partitions.tasks, tmp_path)
        partitions.check_all_read(results)
        assert partitions.entries == 50 and sum(each.figures.puts for each in results) == 20


def test_an_unreadable_log_is_reported_before_it_is_partitioned(tmp_path: Path) -> None:
    with filled(tmp_path, [b"%04d" % number for number in range(1000)]) as store:
        sealed = next(record for record in store.manifest.state.files.values() if record.end)
        (tmp_path / "log" / sealed.name).rename(tmp_path / "elsewhere")
        with pytest.raises(Damage, match=sealed.name):
            partition(LocalFiles(), task_of(store, tmp_path), SMALL)


def test_purged_epochs_are_reported(tmp_path: Path) -> None:
    with filled(tmp_path, [b"%04d" % number for number in range(1000)]) as store:
        task = task_of(store, tmp_path)
        store.manifest.commit([set_change(reflected=store.durable)])
        assert store.purge().files
        with pytest.raises(Gone, match="epoch 1 is gone"):
            partition(LocalFiles(), task, SMALL)


def spoil(path: Path, where: float) -> None:
    """Change a byte of what was written into an active file."""
    raw = bytearray(path.read_bytes())
    end = len(bytes(raw).rstrip(b"\0"))
    raw[int(end * where)] ^= 0xFF
    path.write_bytes(raw)
