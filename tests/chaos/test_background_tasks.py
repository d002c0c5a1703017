"""Each background task of a running broker is made to raise ValueError: it is an alarm, and service continues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.stage import DEFECT, QUEUE, ChaosStage, until
from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.base.errors import WarrenError
from warren.server.channel import ServerChannel
from warren.workers import control_socket

pytestmark = pytest.mark.slow


def nothing(stage: ChaosStage) -> None:
    """The task runs in the background."""


def ring_upkeep(stage: ChaosStage) -> None:
    stage.broker._queues.storage.upkeep.request_pass()


def ring_collector(stage: ChaosStage) -> None:
    stage.broker._queues.storage.stores.collect_soon()


def publish(stage: ChaosStage) -> None:
    stage.publish()


def give_order(stage: ChaosStage) -> None:
    assert stage.broker._control is not None
    with suppress(WarrenError):
        control_socket.call(stage.broker._control.path, {"command": "status"}, 5.0)


def fill_memory(stage: ChaosStage) -> None:
    stage.broker.vhosts.monitor.limit_bytes = 1
    stage.publish()
    stage.broker.vhosts.monitor.limit_bytes = 1 << 30


def connect_and_leave(stage: ChaosStage) -> None:
    RawClient(stage.port).log_in().socket.close()


def sample_soon(stage: ChaosStage) -> None:
    stage.management.statistics.sample_soon()


TASKS: dict[str, tuple[Callable[[ChaosStage], Any], str, Callable[[ChaosStage], None]]] = {
    # task: whose method is broken, which, and what has the task run
    "upkeep": (lambda stage: stage.broker._queues.storage.upkeep, "run", ring_upkeep),
    "scrub": (lambda stage: stage.broker._queues.storage.upkeep, "_scrub", nothing),
    "store-gc": (lambda stage: stage.broker._queues.storage.stores.collector, "run", ring_collector),
    "reflection": (lambda stage: stage.broker.database.reflection, "_apply_and_flush", publish),
    "compaction": (lambda stage: stage.broker.database.log.disk_reserve, "lay", nothing),
    "timetable": (lambda stage: stage.broker.vhosts.monitor, "tick", nothing),
    "control-socket": (lambda stage: stage.broker._control, "_answer", give_order),
    "client-watch": (lambda stage: stage.broker.server.monitor, "_check_clients", nothing),
    "delivery-watch": (lambda stage: stage.broker.server.monitor, "_check_deliveries", nothing),
    "memory-watch": (lambda stage: stage.broker.server.monitor, "_check_memory", nothing),
    "disk-watch": (lambda stage: stage.broker.server.monitor, "_check_disk", nothing),
    "garbage-watch": (lambda stage: stage.broker._queues.storage.upkeep, "is_behind", publish),
    "paging": (lambda stage: stage.broker.vhosts.monitor, "relieve", fill_memory),
    "statistics": (lambda stage: stage.management.statistics, "sample", sample_soon),
    "cleanup": (lambda stage: stage.broker.server.served("/").declarations, "release", connect_and_leave),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_that_raises_is_an_alarm_and_service_continues(
    task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner, method, provoke = TASKS[task]
    with ChaosStage(tmp_path / "data") as stage:
        stage.check_service()
        with stage.broken(owner(stage), method) as calls:
            provoke(stage)
            until(lambda: bool(calls), f"{task} does not run")
            stage.check_alarm(task)
            stage.publish()
            stage.check_service()
        provoke(stage)
        stage.check_recovery(task)
        stage.check_service()
        records = [record for record in caplog.records if getattr(record, "facts", {}).get("task") == task]
        assert records[0].getMessage() == "background task failed"
        assert records[0].exc_info and DEFECT in str(records[0].exc_info[1])


def test_every_task_of_a_broker_is_broken_by_a_test(tmp_path: Path) -> None:
    """A new task comes with a test of what its failure does."""
    elsewhere = {"request-batch", "connection", "event-loop", "confirms"}  # below, and in tests/broker
    elsewhere.add("queue-restart")  # tests/broker/test_queue_handle
    with ChaosStage(tmp_path / "data") as stage:
        assert set(stage.broker.environment.background.failures()) == {*TASKS, *elsewhere}


def test_a_batch_that_raises_is_refused_and_the_next_one_is_served(tmp_path: Path) -> None:
    with ChaosStage(tmp_path / "data") as stage:
        stage.check_service()
        with stage.broken(stage.broker.server.served("/").batch, "execute", is_done_first=True):
            assert isinstance(stage.publish(), methods.BasicNack)
            stage.check_alarm("request-batch")
        stage.check_service()
        stage.check_recovery("request-batch")


def test_a_connection_whose_output_raises_is_closed_and_the_others_are_served(tmp_path: Path) -> None:
    with ChaosStage(tmp_path / "data") as stage, RawClient(stage.port).log_in().channel() as victim:
        connection = list(stage.broker.server.connections)[-1]
        with stage.broken(connection, "flush"):
            victim.send_method(1, methods.BasicQos(prefetch_count=1))
            assert victim.is_closed()
        stage.check_service()
        assert stage.metric("warren_background_failures_total", "connection") >= 1
        stage.check_recovery("connection")


def test_a_callback_of_the_loop_that_raises_is_an_alarm_for_a_while(tmp_path: Path) -> None:
    with ChaosStage(tmp_path / "data") as stage:
        stage.loop.call_soon_threadsafe(_raise)
        stage.check_alarm("event-loop")
        stage.check_service()
        stage.callbacks._failed_at -= 3600
        stage.loop.call_soon_threadsafe(stage.callbacks.clear_if_quiet)
        stage.check_recovery("event-loop")


def _raise() -> None:
    raise ValueError(DEFECT)


def test_a_confirm_for_one_client_that_raises_does_not_keep_others_from_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = ServerChannel.confirm

    def confirm_others(channel: ServerChannel, tag: int) -> None:
        if channel is broken:
            raise ValueError(DEFECT)
        confirm(channel, tag)

    monkeypatch.setattr(ServerChannel, "confirm", confirm_others)
    with ChaosStage(tmp_path / "data") as stage, RawClient(stage.port).log_in().channel(confirms=True) as victim:
        broken = list(stage.broker.server.connections)[-1].channels[1]
        victim.publish(1, QUEUE, b"message without a confirm")
        assert victim.is_closed()
        stage.check_service()
        stage.check_recovery("connection")


def test_a_batch_of_one_vhost_that_raises_leaves_the_vhosts_behind_it_served(tmp_path: Path) -> None:
    with ChaosStage(tmp_path / "data") as stage:
        stage.vhost("other")
        server = stage.broker.server
        with RawClient(stage.port).log_in(vhost="other").channel(confirms=True) as client:
            client.send_method(1, methods.QueueDeclare(queue=QUEUE, durable=True))
            client.expect(methods.QueueDeclareOk)
            first, second = server.served("/").batch, server.served("other").batch

            def wake_both() -> None:
                first.schedule()
                second.schedule()

            with stage.broken(first, "execute", is_done_first=True) as calls:
                stage.loop.call_soon_threadsafe(wake_both)
                until(lambda: bool(calls), "the first vhost is not run")
            client.publish(1, QUEUE, b"in the next round")
            client.expect(methods.BasicAck)
        stage.check_service()


def test_publishers_whom_garbage_holds_for_more_than_a_second_are_notified(tmp_path: Path) -> None:
    with ChaosStage(tmp_path / "data") as stage, RawClient(stage.port).log_in(connection__blocked=True) as client:
        upkeep: Any = stage.broker._queues.storage.upkeep
        stage.check_service()
        upkeep.is_behind = lambda: True
        stage.publish()
        assert client.expect(methods.ConnectionBlocked).reason == "cleaning up disk space"
        alarms = stage.get("health/checks/alarms").json()["alarms"]
        assert [alarm["resource"] for alarm in alarms] == ["cleanup"]
        del upkeep.is_behind
        client.expect(methods.ConnectionUnblocked)
        stage.check_service()
        assert stage.get("health/checks/alarms").status_code == 200
