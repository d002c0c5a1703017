"""Queues as plain lists: what a broker promises, said in as few lines as can be. The oracle of crash tests.

    put · get · ack · requeue · reject · expire · purge · page       what a client sees while the broker runs
    stopped · begun · failed                                         what stops, starts and failures make of it
    standing()                                                       what a restart has to find if the power goes now

A message is ready or pending, in one list by the order in which it came. Of a queue that did not stop cleanly all that
is found counts as delivered before; after a clean stop only what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Found = tuple[bytes, bool]  # a body, and whether it is flagged as redelivered
Standing = dict[str, tuple[Found, ...]]  # by queue


@dataclass(slots=True, eq=False)
class Plain:
    """One message."""

    body: bytes
    persistent: bool = True
    due_ms: int | None = None
    priority: int = 0
    was_delivered: bool = False
    is_pending: bool = False


@dataclass(slots=True)
class PlainQueue:
    durable: bool = True
    ttl_ms: int | None = None
    max_length: int | None = None
    dead_letter: str | None = None
    max_priority: int = 0
    is_clean: bool = False  # the last thing that it wrote was that it stopped
    messages: list[Plain] = field(default_factory=list)

    def in_order(self) -> list[Plain]:
        return sorted(self.messages, key=lambda each: -each.priority)  # keeps the order of those that are alike

    def ready(self) -> list[Plain]:
        return [each for each in self.in_order() if not each.is_pending]

    def pending(self) -> list[Plain]:
        return [each for each in self.in_order() if each.is_pending]

    def remove(self, going: Iterable[Plain]) -> None:
        gone = {id(each) for each in going}
        self.messages = [each for each in self.messages if id(each) not in gone]

    def found(self) -> tuple[Found, ...]:
        kept = [each for each in self.in_order() if self.durable and each.persistent]
        return tuple((each.body, each.was_delivered or not self.is_clean) for each in kept)


@dataclass(slots=True)
class PlainQueues:
    by_name: dict[str, PlainQueue]

    def __getitem__(self, name: str) -> PlainQueue:
        return self.by_name[name]

    # -- what clients do -----------------------------------------------------------------------------------------

    def put(
        self,
        names: Sequence[str],
        bodies: Sequence[bytes],
        now_ms: int,
        persistent: bool = True,
        ttl_ms: int | None = None,
        priority: int = 0,
    ) -> None:
        for name in names:
            queue = self[name]
            ends = [now_ms + ttl for ttl in (ttl_ms, queue.ttl_ms) if ttl is not None]
            level = min(priority, queue.max_priority)
            for body in bodies:
                queue.messages.append(Plain(body, persistent and queue.durable, min(ends) if ends else None, level))
        for name in names:
            self._bound(name, now_ms)

    def get(self, name: str, count: int, now_ms: int) -> list[Plain]:
        """What is expired at the head goes first. Whether each was delivered before is to be asked before `handed`."""
        self.expire(name, now_ms)
        return self[name].ready()[:count]

    def handed(self, taken: Iterable[Plain]) -> None:
        for each in taken:
            each.is_pending = each.was_delivered = True

    def ack(self, name: str, going: Sequence[Plain]) -> None:
        self[name].remove(going)

    def requeue(self, going: Iterable[Plain]) -> None:
        for each in going:
            each.is_pending = False

    def reject(self, name: str, going: Sequence[Plain], now_ms: int) -> None:
        self._let_go(name, going, now_ms)

    def expire(self, name: str, now_ms: int) -> None:
        while (ready := self[name].ready()) and ready[0].due_ms is not None and ready[0].due_ms <= now_ms:
            self._let_go(name, ready[:1], now_ms)

    def purge(self, name: str) -> int:
        going = self[name].ready()
        self[name].remove(going)
        return len(going)

    # -- what becomes of all of it -------------------------------------------------------------------------------

    def stopped(self, name: str) -> None:
        """Cleanly, and so that it is known."""
        self[name].is_clean = True

    def begun(self, name: str) -> None:
        """By whoever finds it, after any stop."""
        queue = self[name]
        queue.messages = [each for each in queue.messages if queue.durable and each.persistent]
        for each in queue.messages:
            each.is_pending, each.was_delivered = False, each.was_delivered or not queue.is_clean
        queue.is_clean = False

    def failed(self, name: str) -> None:
        """Its present life has ended, and the next one found what was written."""
        self[name].is_clean = False
        self.begun(name)

    def standing(self) -> Standing:
        return {name: queue.found() for name, queue in self.by_name.items()}

    # -- helpers -------------------------------------------------------------------------------------------------

    def _bound(self, name: str, now_ms: int) -> None:
        queue = self[name]
        if queue.max_length is not None and len(ready := queue.ready()) > queue.max_length:
            self._let_go(name, ready[: len(ready) - queue.max_length], now_ms)

    def _let_go(self, name: str, going: Sequence[Plain], now_ms: int) -> None:
        queue = self[name]
        queue.remove(going)
        target = None if queue.dead_letter is None else self.by_name.get(queue.dead_letter)
        if target is not None:
            assert target.ttl_ms is None and target.max_length is None, "targets of these tests take everything"
            target.messages += [Plain(each.body, each.persistent and target.durable) for each in going]
