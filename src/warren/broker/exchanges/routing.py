"""Routing in one vhost: from an exchange, a routing key and headers to the queues that get the message.

    publish ──▶ exchange ──binding──▶ queue
                   │ └─────binding──▶ exchange ──▶ …          each exchange is visited once, so circles end
                   └ nothing matched ▶ alternate exchange ▶ …  also one that was reached by a binding

It is filled from the catalog's rows (`load`) and follows them by add and remove. Exchanges and queues are ids; names
are asked for in two places only: the default exchange, and an alternate exchange, which may be declared later or never.

Always true: a queue stands once in a result, results are in the order of ids, which is the order of declaration; the
same message over the same rows comes to the same result in every life. A result that no headers were asked for is
remembered by (exchange, routing key) until a row of an exchange on its way changes (`route_cache`). A change that is
refused changes nothing.

As RabbitMQ does, an exchange that handed a message on to another exchange has matched, whatever comes of it there.
Unlike it, the default exchange also works as somebody's alternate exchange.

Not here: permissions, `mandatory`, direct reply-to. Calls come from one thread at a time; nothing here waits.

Results of walks over exchanges, kept until a row of an exchange on the way changes.

    keep((exchange, key), result, visited)        forget(exchange) ──▶ results whose walk visited it

A change of rows costs what it touches: results that visited the exchange. The default exchange has one row for each
queue, and a walk with a key asks for one of them: `forget_key` drops the results of that key, and those of any key.

Always true: a result is kept only together with all exchanges that its walk visited. The number of results is bounded:
keys may be random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from warren.amqp.types import Table
from warren.base.errors import Misuse
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.broker.exchanges.cc import NO_COPIES, Copies, copies_of
from warren.broker.exchanges.errors import InternalExchange, UnknownExchange, UnknownExchangeType
from warren.broker.exchanges.headers import Headers
from warren.broker.exchanges.simple import Default, Destination, Direct, Fanout, Matcher, destination_of
from warren.broker.exchanges.topic import Topic
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow

REMEMBERED_MAX: Final = 16_384

Result = TypeVar("Result")
Way = tuple[ExchangeId, str | None]  # where a walk begins, and by which routing key; None: by any


class _CachedMatch(NamedTuple, Generic[Result]):
    result: Result
    visited: Collection[ExchangeId]
    key: str | None  # the one that the walk asked exchanges for; None: any


class MatchCache(Generic[Result]):
    __slots__ = ("_found", "_through")

    def __init__(self) -> None:
        self._found: dict[Way, _CachedMatch[Result]] = {}
        self._through: dict[
            ExchangeId, dict[str | None, set[Way]]
        ] = {}  # by exchange visited, and by `_CachedMatch.key`

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, way: Way) -> bool:
        return way in self._found

    def get(self, way: Way) -> Result | None:
        kept = self._found.get(way)
        return None if kept is None else kept.result

    def keep(self, way: Way, result: Result, visited: Collection[ExchangeId], is_any: bool = False) -> None:
        """`is_any`: the walk followed bindings of any routing key, whatever its own is."""
        if len(self._found) >= REMEMBERED_MAX:
            self._found.clear()
            self._through.clear()
        key = None if is_any else way[1]
        self._found[way] = _CachedMatch(result, visited, key)
        for exchange in visited:
            self._through.setdefault(exchange, {}).setdefault(key, set()).add(way)

    def forget(self, exchange: ExchangeId) -> None:
        """A binding from this exchange, or the exchange itself, has changed."""
        for dead_letter_routes in list(self._through.get(exchange, {}).values()):
            self._drop(dead_letter_routes)

    def forget_key(self, exchange: ExchangeId, routing_key: str) -> None:
        """What this exchange does with this routing key has changed."""
        by_key = self._through.get(exchange, {})
        for key in (routing_key, None):
            self._drop(by_key.get(key, ()))

    def update_any(self, exchange: ExchangeId, update: Callable[[Result], Result]) -> None:
        """Change the results of walks that began with any key and visited this exchange; forget the others."""
        for dead_letter_routes in list(self._through.get(exchange, {}).values()):
            self._drop([way for way in dead_letter_routes if way[1] is not None])
        for way in self._through.get(exchange, {}).get(None, ()):
            kept = self._found[way]
            self._found[way] = kept._replace(result=update(kept.result))

    def _drop(self, dead_letter_routes: Collection[Way]) -> None:
        for way in list(dead_letter_routes):
            _, visited, key = self._found.pop(way)
            for exchange in visited:
                by_key = self._through[exchange]
                by_key[key].remove(way)
                if not by_key[key]:
                    del by_key[key]
                if not by_key:
                    del self._through[exchange]


ALTERNATE: Final = "alternate-exchange"
KINDS: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}
_NO_HEADERS: Final[Table] = {}


class RoutingResult(NamedTuple):
    queues: tuple[QueueId, ...]
    copies: Copies  # if some are blind, the headers are stored without them


class _CachedRoute(NamedTuple):
    row: ExchangeRow
    matcher: Matcher
    bound: dict[BindingId, BindingRow]  # from it


class Routing:
    __slots__ = (
        "_alternate_of",
        "_default",
        "_exchanges",
        "_names",
        "_queue_names",
        "_queues",
        "_reachable",
        "_remembered",
        "_to",
        "version",
    )

    def __init__(self) -> None:
        self._exchanges: dict[ExchangeId, _CachedRoute] = {}
        self._names: dict[str, ExchangeId] = {}
        self._queues: dict[QueueId, str] = {}
        self._queue_names: dict[str, QueueId] = {}
        self._to: dict[Destination, dict[BindingId, BindingRow]] = {}
        self._alternate_of: dict[str, set[ExchangeId]] = {}  # by name: the exchanges whose alternate it is, or would be
        self._default: ExchangeId | None = None
        self._remembered: MatchCache[RoutingResult] = MatchCache()
        self._reachable: MatchCache[frozenset[QueueId]] = MatchCache()
        self.version = 0  # grows with every change of rows: what somebody else remembers is good as long as it stays

    # ---------------------------------------------------------------------------------------------------- messages

    def publish(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> RoutingResult:
        """For a client's message."""
        known = self._known(exchange)
        if known.row.internal:
            raise InternalExchange(known.row.name)
        return self.forward(exchange, routing_key, headers)

    def forward(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> RoutingResult:
        """For the broker's own messages (dead letters): internal exchanges take them."""
        copies = copies_of(headers) if headers else NO_COPIES
        if copies is not NO_COPIES:
            keys = dict.fromkeys((routing_key, *copies.open, *copies.blind))
            return RoutingResult(self._walk(self._known(exchange), keys, headers)[0], copies)
        if (found := self._remembered.get((exchange, routing_key))) is not None:
            return found
        queues, looked_at_headers, visited = self._walk(self._known(exchange), (routing_key,), headers)
        routed = RoutingResult(queues, NO_COPIES)
        if not looked_at_headers:
            self._remembered.keep((exchange, routing_key), routed, visited)
        return routed

    def _walk(
        self, first: _CachedRoute, keys: Iterable[str], headers: Table
    ) -> tuple[tuple[QueueId, ...], bool, set[ExchangeId]]:
        """The queues, whether headers were looked at on the way, and the exchanges that were visited."""
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
        return tuple(sorted(queues)), looked_at_headers, seen

    def reachable(self, exchange: ExchangeId, routing_key: str | None = None) -> frozenset[QueueId]:
        """All queues that a message may come to from there: with this key, or with any, and with whatever headers, but
        for further keys in them. Remembered until a row of an exchange on the way changes."""
        found = self._reachable.get((exchange, routing_key))
        if found is None:
            found, visited, is_any = self._reached(self._known(exchange), routing_key)
            self._reachable.keep((exchange, routing_key), found, visited, is_any)
        return found

    def _reached(
        self, first: _CachedRoute, routing_key: str | None
    ) -> tuple[frozenset[QueueId], set[ExchangeId], bool]:
        """The queues, the exchanges visited, and whether bindings of any key were followed."""
        visited: set[ExchangeId] = set()
        if routing_key is not None:
            matched, looked_at_headers, visited = self._walk(first, (routing_key,), _NO_HEADERS)
            if not looked_at_headers:
                return frozenset(matched), visited, False
        queues: set[QueueId] = set()
        seen = {first.row.id}
        open_ = [first]
        while open_:
            known = open_.pop()
            if not known.row.name:
                return frozenset(self._queues), visited | seen, True
            for queue, exchange in {*map(destination_of, known.bound.values()), *self._alternate(known)}:
                if queue is not None:
                    queues.add(queue)
                elif exchange is not None and exchange not in seen:
                    seen.add(exchange)
                    open_.append(self._exchanges[exchange])
        return frozenset(queues), visited | seen, True

    def _alternate(self, known: _CachedRoute) -> set[Destination]:
        name = _alternate_name(known.row)
        id_ = None if name is None else self._names.get(name)
        return set() if id_ is None else {Destination(None, id_)}

    # ------------------------------------------------------------------------------------------------------- rows

    def add_exchange(self, row: ExchangeRow) -> None:
        if row.id in self._exchanges:
            return
        if row.name in self._names:
            raise Misuse(f"there is an exchange {row.name!r} already", "remove that one first")
        if row.name and row.type not in KINDS:
            raise UnknownExchangeType(row.type)
        self._exchanges[row.id] = _CachedRoute(row, KINDS[row.type]() if row.name else Default(self._queue_names), {})
        self._names[row.name] = row.id
        if not row.name:
            self._default = row.id
        if (alternate := _alternate_name(row)) is not None:
            self._alternate_of.setdefault(alternate, set()).add(row.id)
        self._exchange_changed(row.id, row.name)

    def remove_exchange(self, id_: ExchangeId) -> list[BindingRow]:
        """The bindings from it and to it, which went with it."""
        known = self._known(id_)
        gone = {**known.bound, **self._to.get(Destination(None, id_), {})}
        for binding in gone.values():
            self.remove_binding(binding)
        del self._exchanges[id_]
        del self._names[known.row.name]
        if not known.row.name:
            self._default = None
        if (alternate := _alternate_name(known.row)) is not None:
            self._alternate_of[alternate].remove(id_)
            if not self._alternate_of[alternate]:
                del self._alternate_of[alternate]
        self._exchange_changed(id_, known.row.name)
        return list(gone.values())

    def add_queue(self, row: QueueRow) -> None:
        if self._queue_names.get(row.name, row.id) != row.id:
            raise Misuse(f"there is a queue {row.name!r} already", "remove that one first")
        self._queues[row.id] = row.name
        self._queue_names[row.name] = row.id
        self._queue_changed(row.name)

    def remove_queue(self, id_: QueueId) -> list[BindingRow]:
        """The bindings to it, which went with it."""
        if id_ not in self._queues:
            raise Misuse(f"there is no queue {id_}")
        gone = list(self._to.get(Destination(id_, None), {}).values())
        for binding in gone:
            self.remove_binding(binding)
        name = self._queues.pop(id_)
        del self._queue_names[name]
        self._queue_changed(name)
        return gone

    def add_binding(self, row: BindingRow) -> None:
        source = self._known(row.source_id)
        if row.exchange_id is not None:
            self._known(row.exchange_id)
        elif row.queue_id not in self._queues:
            raise Misuse(f"there is no queue {row.queue_id} to bind")
        self.version += 1
        self._remembered.forget(row.source_id)
        if row.queue_id is not None:
            added = {row.queue_id}
            self._reachable.update_any(row.source_id, lambda queues: queues | added)
        else:
            self._reachable.forget(row.source_id)
        source.matcher.add(row)
        source.bound[row.id] = row
        self._to.setdefault(destination_of(row), {})[row.id] = row

    def remove_binding(self, row: BindingRow) -> None:
        """What is not bound can be unbound."""
        source = self._exchanges.get(row.source_id)
        if source is None or row.id not in source.bound:
            return
        self._bindings_changed(row.source_id)
        bound = source.bound.pop(row.id)  # as it was added, whatever the caller's row says of its key
        source.matcher.remove(bound)
        there = self._to[destination_of(bound)]
        del there[row.id]
        if not there:
            del self._to[destination_of(bound)]

    # --------------------------------------------------------------------------------------------------- questions

    def exchange(self, name: str) -> ExchangeRow | None:
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

    def _bindings_changed(self, source: ExchangeId) -> None:
        self.version += 1
        self._remembered.forget(source)
        self._reachable.forget(source)

    def _exchange_changed(self, id_: ExchangeId, name: str) -> None:
        """Walks that visited it, and those that visited an exchange whose alternate it is."""
        for each in (id_, *self._alternate_of.get(name, ())):
            self._bindings_changed(each)

    def _queue_changed(self, name: str) -> None:
        """A queue without bindings is found by the default exchange only, by its name."""
        self.version += 1
        if self._default is not None:
            self._remembered.forget_key(self._default, name)
            self._reachable.forget_key(self._default, name)

    def _known(self, id_: ExchangeId) -> _CachedRoute:
        known = self._exchanges.get(id_)
        if known is None:
            raise UnknownExchange(id_)
        return known


def _alternate_name(row: ExchangeRow) -> str | None:
    name = row.arguments.get(ALTERNATE)
    return name if isinstance(name, str) else None


def load(exchanges: Iterable[ExchangeRow], queues: Iterable[QueueRow], bindings: Iterable[BindingRow]) -> Routing:
    """The routing of one vhost, from its rows."""
    routing = Routing()
    for exchange in exchanges:
        routing.add_exchange(exchange)
    for queue in queues:
        routing.add_queue(queue)
    for binding in bindings:
        routing.add_binding(binding)
    return routing
