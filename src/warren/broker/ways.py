"""Ways from queue to queue: where a message comes to if a queue sends it to an exchange. Dead letters take them.

    reach     before anything has changed: the queues that may be reached, so that they can be locked
    forward   in the middle of the work, with those locks held: where this message really goes

A vhost that is served goes by its routing (`RoutedDeadLetterRoutes`). In a program that has queues and no exchanges there is one
way only: the default exchange, where the routing key is the name of a queue (`NamedDeadLetterRoutes`).

Between the two questions somebody may change the routing. Then a message may lead to a queue that is not held: it stays
where it is, and is tried again with other locks. Whoever asks for `leads` and `forward` holds locks of queues: there
nobody waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from warren.amqp.types import Table
from warren.base.ids import QueueId
from warren.base.threads import Condition
from warren.broker.exchanges.copies import OPEN, copies_of
from warren.broker.exchanges.errors import BadCopies
from warren.broker.exchanges.routing import Routing


class DeadLetterRoutes(Protocol):
    def reach(self, exchange: str, routing_key: str | None) -> Collection[QueueId]:
        """The queues that a message may come to, with this routing key, or with any. None, if there is no exchange."""
        ...

    def leads(self, exchange: str, routing_key: str | None) -> bool:
        """Whether a message may come to any queue at all."""
        ...

    def forward(self, exchange: str, routing_key: str, headers: Table) -> Sequence[QueueId]:
        """The queues that a message comes to now. None, if there is no exchange."""
        ...


class RoutedDeadLetterRoutes:
    """By the exchanges of a vhost. Is `DeadLetterRoutes`."""

    def __init__(self, routing: Routing, lock: Condition) -> None:
        self._routing = routing
        self._lock = lock

    def reach(self, exchange: str, routing_key: str | None) -> Collection[QueueId]:
        with self._lock:
            row = self._routing.exchange(exchange)
            return frozenset() if row is None else self._routing.reachable(row.id, routing_key)

    def leads(self, exchange: str, routing_key: str | None) -> bool:
        return bool(self.reach(exchange, routing_key))

    def forward(self, exchange: str, routing_key: str, headers: Table) -> Sequence[QueueId]:
        with self._lock:
            row = self._routing.exchange(exchange)
            if row is None:
                return ()
            try:
                return self._routing.forward(row.id, routing_key, headers).queues
            except BadCopies:  # no publisher gets this far with such a header
                return self._routing.forward(row.id, routing_key, _without_copies(headers)).queues


class NamedDeadLetterRoutes:
    """By the names of queues. Is `DeadLetterRoutes`."""

    def __init__(
        self,
        start: Callable[[str], QueueId | None],
        started: Callable[[str], QueueId | None],
        every: Callable[[], Collection[QueueId]],
    ) -> None:
        """`start`: the queue of a name, which is started if it was not; `started`: only if it was."""
        self._start = start
        self._started = started
        self._every = every

    def reach(self, exchange: str, routing_key: str | None) -> Collection[QueueId]:
        if exchange:
            return ()
        return self._every() if routing_key is None else _found(self._start, [routing_key])

    def leads(self, exchange: str, routing_key: str | None) -> bool:
        return not exchange and (routing_key is None or self._started(routing_key) is not None)

    def forward(self, exchange: str, routing_key: str, headers: Table) -> Sequence[QueueId]:
        return () if exchange else _found(self._started, [routing_key, *_copies(headers)])


class _NoDeadLetterRoutes:
    def reach(self, exchange: str, routing_key: str | None) -> Collection[QueueId]:
        return ()

    def leads(self, exchange: str, routing_key: str | None) -> bool:
        return False

    def forward(self, exchange: str, routing_key: str, headers: Table) -> Sequence[QueueId]:
        return ()


NO_DEAD_LETTER_ROUTES: DeadLetterRoutes = _NoDeadLetterRoutes()  # for a queue that stands alone


def _found(find: Callable[[str], QueueId | None], names: Sequence[str]) -> list[QueueId]:
    return sorted({id_ for id_ in map(find, names) if id_ is not None})


def _copies(headers: Table) -> Sequence[str]:
    try:
        return copies_of(headers).open
    except BadCopies:
        return ()


def _without_copies(headers: Table) -> Table:
    return {name: value for name, value in headers.items() if name != OPEN}
