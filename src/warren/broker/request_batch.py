"""Request batch: all client requests of one vhost between two polls of the network, executed as one unit of work.

    publish · settle · get · schedule_delivery      collect only
    execute ──▶ one UnitOfWork: enqueue, settle, get, deliver ──▶ one log session, one epoch to wait for

A hundred clients with one message each become one run of a hundred if their messages have the same route: the cost of
lock, session and log block is shared. Messages of one client keep their order: a client never joins a group that
precedes one it is already in. A queue that is full rejects its copies; other queues on the route accept theirs, and the
publisher gets a nack, as in RabbitMQ.

Only the queues of the requests are locked. Requests that dead-letter messages are put off: they are executed right
afterwards, in a second unit of work that also locks all queues the messages may move to. A message leaves one queue and
arrives in the others in the same session.

A queue whose code fails is left out: the session is aborted, and everything else is executed again without it. Its
publishers get a nack, its gets an error; settlements of other queues are kept.

Routes are looked up once, and are valid until a row of the routing changes (`RouteCache`):

    (exchange, routing key, user) ──▶ Route: the queues, and the origin of the messages

Messages with the same route are one run, from any client: equal routes are one object. Only where an exchange matches
headers, or a message names further keys (CC, BCC), each message is routed separately.

Invariants
* Confirms are sent only after the epoch returned by `execute` is durable; deliveries may precede it (DESIGN rule 24).
* A failing callback affects its own client only.
* Single-threaded: called from the event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, Protocol

from warren.amqp.types import Table
from warren.base.environment import Clock, wall_ms
from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch, ExchangeId, QueueId
from warren.base.messages import WIRE, Origin, Publication
from warren.broker.dead_letters import behind
from warren.broker.errors import NotYours, QueueDown, UnknownQueue
from warren.broker.exchanges.routing import Copies, RoutingResult
from warren.broker.exchanges.simple import UnknownExchange
from warren.broker.queue import BrokerQueue
from warren.broker.queue_handle import QueueHandle
from warren.broker.unit_of_work import RejectedPublish, TargetLocksNeeded, UnitOfWork
from warren.broker.vhost import Vhost
from warren.catalog.catalog import DeletedObjects
from warren.queues.backing_queue import Fetched, TagRange

ROUTES_MAX = 16_384


class Route:
    """Compared by identity."""

    __slots__ = ("handles", "needs_headers", "origin", "version")

    def __init__(self, handles: tuple[QueueHandle, ...], origin: Origin, version: int, needs_headers: bool) -> None:
        self.handles = handles
        self.origin = origin
        self.version = version
        self.needs_headers = needs_headers


class RouteCache:
    """Of one vhost. Single-threaded."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._version = -1
        self._known: dict[tuple[str, str, str], Route] = {}
        self._by_queues: dict[tuple[tuple[QueueId, ...], str, str, str], Route] = {}

    def find(self, exchange: str, routing_key: str, user: str) -> Route:
        """For messages without headers; refused if there is no such exchange, or it is internal."""
        self._refresh()
        key = (exchange, routing_key, user)
        route = self._known.get(key)
        if route is None:
            with self._vhost.lock:
                id_ = self._exchange(exchange)
                routed = self._vhost.routing.publish(id_, routing_key)
                is_known = self._vhost.routing.is_cached(id_, routing_key)
            route = self._known[key] = self._route(routed, exchange, routing_key, user, not is_known)
        return route

    def find_for(self, exchange: str, routing_key: str, user: str, headers: Table) -> tuple[Route, Copies]:
        """For one message with these headers."""
        self._refresh()
        with self._vhost.lock:
            routed = self._vhost.routing.publish(self._exchange(exchange), routing_key, headers)
        return self._route(routed, exchange, routing_key, user, True), routed.copies

    def is_good(self, route: Route) -> bool:
        """Whether `find` would still return it."""
        return route.version == self._vhost.routing.version

    def _exchange(self, name: str) -> ExchangeId:
        row = self._vhost.routing.exchange(name)
        if row is None:
            raise UnknownExchange(name)
        return row.id

    def _route(self, routed: RoutingResult, exchange: str, routing_key: str, user: str, needs_headers: bool) -> Route:
        key = (routed.queues, exchange, routing_key, user)
        route = self._by_queues.get(key)
        if route is None:
            found = [self._handle(id_) for id_ in routed.queues]
            handles = tuple([handle for handle in found if handle is not None])
            origin = Origin(exchange, routing_key, user, WIRE)
            route = self._by_queues[key] = Route(handles, origin, self._version, needs_headers)
        return route

    def _handle(self, id_: QueueId) -> QueueHandle | None:
        """Started if it was not; None if it was deleted meanwhile."""
        vhost = self._vhost
        try:
            return vhost.queue_by_id(id_) or vhost.start_queue(vhost.storage.catalog.queue(id_), is_patient=False)
        except (DeletedObjects, UnknownQueue):
            return None

    def _refresh(self) -> None:
        """Clear the cache if a row has changed, or it is full (random keys)."""
        if self._vhost.routing.version == self._version and len(self._by_queues) < ROUTES_MAX:
            return
        self._known.clear()
        self._by_queues.clear()
        self._version = self._vhost.routing.version


