"""A vhost as it is served: its queues, how messages find them, and to whom exclusive ones belong.

`routing` and `owners` are read and changed with `lock` held; nobody waits for anything else meanwhile. The catalog has
the truth about both, but for owners: those are connections of this process.

Queues go for several reasons, some by themselves when their time has come. All of them end here (`_remove`): the name,
its bindings, and the exchanges that go with these, are one change of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.base.ids import ExchangeId, QueueId
from warren.base.threads import Condition
from warren.broker.client import Owner
from warren.broker.counts import MessageCounters
from warren.broker.exchanges.routing import Routing
from warren.broker.ordered_changes import OrderedChanges
from warren.broker.supervisor import QueueHandle
from warren.broker.traffic import QueueApi
from warren.broker.virtual_host import VhostQueues
from warren.catalog import auto_delete, queues
from warren.catalog.change import Change
from warren.catalog.vhosts import VhostRow


class Vhost:
    def __init__(
        self, vhost: VhostRow, host: VhostQueues, routing: Routing, traffic: QueueApi, lock: Condition
    ) -> None:
        self.vhost = vhost
        self.queues = host
        self.routing = routing
        self.traffic = traffic
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

    def _remove(self, child: QueueHandle, drop: Callable[[], None]) -> None:
        """`drop`: what is in it goes, and it ends. Called when the name is removed in the log."""

        def work(change: Change) -> list[ExchangeId]:
            sources = auto_delete.sources_of(change.connection, queue=child.id)
            queues.delete(change, child.id)
            return auto_delete.remove_unused(change, sources)

        def follow(exchanges: list[ExchangeId]) -> None:
            self.counts.queues_deleted += 1
            self.disown(child.id)
            self.routing.remove_queue(child.id)
            for id_ in exchanges:
                self.routing.remove_exchange(id_)

        self.changes.change(work, follow, appended=lambda _: drop())
