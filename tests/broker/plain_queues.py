"""Queues as plain lists: the promises of a broker in as few lines as possible. The oracle of crash tests.

    put · get · ack · requeue · reject · expire · purge · page       what a client sees while the broker runs
    stopped · begun · failed                                         what stops, starts and failures make of it
    standing()                                                       what a restart must find after a power cut now
    States                                                           … or earlier, down to the last acknowledged state

A message is ready or pending, in one list by the order in which it came. Of a queue that did not stop cleanly all that
is found counts as delivered before; after a clean stop only what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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
    rejects: bool = False  # what is over the limit, instead of dropping the oldest
    is_clean: bool = False  # the last thing that it wrote was that it stopped
    levels_begun: int = 0  # … but these levels have begun again
    messages: list[Plain] = field(default_factory=list)

    def in_order(self) -> list[Plain]:
        return sorted(self.messages, key=lambda each: -each.priority)  # keeps the order of those that are alike

    def ready(self) -> list[Plain]:
        return [each for each in self.in_order() if not each.is_pending]

    def pending(self) -> list[Plain]:
        return [each for each in self.in_order() if each.is_pending]

    def afresh(self) -> PlainQueue:
        """The same without messages."""
        return replace(self, is_clean=False, messages=[])

    def remove(self, going: Iterable[Plain]) -> None:
        gone = {id(each) for each in going}
        self.messages = [each for each in self.messages if id(each) not in gone]

    def found(self) -> tuple[Found, ...]:
        survivors = [each for each in self.in_order() if self.durable and each.persistent]
        return tuple((each.body, each.was_delivered or not self._is_clean_at(each.priority)) for each in survivors)

    def _is_clean_at(self, level: int) -> bool:
        return self.is_clean and level >= self.levels_begun


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

    def is_refused(self, names: Sequence[str], count: int) -> bool:
        limits = [(self[name].max_length, self[name]) for name in names if self[name].rejects]
        return any(most is not None and len(queue.ready()) + count > most for most, queue in limits)

    def get(self, name: str, count: int, now_ms: int) -> list[Plain]:
        """What is expired at the head goes first. Read `was_delivered` of each before `handed`."""
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
        self._release(name, going, now_ms)

    def expire(self, name: str, now_ms: int) -> None:
        while (ready := self[name].ready()) and ready[0].due_ms is not None and ready[0].due_ms <= now_ms:
            self._release(name, ready[:1], now_ms)

    def purge(self, name: str) -> int:
        going = self[name].ready()
        self[name].remove(going)
        return len(going)

    # -- what becomes of all of it -------------------------------------------------------------------------------

    def stopped(self, name: str) -> None:
        """Cleanly, and so that it is known."""
        self[name].is_clean = True

    def begun(self, name: str) -> None:
        """A process has started the queue, after any stop."""
        queue = self[name]
        queue.messages = [each for each in queue.messages if queue.durable and each.persistent]
        for each in queue.messages:
            each.is_pending, each.was_delivered = False, each.was_delivered or not queue.is_clean
        queue.is_clean, queue.levels_begun = False, 0

    def failed(self, name: str) -> None:
        """The present incarnation has ended, and the next one found what was written."""
        self[name].is_clean = False
        self.begun(name)

    def standing(self) -> Standing:
        return {name: queue.found() for name, queue in self.by_name.items()}

    # -- helpers -------------------------------------------------------------------------------------------------

    def _bound(self, name: str, now_ms: int) -> None:
        queue = self[name]
        if queue.max_length is not None and len(ready := queue.ready()) > queue.max_length:
            self._release(name, ready[: len(ready) - queue.max_length], now_ms)

    def _release(self, name: str, going: Sequence[Plain], now_ms: int) -> None:
        queue = self[name]
        queue.remove(going)
        target = None if queue.dead_letter is None else self.by_name.get(queue.dead_letter)
        if target is not None:
            assert target.ttl_ms is None and target.max_length is None, "targets of these tests take everything"
            target.messages += [Plain(each.body, each.persistent and target.durable) for each in going]


class States:
    """The states that a restart may find: one after each step of a client, in order.

    A session is whole or not there, and sessions of one client follow one another: so what is found is one of these,
    not older than the newest one whose durability the client knows or can infer. Each state is noted before the call
    that leads to it, because it may be durable before the call returns.
    """

    def __init__(self, first: Standing) -> None:
        self._states = [first]
        self._marks: list[tuple[int, int]] = [(0, 0)]  # states, and the epochs they are durable with
        self._durable = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def last(self) -> Standing:
        return self._states[-1]

    def coming(self, state: Standing) -> None:
        self._states.append(state)

    def note_durable(self, epoch: int, durable: int) -> None:
        """The call has returned, and what was done by it is durable with this epoch; this one is, by now."""
        self._marks.append((len(self._states) - 1, epoch))
        self._durable = max(self._durable, durable)

    @property
    def acknowledged(self) -> int:
        return max(state for state, epoch in self._marks if epoch <= self._durable)

    def judge(self, found: Standing, was_begun: bool = False) -> None:
        """Raise if the state is not an allowed one. `was_begun`: by a process whose start was cut short; it may have
        recorded of some queues that their stop is not clean any more."""
        own = {name: found.get(name, ()) for name in self.last}
        allowed = self._states[self.acknowledged :]
        if own in allowed or (was_begun and any(_is_or_flagged(own, state) for state in allowed)):
            return
        nearest = min(allowed, key=lambda state: sum(state[name] != own[name] for name in own))
        differ = [
            f"{name}: {short(own[name])} is not {short(nearest[name])}" for name in own if own[name] != nearest[name]
        ]
        raise AssertionError(f"none of {len(allowed)} states behind number {self.acknowledged}: " + "; ".join(differ))


def _is_or_flagged(found: Standing, state: Standing) -> bool:
    """The same messages, and perhaps more flags."""
    return all(
        [body for body, _ in found[name]] == [body for body, _ in contents]
        and all(flag or not wanted for (_, flag), (_, wanted) in zip(found[name], contents, strict=True))
        for name, contents in state.items()
    )


def short(found: Iterable[Found]) -> str:
    """Bodies up to their first bar; a star is a flag."""
    return " ".join(f"{body.partition(b'|')[0].decode()}{'*' if flag else ''}" for body, flag in found) or "nothing"