_LOG = logging.getLogger(__name__)
FAILING_MAX = 8  # queues that may fail in one batch; above it the whole batch is refused


class Settlement(Enum):
    ACK = auto()
    REQUEUE = auto()
    REJECT = auto()


class Publisher(Protocol):
    """A channel, as the batch uses it. Compared by identity."""

    def refused(self, tag: int, count: int) -> None:
        """A queue rejected `count` messages, from this publisher's tag on."""
        ...


class GetResult(NamedTuple):
    """The result of a `get`."""

    incarnation: int
    fetched: list[Fetched]  # empty if nothing was ready
    remaining: int  # messages still ready
    requeues: int | None = None  # of the message; None: they are not counted


class PublishGroup:
    """Messages that become one run in each of their queues."""

    __slots__ = ("contents", "expires_ms", "is_persistent", "parts", "place", "priority", "route")

    def __init__(self, route: Route, is_persistent: bool, priority: int, expires_ms: int, place: int) -> None:
        self.route = route
        self.is_persistent = is_persistent
        self.priority = priority
        self.expires_ms = expires_ms
        self.place = place  # among the groups of its batch
        self.contents: list[bytes] = []
        self.parts: list[tuple[Publisher, int, int]] = []  # publisher, first tag, count


class BatchResult(NamedTuple):
    epoch: Epoch  # when it is durable, so is the batch; 0: nothing to wait for
    error: BaseException | None  # of a queue that failed; its publishers got a nack, the rest was executed
    size_bytes: int  # of the published messages


_Callback = Callable[[GetResult | WarrenError], None]
_Settlements = dict[QueueHandle, list[tuple[Settlement, int, list[TagRange]]]]


class _QueueRequests:
    """Requests that are executed in one unit of work."""

    __slots__ = ("deliveries", "gets", "groups", "is_urgent", "rejected", "settled")

    def __init__(self) -> None:
        self.groups: list[PublishGroup] = []
        self.settled: _Settlements = {}
        self.gets: list[tuple[QueueHandle, bool, _Callback]] = []
        self.deliveries: dict[QueueHandle, None] = {}
        self.rejected: list[tuple[QueueHandle, RejectedPublish]] = []
        self.is_urgent = True

    @property
    def has_any(self) -> bool:
        return bool(self.groups or self.settled or self.gets or self.deliveries or self.rejected)

    def handles(self) -> dict[QueueHandle, None]:
        handles: dict[QueueHandle, None] = {}
        for group in self.groups:
            handles.update(dict.fromkeys(group.route.handles))
        if self.settled:
            handles.update(dict.fromkeys(self.settled))
        if self.gets:
            handles.update(dict.fromkeys([handle for handle, _, _ in self.gets]))
        if self.deliveries:
            handles.update(self.deliveries)
        if self.rejected:
            handles.update(dict.fromkeys([handle for handle, _ in self.rejected]))
        return handles

    def settle(self, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange) -> None:
        _add_settlement(self.settled, handle, settlement, incarnation, tags)

    def requeue_got(self, failed: _Execution) -> None:
        """Messages that gets fetched in an execution that failed: pending, if their queue was not restarted."""
        for handle, outcome in failed.fetched:
            for each in outcome.fetched:
                self.settle(handle, Settlement.REQUEUE, outcome.incarnation, each.tags)


