"""The collector's own thread: garbage is looked for now and then, and whenever somebody asks.

What is dead is noted by whoever lets go of it, mostly. Not all is: the runs of a queue that is deleted are not looked
at one by one. So once in a long while, and when somebody says so, every file is counted again.

An exception ends a turn, not the thread: it is an alarm until a later turn is good (base/background). While turns fail,
rings wait for the back-off; `turn` does not, since its caller waits for the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from warren.base.background import Background
from warren.base.clock import Clock
from warren.base.threads import StartedThread, Threads
from warren.message_store.gc import Collector


class CollectorThread:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        background: Background,
        collectors: Sequence[Collector],
        seconds: float,
        census_seconds: float,
    ) -> None:
        self._clock = clock
        self._collectors = collectors
        self._seconds = seconds
        self._census_seconds = census_seconds
        self._counted_ns = clock.monotonic_ns()
        self._bell = threads.condition()
        self._is_rung = False
        self._is_stopping = False
        self._is_at_work = False
        self._is_awaited = False  # somebody waits in `turn`
        self._task = background.task("store-gc", "garbage in the message store is not collected")
        self.turns = 0  # that have ended
        self._running: StartedThread = threads.start("warren-store-gc", self._run)

    def ring(self) -> None:
        """Look now."""
        with self._bell:
            self._is_rung = True
            self._bell.notify_all()

    def turn(self) -> None:
        """Look now; return when a turn that began behind this has ended."""
        with self._bell:
            wanted = self.turns + (2 if self._is_at_work else 1)
            self._is_rung = self._is_awaited = True
            self._bell.notify_all()
            while self.turns < wanted and not self._is_stopping:
                self._bell.wait()

    def stop(self) -> None:
        """End, when the present turn is over."""
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        self._running.join()

    def alarms(self) -> list[str]:
        return [*self._task.alarms(), *(alarm for collector in self._collectors for alarm in collector.alarms())]

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_rung and not self._is_stopping:
                    self._bell.wait(self._seconds)
                self._is_rung = self._is_awaited = False
                if self._is_stopping:
                    return
                self._is_at_work = True
            is_good = self._task.run(self._turn)
            with self._bell:
                self.turns += 1
                self._is_at_work = False
                self._bell.notify_all()
                if not is_good:
                    self._task.back_off(self._bell, self._clock, lambda: self._is_stopping or self._is_awaited)

    def _turn(self) -> None:
        """As long as there is something to do: what was copied may soon be garbage, too, but not at once."""
        now_ns = self._clock.monotonic_ns()
        is_census_due = now_ns - self._counted_ns >= self._census_seconds * 1e9
        if is_census_due:
            self._counted_ns = now_ns
        for collector in self._collectors:
            if is_census_due:
                collector.count_again()
            while collector.run().released and not self._is_stopping:
                continue
