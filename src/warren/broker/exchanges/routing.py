"""Sender-selected distribution: the headers CC and BCC add routing keys to a message.

    routing key a, CC [b, c], BCC [d]     is routed by a, b, c and d;  stored without BCC

The message is routed by all its keys at once: a queue that several keys reach gets it once, and an alternate exchange
is used only if no key matched. Consumers must not see BCC: the stored message has the headers of `without_blind`.

As in RabbitMQ the names are case-sensitive, the value must be an array, and entries that are not text are ignored.

Routing in one vhost: from an exchange, a routing key and headers to the queues that get the message.

    publish ──▶ exchange ──binding──▶ queue
                   │ └─────binding──▶ exchange ──▶ …           each exchange is visited once, so cycles end
                   └ nothing matched ▶ alternate exchange ▶ …  also of an exchange that was reached by a binding

`load` fills it from the catalog's rows; add and remove follow their changes. Exchanges and queues are ids; names are
used in two places only: by the default exchange, and for an alternate exchange, which may be declared later or never.

`MatchCache` keeps results by (exchange, routing key) until a row of an exchange that the walk visited changes:

    put((exchange, key), result, visited)        forget(exchange) ──▶ results whose walk visited it

A change of rows costs what it touches: the results that visited the exchange. The default exchange has one row for each
queue, and a walk with a key uses one of them: `forget_key` drops the results of that key, and those of any key.

As in RabbitMQ, an exchange that routed a message to another exchange has matched, whatever happens there. Unlike in
RabbitMQ, the default exchange also works as an alternate exchange.

Invariants
* A queue occurs once in a result. Results are in the order of ids, which is the order of declaration; the same message
  over the same rows has the same result in every run of the broker.
* A result that depends on headers is not cached. A result is cached only together with all exchanges that its walk
  visited. The number of results is limited, because keys may be random.
* A refused change changes nothing.

Calls come from one thread at a time; nothing here waits. Permissions, `mandatory` and direct reply-to are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from warren.amqp.types import RawString, Table
from warren.base.errors import Misuse
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.broker.exchanges.headers import Headers
from warren.broker.exchanges.simple import (
    BadCopies,
    Default,
    Destination,
    Direct,
    Fanout,
    InternalExchange,
    Matcher,
    UnknownExchange,
    UnknownExchangeType,
    destination_of,
)
from warren.broker.exchanges.topic import Topic
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow

OPEN = "CC"
BLIND = "BCC"


class Copies(NamedTuple):
    open: tuple[str, ...] = ()  # the keys in CC
    blind: tuple[str, ...] = ()  # the keys in BCC


NO_COPIES = Copies()


def copies_of(headers: Table) -> Copies:
    if OPEN not in headers and BLIND not in headers:
        return NO_COPIES
    return Copies(_keys(headers, OPEN), _keys(headers, BLIND))


def without_blind(headers: Table) -> Table:
    """The headers without BCC; the same table if there is none."""
    if BLIND not in headers:
        return headers
    return {name: value for name, value in headers.items() if name != BLIND}


def _keys(headers: Table, name: str) -> tuple[str, ...]:
    keys = headers.get(name, ())
    if not isinstance(keys, list | tuple):
        raise BadCopies(f"the header {name} is a {type(keys).__name__}", "it is an array of strings")
    return tuple(_text(each) for each in keys if isinstance(each, str | RawString))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


CACHED_RESULTS_MAX: Final = 16_384

Result = TypeVar("Result")
CacheKey = tuple[ExchangeId, str | None]  # the first exchange of a walk, and its routing key; None: any


class _CachedResult(NamedTuple, Generic[Result]):
    result: Result
    visited: Collection[ExchangeId]
    key: str | None  # that the walk matched with; None: any


class MatchCache(Generic[Result]):
    __slots__ = ("_by_visited", "_results")

    def __init__(self) -> None:
        self._results: dict[CacheKey, _CachedResult[Result]] = {}
        # by visited exchange, and by `_CachedResult.key`
        self._by_visited: dict[ExchangeId, dict[str | None, set[CacheKey]]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, cache_key: CacheKey) -> bool:
        return cache_key in self._results

    def get(self, cache_key: CacheKey) -> Result | None:
        cached = self._results.get(cache_key)
        return None if cached is None else cached.result

    def put(self, cache_key: CacheKey, result: Result, visited: Collection[ExchangeId], is_any: bool = False) -> None:
        """`is_any`: the walk followed bindings with any routing key, whatever its own key is."""
        if len(self._results) >= CACHED_RESULTS_MAX:
            self._results.clear()
            self._by_visited.clear()
        key = None if is_any else cache_key[1]
        self._results[cache_key] = _CachedResult(result, visited, key)
        for exchange in visited:
            self._by_visited.setdefault(exchange, {}).setdefault(key, set()).add(cache_key)

    def forget(self, exchange: ExchangeId) -> None:
        """A binding from this exchange, or the exchange, has changed."""
        for cache_keys in list(self._by_visited.get(exchange, {}).values()):
            self._drop(cache_keys)

    def forget_key(self, exchange: ExchangeId, routing_key: str) -> None:
        """The destinations of this routing key at this exchange have changed."""
        by_key = self._by_visited.get(exchange, {})
        for key in (routing_key, None):
            self._drop(by_key.get(key, ()))

    def update_any(self, exchange: ExchangeId, update: Callable[[Result], Result]) -> None:
        """Update the results of walks with any key that visited this exchange; forget its other results."""
        for cache_keys in list(self._by_visited.get(exchange, {}).values()):
            self._drop([cache_key for cache_key in cache_keys if cache_key[1] is not None])
        for cache_key in self._by_visited.get(exchange, {}).get(None, ()):
            cached = self._results[cache_key]
            self._results[cache_key] = cached._replace(result=update(cached.result))

    def _drop(self, cache_keys: Collection[CacheKey]) -> None:
        for cache_key in list(cache_keys):
            _, visited, key = self._results.pop(cache_key)
            for exchange in visited:
                by_key = self._by_visited[exchange]
                by_key[key].remove(cache_key)
                if not by_key[key]:
                    del by_key[key]
                if not by_key:
                    del self._by_visited[exchange]


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
    copies: Copies  # with BCC keys, the stored headers lack BCC


class _Exchange(NamedTuple):
    row: ExchangeRow
    matcher: Matcher
    bindings: dict[BindingId, BindingRow]  # from this exchange
    alternate: str | None  # its own argument, else from a policy


class Routing:
    __slots__ = (
        "_alternate_of",
        "_by_destination",
        "_default",
        "_exchanges",
        "_names",
        "_policy_alternate",
        "_queue_names",
        "_queues",
        "_reachable",
        "_results",
        "version",
    )

    def __init__(self) -> None:
        self._exchanges: dict[ExchangeId, _Exchange] = {}
        self._names: dict[str, ExchangeId] = {}
        self._queues: dict[QueueId, str] = {}
        self._queue_names: dict[str, QueueId] = {}
        self._by_destination: dict[Destination, dict[BindingId, BindingRow]] = {}
        self._alternate_of: dict[str, set[ExchangeId]] = {}  # by name of the alternate, which need not exist
        self._policy_alternate: Callable[[str], str | None] = lambda name: None
        self._default: ExchangeId | None = None
        self._results: MatchCache[RoutingResult] = MatchCache()
        self._reachable: MatchCache[frozenset[QueueId]] = MatchCache()
        self.version = 0  # incremented by every change of rows: caches elsewhere compare it

    # ---------------------------------------------------------------------------------------------------- messages

    def publish(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> RoutingResult:
        """Route a client's message."""
        source = self._get(exchange)
        if source.row.internal:
            raise InternalExchange(source.row.name)
        return self.forward(exchange, routing_key, headers)

    def forward(self, exchange: ExchangeId, routing_key: str, headers: Table = _NO_HEADERS) -> RoutingResult:
        """Route a message of the broker (dead letters): internal exchanges accept it."""
        copies = copies_of(headers) if headers else NO_COPIES
        if copies is not NO_COPIES:
            keys = dict.fromkeys((routing_key, *copies.open, *copies.blind))
            return RoutingResult(self._walk(self._get(exchange), keys, headers)[0], copies)
        if (found := self._results.get((exchange, routing_key))) is not None:
            return found
        queues, used_headers, visited = self._walk(self._get(exchange), (routing_key,), headers)
        routed = RoutingResult(queues, NO_COPIES)
        if not used_headers:
            self._results.put((exchange, routing_key), routed, visited)
        return routed

    def _walk(
        self, first: _Exchange, keys: Iterable[str], headers: Table
    ) -> tuple[tuple[QueueId, ...], bool, set[ExchangeId]]:
        """The queues, whether an exchange on the way uses headers, and the visited exchanges."""
        queues: set[QueueId] = set()
        seen = {first.row.id}
        open_ = [first]
        used_headers = False
        while open_:
            source = open_.pop()
            used_headers |= source.matcher.uses_headers
            found = {each for key in keys for each in source.matcher.match(key, headers)} or self._alternate(source)
            for queue, exchange in found:
                if queue is not None:
                    queues.add(queue)
                elif exchange is not None and exchange not in seen:
                    seen.add(exchange)
                    open_.append(self._exchanges[exchange])
        return tuple(sorted(queues)), used_headers, seen

    def reachable(self, exchange: ExchangeId, routing_key: str | None = None) -> frozenset[QueueId]:
        """All queues that a message may reach: with this key, or with any, and with any headers, except the keys in CC
        and BCC. Cached until a row of an exchange on the way changes."""
        found = self._reachable.get((exchange, routing_key))
        if found is None:
            found, visited, is_any = self._reached(self._get(exchange), routing_key)
            self._reachable.put((exchange, routing_key), found, visited, is_any)
        return found

    def _reached(self, first: _Exchange, routing_key: str | None) -> tuple[frozenset[QueueId], set[ExchangeId], bool]:
        """The queues, the visited exchanges, and whether bindings with any key were followed."""
        visited: set[ExchangeId] = set()
        if routing_key is not None:
            matched, used_headers, visited = self._walk(first, (routing_key,), _NO_HEADERS)
            if not used_headers:
                return frozenset(matched), visited, False
        queues: set[QueueId] = set()
        seen = {first.row.id}
        open_ = [first]
        while open_:
            source = open_.pop()
            if not source.row.name:
                return frozenset(self._queues), visited | seen, True
            for queue, exchange in {*map(destination_of, source.bindings.values()), *self._alternate(source)}:
                if queue is not None:
                    queues.add(queue)
                elif exchange is not None and exchange not in seen:
                    seen.add(exchange)
                    open_.append(self._exchanges[exchange])
        return frozenset(queues), visited | seen, True

    def _alternate(self, source: _Exchange) -> set[Destination]:
        id_ = None if source.alternate is None else self._names.get(source.alternate)
        return set() if id_ is None else {Destination(None, id_)}

    # ------------------------------------------------------------------------------------------------------- rows

    def add_exchange(self, row: ExchangeRow) -> None:
        if row.id in self._exchanges:
            return
        if row.name in self._names:
            raise Misuse(f"there is an exchange {row.name!r} already", "remove that one first")
        if row.name and row.type not in KINDS:
            raise UnknownExchangeType(row.type)
        matcher = KINDS[row.type]() if row.name else Default(self._queue_names)
        self._exchanges[row.id] = _Exchange(row, matcher, {}, None)
        self._names[row.name] = row.id
        if not row.name:
            self._default = row.id
        self.set_alternate(row.id, self._policy_alternate(row.name))
        self._exchange_changed(row.id, row.name)

    def remove_exchange(self, id_: ExchangeId) -> list[BindingRow]:
        """Returns the bindings from it and to it, which are removed as well."""
        source = self._get(id_)
        removed = {**source.bindings, **self._by_destination.get(Destination(None, id_), {})}
        for binding in removed.values():
            self.remove_binding(binding)
        self._set_alternate(source, None)
        del self._exchanges[id_]
        del self._names[source.row.name]
        if not source.row.name:
            self._default = None
        self._exchange_changed(id_, source.row.name)
        return list(removed.values())

    def set_policy_alternate(self, alternate_of: Callable[[str], str | None]) -> None:
        """The alternate that policies name for an exchange without one of its own: for exchanges that are added from
        now on. The others follow by `set_alternate`."""
        self._policy_alternate = alternate_of

    def set_alternate(self, id_: ExchangeId, by_policy: str | None) -> None:
        """Does nothing if the exchange was removed, or has the alternate already."""
        source = self._exchanges.get(id_)
        if source is None:
            return
        own = source.row.arguments.get(ALTERNATE)
        alternate = own if isinstance(own, str) else by_policy
        if alternate != source.alternate:
            self._set_alternate(source, alternate)
            self._bindings_changed(id_)

    def _set_alternate(self, source: _Exchange, alternate: str | None) -> None:
        id_ = source.row.id
        if source.alternate is not None:
            self._alternate_of[source.alternate].remove(id_)
            if not self._alternate_of[source.alternate]:
                del self._alternate_of[source.alternate]
        if alternate is not None:
            self._alternate_of.setdefault(alternate, set()).add(id_)
        self._exchanges[id_] = source._replace(alternate=alternate)

    def add_queue(self, row: QueueRow) -> None:
        if self._queue_names.get(row.name, row.id) != row.id:
            raise Misuse(f"there is a queue {row.name!r} already", "remove that one first")
        self._queues[row.id] = row.name
        self._queue_names[row.name] = row.id
        self._queue_changed(row.name)

    def remove_queue(self, id_: QueueId) -> list[BindingRow]:
        """Returns the bindings to it, which are removed as well."""
        if id_ not in self._queues:
            raise Misuse(f"there is no queue {id_}")
        removed = list(self._by_destination.get(Destination(id_, None), {}).values())
        for binding in removed:
            self.remove_binding(binding)
        name = self._queues.pop(id_)
        del self._queue_names[name]
        self._queue_changed(name)
        return removed

    def add_binding(self, row: BindingRow) -> None:
        source = self._get(row.source_id)
        if row.exchange_id is not None:
            self._get(row.exchange_id)
        elif row.queue_id not in self._queues:
            raise Misuse(f"there is no queue {row.queue_id} to bind")
        self.version += 1
        self._results.forget(row.source_id)
        if row.queue_id is not None:
            added = {row.queue_id}
            self._reachable.update_any(row.source_id, lambda queues: queues | added)
        else:
            self._reachable.forget(row.source_id)
        source.matcher.add(row)
        source.bindings[row.id] = row
        self._by_destination.setdefault(destination_of(row), {})[row.id] = row

    def remove_binding(self, row: BindingRow) -> None:
        """Does nothing if there is no such binding."""
        source = self._exchanges.get(row.source_id)
        if source is None or row.id not in source.bindings:
            return
        self._bindings_changed(row.source_id)
        bound = source.bindings.pop(row.id)  # as it was added: the caller's row may have another key
        source.matcher.remove(bound)
        others = self._by_destination[destination_of(bound)]
        del others[row.id]
        if not others:
            del self._by_destination[destination_of(bound)]

    # ----------------------------------------------------------------------------------------------------- queries

    def exchange(self, name: str) -> ExchangeRow | None:
        id_ = self._names.get(name)
        return None if id_ is None else self._exchanges[id_].row

    def exchange_names(self) -> dict[ExchangeId, str]:
        return {id_: source.row.name for id_, source in self._exchanges.items()}

    def is_cached(self, exchange: ExchangeId, routing_key: str) -> bool:
        """Whether the result for this key is cached, so independent of headers. The caller checks CC and BCC."""
        return (exchange, routing_key) in self._results

    @property
    def exchange_count(self) -> int:
        return len(self._exchanges)

    def is_used(self, id_: ExchangeId) -> bool:
        """Whether it has a binding, for auto-delete and if-unused."""
        return bool(self._get(id_).bindings)

    def _bindings_changed(self, source: ExchangeId) -> None:
        self.version += 1
        self._results.forget(source)
        self._reachable.forget(source)

    def _exchange_changed(self, id_: ExchangeId, name: str) -> None:
        """Forget walks that visited it, or an exchange whose alternate it is."""
        for each in (id_, *self._alternate_of.get(name, ())):
            self._bindings_changed(each)

    def _queue_changed(self, name: str) -> None:
        """A queue without bindings is reached through the default exchange only, by its name."""
        self.version += 1
        if self._default is not None:
            self._results.forget_key(self._default, name)
            self._reachable.forget_key(self._default, name)

    def _get(self, id_: ExchangeId) -> _Exchange:
        source = self._exchanges.get(id_)
        if source is None:
            raise UnknownExchange(id_)
        return source


def load(
    exchanges: Iterable[ExchangeRow],
    queues: Iterable[QueueRow],
    bindings: Iterable[BindingRow],
    policy_alternate: Callable[[str], str | None] = lambda name: None,
) -> Routing:
    """The routing of one vhost, from its rows."""
    routing = Routing()
    routing.set_policy_alternate(policy_alternate)
    for exchange in exchanges:
        routing.add_exchange(exchange)
    for queue in queues:
        routing.add_queue(queue)
    for binding in bindings:
        routing.add_binding(binding)
    return routing
