"""A confirm means on disk: a real server on a real disk whose syncs wait until they are released, or fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.app.broker import Broker, open_broker
from warren.base.errors import WarrenError
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.files.protocol import Files
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles

SECONDS_MAX = 10.0
LOG = "/log/pwal_"
Result = TypeVar("Result")


class WaitingFiles(FaultyFiles):
    """A disk whose syncs of log files wait as long as `may_sync` is clear."""

    def __init__(self, inner: Files) -> None:
        self.failing = Fault(FaultKind.IO_ERROR, "sync", f"*{LOG}*", times=None, is_armed=False)
        super().__init__(inner, [self.failing])
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_requested = threading.Event()  # a sync is being waited for

    def _change(
        self,
        operation: str,
        paths: tuple[str, ...],
        act: Callable[[], Result],
        act_partly: Callable[[float], None] | None = None,
        on_sync_failure: Callable[[Fault], None] | None = None,
    ) -> Result:
        if operation == "sync" and LOG in paths[0] and not self.may_sync.is_set():
            self.is_requested.set()
            self.may_sync.wait(SECONDS_MAX)
        return super()._change(operation, paths, act, act_partly, on_sync_failure)


@contextmanager
def serving(directory: Path, disk: WaitingFiles) -> Iterator[tuple[Broker, int]]:
    """A broker without its management, in a loop of its own."""
    environment = replace(Environment.real(), files=disk)
    broker = open_broker(
        configuration_of(disk, OptionValues(data_dir=str(directory), port=0), {}), environment=environment
    )
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(broker.server.start(), loop).result(SECONDS_MAX)
        yield broker, port
    finally:
        disk.may_sync.set()
        asyncio.run_coroutine_threadsafe(broker.server.stop(0.0), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        broker.close()
        if broker.failure is not None:  # the process would end
            _release(broker)


def _release(broker: Broker) -> None:
    with suppress(WarrenError):  # nothing can be written any more
        broker._queues.close()
    assert broker._control is not None
    broker._control.close()
    broker.database.store.close()


@pytest.fixture
def disk() -> WaitingFiles:
    return WaitingFiles(Environment.real().files)


def watching(port: int) -> RawClient:
    """A client in confirm mode that consumes what it publishes."""
    client = RawClient(port).log_in().channel(confirms=True)
    client.send_method(1, methods.QueueDeclare(queue="q", durable=True))
    client.expect(methods.QueueDeclareOk)
    client.send_method(1, methods.BasicConsume(queue="q", no_ack=True))
    client.expect(methods.BasicConsumeOk)
    return client


def test_a_confirm_is_sent_when_its_epoch_is_durable_and_not_before(tmp_path: Path, disk: WaitingFiles) -> None:
    """X-01."""
    with serving(tmp_path, disk) as (_, port), watching(port) as client:
        disk.may_sync.clear()
        client.publish(1, "q", b"m")
        client.expect(methods.BasicDeliver)  # its batch has ended
        assert disk.is_requested.wait(SECONDS_MAX)
        client.send_method(1, methods.BasicQos(prefetch_count=1))
        client.expect(methods.BasicQosOk)  # and no ack before it
        disk.may_sync.set()
        assert client.expect(methods.BasicAck).delivery_tag == 1


def test_what_the_disk_refuses_to_sync_is_never_confirmed(tmp_path: Path, disk: WaitingFiles) -> None:
    """X-01."""
    has_failed = threading.Event()
    with serving(tmp_path, disk) as (broker, port), watching(port) as client:
        broker.server.on_failure = lambda error: has_failed.set()
        disk.failing.is_armed = True
        client.publish(1, "q", b"m")
        client.expect(methods.BasicDeliver)
        assert has_failed.wait(SECONDS_MAX)
        client.send_method(1, methods.BasicQos(prefetch_count=1))
        client.expect(methods.BasicQosOk)  # and no ack before it
        assert broker.server.counts.confirmed == 0
