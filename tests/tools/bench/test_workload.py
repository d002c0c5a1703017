"""What is written is the same on every machine, and as described; syncs are counted where they happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench.counting import CountingFiles
from tools.bench.workload import KEYS_FIXED, KEYS_VARIABLE, SESSION_ENTRIES, LogWorkload, as_lists, make, stream


def keys_of(workload: LogWorkload) -> list[bytes]:
    return [key for session in workload.sessions for key in session.keys.to_list()]


def test_one_seed_is_one_workload() -> None:
    one, same, other = make(3000), make(3000), make(3000, seed=1)
    assert keys_of(one) == keys_of(same) != keys_of(other)
    assert one.newest == same.newest != other.newest


@pytest.mark.parametrize("key_bytes", [KEYS_FIXED, KEYS_VARIABLE])
def test_a_fifth_of_the_keys_is_repeated_and_lengths_are_in_range(key_bytes: tuple[int, int]) -> None:
    work = make(12_345, key_bytes)
    keys = keys_of(work)
    assert work.entries == len(keys) == 12_345
    assert len(set(keys)) == work.distinct
    assert 0.19 < 1 - work.distinct / work.entries < 0.21
    assert {min(map(len, keys)), max(map(len, keys))} == set(key_bytes)
    values = [value for session in work.sessions for value in session.values.to_list()]
    assert (min(map(len, values)), max(map(len, values))) == (50, 150)
    assert work.size_bytes == sum(map(len, keys)) + sum(map(len, values))
    assert (keys[-1], values[-1]) == work.newest


def test_a_stream_of_sessions_is_the_same_workload() -> None:
    work = make(SESSION_ENTRIES * 2 + 345)
    sessions, distinct = stream(SESSION_ENTRIES * 2 + 345)
    streamed = LogWorkload(list(sessions), distinct)
    assert keys_of(streamed) == keys_of(work)
    assert (streamed.distinct, streamed.size_bytes, streamed.newest) == (work.distinct, work.size_bytes, work.newest)


def test_lists_hold_what_columns_hold() -> None:
    work = make(SESSION_ENTRIES + 1000)
    [(keys, values), (last, _)] = as_lists(work, SESSION_ENTRIES + 1)
    assert (keys, values) == (work.sessions[0].keys.to_list(), work.sessions[0].values.to_list())
    assert len(last) == 1000


def test_only_syncs_that_an_epoch_needs_are_counted(tmp_path: Path) -> None:
    files = CountingFiles()
    log, epoch = files.create(str(tmp_path / "pwal_0000")), files.create(str(tmp_path / "epoch"))
    log.sync()
    epoch.sync()
    epoch.sync()
    assert files.log_syncs == 0, "a new file's header, and a file that is no log file"
    log.write_at(0, [b"block"])
    log.sync()
    assert files.log_syncs == 1
    log.close()
    again = files.open(str(tmp_path / "pwal_0000"), writable=True)
    again.sync()
    assert files.log_syncs == 2
    assert (again.size(), again.read_at(0, 9), bytes(again.view())) == (5, b"block", b"block")
    again.close()
    epoch.close()
