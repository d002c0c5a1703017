"""The backlog rows: a real process, a real kill, and every message accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import Silent
from tools.bench.killed_child import child
from tools.bench.queue import backlog as queue_backlog
from tools.bench.queue.backlog import backlog_row_names, backlog_sizes, measure
from tools.bench.queue.bodies import bodies, tally
from tools.bench.queue.child import MODULE, PIECE
from tools.bench.queue.ours import QUEUE, drained, opened_queues
from tools.bench.run import run_in
from warren.base.errors import Damage

SIZE = PIECE + 500  # two puts


def test_sizes_are_those_of_the_plot_what_was_asked_for_and_four_times_as_many() -> None:
    assert backlog_sizes(5_000_000) == [100_000, 1_000_000, 5_000_000, 20_000_000]
    assert backlog_sizes(2000) == [2000, 8000]
    assert len(set(backlog_row_names(1_000_000))) == len(backlog_row_names(1_000_000))


@pytest.mark.slow
def test_a_killed_process_s_backlog_is_measured_and_all_there(tmp_path: Path) -> None:
    watcher = Silent()
    with run_in(tmp_path, SIZE, watcher) as run:
        backlog = measure(run, SIZE)
    assert min(figure.value for figure in backlog.figures()) > 0
    assert {figure.name for figure in backlog.figures()} < set(backlog_row_names(SIZE))
    assert backlog.memory > 20 and backlog.memory_drain > 20, "a Python process has that much"
    assert backlog.restart < 60
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_was_put_before_the_kill_is_there_after_it(tmp_path: Path) -> None:
    with child(MODULE, "fill", tmp_path, SIZE) as process:
        assert process.do()["seconds"] > 0
    with opened_queues(tmp_path) as db:
        assert drained(db.queue(QUEUE), SIZE) == bodies(0, SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, -1])
def test_a_store_that_has_lost_or_doubled_a_message_ends_the_run(tmp_path: Path, lost: int) -> None:
    with opened_queues(tmp_path) as db:
        db.queue(QUEUE).put_many(bodies(0, 100))
    assert queue_backlog._restart(tmp_path, 100) > 0
    with pytest.raises(Damage, match="messages were durable"):
        queue_backlog._restart(tmp_path, 100 + lost)


def test_another_first_message_ends_the_run(tmp_path: Path) -> None:
    with opened_queues(tmp_path) as db:
        db.queue(QUEUE).put_many(bodies(1, 100))
    with pytest.raises(Damage, match="not the first that was put"):
        queue_backlog._restart(tmp_path, 100)


def test_what_is_drained_is_counted_compared_and_nothing_may_be_left() -> None:
    good = tally(100)
    result = {"count": good.count, "checksum": good.checksum, "seconds": 1.0, "left": 0}
    queue_backlog._check(result, 100)
    for wrong, said in (
        ({"count": 99}, "100 bodies should have come out, 99 did"),
        ({"checksum": good.checksum ^ 1}, "other bodies came out"),
        ({"left": 1}, "it says that 1 are left"),
    ):
        with pytest.raises(Damage, match=said):
            queue_backlog._check(result | wrong, 100)
