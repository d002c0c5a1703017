"""Routing in one vhost: from an exchange, a routing key and headers to the queues that get the message.

    publish ──▶ exchange ──binding──▶ queue
                   │ └─────binding──▶ exchange ──▶ …          each exchange is visited once, so circles end
                   └ nothing matched ▶ alternate exchange ▶ …  also one that was reached by a binding

It is filled from the catalog's rows (`load`) and follows them by add and remove. Exchanges and queues are ids; names
are asked for in two places only: the default exchange, and an alternate exchange, which may be declared later or never.

Always true: a queue stands once in a result, results are in the order of ids, which is the order of declaration; the
same message over the same rows comes to the same result in every life. A result that no headers were asked for is
remembered by (exchange, routing key); any change of rows forgets them all. A change that is refused changes nothing.

As RabbitMQ does, an exchange that handed a message on to another exchange has matched, whatever comes of it there.
Unlike it, the default exchange also works as somebody's alternate exchange.

Not here: permissions, `mandatory`, direct reply-to. Calls come from one thread at a time; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from warren.amqp.types import Table
from warren.base.errors import Misuse
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.broker.exchanges.copies import NO_COPIES, Copies, copies_of
from warren.broker.exchanges.default import Default
from warren.broker.exchanges.direct import Direct
from warren.broker.exchanges.errors import InternalExchange, UnknownExchange, UnknownExchangeType
from warren.broker.exchanges.fanout import Fanout
from warren.broker.exchanges.headers import Headers
from warren.broker.exchanges.matching import Destination, Matcher, destination_of
from warren.broker.exchanges.topic import Topic
from warren.catalog.bindings import Binding
from warren.catalog.exchanges import Exchange
from warren.catalog.queues import Queue

ALTERNATE: Final = "alternate-exchange"
REMEMBERED_MAX: Final = 16_384  # results; keys may be random, so it must end somewhere
KINDS: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}
_NO_HEADERS: Final[Table] = {}


class Routed(NamedTuple):
    queues: tuple[QueueId, ...]
    copies: Copies  # if some are blind, the headers are stored without them


class _Known(NamedTuple):
    row: Exchange
    matcher: Matcher
    bound: dict[BindingId, Binding]  # from it


class Routing:
    __slots__ = ("_exchanges", "_names", "_queue_names", "_queues", "_reachable", "_remembered", "_to", "version")

    def __init__(self) -> None:
        self._exchanges: dict[ExchangeId, _Known] = {}
        self._names: dict[str, ExchangeId] = {}
        self._queues: dict[QueueId, str] = {}
        self._queue_names: dict[str, QueueId] = {}
        self._to: dict[Destination, dict[BindingId, Binding]] = {}
        self._remembered: dict[tuple[ExchangeId, str], Routed] = {}
        self._reachable: dict[tuple[ExchangeId, str | None], frozenset[QueueId]] = {}
        self.version = 0  # grows with every change of rows: what somebody else remembers is good as long as it stays

    # ---------------------------------------------------------------------------------------------------- messages

    def publish(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> Routed:
        """For a client's message."""
        known = self._known(exchange)
        if known.row.internal:
            raise InternalExchange(known.row.name)
        return self.forward(exchange, routing_key, headers)

    def forward(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> Routed:
        """For the broker's own messages (dead letters): internal exchanges take them."""
        copies = copies_of(headers) if headers else NO_COPIES
        if copies is not NO_COPIES:
            keys = dict.fromkeys((routing_key, *copies.open, *copies.blind))
            return Routed(self._walk(self._known(exchange), keys, headers)[0], copies)
        if (found := self._remembered.get((exchange, routing_key))) is not None:
            return found
        queues, looked_at_headers = self._walk(self._known(exchange), (routing_key,), headers)
        routed = Routed(queues, NO_COPIES)
        if not looked_at_headers:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[exchange, routing_key] = routed
        return routed

    def _walk(self, first: _Known, keys: Iterable[str], headers: Table) -> tuple[tuple[QueueId, ...], bool]:
        """The queues, and whether headers were looked at on the way."""
        queues: set[QueueId] = set()
        seen = {first.row.id}
        open_ = [first]
        looked_at_headers = False
        while open_:
            known = open_.pop()
            looked_at_headers |= known.matcher.looks_at_headers
            found = {each for key in keys for each in known.matcher.match(key, headers)} or self._alternate(known)
            for queue, exchange in found:
                if queue is not None:
                    queues.add(queue)
                elif exchange is not None and exchange not in seen:
                    seen.add(exchange)
                    open_.append(self._exchanges[exchange])
        return tuple(sorted(queues)), looked_at_headers

    def reachable(self, exchange: ExchangeId, routing_key: str | None = None) -> frozenset[QueueId]:
        """All queues that a message may come to from there: with this key, or with any, and with whatever headers, but
        for further keys in them. Remembered until a row changes."""
        found = self._reachable.get((exchange, routing_key))
        if found is None:
            found = self._reachable[exchange, routing_key] = self._reached(self._known(exchange), routing_key)
        return found

    def _reached(self, first: _Known, routing_key: str | None) -> frozenset[QueueId]:
        if routing_key is not None:
            matched, looked_at_headers = self._walk(first, (routing_key,), _NO_HEADERS)
            if not looked_at_headers:
                return frozenset(matched)
        queues: set[QueueId] = set()
        seen = {first.row.id}
        open_ = [first]
        while open_:
            known = open_.pop()
            if not known.row.name:
                return frozenset(self._queues)
            for queue, exchange in {*map(destination_of, known.bound.values()), *self._alternate(known)}:
                if queue is not None:
                    queues.add(queue)
                elif exchange is not None and exchange not in seen:
                    seen.add(exchange)
                    open_.append(self._exchanges[exchange])
        return frozenset(queues)

    def _alternate(self, known: _Known) -> set[Destination]:
        name = known.row.arguments.get(ALTERNATE)
        id_ = self._names.get(name) if isinstance(name, str) else None
        return set() if id_ is None else {Destination(None, id_)}

    # ------------------------------------------------------------------------------------------------------- rows

    def add_exchange(self, row: Exchange) -> None:
        if row.id in self._exchanges:
            return
        if row.name in self._names:
            raise Misuse(f"there is an exchange {row.name!r} already", "remove that one first")
        if row.name and row.type not in KINDS:
            raise UnknownExchangeType(row.type)
        self._changed()
        self._exchanges[row.id] = _Known(row, KINDS[row.type]() if row.name else Default(self._queue_names), {})
        self._names[row.name] = row.id

    def remove_exchange(self, id_: ExchangeId) -> list[Binding]:
        """The bindings from it and to it, which went with it."""
        known = self._known(id_)
        gone = {**known.bound, **self._to.get(Destination(None, id_), {})}
        for binding in gone.values():
            self.remove_binding(binding)
        self._changed()
        del self._exchanges[id_]
        del self._names[known.row.name]
        return list(gone.values())

    def add_queue(self, row: Queue) -> None:
        if self._queue_names.get(row.name, row.id) != row.id:
            raise Misuse(f"there is a queue {row.name!r} already", "remove that one first")
        self._changed()
        self._queues[row.id] = row.name
        self._queue_names[row.name] = row.id

    def remove_queue(self, id_: QueueId) -> list[Binding]:
        """The bindings to it, which went with it."""
        if id_ not in self._queues:
            raise Misuse(f"there is no queue {id_}")
        gone = list(self._to.get(Destination(id_, None), {}).values())
        for binding in gone:
            self.remove_binding(binding)
        self._changed()
        del self._queue_names[self._queues.pop(id_)]
        return gone

    def add_binding(self, row: Binding) -> None:
        source = self._known(row.source_id)
        if row.exchange_id is not None:
            self._known(row.exchange_id)
        elif row.queue_id not in self._queues:
            raise Misuse(f"there is no queue {row.queue_id} to bind")
        self._changed()
        source.matcher.add(row)
        source.bound[row.id] = row
        self._to.setdefault(destination_of(row), {})[row.id] = row

    def remove_binding(self, row: Binding) -> None:
        """What is not bound can be unbound."""
        source = self._exchanges.get(row.source_id)
        if source is None or row.id not in source.bound:
            return
        self._changed()
        bound = source.bound.pop(row.id)  # as it was added, whatever the caller's row says of its key
        source.matcher.remove(bound)
        there = self._to[destination_of(bound)]
        del there[row.id]
        if not there:
            del self._to[destination_of(bound)]

    # --------------------------------------------------------------------------------------------------- questions

    def exchange(self, name: str) -> Exchange | None:
        id_ = self._names.get(name)
        return None if id_ is None else self._exchanges[id_].row

    def is_remembered(self, exchange: ExchangeId, routing_key: str) -> bool:
        """Whether the way of such a message is known, whatever its headers: but for CC and BCC, which are asked for
        besides."""
        return (exchange, routing_key) in self._remembered

    @property
    def exchange_count(self) -> int:
        return len(self._exchanges)

    def is_used(self, id_: ExchangeId) -> bool:
        """Whether anything is bound from it: what auto-delete and if-unused ask."""
        return bool(self._known(id_).bound)

    def _changed(self) -> None:
        self._remembered.clear()
        self._reachable.clear()
        self.version += 1

    def _known(self, id_: ExchangeId) -> _Known:
        known = self._exchanges.get(id_)
        if known is None:
            raise UnknownExchange(id_)
        return known


def load(exchanges: Iterable[Exchange], queues: Iterable[Queue], bindings: Iterable[Binding]) -> Routing:
    """The routing of one vhost, from its rows."""
    routing = Routing()
    for exchange in exchanges:
        routing.add_exchange(exchange)
    for queue in queues:
        routing.add_queue(queue)
    for binding in bindings:
        routing.add_binding(binding)
    return routing