class _Execution:
    """One execution of requests. Its results are valid if the session has ended."""

    __slots__ = (
        "_remainder",
        "_with_targets",
        "epoch",
        "fetched",
        "get_results",
        "handles",
        "refused",
        "requests",
        "work",
    )

    def __init__(self, requests: _QueueRequests) -> None:
        self.requests = requests
        self.handles = requests.handles()
        self.work: UnitOfWork | None = None
        self.epoch = Epoch(0)
        self.refused: list[tuple[Publisher, int, int]] = []
        self.get_results: list[tuple[_Callback, GetResult | WarrenError]] = []
        self.fetched: list[tuple[QueueHandle, GetResult]] = []  # not acknowledged
        self._with_targets: _QueueRequests | None = None
        self._remainder: _QueueRequests | None = None

    @property
    def with_targets(self) -> _QueueRequests:
        """Requests that move messages to queues that are not locked. Created when needed, which is rare."""
        if self._with_targets is None:
            self._with_targets = _QueueRequests()
        return self._with_targets

    @property
    def remainder(self) -> _QueueRequests:
        """Requests that were too much for one session."""
        if self._remainder is None:
            self._remainder = _QueueRequests()
        return self._remainder

    @property
    def has_with_targets(self) -> bool:
        return self._with_targets is not None and self._with_targets.has_any

    @property
    def has_later(self) -> bool:
        return self._remainder is not None

    def failing(self) -> QueueHandle | None:
        """The queue whose code has failed, if it is one of the requests' own."""
        queue = None if self.work is None else self.work.current_queue
        return None if queue is None else next((handle for handle in self.handles if handle.id == queue.id), None)


