"""Every test that asks for `broker` runs once with each of them; `names` keeps tests out of each other's way.

    broker   where to connect                           RabbitMQ and Warren, each started once per session
    names    names.queue("in"), names.exchange("logs")  unique, and deleted after the test

Where RabbitMQ is not installed its half is left out and the summary says so; on CI that is a failure.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.interop import brokers
from tests.interop.brokers import Broker
from tests.interop.pika_stage import Pika

COROUTINE_SECONDS_MAX = 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        absent = brokers.missing()
        names = [name for name in (brokers.RABBITMQ, brokers.WARREN) if name not in absent]
        metafunc.parametrize("broker", names, indirect=True, scope="session")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, reason in brokers.missing().items():
        terminalreporter.write_line(f"tests/interop ran without {name}: {reason}", yellow=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """A test that is a coroutine runs in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), COROUTINE_SECONDS_MAX))
    return True


@pytest.fixture(scope="session")
def running_brokers() -> Iterator[dict[str, Broker]]:
    """Apart from `broker`, so that tests may come in any order and each broker is still started once."""
    running: dict[str, Broker] = {}
    yield running
    for broker in running.values():
        broker.stop()


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, running_brokers: dict[str, Broker], tmp_path_factory: pytest.TempPathFactory
) -> Broker:
    name: str = request.param
    if name not in running_brokers:
        running_brokers[name] = brokers.start(name, tmp_path_factory.mktemp(name))
    return running_brokers[name]


class Names:
    def __init__(self) -> None:
        self._stem = uuid.uuid4().hex[:12]
        self.queues: list[str] = []
        self.exchanges: list[str] = []

    def queue(self, name: str = "queue") -> str:
        return self._remember(self.queues, name)

    def exchange(self, name: str = "exchange") -> str:
        return self._remember(self.exchanges, name)

    def _remember(self, names: list[str], name: str) -> str:
        whole = f"{self._stem}.{name}"
        names.append(whole)
        return whole


@pytest.fixture
def names(broker: Broker) -> Iterator[Names]:
    given = Names()
    yield given
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for queue in given.queues:
            channel.queue_delete(queue)
        for exchange in given.exchanges:
            channel.exchange_delete(exchange)


@pytest.fixture
def client(broker: Broker) -> Iterator[Pika]:
    pika_client = Pika(broker)
    yield pika_client
    pika_client.close()


@pytest.fixture
def channel(client: Pika) -> Any:
    return client.channel()
