from __future__ import annotations

from typing import Any

from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import DiskFailure
from warren.base.threads import Background
from warren.message_store.collector import CollectionResult, CollectorThread


class Counting:
    """A collector that has so much to do."""

    def __init__(self, *released: list[int], failures: int = 0) -> None:
        self.left = list(released)
        self.failures = failures
        self.passes = 0
        self.counts = 0

    def count_again(self) -> None:
        self.counts += 1

    def run(self) -> CollectionResult:
        self.passes += 1
        if self.failures:
            self.failures -= 1
            raise DiskFailure("the disk does not answer")
        released: Any = self.left.pop(0) if self.left else []
        return CollectionResult(released=released)

    def alarms(self) -> list[str]:
        return []


def after(seconds: float, worker_seconds: float, *collectors: Counting) -> list[str]:
    """Let a worker be for a while; its alarms then."""
    threads = SteppedThreads(3)

    def body() -> list[str]:
        given: Any = collectors
        worker = CollectorThread(threads, threads.clock, Background(), given, worker_seconds, 12.0)
        pause = threads.condition()
        with pause:
            pause.wait(seconds)
        reported = worker.alarms()
        worker.stop()
        return reported

    return threads.run(body)


def test_garbage_collection_is_periodic() -> None:
    collector = Counting()
    assert after(11.0, 5.0, collector) == []
    assert collector.passes == 2


def test_a_pass_continues_as_long_as_files_can_be_deleted() -> None:
    one, other = Counting([1, 2], [3]), Counting([4])
    after(6.0, 5.0, one, other)
    assert (one.passes, other.passes) == (3, 2)


def test_once_in_a_long_while_everything_is_counted_again() -> None:
    collector = Counting()
    after(31.0, 5.0, collector)
    assert (collector.passes, collector.counts) == (6, 2)


def test_an_error_is_reported_and_tried_again_and_forgotten_when_it_is_mended() -> None:
    (reported,) = after(6.0, 5.0, Counting(failures=1))
    assert "the disk does not answer" in reported
    assert after(11.0, 5.0, Counting(failures=1)) == []


def test_a_worker_that_is_notified_checks_immediately() -> None:
    threads = SteppedThreads(4)
    collector = Counting([1])

    def body() -> int:
        given: Any = [collector]
        worker = CollectorThread(threads, threads.clock, Background(), given, 1e6, 1e9)
        worker.wake()
        pause = threads.condition()
        with pause:
            pause.wait(1.0)
        worker.stop()
        return collector.passes

    assert threads.run(body) == 2
