"""A backing queue that fails on request."""

from __future__ import annotations

from typing import Any, cast

from warren.queues.backing_queue import BackingQueue


class Faults:
    """`faults["fetch"] = error`: the next call of `fetch` raises it; `faults.always` is raised again and again."""

    def __init__(self) -> None:
        self.once: dict[str, BaseException] = {}
        self.always: dict[str, BaseException] = {}
        self.created_count = 0

    def over(self, queue: BackingQueue) -> BackingQueue:
        self.created_count += 1
        return cast(BackingQueue, FaultyQueue(queue, self))

    def check(self, name: str) -> None:
        error = self.once.pop(name, None) or self.always.get(name)
        if error is not None:
            raise error


class FaultyQueue:
    def __init__(self, inner: BackingQueue, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        self._faults.check(name)
        return getattr(self._inner, name)
