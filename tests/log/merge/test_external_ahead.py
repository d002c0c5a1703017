"""Work done ahead: in order, not too far, errors in their place, and no thread left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator

import pytest

from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Damage
from warren.base.threads import SystemThreads
from warren.log.merge.external import ahead


def test_results_come_in_order_whichever_is_ready_first() -> None:
    def job(number: int) -> int:
        time.sleep(0.01 * (number % 3))
        return number

    jobs: list[Callable[[], int]] = [lambda number=number: job(number) for number in range(12)]  # type: ignore[misc]
    assert list(ahead(SystemThreads(), jobs, 4)) == list(range(12))


@pytest.mark.parametrize("seed", range(10))
def test_only_a_few_jobs_beyond_the_requested_ones_are_started(seed: int) -> None:
    threads = SteppedThreads(seed, switch_probability=0.7)
    begun: list[int] = []

    def body() -> None:
        jobs = [lambda number=number: begun.append(number) for number in range(30)]
        for requested, _ in enumerate(ahead(threads, jobs, 3)):
            for _ in range(5):
                threads.pause()
            assert max(begun) <= requested + 4

    threads.run(body)
    assert sorted(begun) == list(range(30))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_out_where_the_result_would_have(workers: int) -> None:
    def broken() -> int:
        raise Damage("job 2 is broken")

    results = ahead(SystemThreads(), [lambda: 0, lambda: 1, broken, lambda: 3], workers)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(Damage, match="job 2"):
        next(results)


def test_closing_the_iterator_stops_the_threads() -> None:
    before = threading.active_count()
    results = ahead(SystemThreads(), [lambda: 1] * 100, 3)
    assert next(results) == 1
    assert threading.active_count() > before
    assert isinstance(results, Generator)
    results.close()
    assert threading.active_count() == before


def test_with_one_worker_nothing_runs_before_it_is_requested() -> None:
    begun: list[int] = []
    jobs = [lambda number=number: begun.append(number) for number in range(5)]
    results = ahead(SystemThreads(), jobs, 1)
    next(results)
    assert begun == [0]
