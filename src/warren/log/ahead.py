"""Results in order, computed ahead by a few threads while the one who asked works on the last of them.

    threads    job 5 · job 6            at most `depth` results beyond what was asked for
    waiting    4
    asked      0 1 2 3

A merge gathers its next pieces while the writer checksums and writes the last one. An error of a job comes out where
its result would have; whoever stops asking (closes the iterator) stops the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from warren.base.threads import Threads

Result = TypeVar("Result")


def ahead(threads: Threads, jobs: Sequence[Callable[[], Result]], worker_count: int) -> Iterator[Result]:
    """The jobs' results, in order. With fewer than two workers each job runs when it is asked for."""
    if worker_count < 2 or len(jobs) < 2:
        return (job() for job in jobs)
    return _Ahead(threads, jobs, worker_count).results()


class _Ahead(Generic[Result]):
    def __init__(self, threads: Threads, jobs: Sequence[Callable[[], Result]], worker_count: int) -> None:
        self._threads = threads
        self._jobs = jobs
        self._worker_count = worker_count
        self._changed = threads.condition()
        self._begun = 0
        self._asked = 0
        self._is_closed = False
        self._done: dict[int, Result | BaseException] = {}

    def results(self) -> Iterator[Result]:
        running = [self._threads.start(f"ahead-{number}", self._work) for number in range(self._worker_count)]
        try:
            for number in range(len(self._jobs)):
                yield self._result_of(number)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            for thread in running:
                thread.join()

    def _result_of(self, number: int) -> Result:
        with self._changed:
            self._asked = number
            self._changed.notify_all()
            while number not in self._done:
                self._changed.wait()
            result = self._done.pop(number)
        if isinstance(result, BaseException):
            raise result
        return result

    def _work(self) -> None:
        while (number := self._begin()) is not None:
            try:
                result: Result | BaseException = self._jobs[number]()
            except BaseException as error:
                result = error
            with self._changed:
                self._done[number] = result
                self._changed.notify_all()

    def _begin(self) -> int | None:
        """The number of the next job, once it is near enough to what was asked for."""
        with self._changed:
            while not self._is_closed and self._begun < len(self._jobs):
                if self._begun <= self._asked + self._worker_count:
                    self._begun += 1
                    return self._begun - 1
                self._changed.wait()
        return None
