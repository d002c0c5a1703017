"""Declarations over real sockets while SQL, or a queue's own start, fails: other clients are served, and no confirmed
message is lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tests.server.raw_client import RawClient
from tests.server.served_broker import served_broker
from warren.amqp import methods
from warren.base.ids import Epoch
from warren.broker.queue_handle import QueueStarter
from warren.broker.storage import BackingKinds
from warren.catalog.catalog import Catalog
from warren.catalog.sql import SqlDatabase, sql_error
from warren.queues.variable_queue import VariableQueue


@contextmanager
def failing_commits(monkeypatch: pytest.MonkeyPatch, times: int = 1_000_000) -> Iterator[None]:
    """So many commits of SQLite fail, as on a full disk, after the log has the change."""
    real, left = SqlDatabase.commit, [times]

    def commit(sql: SqlDatabase) -> None:
        left[0] -= 1
        if left[0] < 0:
            real(sql)
            return
        with sql_error(sql.where):
            raise OperationalError("COMMIT", None, Exception("database or disk is full"))

    with monkeypatch.context() as patch:
        patch.setattr(SqlDatabase, "commit", commit)
        yield
    assert left[0] < times, "no commit was made"


def client_of(port: int) -> RawClient:
    return RawClient(port).log_in().channel(confirms=True)


def message_of(client: RawClient, queue: str) -> bytes:
    client.send_method(1, methods.BasicGet(queue=queue, no_ack=True))
    client.expect(methods.BasicGetOk)
    return client.body()


def test_confirmed_messages_arrive_in_a_queue_whose_sql_commit_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_broker(tmp_path / "data") as (broker, port), client_of(port) as client:
        with failing_commits(monkeypatch):
            assert client.declare("orders", durable=True).queue == "orders"
            client.publish(1, "orders", b"1")
            client.expect(methods.BasicAck)
            assert any("behind the log" in problem for problem in broker.problems)
        client.declare("orders", durable=True)
        client.publish(1, "orders", b"2")
        client.expect(methods.BasicAck)
        assert [message_of(client, "orders") for _ in range(2)] == [b"1", b"2"]
        assert not broker.problems


def test_exchanges_bindings_and_deletions_are_in_force_when_their_sql_commit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_broker(tmp_path / "data") as (_, port), client_of(port) as client:
        client.declare("orders", durable=True)
        client.declare("other", durable=True)
        with failing_commits(monkeypatch, times=1):
            client.send_method(1, methods.ExchangeDeclare(exchange="events", type="fanout", durable=True))
            client.expect(methods.ExchangeDeclareOk)
        client.declare("orders", durable=True)  # brings SQL up, so that the next commit is that of the binding
        with failing_commits(monkeypatch, times=1):
            client.send_method(1, methods.QueueBind(queue="orders", exchange="events"))
            client.expect(methods.QueueBindOk)
        client.publish(1, "", b"routed", exchange="events")
        client.expect(methods.BasicAck)
        assert message_of(client, "orders") == b"routed"
        client.declare("orders", durable=True)
        with failing_commits(monkeypatch, times=1):
            client.send_method(1, methods.QueueDelete(queue="other"))
            client.expect(methods.QueueDeleteOk)
        client.send_method(1, methods.QueueDeclare(queue="other", passive=True))
        assert client.expect(methods.ChannelClose).reply_code == 404


def test_a_queue_whose_start_raises_blocks_no_other_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("not expected")

    with served_broker(tmp_path / "data") as (_, port):
        with monkeypatch.context() as patch:
            patch.setattr(BackingKinds, "make", fail)
            for number in range(5):  # one more than the server has threads
                with client_of(port) as client:
                    client.send_method(1, methods.QueueDeclare(queue=f"broken {number}", durable=True))
                    assert client.expect(methods.ConnectionClose).reply_code == 541
        with client_of(port) as client:
            client.declare("orders", durable=True)
            client.send_method(1, methods.QueueBind(queue="orders", exchange="amq.fanout"))
            client.expect(methods.QueueBindOk)
            assert client.declare("broken 0", durable=True).message_count == 0
            client.publish(1, "broken 0", b"1")
            client.expect(methods.BasicAck)
            assert message_of(client, "broken 0") == b"1"
            client.send_method(1, methods.QueueDelete(queue="broken 1"))
            client.expect(methods.QueueDeleteOk)


def test_an_exclusive_queue_whose_start_raises_goes_with_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("not expected")

    with served_broker(tmp_path / "data") as (broker, port):
        with monkeypatch.context() as patch, client_of(port) as client:
            patch.setattr(BackingKinds, "make", fail)
            client.send_method(1, methods.QueueDeclare(queue="own", exclusive=True))
            client.expect(methods.ConnectionClose)
            patch.undo()
            client.send_method(0, methods.ConnectionCloseOk())
            assert client.is_closed()
        with client_of(port) as client:
            while broker.vhosts.find("/").owners:
                client.declare("passing", durable=True)
            assert client.declare("own").queue == "own"


def test_a_queue_keeps_its_messages_when_the_catalog_refuses_its_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(sql: SqlDatabase) -> None:
        with sql_error(sql.where):
            raise OperationalError("BEGIN", None, Exception("disk I/O error"))

    with served_broker(tmp_path / "data") as (_, port):
        with client_of(port) as client:
            client.declare("orders", durable=True)
            client.publish(1, "orders", b"1")
            client.expect(methods.BasicAck)
            with monkeypatch.context() as patch:
                patch.setattr(SqlDatabase, "begin", fail)
                client.send_method(1, methods.QueueDelete(queue="orders"))
                assert client.expect(methods.ConnectionClose).reply_code == 541
        with client_of(port) as client:
            assert client.declare("orders", durable=True).message_count == 1
            client.publish(1, "orders", b"2")
            client.expect(methods.BasicAck)
            assert [message_of(client, "orders") for _ in range(2)] == [b"1", b"2"]
            client.send_method(1, methods.QueueDelete(queue="orders"))
            client.expect(methods.QueueDeleteOk)


def test_the_event_loop_serves_other_clients_while_a_queue_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, start, may_start = VariableQueue.publish, QueueStarter.start, threading.Event()
    faults = [ValueError("not expected")]

    def failing(*arguments: Any) -> None:
        if faults:
            raise faults.pop()
        publish(*arguments)

    def waiting(*arguments: Any) -> Any:
        """A restart that waits for the disk."""
        assert may_start.wait(30)
        return start(*arguments)

    with served_broker(tmp_path / "data") as (_, port), client_of(port) as client, client_of(port) as other:
        client.declare("orders", durable=True)
        monkeypatch.setattr(QueueStarter, "start", waiting)
        monkeypatch.setattr(VariableQueue, "publish", failing)
        client.publish(1, "orders", b"lost")
        client.expect(methods.BasicNack)
        client.publish(1, "orders", b"while it is down")
        client.expect(methods.BasicNack)
        other.send_method(1, methods.BasicQos(prefetch_count=1))
        other.expect(methods.BasicQosOk)
        may_start.set()
        assert client.declare("orders", durable=True).message_count == 0  # waits for the restart
        client.publish(1, "orders", b"1")
        client.expect(methods.BasicAck)
        assert message_of(client, "orders") == b"1"


def test_a_stop_while_a_declare_is_under_way_logs_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settle, is_in, may_settle = Catalog.settle, threading.Event(), threading.Event()

    def waiting(catalog: Catalog, epoch: Epoch) -> None:
        is_in.set()
        assert may_settle.wait(30)
        settle(catalog, epoch)

    with served_broker(tmp_path / "data") as (broker, port), client_of(port) as client:
        monkeypatch.setattr(Catalog, "settle", waiting)
        declare = methods.QueueDeclare(queue="orders", durable=True)
        client.send_method(1, declare, declare)
        assert is_in.wait(30)
        stopping = asyncio.run_coroutine_threadsafe(broker.server.stop(10.0), broker.server.loop)
        assert client.expect(methods.ConnectionClose).reply_code == 320
        may_settle.set()
        client.send_method(0, methods.ConnectionCloseOk())
        assert client.is_closed()
        stopping.result(30)
        broker.server.offload(lambda: None, lambda result, error: None)  # a timer that fires late
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with served_broker(tmp_path / "data") as (_, port), client_of(port) as client:
        client.send_method(1, methods.QueueDeclare(queue="orders", passive=True))
        client.expect(methods.QueueDeclareOk)
