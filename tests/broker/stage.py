"""A vhost with queues on a memory disk, with a manual clock, and backing queues of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.catalog.catalog_stage import CatalogStage
from warren.base.errors import WarrenError
from warren.base.messages import Publication
from warren.broker.consumers import Delivery, Outcome
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_api import SettleCall
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import MakeOne, QueueStorage
from warren.broker.vhost import Vhost
from warren.catalog import vhosts
from warren.catalog.rebuild import remove_leftovers
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings


class BrokerStage(CatalogStage):
    """`up`, then use; `down` and `up` again is a clean restart."""

    def __init__(self, kinds: Mapping[str, MakeOne] | None = None, default: str = "variable", **settings: Any) -> None:
        super().__init__()
        self.kinds = dict(kinds or {})
        self.of_queues = VariableQueueSettings()
        self.settings = QueueSettings(backing=default, **settings)
        self.routing: Routing | None = None

    def up(self) -> BrokerStage:
        catalog = self.begin()
        home = catalog.change(lambda change: vhosts.declare(change, "/"))
        catalog.change(remove_leftovers)
        storage = QueueStorage(
            self.database, catalog, self.settings, self.of_queues, MessageStoreSettings(), self.kinds
        )
        self.storage, self.index = storage, storage.index
        self.vhost = Vhost(home, storage, self.environment(), self.settings, routing=self.routing)
        self.queue_api = self.vhost.queue_api
        return self

    def down(self) -> None:
        self.vhost.close()
        self.storage.close()
        self.stop()

    def queue(self, name: str, durable: bool = True, **arguments: Any) -> QueueHandle:
        return self.vhost.declare_queue(name, durable, QueueArguments(**arguments))

    def put(self, *contents: bytes, to: str | list[str], **more: Any) -> None:
        names = [to] if isinstance(to, str) else to
        now_ms = self.clock.wall_ns() // 1_000_000
        publication = Publication(list(contents), published_ms=now_ms, fan_out=len(names), **more)
        epoch = self.queue_api.put(publication, [self.vhost.find_queue(name) for name in names])
        self.database.log.wait(epoch)

    def get(self, name: str, count: int = 1000) -> list[bytes]:
        """And acknowledge."""
        handle = self.vhost.find_queue(name)
        delivery = self.queue_api.get(handle, count)
        if delivery is None:
            return []
        self.queue_api.ack(handle, settling(delivery))
        return bodies(delivery)

    def take(self, name: str, count: int = 1) -> Delivery:
        delivery = self.queue_api.get(self.vhost.find_queue(name), count)
        assert delivery is not None, "something should be ready"
        return delivery

    def pass_ms(self, ms: int) -> None:
        """Advance the clock and run everything that is due."""
        self.clock.advance_ns(ms * 1_000_000)
        while self.vhost.timers.run_due():
            continue

    def length(self, name: str) -> int:
        return self.queue_api.length(self.vhost.find_queue(name))


class Waiter:
    """A waiting `Getter` that records what it receives."""

    def __init__(self, count: int = 1, has_gone: bool = False) -> None:
        self.count = count
        self.bytes_max: int | None = None
        self.handed: list[list[bytes]] = []
        self.errors: list[BaseException] = []
        self.has_gone = has_gone

    def deliver(self, outcome: Outcome) -> bool:
        if self.has_gone:
            return False
        if isinstance(outcome, Delivery):
            self.handed.append(bodies(outcome))
        else:
            assert isinstance(outcome, WarrenError)
            self.errors.append(outcome)
        return True


def bodies(delivery: Delivery) -> list[bytes]:
    return [content for each in delivery.fetched for content in each.slice.contents or []]


def settling(delivery: Delivery) -> SettleCall:
    return SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched])
