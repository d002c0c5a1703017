"""Where messages of one kind go: looked up once, and good until a row of the routing changes.

    (exchange, routing key, user) ──▶ Route: the queues, and what their story says of them

Messages with the same route are one run, whoever sent them: equal routes are one object. Only where an exchange looks
at headers, or a message names further keys (CC, BCC), has each message to be looked at by itself.

One turn: what all clients of a vhost asked for between two looks at the network, done in one piece of work.

    publish · settle · get · look        gathered, nothing happens yet
    end ──▶ one Work: messages in, tags settled, messages out; one session, one epoch to wait for

A hundred clients with one message each are one run of a hundred, if they go to the same place: the cost of a session,
of a lock and of a block in the log is shared by all. Messages of one client keep their order: it never joins a group
that stands before one it is in already.

A queue that takes no more refuses what does not fit; the others get it all the same, and the client is told (as
RabbitMQ does).

Only the queues that requests are for are locked. Where something must be dead-lettered, nothing of that is done yet: it
is executed right afterwards, in a second unit of work that holds the locks of all queues it may move messages to. What
leaves a queue there arrives in the others in the same session.

A queue whose code fails is left out: the session is aborted, and everything else is executed again without it. Its
publishers get a nack, its gets an error; what other queues were to settle is settled.

Always true: whoever is told that it was taken is told after `end`, by the epoch; what is handed to consumers may leave
before it is durable (DESIGN rule 24). All calls come from one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, Protocol

from warren.amqp.types import Table
from warren.base.environment import Clock
from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch, ExchangeId, QueueId
from warren.base.messages import WIRE, Origin, Publication
from warren.broker.dead_letters import behind
from warren.broker.errors import NotYours, QueueDown, UnknownQueue
from warren.broker.exchanges.cc import Copies
from warren.broker.exchanges.errors import UnknownExchange
from warren.broker.exchanges.routing import RoutingResult
from warren.broker.queue import Queue
from warren.broker.queue_arguments import wall_ms
from warren.broker.queue_handle import QueueHandle
from warren.broker.realm import Vhost
from warren.broker.unit_of_work import RejectedPublish, UnitOfWork, WiderLocksNeeded
from warren.broker.vhost import VhostQueues
from warren.catalog.catalog import DeletedObjects
from warren.queues.backing_queue import Fetched, TagRange

ROUTES_MAX = 16_384


class Route:
    """Compared by identity."""

    __slots__ = ("handles", "looks_at_headers", "origin", "version")

    def __init__(self, handles: tuple[QueueHandle, ...], origin: Origin, version: int, looks_at_headers: bool) -> None:
        self.handles = handles
        self.origin = origin
        self.version = version
        self.looks_at_headers = looks_at_headers


class RouteCache:
    """Of one vhost. Used by one thread."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._version = -1
        self._known: dict[tuple[str, str, str], Route] = {}
        self._by_queues: dict[tuple[tuple[QueueId, ...], str, str, str], Route] = {}

    def find(self, exchange: str, routing_key: str, user: str) -> Route:
        """For messages without headers; refused if there is no such exchange, or nobody may publish to it."""
        self._follow()
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
        self._follow()
        with self._vhost.lock:
            routed = self._vhost.routing.publish(self._exchange(exchange), routing_key, headers)
        return self._route(routed, exchange, routing_key, user, True), routed.copies

    def is_good(self, route: Route) -> bool:
        """Whether it still is what `find` would say."""
        return route.version == self._vhost.routing.version

    def _exchange(self, name: str) -> ExchangeId:
        row = self._vhost.routing.exchange(name)
        if row is None:
            raise UnknownExchange(name)
        return row.id

    def _route(
        self, routed: RoutingResult, exchange: str, routing_key: str, user: str, looks_at_headers: bool
    ) -> Route:
        key = (routed.queues, exchange, routing_key, user)
        route = self._by_queues.get(key)
        if route is None:
            found = [self._handle(id_) for id_ in routed.queues]
            handles = tuple([handle for handle in found if handle is not None])
            origin = Origin(exchange, routing_key, user, WIRE)
            route = self._by_queues[key] = Route(handles, origin, self._version, looks_at_headers)
        return route

    def _handle(self, id_: QueueId) -> QueueHandle | None:
        """It is started if it was not; None if it was deleted in this moment."""
        queues = self._vhost.queues
        try:
            return queues.served(id_) or queues.start(queues.storage.catalog.queue(id_), is_patient=False)
        except (DeletedObjects, UnknownQueue):
            return None

    def _follow(self) -> None:
        """Forget everything if a row has changed, or keys are random."""
        if self._vhost.routing.version == self._version and len(self._by_queues) < ROUTES_MAX:
            return
        self._known.clear()
        self._by_queues.clear()
        self._version = self._vhost.routing.version