class RequestBatch:
    def __init__(self, vhost: Vhost, clock: Clock, on_scheduled: Callable[[], None]) -> None:
        """`on_scheduled`: `execute` is to be called soon."""
        self._vhost = vhost
        self._clock = clock
        self._on_scheduled = on_scheduled
        self._is_scheduled = False
        self._groups: list[PublishGroup] = []
        self._open: dict[tuple[Route, bool, int, int], PublishGroup] = {}
        self._last: dict[Publisher, int] = {}  # the last group that a publisher is in
        self._settled: _Settlements = {}
        self._gets: list[tuple[QueueHandle, bool, _Callback]] = []
        self._deliveries: dict[QueueHandle, None] = {}
        self._rejected: list[tuple[QueueHandle, RejectedPublish]] = []
        self._failing: set[QueueHandle] = set()  # queues whose code has failed in this batch
        self._attempt = self._idle = _Execution(_QueueRequests())
        self._size_bytes = 0

    # -- collect -------------------------------------------------------------------------------------------------

    def publish(
        self,
        publisher: Publisher,
        tag: int,
        route: Route,
        contents: list[bytes],
        is_persistent: bool,
        priority: int = 0,
        expires_ms: int = 0,
    ) -> None:
        """Messages for the queues of a route; `tag`: the publisher's number of the first."""
        key = (route, is_persistent, priority, expires_ms)
        group = self._open.get(key)
        if group is None or group.place < self._last.get(publisher, 0):
            group = PublishGroup(route, is_persistent, priority, expires_ms, len(self._groups))
            self._groups.append(group)
            self._open[key] = group
        self._last[publisher] = group.place
        group.contents += contents
        group.parts.append((publisher, tag, len(contents)))
        self._size_bytes += sum(map(len, contents))
        self.schedule()

    def settle(self, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange) -> None:
        _add_settlement(self._settled, handle, settlement, incarnation, tags)
        self.schedule()

    def get(self, handle: QueueHandle, is_auto_ack: bool, on_result: Callable[[GetResult | WarrenError], None]) -> None:
        """One message from the head; `on_result` is called by `execute`."""
        self._gets.append((handle, is_auto_ack, on_result))
        self.schedule()

    def schedule_delivery(self, handle: QueueHandle) -> None:
        """Deliver from this queue when the batch executes: a consumer has room again, or messages have expired."""
        self._deliveries[handle] = None
        self.schedule()

    def schedule(self) -> None:
        """Execute soon, even without requests: a channel waits for its confirm."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._on_scheduled()

    # -- execute -------------------------------------------------------------------------------------------------

    def execute(self) -> BatchResult:
        self._is_scheduled = False
        requests = self._take_requests()
        size_bytes, self._size_bytes = self._size_bytes, 0
        if not requests.has_any:
            return BatchResult(Epoch(0), None, size_bytes)
        self._failing = set()
        for group in requests.groups:
            for handle in group.route.handles:
                handle.counts.add_published(len(group.contents))
        attempt, error = self._execute_requests(requests, with_targets=False)
        attempts = [attempt]
        if attempt.has_with_targets:
            attempt, failure = self._execute_requests(attempt.with_targets, with_targets=True)
            attempts, error = [*attempts, attempt], error or failure
        self._attempt = self._idle  # contents are released with this batch, not with the next one
        for attempt in attempts:
            if attempt.has_later:
                self._requeue(attempt.remainder)
        for attempt in attempts:  # last: a callback may execute another batch
            for publisher, tag, count in attempt.refused:
                _notify(partial(publisher.refused, tag, count))
            for on_result, outcome in attempt.get_results:
                _notify(partial(on_result, outcome))
        return BatchResult(max([attempt.epoch for attempt in attempts]), error, size_bytes)

    def _take_requests(self) -> _QueueRequests:
        requests = _QueueRequests()
        requests.groups, self._groups, self._open, self._last = self._groups, [], {}, {}
        requests.settled, self._settled = self._settled, {}
        requests.gets, self._gets = self._gets, []
        requests.deliveries, self._deliveries = self._deliveries, {}
        requests.rejected, self._rejected = self._rejected, []
        return requests

    def _requeue(self, requests: _QueueRequests) -> None:
        """For the next batch."""
        for handle, settlements in requests.settled.items():
            self._settled.setdefault(handle, []).extend(settlements)
        self._gets += requests.gets
        self._deliveries.update(requests.deliveries)
        self._rejected += requests.rejected
        if requests.is_urgent and requests.has_any:
            self.schedule()

    def _execute_requests(
        self, requests: _QueueRequests, with_targets: bool
    ) -> tuple[_Execution, BaseException | None]:
        """As one unit of work. If the code of a queue fails, the session is aborted, and nothing of it has happened.
        Then the same is executed without that queue, whose publishers get a nack; it is restarted meanwhile."""
        error: BaseException | None = None
        while True:
            attempt = self._attempt = _Execution(requests)
            try:
                _, work = self._vhost.execute_once(list(attempt.handles), self._act, with_targets, is_patient=False)
            except Exception as failure:
                error = error or failure
                if attempt.work is not None and attempt.work.has_ended:  # all is in the log; a queue failed after that
                    work = attempt.work
                    break
                failing = attempt.failing()
                if failing is None or failing in self._failing or len(self._failing) >= FAILING_MAX:
                    return self._abandon(attempt, failure), error
                self._failing.add(failing)
                requests.requeue_got(attempt)
                continue
            break
        attempt.epoch = work.epoch
        if work.left_over or work.rejected:
            rest = attempt.remainder if with_targets else attempt.with_targets
            for handle in map(self._vhost.queue_by_id, work.left_over):
                if handle is not None:
                    rest.deliveries[handle] = None
            rest.rejected += [
                (handle, each) for each in work.rejected if (handle := self._vhost.queue_by_id(each.queue))
            ]
        return attempt, error

    def _abandon(self, failed: _Execution, error: Exception) -> _Execution:
        """Nothing was executed, and no queue can be left out: the session itself failed, or a queue that messages were
        moved to. Settlements wait for the next batch. If the cause may last, they do not schedule it."""
        requests = failed.requests
        requests.requeue_got(failed)
        attempt = _Execution(requests)
        for group in requests.groups:
            attempt.refused += group.parts
        failure = error if isinstance(error, WarrenError) else QueueDown(f"request batch failed: {error!r}")
        attempt.get_results += [(on_result, failure) for _, _, on_result in requests.gets]
        attempt.remainder.settled, attempt.remainder.deliveries = requests.settled, requests.deliveries
        attempt.remainder.rejected = requests.rejected
        attempt.remainder.is_urgent = failed.work is not None and failed.work.current_queue is not None
        return attempt

    def _act(self, work: UnitOfWork) -> None:
        attempt = self._attempt
        attempt.work = work
        requests = attempt.requests
        try:
            for group in requests.groups:
                self._put(group, work)
            for handle, settlements in requests.settled.items():
                self._settle(handle, settlements, work)
            work.rejected.extend([each for _, each in requests.rejected])
            for handle, is_auto_ack, on_result in requests.gets:
                try:
                    outcome = self._got(handle, is_auto_ack, work)
                except TargetLocksNeeded:
                    attempt.with_targets.gets.append((handle, is_auto_ack, on_result))
                    continue
                if outcome is None:  # much has expired before it, or is over the limit: in the next batch
                    attempt.remainder.gets.append((handle, is_auto_ack, on_result))
                else:
                    attempt.get_results.append((on_result, outcome))
                    if isinstance(outcome, GetResult) and not is_auto_ack:
                        attempt.fetched.append((handle, outcome))
            for handle in attempt.handles:
                self._serve(handle, work)
        except Exception:
            if work.current_queue is not None:  # its code has failed: it is restarted, even if nothing has changed yet
                work.touch(work.current_queue)
            raise

    def _put(self, group: PublishGroup, work: UnitOfWork) -> None:
        contents, route = group.contents, group.route
        publication = Publication(
            contents,
            group.is_persistent,
            group.expires_ms,
            wall_ms(self._clock),
            group.priority,
            route.origin,
            len(route.handles),
        )
        fewest = len(contents)
        for handle in route.handles:
            queue = handle.queue
            if queue is None or handle in self._failing:  # deleted after routing: ignored; down: a nack
                fewest = fewest if handle.is_deleted else 0
                continue
            work.current_queue = queue
            fewest = min(fewest, queue.accept(publication, work))
        if fewest < len(contents):
            self._refuse(group, fewest)

    def _refuse(self, group: PublishGroup, accepted: int) -> None:
        for publisher, tag, count in group.parts:
            if accepted < count:
                self._attempt.refused.append((publisher, tag + accepted, count - accepted))
            accepted = max(accepted - count, 0)

    def _settle(
        self, handle: QueueHandle, settlements: list[tuple[Settlement, int, list[TagRange]]], work: UnitOfWork
    ) -> None:
        queue = handle.queue
        for settlement, incarnation, tags in settlements:
            if queue is None or queue.incarnation != incarnation:  # restarted since: earlier deliveries are ready again
                continue
            work.current_queue = queue
            try:
                self._settle_tags(handle, queue, settlement, tags, work)
            except TargetLocksNeeded:
                for each in tags:
                    self._attempt.with_targets.settle(handle, settlement, incarnation, each)
            except NotYours as error:  # nothing has changed; pending tags are settled range by range
                if not self._failing:  # else the execution that failed has requeued them
                    self._vhost.report_problem(f"settlement refused: {error.what}")
                for each in tags if len(tags) > 1 else ():
                    with suppress(NotYours):
                        self._settle_tags(handle, queue, settlement, [each], work)

    def _settle_tags(
        self, handle: QueueHandle, queue: BrokerQueue, settlement: Settlement, tags: list[TagRange], work: UnitOfWork
    ) -> None:
        if settlement is Settlement.ACK:
            queue.ack(tags, work)
        elif settlement is Settlement.REQUEUE:
            queue.requeue(tags, work)
        else:
            done = queue.reject(tags, work)
            for rest in behind(tags, done):  # too much for one session
                self._attempt.remainder.settle(handle, Settlement.REJECT, queue.incarnation, rest)

    def _got(self, handle: QueueHandle, is_auto_ack: bool, work: UnitOfWork) -> GetResult | WarrenError | None:
        if handle in self._failing:
            return QueueDown(f"queue {handle.name!r} has just failed", "it is restarted: try again")
        try:
            queue = work.current_queue = handle.serving()
            if queue.expire(work) or not queue.is_ready_for_get(work):
                return None
            fetched = queue.get(1, None, work)
            counts = queue.delivery_counts
            requeues = counts.of(fetched[0].tag) if fetched and counts.is_on else None
            if is_auto_ack and fetched:
                queue.ack([each.tags for each in fetched], work)
        except (WarrenError, Damage) as error:
            return error
        return GetResult(queue.incarnation, fetched, len(queue.backing), requeues)

    def _serve(self, handle: QueueHandle, work: UnitOfWork) -> None:
        queue = handle.queue
        if queue is None or handle in self._failing:
            return
        work.current_queue = queue
        try:
            if queue.expire(work):
                self._attempt.remainder.deliveries[handle] = None
            queue.serve(work)
            if queue.arguments.is_bounded and queue.is_over():
                queue.shrink(work)
        except TargetLocksNeeded:
            self._attempt.with_targets.deliveries[handle] = None
        except Damage as error:  # nothing has changed: the head of the queue cannot be set aside
            self._vhost.report_problem(f"queue {handle.name!r}: delivery failed: {error}")


def _add_settlement(
    settled: _Settlements, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange
) -> None:
    settlements = settled.setdefault(handle, [])
    if settlements and settlements[-1][0] is settlement and settlements[-1][1] == incarnation:
        ranges = settlements[-1][2]
        if ranges[-1][1] == tags[0]:
            ranges[-1] = (ranges[-1][0], tags[1])
        else:
            ranges.append(tags)
    else:
        settlements.append((settlement, incarnation, [tags]))


def _notify(callback: Callable[[], None]) -> None:
    """A callback that raises affects its own client only."""
    try:
        callback()
    except Exception:
        _LOG.exception("callback of a request batch failed")
