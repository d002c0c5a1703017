"""Who is served: a connection, which may own queues, and a channel of it, on which things are asked for.

Neither knows of sockets: AMQP makes one of each for its connections and channels, others may do the same.

A vhost as it is served: its queues, how messages find them, and to whom exclusive ones belong.

`routing` and `owners` are read and changed with `lock` held; nobody waits for anything else meanwhile. The catalog has
the truth about both, but for owners: those are connections of this process.

Queues go for several reasons, some by themselves when their time has come. All of them end here (`_remove`): the name,
its bindings, and the exchanges that go with these, are one change of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warren.base.ids import ExchangeId, QueueId
from warren.base.threads import Condition
from warren.broker.auth.permissions import Access
from warren.broker.counters import MessageCounters
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_api import QueueApi
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import VhostQueues
from warren.catalog import bindings, queues
from warren.catalog.catalog import CatalogChange, ChangeOrder, FunctionChange
from warren.catalog.rows import RowWriter
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
        self._change_order = ChangeOrder(lock)
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

    def apply(self, change: CatalogChange) -> None:
        """Make a change of the catalog that the routing follows, or a lookup whose result the routing must have."""
        self.queues.storage.catalog.apply(change, self._change_order)

    def _add(self, declare: Callable[[RowWriter], queues.QueueRow]) -> queues.QueueRow:
        """A queue that a program declares: AMQP clients declare more about theirs (declarations/queues)."""
        change = _EmbeddedDeclaration(self, declare)
        self.apply(change)
        return change.result

    def _remove(self, handle: QueueHandle, drop: Callable[[], None]) -> None:
        self.apply(_QueueRemoval(self, handle.id, drop))


class _EmbeddedDeclaration(FunctionChange[queues.QueueRow]):
    def __init__(self, vhost: Vhost, declare: Callable[[RowWriter], queues.QueueRow]) -> None:
        super().__init__(declare)
        self._vhost = vhost

    def update_routing(self) -> None:
        self._vhost.routing.add_queue(self.result)


class _QueueRemoval(CatalogChange):
    """A queue's name, its bindings, and the exchanges that are deleted with these."""

    def __init__(self, vhost: Vhost, id_: QueueId, drop: Callable[[], None]) -> None:
        """`drop`: deletes the queue's messages and ends it, once the log has the removal of the name."""
        self._vhost = vhost
        self._id = id_
        self._drop = drop
        self._exchanges: list[ExchangeId] = []

    def write(self, writer: RowWriter) -> None:
        sources = bindings.sources_of(writer.connection, queue=self._id)
        queues.delete(writer, self._id)
        self._exchanges = bindings.remove_unused(writer, sources)

    def on_logged(self) -> None:
        self._drop()

    def update_routing(self) -> None:
        self._vhost.counts.queues_deleted += 1
        self._vhost.disown(self._id)
        self._vhost.routing.remove_queue(self._id)
        for id_ in self._exchanges:
            self._vhost.routing.remove_exchange(id_)
