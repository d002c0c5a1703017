"""`warren bench queue` on few messages: it measures every row, says so in the agreed form, and cleans up. Times are not
judged here: a test machine has other things to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.growth.counting import count_calls
from tests.tools.bench.test_bench_log import FIELDS, Silent
from tests.tools.bench.test_bench_snapshot import PNG
from tools.bench.goals import goals_of
from tools.bench.queue import disk, fan_out, priorities, throughput
from tools.bench.queue.bodies import bodies
from tools.bench.queue.ours import QUEUE, SQL_KIND, Ours, drained, first_of, opened_queues, take
from tools.bench.queue.peer_rows import OTHERS
from tools.bench.queue.rows import queue_suite
from tools.bench.queue.watermark import WATERMARK_BYTES, WATERMARK_ROW_NAMES, watermark_for
from tools.bench.queue.watermark_child import BODY_BYTES, _compare
from tools.bench.run import run_in
from warren.base.errors import Damage, Refused

MESSAGES = 2000


def bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warren.cli.main", "bench", "queue", "--directory", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_row_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    home, picture = tmp_path / "home", tmp_path / "backlog.png"
    home.mkdir()
    done = bench(home, "--json", "--messages", str(MESSAGES), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["name"]: row for row in result["measurements"]}
    assert [row["name"] for row in result["measurements"]] == list(queue_suite(MESSAGES).rows)
    assert all(set(row) == FIELDS for row in rows.values())
    assert all(row["value"] > 0 for row in rows.values() if row["name"] not in WATERMARK_ROW_NAMES)
    assert all(rows[name]["ratio"] is not None for name in rows if "_beside_" in name), "beside others, always"
    assert {name: str(goal) for name, goal in goals_of("queue").items()} == {
        name: row["goal"] for name, row in rows.items() if row["goal"] is not None
    }
    assert picture.read_bytes().startswith(PNG)
    assert not list(home.iterdir()), "it leaves nothing behind"


def test_every_goal_is_a_row_s_however_few_messages() -> None:
    assert goals_of("queue") and not set(goals_of("queue")) - set(queue_suite(1000).rows)


def test_every_other_queue_has_to_be_beaten() -> None:
    goals = goals_of("queue")
    assert "warren_sql" in OTHERS
    for other in OTHERS:
        for kind in ("put_beside_{}", "put_later_beside_{}", "get_beside_{}", "get_one_beside_{}", "put_beside_{}_8k"):
            assert str(goals[kind.format(other)]) == "ratio >= 1"
    synced = {other for other in OTHERS if f"put_one_beside_{other}" in goals}
    assert synced == {"sqlite", "persist_queue", "warren_sql"}, "a put that waits is held against puts that wait"


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(Refused, match="no row restart_5m"):
        queue_suite(2000).check({"restart_5m"})


def test_too_little_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with (
        pytest.raises(Refused, match=r"messages need .* MiB") as refused,
        run_in(tmp_path, 10**12, Silent(), 9, "messages"),
    ):
        pass
    assert "--messages" in str(refused.value.hint) and not list(tmp_path.iterdir())


def test_few_messages_make_a_small_watermark() -> None:
    assert watermark_for(10_000_000) == watermark_for(500_000) == WATERMARK_BYTES
    assert watermark_for(1000) == 400_000


def measured(directory: Path, *rows: str, messages: int = MESSAGES) -> dict[str, float]:
    with run_in(directory, messages, Silent()) as run:
        made = queue_suite(messages).measure(run, {}, rows)
    assert not list(directory.iterdir())
    return {row.name: row.value for row in made}


@pytest.mark.parametrize("rows", [("put_one",), ("fan_out_5_get",), ("priority_get_many",), ("disk", "disk_8k")])
def test_rows_that_are_asked_for_run_alone(tmp_path: Path, rows: tuple[str, ...]) -> None:
    found = measured(tmp_path, *rows)
    assert set(found) == set(rows) and min(found.values()) > 0


def test_the_queue_in_the_log_costs_less_than_the_one_in_sql(tmp_path: Path) -> None:
    """HS-03: many at once, in and out, counted in calls: 420 and 1290, 650 and 7490. `bench queue` has the times."""
    calls: dict[str | None, list[int]] = {}
    some = bodies(0, 1000, BODY_BYTES)
    for kind in (None, SQL_KIND):
        with opened_queues(tmp_path) as db:
            queue = Ours(db, f"by {kind}", kind)
            queue.put_many(some)  # the first ones fill caches
            queue.get_many(1000)
            queue.settle()
            put = count_calls(lambda queue=queue: queue.put_many(some))  # type: ignore[misc]
            get = count_calls(lambda queue=queue: (queue.get_many(1000), queue.settle()))  # type: ignore[misc]
            calls[kind] = [put, get]
    assert all(2 * log < sql for log, sql in zip(calls[None], calls[SQL_KIND], strict=True)), calls


@pytest.mark.slow
def test_the_queue_in_the_log_is_measured_beside_the_one_in_sql(tmp_path: Path) -> None:
    with run_in(tmp_path, MESSAGES, Silent()) as run:
        rows = queue_suite(MESSAGES).measure(run, goals_of("queue"), ("put_beside_warren_sql", "get_beside_warren_sql"))
    assert len(rows) == 2 and all(row.ratio is not None and row.ratio > 0 for row in rows)


@pytest.mark.slow
def test_the_watermark_is_reached_and_kept_and_messages_are_all_there(tmp_path: Path) -> None:
    found = measured(tmp_path, *WATERMARK_ROW_NAMES, messages=20_000)
    limit = watermark_for(20_000) / 1e6
    assert 0.5 * limit < found["watermark_low"] < found["watermark_high"] <= 1.1 * limit
    assert found["watermark_resident"] > 0 and found["watermark_anonymous"] > 0


def test_a_queue_with_another_length_or_other_bodies_ends_the_watermark_s_process(tmp_path: Path) -> None:
    with opened_queues(tmp_path) as db:
        queue = db.queue(QUEUE)
        queue.put_many(bodies(0, 3, BODY_BYTES))
        with pytest.raises(Damage, match="4 messages were put into bench, it says 3"):
            _compare([queue], 4)
        queue.put_many(bodies(7, 1, BODY_BYTES))
        with pytest.raises(Damage, match="other bodies came out"):
            _compare([queue], 4)


def losing(queue: Any, count: int) -> list[bytes]:
    """A queue that swallows one body of every call."""
    return take(queue, count)[1:]


def doubling(queue: Any, count: int) -> list[bytes]:
    got = take(queue, count)
    return got + got[-1:]


@pytest.mark.parametrize("wrong", [losing, doubling])
@pytest.mark.parametrize(
    ("module", "row"),
    [
        (throughput, "get_many"),
        (fan_out, "fan_out_5_get"),
        (priorities, "priority_get_many"),
        (disk, "disk"),
    ],
)
def test_a_row_whose_messages_do_not_all_come_out_once_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, row: str, wrong: Any
) -> None:
    monkeypatch.setattr(module, "take", wrong)
    with pytest.raises(Damage, match="bodies"):
        measured(tmp_path, row)


def test_a_queue_that_is_not_empty_when_all_came_out_ends_the_run(tmp_path: Path) -> None:
    with opened_queues(tmp_path) as db:
        row = throughput._QueueRows(db, 100)
        row.put_many([b"one too many"], 1)
        assert drained(db.queue(QUEUE), 1) == [b"one too many"]
        row.put_many([b"held"], 1)
        with pytest.raises(Damage, match="it says that 1 are left"):
            row._check([], 0)


def test_the_first_is_kept_and_not_acknowledged(tmp_path: Path) -> None:
    with opened_queues(tmp_path) as db:
        queue = db.queue(QUEUE)
        queue.put_many([b"a", b"b"])
        assert first_of(queue) == b"a"
        assert take(queue, 10) == [b"b"] and first_of(queue) is None
    with opened_queues(tmp_path) as db:
        assert take(db.queue(QUEUE), 10) == [b"a"]
