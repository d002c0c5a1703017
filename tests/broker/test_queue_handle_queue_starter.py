"""The queue starter: role and recovery are decided at each start, from what is on disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.faulty_queue import Faults
from tests.broker.stage import BrokerStage, bodies
from warren.base.errors import Refused
from warren.base.ids import Epoch, QueueId
from warren.base.messages import Publication
from warren.broker.errors import QueueDown
from warren.broker.queue_handle import Proxy, QueueRole, QueueStarter
from warren.catalog.catalog import DeletedObjects
from warren.catalog.queues import QueueRow as Row
from warren.queues.backing_queue import BackingQueue

NEVER = Epoch(0)


@pytest.fixture
def stage() -> Iterator[BrokerStage]:
    stage = BrokerStage().up()
    yield stage
    stage.down()


def test_it_starts_empty_or_recovers_according_to_catalog_and_index(stage: BrokerStage) -> None:
    """QP-03: the same call, three decisions."""
    orders = stage.queue("orders")
    passing = stage.queue("passing", durable=False)
    start = stage.vhost.starter.start
    assert start(orders.id, 2, NEVER)[0] == (QueueRole.REGULAR, True)
    stage.put(b"1", to=["orders", "passing"])
    beginning, queue = start(orders.id, 2, orders.epoch)
    assert (beginning, len(queue.backing)) == ((QueueRole.REGULAR, False), 1)
    beginning, queue = start(passing.id, 2, passing.epoch)
    assert (beginning, len(queue.backing)) == ((QueueRole.REGULAR, True), 0)
    stage.vhost.delete_queue(passing)
    with pytest.raises(DeletedObjects):
        start(passing.id, 3, passing.epoch)


def test_a_start_has_what_was_written_and_is_still_on_its_way(stage: BrokerStage) -> None:
    orders = stage.queue("orders")
    epoch = stage.queue_api.put(Publication([b"1"]), [orders])
    assert epoch > stage.database.log.durable
    _, queue = stage.vhost.starter.start(orders.id, 2, orders.epoch)
    assert len(queue.backing) == 1


def test_after_a_crash_it_may_come_back_in_another_role() -> None:
    """QP-04, C-11: the role is a hook, called at every start; the queue handle stores none."""
    stage, roles, faults = BrokerStage(), {"orders": QueueRole.MASTER}, Faults()
    stage.up()
    storage = stage.storage
    started_roles: list[QueueRole] = []

    def proxy(role: QueueRole) -> Proxy:
        def wrap(backing: BackingQueue) -> BackingQueue:
            started_roles.append(role)
            return faults.over(backing)

        return wrap

    stage.vhost.supervisor._starter = QueueStarter(
        storage.catalog.queue,
        storage.recover,
        storage.log.wait,
        storage.kinds,
        stage.vhost.context,
        lambda row: roles.get(row.name, QueueRole.REGULAR),
        {QueueRole.MASTER: proxy(QueueRole.MASTER), QueueRole.MIRROR: proxy(QueueRole.MIRROR)},
    )
    stage.queue("orders")
    stage.put(b"1", to="orders")
    roles["orders"] = QueueRole.MIRROR
    faults.once["fetch"] = RuntimeError("a bug")
    with pytest.raises(QueueDown):
        stage.get("orders")
    assert started_roles == [QueueRole.MASTER, QueueRole.MIRROR]
    assert bodies(stage.take("orders")) == [b"1"]
    del roles["orders"]
    faults.once["purge"] = RuntimeError("a bug")
    with pytest.raises(QueueDown):
        stage.queue_api.purge(stage.vhost.find_queue("orders"))
    assert stage.get("orders") == [b"1"]
    assert started_roles == [QueueRole.MASTER, QueueRole.MIRROR]
    stage.down()


def test_a_role_without_a_factory_is_refused(stage: BrokerStage) -> None:
    storage = stage.storage
    around = stage.vhost.context

    def role_of(row: Row) -> QueueRole:
        return QueueRole.MIRROR

    starter = QueueStarter(storage.catalog.queue, storage.recover, storage.log.wait, storage.kinds, around, role_of)
    with pytest.raises(Refused, match="mirror"):
        starter.start(QueueId(stage.queue("orders").id), 1, NEVER)