_LOG = logging.getLogger(__name__)
FAILING_MAX = 8  # queues that may fail in one turn; then all of it is refused


class Settlement(Enum):
    ACK = auto()
    REQUEUE = auto()
    REJECT = auto()


class Publisher(Protocol):
    """A channel, as far as it is told what became of its messages. Compared by identity."""

    def refused(self, tag: int, count: int) -> None:
        """So many messages, from this tag of its own on, were not taken by some queue."""
        ...


class GetResult(NamedTuple):
    """What a `get` came to."""

    incarnation: int
    fetched: list[Fetched]  # none if nothing was ready
    left: int  # ready behind it


class PublishGroup:
    """Messages that become one run in each of their queues."""

    __slots__ = ("contents", "expires_ms", "is_persistent", "parts", "place", "priority", "route")

    def __init__(self, route: Route, is_persistent: bool, priority: int, expires_ms: int, place: int) -> None:
        self.route = route
        self.is_persistent = is_persistent
        self.priority = priority
        self.expires_ms = expires_ms
        self.place = place  # among the groups of its turn
        self.contents: list[bytes] = []
        self.parts: list[tuple[Publisher, int, int]] = []  # whose, from which tag, how many


class BatchResult(NamedTuple):
    epoch: Epoch  # when it is durable, so is everything of this turn; 0: there is nothing to wait for
    error: BaseException | None  # why some queue failed; publishers to it were refused, the rest was done
    size_bytes: int  # of what was published


_Callback = Callable[[GetResult | WarrenError], None]
_Settlements = dict[QueueHandle, list[tuple[Settlement, int, list[TagRange]]]]


class _QueueRequests:
    """What is executed in one unit of work."""

    __slots__ = ("gets", "groups", "is_urgent", "looks", "rejected", "settled")

    def __init__(self) -> None:
        self.groups: list[PublishGroup] = []
        self.settled: _Settlements = {}
        self.gets: list[tuple[QueueHandle, bool, _Callback]] = []
        self.looks: dict[QueueHandle, None] = {}
        self.rejected: list[tuple[QueueHandle, RejectedPublish]] = []
        self.is_urgent = True

    @property
    def has_any(self) -> bool:
        return bool(self.groups or self.settled or self.gets or self.looks or self.rejected)

    def handles(self) -> dict[QueueHandle, None]:
        handles: dict[QueueHandle, None] = {}
        for group in self.groups:
            handles.update(dict.fromkeys(group.route.handles))
        if self.settled:
            handles.update(dict.fromkeys(self.settled))
        if self.gets:
            handles.update(dict.fromkeys([handle for handle, _, _ in self.gets]))
        if self.looks:
            handles.update(self.looks)
        if self.rejected:
            handles.update(dict.fromkeys([handle for handle, _ in self.rejected]))
        return handles

    def settle(self, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange) -> None:
        _add_settlement(self.settled, handle, settlement, incarnation, tags)

    def requeue_got(self, failed: _Execution) -> None:
        """What gets have fetched in an attempt that failed: it is pending if its queue was not restarted."""
        for handle, outcome in failed.fetched:
            for each in outcome.fetched:
                self.settle(handle, Settlement.REQUEUE, outcome.incarnation, each.tags)


