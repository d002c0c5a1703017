"""One turn: what all clients of a vhost asked for between two looks at the network, done in one piece of work.

    publish · settle · get · look        gathered, nothing happens yet
    end ──▶ one Work: messages in, tags settled, messages out; one session, one epoch to wait for

A hundred clients with one message each are one run of a hundred, if they go to the same place: the cost of a session,
of a lock and of a block in the log is shared by all. Messages of one client keep their order: it never joins a group
that stands before one it is in already.

A queue that takes no more refuses what does not fit; the others get it all the same, and the client is told (as
RabbitMQ does). What moves to another queue moves in the same session.

Always true: whoever is told that it was taken is told after `end`, by the epoch; what is handed to consumers may leave
before it is durable (DESIGN rule 24). All calls come from one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from warren.base.clock import Clock
from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch
from warren.base.runs import Publication
from warren.broker.errors import NotYours
from warren.broker.expiry import wall_ms
from warren.broker.leaving import behind
from warren.broker.queue import Queue
from warren.broker.routes import Route
from warren.broker.supervisor import Supervised
from warren.broker.virtual_host import VirtualHost
from warren.broker.work import Work
from warren.queues.backing import Fetched, TagRange

_LOG = logging.getLogger(__name__)


class How(Enum):
    ACK = auto()
    REQUEUE = auto()
    REJECT = auto()


class Publisher(Protocol):
    """A channel, as far as it is told what became of its messages. Compared by identity."""

    def refused(self, tag: int, count: int) -> None:
        """So many messages, from this tag of its own on, were not taken by some queue."""
        ...


class Got(NamedTuple):
    """What a `get` came to."""

    life: int
    fetched: list[Fetched]  # none if nothing was ready
    left: int  # ready behind it


class Group:
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


class Done(NamedTuple):
    epoch: Epoch  # when it is durable, so is everything of this turn; 0: there is nothing to wait for
    error: BaseException | None  # nothing of it was done
    size_bytes: int  # of what was published


class Turn:
    def __init__(self, host: VirtualHost, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake`: have `end` called soon."""
        self._host = host
        self._clock = clock
        self._wake = wake
        self._is_woken = False
        self._groups: list[Group] = []
        self._open: dict[tuple[Route, bool, int, int], Group] = {}
        self._last: dict[Publisher, int] = {}  # the last group that a publisher is in
        self._settled: dict[Supervised, list[tuple[How, int, list[TagRange]]]] = {}
        self._gets: list[tuple[Supervised, bool, Callable[[Got | WarrenError], None]]] = []
        self._looks: dict[Supervised, None] = {}
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
            group = Group(route, is_persistent, priority, expires_ms, len(self._groups))
            self._groups.append(group)
            self._open[key] = group
        self._last[publisher] = group.place
        group.contents += contents
        group.parts.append((publisher, tag, len(contents)))
        self._size_bytes += sum(map(len, contents))
        self.ask()

    def settle(self, child: Supervised, how: How, life: int, tags: TagRange) -> None:
        asked = self._settled.setdefault(child, [])
        if asked and asked[-1][0] is how and asked[-1][1] == life:
            ranges = asked[-1][2]
            if ranges[-1][1] == tags[0]:
                ranges[-1] = (ranges[-1][0], tags[1])
            else:
                ranges.append(tags)
        else:
            asked.append((how, life, [tags]))
        self.ask()

    def get(self, child: Supervised, is_auto_ack: bool, told: Callable[[Got | WarrenError], None]) -> None:
        """One message from the head; `told` is called by `end`."""
        self._gets.append((child, is_auto_ack, told))
        self.ask()

    def look(self, child: Supervised) -> None:
        """Somebody has room for its messages, or something is to be let go of."""
        self._looks[child] = None
        self.ask()

    def ask(self) -> None:
        """Have it ended soon, even if there is nothing to do: somebody waits for its end."""
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    # -- doing ---------------------------------------------------------------------------------------------------

    def end(self) -> Done:
        self._is_woken = False
        groups, self._groups, self._open, self._last = self._groups, [], {}, {}
        settled, self._settled = self._settled, {}
        gets, self._gets = self._gets, []
        looks, self._looks = self._looks, {}
        size_bytes, self._size_bytes = self._size_bytes, 0
        children: dict[Supervised, None] = {}
        for group in groups:
            children.update(dict.fromkeys(group.route.children))
        if settled:
            children.update(dict.fromkeys(settled))
        if gets:
            children.update(dict.fromkeys([child for child, _, _ in gets]))
        if looks:
            children.update(looks)
        if not children:
            return Done(Epoch(0), None, size_bytes)
        got: list[tuple[Callable[[Got | WarrenError], None], Got | WarrenError]] = []

        def act(work: Work) -> None:
            for group in groups:
                self._put(group, work)
            for child, asked in settled.items():
                self._settle(child, asked, work)
            for child, is_auto_ack, told in gets:
                outcome = self._got(child, is_auto_ack, work)
                if outcome is None:  # very much has expired before it, or is over the limit: in the next turn
                    self.get(child, is_auto_ack, told)
                else:
                    got.append((told, outcome))
            for child in children:
                self._serve(child, work)

        try:
            _, epoch = self._host.do(list(children), act, _is_wide(children), is_patient=False)
        except Exception as error:
            failure = error if isinstance(error, WarrenError) else NotYours(f"the queue failed: {error!r}")
            for _, _, told in gets:
                _notify(told, failure)
            return Done(Epoch(0), error, size_bytes)
        for told, outcome in got:
            _notify(told, outcome)
        for child in children:
            if (queue := child.queue) is not None and queue.arguments.is_bounded and queue.is_over():
                self.look(child)
        return Done(epoch, None, size_bytes)

    def _put(self, group: Group, work: Work) -> None:
        contents, route = group.contents, group.route
        publication = Publication(
            contents,
            group.is_persistent,
            group.expires_ms,
            wall_ms(self._clock),
            group.priority,
            route.origin,
            len(route.children),
        )
        fewest = len(contents)
        for child in route.children:
            queue = child.queue
            if queue is None:  # deleted in this moment: it is not there, or it is down: nobody takes it
                fewest = fewest if child.is_deleted else 0
                continue
            fewest = min(fewest, queue.accept(publication, work))
        if fewest < len(contents):
            self._refuse(group, fewest)

    def _refuse(self, group: Group, taken: int) -> None:
        for publisher, tag, count in group.parts:
            if taken < count:
                publisher.refused(tag + taken, count - taken)
            taken = max(taken - count, 0)

    def _settle(self, child: Supervised, asked: list[tuple[How, int, list[TagRange]]], work: Work) -> None:
        queue = child.queue
        for how, life, tags in asked:
            if queue is None or queue.life != life:  # made again since: what was delivered before is ready again
                continue
            if how is How.ACK:
                queue.ack(tags, work)
            elif how is How.REQUEUE:
                queue.requeue(tags, work)
            else:
                self._reject(child, queue, tags, work)

    def _reject(self, child: Supervised, queue: Queue, tags: list[TagRange], work: Work) -> None:
        done = queue.reject(tags, work)
        for left in behind(tags, done):  # too much for one session
            self.settle(child, How.REJECT, queue.life, left)

    def _got(self, child: Supervised, is_auto_ack: bool, work: Work) -> Got | WarrenError | None:
        try:
            queue = child.serving()
            if queue.expire(work) or not queue.is_ready_for_get(work):
                return None
            fetched = queue.get(1, None, work)
            if is_auto_ack and fetched:
                queue.ack([each.tags for each in fetched], work)
        except (WarrenError, Damage) as error:
            return error
        return Got(queue.life, fetched, len(queue.backing))

    def _serve(self, child: Supervised, work: Work) -> None:
        queue = child.queue
        if queue is None:
            return
        if queue.expire(work):
            self.look(child)
        queue.serve(work)
        if queue.arguments.is_bounded and queue.is_over():
            queue.shrink(work)


def _notify(callback: Callable[[Got | WarrenError], None], outcome: Got | WarrenError) -> None:
    """A callback that raises affects its own client only."""
    try:
        callback(outcome)
    except Exception:
        _LOG.exception("callback of a get failed")


def _is_wide(children: Iterable[Supervised]) -> bool:
    """Whether messages may move on from any of them; of one that is being made again nobody knows yet. It must be known
    before anything changes: a turn cannot be begun once more in the middle."""
    return any(child.queue is None or child.queue.arguments.dead_letters_to is not None for child in children)
