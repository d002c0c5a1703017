"""When which queue is to be looked at: for a message that expires at its head, or because nobody uses it.

    at(queue, due) ──▶ heap of (due, queue) ──▶ a thread sleeps until the first is due, and calls

Queues note a time when their head changes; one that comes too early is no harm: the queue looks, and notes the next.
Times are those of the clock that never jumps, in ms. Without the thread (tests) somebody calls `batch`.

A call that raises is an alarm (base/threads), and is repeated after a back-off: other keys are called in time. The
alarm is cleared when every key that failed has had a good call.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from warren.base.environment import Clock
from warren.base.threads import Background, StartedThread, Threads
from warren.broker.queue_arguments import monotonic_ms


class Timers:
    def __init__(
        self, threads: Threads, clock: Clock, call: Callable[[int], None], background: Background | None = None
    ) -> None:
        self._threads = threads
        self._clock = clock
        self._call = call
        self._task = (background or Background()).task("timetable", "a queue is not expired or deleted in time")
        self._failing: set[int] = set()  # keys whose last call failed
        self._bell = threads.condition()
        self._due: list[tuple[int, int]] = []
        self._is_over = False
        self._thread: StartedThread | None = None

    def begin(self) -> None:
        self._thread = self._threads.start("warren-timetable", self._run)

    def at(self, key: int, due_ms: int) -> None:
        with self._bell:
            is_first = not self._due or due_ms < self._due[0][0]
            heapq.heappush(self._due, (due_ms, key))
            if is_first:
                self._bell.notify_all()

    def run_due(self) -> int:
        """Call for everything that is due; how often."""
        due = self._take_due()
        for key in due:
            self._call_for(key)
        return len(due)

    def stop(self) -> None:
        with self._bell:
            self._is_over = True
            self._bell.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _call_for(self, key: int) -> None:
        try:
            self._call(key)
        except Exception as error:
            self._failing.add(key)
            self._task.failed(error)
            self.at(key, monotonic_ms(self._clock) + int(self._task.retry_seconds * 1000))
            return
        self._failing.discard(key)
        if not self._failing:
            self._task.succeeded()

    def _take_due(self) -> list[int]:
        now = monotonic_ms(self._clock)
        due: dict[int, None] = {}
        with self._bell:
            while self._due and self._due[0][0] <= now:
                due[heapq.heappop(self._due)[1]] = None
        return list(due)

    def _run(self) -> None:
        while True:
            if not self._sleep():
                return
            self.run_due()

    def _sleep(self) -> bool:
        """Until something is due, or may be; whether to go on."""
        with self._bell:
            if not self._is_over:
                left_ms = self._due[0][0] - monotonic_ms(self._clock) if self._due else None
                if left_ms is None or left_ms > 0:
                    self._bell.wait(None if left_ms is None else left_ms / 1000)
        return not self._is_over
