"""Changes of the catalog, and what follows from them in memory, in one order.

    work, in the catalog: 1 2 3 … ──▶ in the log ──▶ durable, several at once ──▶ follow, in memory: 1, then 2, then 3 …
                                      appended       prepare

The catalog does one change after the other, and makes several durable together. Whoever is durable first must not be
the first to tell the routing, or a queue would be forgotten before it is known. So each change takes a number as the
last thing that it does, and what follows from it waits until those before it have followed.

Always true: an answer follows everything that was changed before it was found; of a change that failed nothing follows,
and of a change that is durable everything does, also if `appended` or `prepare` raises. `appended` runs when the change
can be refused no more and is not durable yet, `prepare` when it is durable and before it follows. Both run without a
lock, and neither may wait for other changes. Every number that was taken is released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from warren.base.ids import Epoch
from warren.base.threads import Condition
from warren.catalog.catalog import Catalog
from warren.catalog.change import Change

Result = TypeVar("Result")


class OrderedChanges:
    def __init__(self, catalog: Catalog, lock: Condition) -> None:
        """`lock` is held while something follows."""
        self._catalog = catalog
        self._lock = lock
        self._newest = 0
        self._open: deque[int] = deque()  # changes from which nothing has followed yet

    def change(
        self,
        work: Callable[[Change], Result],
        follow: Callable[[Result], None] = lambda result: None,
        prepare: Callable[[Result], None] = lambda result: None,
        appended: Callable[[Result], None] = lambda result: None,
    ) -> Result:
        numbers: list[int] = []

        def numbered(change: Change) -> Result:
            result = work(change)
            numbers.append(self._taken())
            return result

        try:
            result, epoch = self._catalog.submit(numbered)
        except BaseException:
            self._release(numbers)
            raise
        try:
            appended(result)
        finally:
            self._settle(numbers, epoch)
            try:
                prepare(result)
            finally:
                self._follow(numbers[0], follow, result)
        return result

    def _settle(self, numbers: list[int], epoch: Epoch) -> None:
        try:
            self._catalog.settle(epoch)
        except BaseException:  # the log has failed
            self._release(numbers)
            raise

    def _follow(self, number: int, follow: Callable[[Result], None], result: Result) -> None:
        """In the order of numbers. Whatever is raised on the way, those behind it do not wait for this one."""
        with self._lock:
            try:
                while self._open[0] != number:
                    self._lock.wait()
                follow(result)
            finally:
                self._open.remove(number)
                self._lock.notify_all()

    def _taken(self) -> int:
        """Called by one thread at a time, in the order of changes."""
        with self._lock:
            self._newest += 1
            self._open.append(self._newest)
            return self._newest

    def _release(self, numbers: list[int]) -> None:
        with self._lock:
            for number in numbers:
                self._open.remove(number)
            self._lock.notify_all()