class _Execution:
    """One execution of requests. What it gathers counts if the session has ended."""

    __slots__ = ("_later", "_wide", "epoch", "fetched", "got", "handles", "refused", "requests", "work")

    def __init__(self, requests: _QueueRequests) -> None:
        self.requests = requests
        self.handles = requests.handles()
        self.work: UnitOfWork | None = None
        self.epoch = Epoch(0)
        self.refused: list[tuple[Publisher, int, int]] = []
        self.got: list[tuple[_Callback, GetResult | WarrenError]] = []
        self.fetched: list[tuple[QueueHandle, GetResult]] = []  # and not acknowledged
        self._wide: _QueueRequests | None = None
        self._later: _QueueRequests | None = None

    @property
    def wide(self) -> _QueueRequests:
        """What moves messages to queues that are not held. Made when it is needed, which is rare."""
        if self._wide is None:
            self._wide = _QueueRequests()
        return self._wide

    @property
    def later(self) -> _QueueRequests:
        """What was too much for one session."""
        if self._later is None:
            self._later = _QueueRequests()
        return self._later

    @property
    def has_wide(self) -> bool:
        return self._wide is not None and self._wide.has_any

    @property
    def has_later(self) -> bool:
        return self._later is not None

    def failing(self) -> QueueHandle | None:
        """The queue whose code has failed, if it is one of those that the requests are for."""
        queue = None if self.work is None else self.work.at_work
        return None if queue is None else next((handle for handle in self.handles if handle.id == queue.id), None)


