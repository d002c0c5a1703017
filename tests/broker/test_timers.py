"""Calls at a given time."""

from __future__ import annotations

from tools.simulator.stepped_threads import SteppedThreads
from warren.base.threads import Background, SystemThreads
from warren.broker.timers import Timers
from warren.testing.fakes import ManualClock


def test_what_is_due_is_called_once_and_in_order() -> None:
    clock, called = ManualClock(), list[int]()
    table = Timers(SystemThreads(), clock)
    for key, due in ((3, 30), (1, 10), (2, 20), (1, 15)):
        table.call_at(due, called.append, key)
    assert table.run_due() == 0
    clock.advance_ns(20_000_000)
    assert (table.run_due(), called) == (2, [1, 2])
    clock.advance_ns(20_000_000)
    assert (table.run_due(), called) == (1, [1, 2, 3])


def test_the_thread_sleeps_until_then() -> None:
    """The stepped threads let time pass only when all threads wait: the timer wakes at each time, and not before."""
    clock = ManualClock()
    threads = SteppedThreads(seed=3, clock=clock)
    called: list[tuple[int, int]] = []

    def call(key: int) -> None:
        called.append((key, clock.monotonic_ns() // 1_000_000))

    def main() -> None:
        table = Timers(threads, clock)
        table.begin()
        table.call_at(500, call, 7)
        table.call_at(200, call, 8)
        bell = threads.condition()
        with bell:
            bell.wait(1.0)
        table.stop()

    threads.run(main)
    assert called == [(8, 200), (7, 500)]


def test_a_call_that_raises_is_repeated_later_and_the_others_are_called_in_time() -> None:
    clock, background, called = ManualClock(), Background(), list[int]()

    def call(key: int) -> None:
        called.append(key)
        if key == 1 and called.count(1) <= 2:
            raise ValueError("a defect")

    table = Timers(SystemThreads(), clock, background)
    table.call_at(10, call, 1)
    table.call_at(10, call, 2)
    clock.advance_ns(10_000_000)
    assert (table.run_due(), called) == (2, [1, 2])
    assert len(background.alarms()) == 1, "the good call of another key does not clear the alarm"
    clock.advance_ns(1_000_000_000)
    assert (table.run_due(), called) == (1, [1, 2, 1])
    clock.advance_ns(1_000_000_000)
    assert table.run_due() == 0, "the second pause is longer"
    clock.advance_ns(1_000_000_000)
    assert (table.run_due(), background.alarms()) == (1, [])
    clock.advance_ns(10**12)
    assert table.run_due() == 0, "a good call is not repeated"
