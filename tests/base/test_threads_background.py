"""The policy of background tasks: logged, an alarm, and tried again after a back-off."""

from __future__ import annotations

import logging
import threading

import pytest

from tools.simulator.stepped_threads import SteppedThreads
from warren.base.environment import SystemClock
from warren.base.errors import DiskFailure, InternalError, OutOfRoom
from warren.base.threads import RETRY_SECONDS_MAX, Background, BackgroundLoop, BackgroundTask, SystemThreads


def raise_error(error: BaseException) -> None:
    raise error


def failed(task: BackgroundTask, error: BaseException) -> None:
    assert not task.run(lambda: raise_error(error))


def test_a_failed_round_is_an_alarm_until_the_next_good_round() -> None:
    background = Background()
    task, other = background.task("upkeep", "garbage stays"), background.task("gc", "files stay")
    failed(task, ValueError("a defect"))
    assert other.run(lambda: None)
    [alarm] = background.alarms()
    assert alarm.startswith("garbage stays: unexpected ValueError('a defect')")
    assert isinstance(task.failure, InternalError) and isinstance(task.failure.__cause__, ValueError)
    assert task.run(lambda: None)
    assert (background.alarms(), background.failing(), task.alarms()) == ([], [], [])
    assert background.failures() == {"upkeep": 1, "gc": 0}, "the count of failures stays"


def test_two_tasks_of_one_name_have_alarms_of_their_own() -> None:
    background = Background()
    one, other = background.task("timetable", "of a"), background.task("timetable", "of b")
    failed(one, ValueError())
    failed(other, ValueError())
    one.run(lambda: None)
    assert background.failing() == [other]
    assert background.failures() == {"timetable": 2}


def test_an_error_of_warren_keeps_its_text_and_its_hint() -> None:
    background = Background()
    failed(background.task("upkeep", "garbage stays"), OutOfRoom("no room", "make some"))
    assert background.alarms() == ["garbage stays: no room; make some"]


def test_each_different_error_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    task = Background().task("upkeep", "garbage stays")
    for error in (ValueError("a"), ValueError("a"), KeyError("b"), KeyError("b")):
        failed(task, error)
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in records] == ["background task failed"] * 2
    assert [record.exc_info[0] for record in records if record.exc_info] == [ValueError, KeyError]


def test_the_back_off_doubles_up_to_half_a_minute_and_starts_anew_behind_a_good_round() -> None:
    task = Background().task("upkeep", "garbage stays", 1.0)
    waits = []
    for _ in range(8):
        failed(task, ValueError("a defect"))
        waits.append(task.retry_seconds)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    task.run(lambda: None)
    assert task.retry_seconds == 1


@pytest.mark.parametrize("error", [DiskFailure("no answer"), OutOfRoom("no room")])
def test_a_disk_that_may_work_again_is_tried_at_the_same_pace(error: Exception) -> None:
    task = Background().task("upkeep", "garbage stays", 1.0)
    for _ in range(8):
        failed(task, error)
    assert task.retry_seconds == 1 < RETRY_SECONDS_MAX


def test_what_ends_a_process_is_no_failure_of_a_task() -> None:
    background = Background()
    with pytest.raises(SystemExit):
        background.task("upkeep", "garbage stays").run(lambda: raise_error(SystemExit()))
    assert background.alarms() == []


def test_notifications_do_not_cut_a_back_off_short() -> None:
    threads = SteppedThreads(5)
    clock, bell = threads.clock, threads.condition()
    rings = 0

    def ring() -> None:
        nonlocal rings
        pause = threads.condition()
        while rings < 40:
            with pause:
                pause.wait(0.1)
            with bell:
                rings += 1
                bell.notify_all()

    def body() -> float:
        task = Background().task("reflection", "reflection stands still", 2.0)
        failed(task, ValueError("a defect"))
        running = threads.start("ring", ring)
        begun_ns = clock.monotonic_ns()
        with bell:
            task.back_off(bell, clock, lambda: False)
        lasted = (clock.monotonic_ns() - begun_ns) / 1e9
        running.join()
        return lasted

    assert threads.run(body) == pytest.approx(2.0, abs=0.01)


def test_a_loop_runs_on_request_and_periodically() -> None:
    rounds, enough = list[bool](), threading.Event()

    def run_once(is_requested: bool) -> None:
        rounds.append(is_requested)
        if True in rounds and False in rounds:
            enough.set()

    loop = BackgroundLoop(SystemThreads(), SystemClock(), Background().task("test", "nothing happens"), run_once)
    loop.start("test", 0.001)
    loop.request()
    assert enough.wait(30)
    loop.stop()
    assert loop.rounds == len(rounds) and not loop.is_alive


def test_a_waiting_caller_gets_a_round_that_began_after_its_call_even_during_a_back_off() -> None:
    threads = SteppedThreads(7)
    rounds: list[float] = []

    def run_once(is_requested: bool) -> None:
        rounds.append(threads.clock.monotonic_ns() / 1e9)
        raise ValueError("a defect")

    def body() -> None:
        task = Background().task("test", "nothing happens", 20.0)
        loop = BackgroundLoop(threads, threads.clock, task, run_once)
        loop.start("test", 1000.0)
        for calls in range(1, 4):
            loop.run_and_wait()
            assert len(rounds) == calls
        loop.stop()

    threads.run(body)
    assert rounds[-1] - rounds[0] < 20, "the back-off was cut short"


def test_a_failed_round_is_repeated_after_the_back_off_if_so_configured() -> None:
    threads = SteppedThreads(9)
    requested: list[bool] = []

    def run_once(is_requested: bool) -> None:
        requested.append(is_requested)
        if len(requested) < 3:
            raise ValueError("a defect")

    def body() -> float:
        background, pause = Background(), threads.condition()
        task = background.task("test", "nothing happens", 2.0)
        loop = BackgroundLoop(threads, threads.clock, task, run_once, repeats_failed=True)
        begun_ns = threads.clock.monotonic_ns()
        loop.start("test", 1000.0)
        loop.request()
        while loop.rounds < 3:
            with pause:
                pause.wait(0.1)
        lasted = (threads.clock.monotonic_ns() - begun_ns) / 1e9
        assert background.failures() == {"test": 2} and not background.alarms()
        loop.stop()
        return lasted

    assert threads.run(body) == pytest.approx(2.0 + 4.0, abs=0.3)
    assert requested == [True, True, True]