class RequestBatch:
    def __init__(self, host: VhostQueues, clock: Clock, on_ready: Callable[[], None]) -> None:
        """`on_ready`: have `end` called soon."""
        self._host = host
        self._clock = clock
        self._wake = on_ready
        self._is_woken = False
        self._groups: list[PublishGroup] = []
        self._open: dict[tuple[Route, bool, int, int], PublishGroup] = {}
        self._last: dict[Publisher, int] = {}  # the last group that a publisher is in
        self._settled: _Settlements = {}
        self._gets: list[tuple[QueueHandle, bool, _Callback]] = []
        self._looks: dict[QueueHandle, None] = {}
        self._rejected: list[tuple[QueueHandle, RejectedPublish]] = []
        self._failing: set[QueueHandle] = set()  # queues whose code has failed in this turn
        self._attempt = self._idle = _Execution(_QueueRequests())
        self._size_bytes = 0

    # -- gathering -----------------------------------------------------------------------------------------------

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
        """Messages for the queues of a route, the first with this tag of the publisher's own."""
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
        self.ask()

    def settle(self, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange) -> None:
        _add_settlement(self._settled, handle, settlement, incarnation, tags)
        self.ask()

    def get(self, handle: QueueHandle, is_auto_ack: bool, told: Callable[[GetResult | WarrenError], None]) -> None:
        """One message from the head; `told` is called by `end`."""
        self._gets.append((handle, is_auto_ack, told))
        self.ask()

    def look(self, handle: QueueHandle) -> None:
        """Somebody has room for its messages, or something is to be let go of."""
        self._looks[handle] = None
        self.ask()

    def ask(self) -> None:
        """Have it ended soon, even if there is nothing to do: somebody waits for its end."""
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    # -- doing ---------------------------------------------------------------------------------------------------

    def end(self) -> BatchResult:
        self._is_woken = False
        requests = self._take_requests()
        size_bytes, self._size_bytes = self._size_bytes, 0
        if not requests.has_any:
            return BatchResult(Epoch(0), None, size_bytes)
        self._failing = set()
        attempt, error = self._execute(requests, is_wide=False)
        attempts = [attempt]
        if attempt.has_wide:
            attempt, failure = self._execute(attempt.wide, is_wide=True)
            attempts, error = [*attempts, attempt], error or failure
        self._attempt = self._idle  # contents are released with this turn, not with the next one
        for attempt in attempts:
            if attempt.has_later:
                self._requeue(attempt.later)
        for attempt in attempts:  # behind everything else: a callback may end another turn
            for publisher, tag, count in attempt.refused:
                _notify(partial(publisher.refused, tag, count))
            for told, outcome in attempt.got:
                _notify(partial(told, outcome))
        return BatchResult(max([attempt.epoch for attempt in attempts]), error, size_bytes)

    def _take_requests(self) -> _QueueRequests:
        requests = _QueueRequests()
        requests.groups, self._groups, self._open, self._last = self._groups, [], {}, {}
        requests.settled, self._settled = self._settled, {}
        requests.gets, self._gets = self._gets, []
        requests.looks, self._looks = self._looks, {}
        requests.rejected, self._rejected = self._rejected, []
        return requests

    def _requeue(self, requests: _QueueRequests) -> None:
        """For the next turn."""
        for handle, asked in requests.settled.items():
            self._settled.setdefault(handle, []).extend(asked)
        self._gets += requests.gets
        self._looks.update(requests.looks)
        self._rejected += requests.rejected
        if requests.is_urgent and requests.has_any:
            self.ask()

    def _execute(self, requests: _QueueRequests, is_wide: bool) -> tuple[_Execution, BaseException | None]:
        """As one unit of work. If the code of a queue fails, the session is aborted: nothing of it was done. Then the
        same is executed without that queue, whose publishers get a nack; it is made again meanwhile."""
        error: BaseException | None = None
        while True:
            attempt = self._attempt = _Execution(requests)
            try:
                _, work = self._host.do_once(list(attempt.handles), self._act, is_wide, is_patient=False)
            except Exception as failure:
                error = error or failure
                if attempt.work is not None and attempt.work.has_ended:  # everything was done; only then a queue failed
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
            rest = attempt.later if is_wide else attempt.wide
            for handle in map(self._host.served, work.left_over):
                if handle is not None:
                    rest.looks[handle] = None
            rest.rejected += [(handle, each) for each in work.rejected if (handle := self._host.served(each.queue))]
        return attempt, error

    def _abandon(self, failed: _Execution, error: Exception) -> _Execution:
        """Nothing of it was done, and no queue of it can be left out: the session itself failed, or a queue that
        messages were moved to. What is to be settled waits for the next turn. If the cause may last, it does not bring
        that turn about."""
        requests = failed.requests
        requests.requeue_got(failed)
        attempt = _Execution(requests)
        for group in requests.groups:
            attempt.refused += group.parts
        failure = error if isinstance(error, WarrenError) else QueueDown(f"request batch failed: {error!r}")
        attempt.got += [(told, failure) for _, _, told in requests.gets]
        attempt.later.settled, attempt.later.looks = requests.settled, requests.looks
        attempt.later.rejected = requests.rejected
        attempt.later.is_urgent = failed.work is not None and failed.work.at_work is not None
        return attempt

    def _act(self, work: UnitOfWork) -> None:
        attempt = self._attempt
        attempt.work = work
        requests = attempt.requests
        try:
            for group in requests.groups:
                self._put(group, work)
            for handle, asked in requests.settled.items():
                self._settle(handle, asked, work)
            work.rejected.extend([each for _, each in requests.rejected])
            for handle, is_auto_ack, told in requests.gets:
                try:
                    outcome = self._got(handle, is_auto_ack, work)
                except WiderLocksNeeded:
                    attempt.wide.gets.append((handle, is_auto_ack, told))
                    continue
                if outcome is None:  # very much has expired before it, or is over the limit: in the next turn
                    attempt.later.gets.append((handle, is_auto_ack, told))
                else:
                    attempt.got.append((told, outcome))
                    if isinstance(outcome, GetResult) and not is_auto_ack:
                        attempt.fetched.append((handle, outcome))
            for handle in attempt.handles:
                self._serve(handle, work)
        except Exception:
            if work.at_work is not None:  # its code has failed: it is made again, even if nothing has changed yet
                work.touch(work.at_work)
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
            if queue is None or handle in self._failing:  # deleted after routing: as if it was not there; down: a nack
                fewest = fewest if handle.is_deleted else 0
                continue
            work.at_work = queue
            fewest = min(fewest, queue.accept(publication, work))
        if fewest < len(contents):
            self._refuse(group, fewest)

    def _refuse(self, group: PublishGroup, taken: int) -> None:
        for publisher, tag, count in group.parts:
            if taken < count:
                self._attempt.refused.append((publisher, tag + taken, count - taken))
            taken = max(taken - count, 0)

    def _settle(
        self, handle: QueueHandle, asked: list[tuple[Settlement, int, list[TagRange]]], work: UnitOfWork
    ) -> None:
        queue = handle.queue
        for settlement, incarnation, tags in asked:
            if (
                queue is None or queue.incarnation != incarnation
            ):  # made again since: what was delivered before is ready again
                continue
            work.at_work = queue
            try:
                self._settle_tags(handle, queue, settlement, tags, work)
            except WiderLocksNeeded:
                for each in tags:
                    self._attempt.wide.settle(handle, settlement, incarnation, each)
            except NotYours as error:  # nothing has changed; the tags that are pending are settled one range at a time
                if not self._failing:  # else a requeue was done in the attempt that failed
                    self._host.tell(f"settlement refused: {error.what}")
                for each in tags if len(tags) > 1 else ():
                    with suppress(NotYours):
                        self._settle_tags(handle, queue, settlement, [each], work)

    def _settle_tags(
        self, handle: QueueHandle, queue: Queue, settlement: Settlement, tags: list[TagRange], work: UnitOfWork
    ) -> None:
        if settlement is Settlement.ACK:
            queue.ack(tags, work)
        elif settlement is Settlement.REQUEUE:
            queue.requeue(tags, work)
        else:
            done = queue.reject(tags, work)
            for left in behind(tags, done):  # too much for one session
                self._attempt.later.settle(handle, Settlement.REJECT, queue.incarnation, left)

    def _got(self, handle: QueueHandle, is_auto_ack: bool, work: UnitOfWork) -> GetResult | WarrenError | None:
        if handle in self._failing:
            return QueueDown(f"queue {handle.name!r} has just failed", "it is made again: get once more")
        try:
            queue = work.at_work = handle.serving()
            if queue.expire(work) or not queue.is_ready_for_get(work):
                return None
            fetched = queue.get(1, None, work)
            if is_auto_ack and fetched:
                queue.ack([each.tags for each in fetched], work)
        except (WarrenError, Damage) as error:
            return error
        return GetResult(queue.incarnation, fetched, len(queue.backing))

    def _serve(self, handle: QueueHandle, work: UnitOfWork) -> None:
        queue = handle.queue
        if queue is None or handle in self._failing:
            return
        work.at_work = queue
        try:
            if queue.expire(work):
                self._attempt.later.looks[handle] = None
            queue.serve(work)
            if queue.arguments.is_bounded and queue.is_over():
                queue.shrink(work)
        except WiderLocksNeeded:
            self._attempt.wide.looks[handle] = None
        except Damage as error:  # nothing has changed: it stands at the head, and cannot be set aside
            self._host.tell(f"queue {handle.name!r}: delivery failed: {error}")


def _add_settlement(
    settled: _Settlements, handle: QueueHandle, settlement: Settlement, incarnation: int, tags: TagRange
) -> None:
    asked = settled.setdefault(handle, [])
    if asked and asked[-1][0] is settlement and asked[-1][1] == incarnation:
        ranges = asked[-1][2]
        if ranges[-1][1] == tags[0]:
            ranges[-1] = (ranges[-1][0], tags[1])
        else:
            ranges.append(tags)
    else:
        asked.append((settlement, incarnation, [tags]))


def _notify(callback: Callable[[], None]) -> None:
    """A callback that raises affects its own client only."""
    try:
        callback()
    except Exception:
        _LOG.exception("callback of a request batch failed")
