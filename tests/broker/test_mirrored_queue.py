"""A queue that starts as a master with a mirror, loses its master, and restarts from the mirror."""

from __future__ import annotations

import pytest

from tests.broker.faulty_queue import Faults
from tests.broker.stage import BrokerStage, bodies
from warren.broker.errors import QueueDown
from warren.broker.queue_handle import QueueRole, QueueStarter
from warren.queues.backing_queue import BackingQueue
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.kinds.mirror_queue import MirrorQueue


class Mirroring:
    """Decides the roles at each start: a queue whose master has failed continues with its mirror."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.roles: dict[str, QueueRole] = {"orders": QueueRole.MASTER}
        self.mirror: MirrorQueue | None = None

    def as_master(self, backing: BackingQueue) -> BackingQueue:
        self.mirror = MirrorQueue(self.faults.over(backing), MemoryQueue())
        return self.mirror

    def as_mirror(self, stage: BrokerStage) -> BackingQueue:
        """The mirror takes over, regardless of the state of the master."""
        assert self.mirror is not None
        changes = stage.storage.index.begin()
        self.mirror.promote(changes)
        changes.end()
        return self.mirror


def test_qp_04_a_master_that_fails_comes_back_as_its_mirror() -> None:
    """QP-03, QP-04, BQ-07: the role is decided at each start. Nothing that was answered is lost, though the master
    is not available any more; what was pending is delivered again."""
    stage, mirroring = BrokerStage(), Mirroring()
    stage.up()
    stage.vhost.supervisor._starter = QueueStarter(
        stage.storage.catalog.queue,
        stage.storage.recover,
        stage.storage.log.wait,
        stage.storage.kinds,
        stage.vhost.context,
        lambda row: mirroring.roles.get(row.name, QueueRole.REGULAR),
        {QueueRole.MASTER: mirroring.as_master, QueueRole.MIRROR: lambda backing: mirroring.as_mirror(stage)},
    )
    stage.queue("orders")
    stage.put(b"1", b"2", b"3", to="orders")
    assert stage.get("orders", 1) == [b"1"]
    assert bodies(stage.take("orders")) == [b"2"]
    assert mirroring.mirror is not None and mirroring.mirror.is_in_step
    mirroring.roles["orders"] = QueueRole.MIRROR
    mirroring.faults.always = {name: RuntimeError("a bug") for name in ("fetch", "browse", "requeue")}
    with pytest.raises(QueueDown):
        stage.get("orders")
    delivery = stage.take("orders", 9)
    assert bodies(delivery) == [b"2", b"3"]
    assert [each.is_redelivered for each in delivery.fetched] == [True, False]
    stage.put(b"4", to="orders")
    assert stage.get("orders") == [b"4"]
    stage.down()
