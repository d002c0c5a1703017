"""What a queue in a Python program is asked to do, ours or another, so that all are measured by one and the same code.

    put · put_many         returns when the contender holds itself to have it: what that is worth, `promise` says
    get · get_many         taken and acknowledged: the contender will not give it again
    settle                 whatever is left to be waited for; the clock runs until it has returned

A contender without a call for many has `together` = 1. `put_soon` is a put that is not waited for, where there is
one; it is durable when `settle` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from tools.bench.queue.bodies import bodies, check_bodies
from warren.base.errors import Damage

TOGETHER = 1000  # bodies in one call, of those who have one for many
PHASE_SECONDS = 0.5


class Contender(Protocol):
    name: str
    promise: str  # what is safe when a put returns
    together: int  # bodies in one call of put_many or get_many

    def put(self, body: bytes) -> None: ...

    def put_many(self, some: Sequence[bytes]) -> None: ...

    def get(self) -> bytes | None: ...

    def get_many(self, count: int) -> list[bytes]: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a phase: messages and seconds."""

    messages: int
    seconds: float

    def of_singles(self) -> Budget:
        return Budget(max(1, self.messages // 10), self.seconds)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Messages per second."""

    put_many: float
    put: float
    put_soon: float
    get_many: float
    get: float

    @property
    def put_best(self) -> float:
        return max(self.put_many, self.put)

    @property
    def get_best(self) -> float:
        return max(self.get_many, self.get)


def speeds(contender: Contender, budget: Budget, size_bytes: int) -> Speeds:
    """Put many, put singly, get many, get singly. Of a phase that is cut short the rate is that of what was done."""
    singles = budget.of_singles()
    ready = bodies(0, budget.messages + 2 * singles.messages, size_bytes)
    putting = _Putting(contender, ready)
    put_many = putting.together(budget)
    together = putting.count
    put = putting.singly(contender.put, singles)
    soon = getattr(contender, "put_soon", None)
    put_soon = put if soon is None else putting.singly(soon, singles)
    getting = _Getting(contender, putting.count)
    get_many = getting.together(together, budget.seconds)
    get = getting.singly(min(putting.count - together, singles.messages), singles.seconds)
    check_bodies(contender.name, getting.got, size_bytes)
    return Speeds(put_many, put, put_soon, get_many, get)


class _Putting:
    def __init__(self, contender: Contender, ready: list[bytes]) -> None:
        self._contender = contender
        self._ready = ready
        self.count = 0

    def together(self, budget: Budget) -> float:
        first, last, start = self.count, min(self.count + budget.messages, len(self._ready)), perf_counter()
        while self.count < last and perf_counter() - start < budget.seconds:
            some = self._ready[self.count : min(self.count + self._contender.together, last)]
            self._contender.put_many(some)
            self.count += len(some)
        return self._rate(first, start)

    def singly(self, put: Callable[[bytes], None], budget: Budget) -> float:
        first, last, start = self.count, min(self.count + budget.messages, len(self._ready)), perf_counter()
        while self.count < last and perf_counter() - start < budget.seconds:
            put(self._ready[self.count])
            self.count += 1
        return self._rate(first, start)

    def _rate(self, first: int, start: float) -> float:
        self._contender.settle()
        return (self.count - first) / (perf_counter() - start)


class _Getting:
    def __init__(self, contender: Contender, count: int) -> None:
        self._contender = contender
        self._left = count
        self.got: list[bytes] = []

    def together(self, count: int, seconds: float) -> float:
        first, start = len(self.got), perf_counter()
        while (wanted := first + count - len(self.got)) > 0 and perf_counter() - start < seconds:
            self._take(self._contender.get_many(min(self._contender.together, wanted)))
        return self._rate(first, start)

    def singly(self, count: int, seconds: float) -> float:
        first, start = len(self.got), perf_counter()
        while len(self.got) < first + count and perf_counter() - start < seconds:
            body = self._contender.get()
            self._take([] if body is None else [body])
        return self._rate(first, start)

    def _take(self, some: list[bytes]) -> None:
        if not some or len(some) > self._left:
            raise Damage(f"{self._contender.name}: {self._left} bodies are left in it, it gave {len(some)}")
        self._left -= len(some)
        self.got += some

    def _rate(self, first: int, start: float) -> float:
        self._contender.settle()
        return (len(self.got) - first) / (perf_counter() - start)
