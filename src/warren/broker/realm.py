"""A vhost as it is served: its queues, how messages find them, and to whom exclusive ones belong.

`routing` and `owners` are read and changed with `lock` held; nobody waits for anything else meanwhile. The catalog has
the truth about both, but for owners: those are connections of this process.
"""

from __future__ import annotations

from warren.base.ids import QueueId
from warren.base.threads import Condition
from warren.broker.client import Owner
from warren.broker.exchanges.routing import Routing
from warren.broker.traffic import Traffic
from warren.broker.virtual_host import VirtualHost
from warren.catalog.vhosts import Vhost


class Realm:
    def __init__(self, vhost: Vhost, queues: VirtualHost, routing: Routing, traffic: Traffic, lock: Condition) -> None:
        self.vhost = vhost
        self.queues = queues
        self.routing = routing
        self.traffic = traffic
        self.lock = lock
        self.owners: dict[QueueId, Owner] = {}  # of exclusive queues

    def __repr__(self) -> str:
        return f"<vhost {self.vhost.name!r}>"
