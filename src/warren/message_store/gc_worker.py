"""The collector's own thread: garbage is looked for now and then, and whenever somebody asks.

An error ends a turn, not the thread: it is told as an alarm until a later turn goes well.
"""

from __future__ import annotations

from collections.abc import Sequence

from warren.base.errors import WarrenError
from warren.base.threads import Running, Threads
from warren.message_store.gc import Collector


class GcWorker:
    def __init__(self, threads: Threads, collectors: Sequence[Collector], seconds: float) -> None:
        self._collectors = collectors
        self._seconds = seconds
        self._bell = threads.condition()
        self._is_rung = False
        self._is_stopping = False
        self._failure: WarrenError | None = None
        self.turns = 0  # that have ended
        self._running: Running = threads.start("warren-store-gc", self._run)

    def ring(self) -> None:
        """Look now."""
        with self._bell:
            self._is_rung = True
            self._bell.notify_all()

    def stop(self) -> None:
        """End, when the present turn is over."""
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        self._running.join()

    def alarms(self) -> list[str]:
        failure = self._failure
        told = [f"garbage in the message store is not collected: {failure.what}"] if failure is not None else []
        return [*told, *(alarm for collector in self._collectors for alarm in collector.alarms())]

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_rung and not self._is_stopping:
                    self._bell.wait(self._seconds)
                self._is_rung = False
                if self._is_stopping:
                    return
            try:
                self._turn()
            except WarrenError as error:
                self._failure = error
            self.turns += 1

    def _turn(self) -> None:
        """As long as there is something to do: what was copied may soon be garbage, too, but not at once."""
        for collector in self._collectors:
            while collector.run().released and not self._is_stopping:
                continue
        self._failure = None
