"""Who is served: a connection, which may own queues, and a channel of it, on which things are asked for.

Neither knows of sockets: AMQP makes one of each for its connections and channels, others may do the same.

Changes of the catalog, and what follows from them in memory, in one order.

    work, in the catalog: 1 2 3 … ──▶ in the log ──▶ durable, several at once ──▶ follow, in memory: 1, then 2, then 3 …
                                      appended       prepare

The catalog does one change after the other, and makes several durable together. Whoever is durable first must not be
the first to tell the routing, or a queue would be forgotten before it is known. So each change takes a number as the
last thing that it does, and what follows from it waits until those before it have followed.

Always true: an answer follows everything that was changed before it was found; of a change that failed nothing follows,
and of a change that is durable everything does, also if `appended` or `prepare` raises. `appended` runs when the change
can be refused no more and is not durable yet, `prepare` when it is durable and before it follows. Both run without a
lock, and neither may wait for other changes. Every number that was taken is released.

A vhost as it is served: its queues, how messages find them, and to whom exclusive ones belong.

`routing` and `owners` are read and changed with `lock` held; nobody waits for anything else meanwhile. The catalog has
the truth about both, but for owners: those are connections of this process.

Queues go for several reasons, some by themselves when their time has come. All of them end here (`_remove`): the name,
its bindings, and the exchanges that go with these, are one change of the catalog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from warren.base.ids import Epoch, ExchangeId, QueueId
from warren.base.threads import Condition
from warren.broker.auth.permissions import Access
from warren.broker.counters import MessageCounters
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_api import QueueApi
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import VhostQueues
from warren.catalog import bindings, queues
from warren.catalog.catalog import Catalog
from warren.catalog.rows import Change
from warren.catalog.vhosts import VhostRow


@dataclass(slots=True, eq=False)
class Owner:
    """A connection. Exclusive queues are its own, and go with it."""

    name: str  # for messages: 127.0.0.1:40312 -> 127.0.0.1:5672
    exclusive: set[QueueId] = field(default_factory=set)
    has_gone: bool = False  # what it has declared meanwhile goes, too


@dataclass(slots=True, eq=False)
class Client:
    """A channel, with what was permitted to its user in its vhost."""

    access: Access
    owner: Owner
    last_queue: str = ""  # declared last: it is meant where a method names none


Result = TypeVar("Result")


class OrderedChanges:
    def __init__(self, catalog: Catalog, lock: Condition) -> None:
        """`lock` is held while something follows."""
        self._catalog = catalog
        self._lock = lock
        self._newest = 0
        self._open: deque[int] = deque()  # changes from which nothing has followed yet

    def change(
        self,
        work: Callable[[Change], Result],
        follow: Callable[[Result], None] = lambda result: None,
        prepare: Callable[[Result], None] = lambda result: None,
        appended: Callable[[Result], None] = lambda result: None,
    ) -> Result:
        numbers: list[int] = []

        def numbered(change: Change) -> Result:
            result = work(change)
            numbers.append(self._taken())
            return result

        try:
            result, epoch = self._catalog.submit(numbered)
        except BaseException:
            self._release(numbers)
            raise
        try:
            appended(result)
        finally:
            self._settle(numbers, epoch)
            try:
                prepare(result)
            finally:
                self._follow(numbers[0], follow, result)
        return result

    def _settle(self, numbers: list[int], epoch: Epoch) -> None:
        try:
            self._catalog.settle(epoch)
        except BaseException:  # the log has failed
            self._release(numbers)
            raise

    def _follow(self, number: int, follow: Callable[[Result], None], result: Result) -> None:
        """In the order of numbers. Whatever is raised on the way, those behind it do not wait for this one."""
        with self._lock:
            try:
                while self._open[0] != number:
                    self._lock.wait()
                follow(result)
            finally:
                self._open.remove(number)
                self._lock.notify_all()

    def _taken(self) -> int:
        """Called by one thread at a time, in the order of changes."""
        with self._lock:
            self._newest += 1
            self._open.append(self._newest)
            return self._newest

    def _release(self, numbers: list[int]) -> None:
        with self._lock:
            for number in numbers:
                self._open.remove(number)
            self._lock.notify_all()


class Vhost:
    def __init__(
        self, vhost: VhostRow, host: VhostQueues, routing: Routing, queue_api: QueueApi, lock: Condition
    ) -> None:
        self.vhost = vhost
        self.queues = host
        self.routing = routing
        self.queue_api = queue_api
        self.lock = lock
        self.owners: dict[QueueId, Owner] = {}  # of exclusive queues
        self.counts = MessageCounters()  # whoever serves clients puts his own here
        self.changes = OrderedChanges(host.storage.catalog, lock)  # all that touch the routing
        host.add = self._add
        host.remove = self._remove

    def __repr__(self) -> str:
        return f"<vhost {self.vhost.name!r}>"

    def own(self, owner: Owner, id_: QueueId) -> None:
        self.owners[id_] = owner
        owner.exclusive.add(id_)

    def disown(self, id_: QueueId) -> None:
        owner = self.owners.pop(id_, None)
        if owner is not None:
            owner.exclusive.discard(id_)

    def _add(self, work: Callable[[Change], queues.QueueRow]) -> queues.QueueRow:
        """A queue that a program declares: clients of AMQP declare more about theirs (queue_topology)."""
        return self.changes.change(work, self.routing.add_queue)

    def _remove(self, handle: QueueHandle, drop: Callable[[], None]) -> None:
        """`drop`: what is in it goes, and it ends. Called when the name is removed in the log."""

        def work(change: Change) -> list[ExchangeId]:
            sources = bindings.sources_of(change.connection, queue=handle.id)
            queues.delete(change, handle.id)
            return bindings.remove_unused(change, sources)

        def follow(exchanges: list[ExchangeId]) -> None:
            self.counts.queues_deleted += 1
            self.disown(handle.id)
            self.routing.remove_queue(handle.id)
            for id_ in exchanges:
                self.routing.remove_exchange(id_)

        self.changes.change(work, follow, appended=lambda _: drop())
