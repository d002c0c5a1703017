"""Timers: calls at a given time, in one thread. Queues use them for expiring messages and for `x-expires`.

    call_at(due, callback, queue) ──▶ heap by due time ──▶ a thread sleeps until the first is due, and calls

A queue sets a timer when its head changes. A timer that fires early is harmless: the queue checks, and sets the next.
Times are monotonic, in ms. Equal calls (callback and arguments) that are due together are made once. Without the thread
(tests) `run_due` makes the calls.

A call that raises is an alarm (base/threads), and is repeated after a back-off; other calls are made in time. The alarm
is cleared when every call that failed has succeeded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from warren.base.environment import Clock, monotonic_ms
from warren.base.threads import Background, StartedThread, Threads


class TimedCall(NamedTuple):
    callback: Callable[..., None]
    arguments: tuple[int, ...]


class Timers:
    def __init__(self, threads: Threads, clock: Clock, background: Background | None = None) -> None:
        self._threads = threads
        self._clock = clock
        self._task = (background or Background()).task("timetable", "a queue is not expired or deleted in time")
        self._failing: set[TimedCall] = set()  # whose last call failed
        self._bell = threads.condition()
        self._due: list[tuple[int, int, TimedCall]] = []  # by time, then in the order of `call_at`
        self._numbers = count()
        self._is_over = False
        self._thread: StartedThread | None = None

    def begin(self) -> None:
        self._thread = self._threads.start("warren-timetable", self._run)

    def call_at(self, due_ms: int, callback: Callable[..., None], *arguments: int) -> None:
        call = TimedCall(callback, arguments)
        with self._bell:
            is_first = not self._due or due_ms < self._due[0][0]
            heapq.heappush(self._due, (due_ms, next(self._numbers), call))
            if is_first:
                self._bell.notify_all()

    def run_due(self) -> int:
        """Make all calls that are due; returns how many."""
        due = self._take_due()
        for call in due:
            self._run_call(call)
        return len(due)

    def stop(self) -> None:
        with self._bell:
            self._is_over = True
            self._bell.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._task.succeeded()  # a deleted vhost leaves no alarm

    def _run_call(self, call: TimedCall) -> None:
        try:
            call.callback(*call.arguments)
        except Exception as error:
            self._failing.add(call)
            self._task.failed(error)
            self.call_at(
                monotonic_ms(self._clock) + int(self._task.retry_seconds * 1000), call.callback, *call.arguments
            )
            return
        self._failing.discard(call)
        if not self._failing:
            self._task.succeeded()

    def _take_due(self) -> list[TimedCall]:
        now = monotonic_ms(self._clock)
        due: dict[TimedCall, None] = {}
        with self._bell:
            while self._due and self._due[0][0] <= now:
                due[heapq.heappop(self._due)[2]] = None
        return list(due)

    def _run(self) -> None:
        while True:
            if not self._sleep():
                return
            self.run_due()

    def _sleep(self) -> bool:
        """Until something is due, or may be; whether to continue."""
        with self._bell:
            if not self._is_over:
                left_ms = self._due[0][0] - monotonic_ms(self._clock) if self._due else None
                if left_ms is None or left_ms > 0:
                    self._bell.wait(None if left_ms is None else left_ms / 1000)
        return not self._is_over
