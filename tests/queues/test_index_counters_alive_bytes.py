"""The sum of what is in the queues, reported by many threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from warren.base.ids import QueueId
from warren.base.messages import QueuePlace
from warren.queues.index_counters import AliveBytes


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_sum_is_that_of_the_last_reports() -> None:
    alive = AliveBytes(threading.Condition())
    for queue, level, size_bytes in ((1, 0, 10), (1, 3, 5), (2, 0, 7), (1, 0, 4)):
        alive.report(QueuePlace(QueueId(queue), level), size_bytes)
    assert alive.total() == 4 + 5 + 7
    alive.remove(QueueId(1))
    assert alive.total() == 7
    alive.remove(QueueId(1))
    assert alive.total() == 7, "a queue is removed once"


def test_threads_that_report_and_remove_at_once_leave_the_sum_exact(frequent_switches: None) -> None:
    alive, errors = AliveBytes(threading.Condition()), list[Exception]()

    def report(own: int) -> None:
        try:
            for number in range(3000):
                queue = QueueId(own * 100_000 + number % 50)
                alive.report(QueuePlace(queue, 0), number)
                assert alive.total() >= 0
                if number % 7 == 0:
                    alive.remove(queue)
            for number in range(50):
                alive.report(QueuePlace(QueueId(own * 100_000 + number), 0), 1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=report, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, alive.total()) == ([], 8 * 50)


class SwitchingInt(int):
    """Another thread runs while it is added."""

    def __sub__(self, other: int) -> SwitchingInt:
        return SwitchingInt(int(self) - other)

    def __add__(self, other: int) -> int:
        time.sleep(0.001)
        return int(self) + other

    __radd__ = __add__


def test_no_report_is_lost_where_the_interpreter_changes_threads_within_a_statement() -> None:
    alive = AliveBytes(threading.Condition())

    def report(own: int) -> None:
        for number in range(20):
            alive.report(QueuePlace(QueueId(own), 0), SwitchingInt(number))

    threads = [threading.Thread(target=report, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alive.total() == 4 * 19
