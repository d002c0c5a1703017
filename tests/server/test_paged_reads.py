"""Messages that memory had no room for, read back by a real server: the event loop applies nothing for that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import uvloop

from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.app.broker import Broker, open_broker
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.queues.settings import VariableQueueSettings
from warren.snapshot.reflection import Reflection

SECONDS_MAX = 20.0
WATERMARK_BYTES = 1 << 20
ROUNDS = ("store_view", "catch_up", "flush", "_reflect")  # every way into a round of reflection


@contextmanager
def serving(directory: Path) -> Iterator[tuple[Broker, int, int]]:
    """A broker with little memory, its port, and its loop's thread."""
    environment = Environment.real()
    made = configuration_of(environment.files, OptionValues(data_dir=str(directory), port=0), {})
    queues = replace(made.queues, memory_watermark_bytes=WATERMARK_BYTES)
    configuration = replace(made, queues=queues, variable_queues=VariableQueueSettings(beta_messages_max=100))
    broker = open_broker(configuration, environment=environment)
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(broker.server.start(), loop).result(SECONDS_MAX)
        assert thread.ident is not None
        yield broker, port, thread.ident
    finally:
        asyncio.run_coroutine_threadsafe(broker.server.stop(0.0), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        broker.close()


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was called of reflection, and in which thread."""
    called: list[tuple[str, int]] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            called.append((name, threading.get_ident()))
            return real(*arguments, **named)

        return call

    for name in ROUNDS:
        monkeypatch.setattr(Reflection, name, noting(name, getattr(Reflection, name)))
    return called


def facts_of(broker: Broker, queue: str) -> dict[str, Any]:
    handle = broker.vhosts.find("/").find_queue(queue)
    with handle.lock:
        return dict(handle.serving().backing.facts())


def wait_until(is_so: Callable[[], bool]) -> None:
    until = monotonic() + SECONDS_MAX
    while not is_so():
        assert monotonic() < until, "it does not come to that"
        sleep(0.01)


def publish(client: RawClient, queue: str, bodies: list[bytes]) -> None:
    """Confirmed one by one, so that each is a run of its own."""
    for body in bodies:
        client.publish(1, queue, body)
        client.expect(methods.BasicAck)


def consumed(client: RawClient, queue: str, count: int) -> list[bytes]:
    client.send_method(1, methods.BasicConsume(queue=queue, no_ack=True))
    client.expect(methods.BasicConsumeOk)
    return [client.body() for _ in range(count)]


def bodies_of(first: int, count: int, size: int) -> list[bytes]:
    return [b"%08d" % number * (size // 8) for number in range(first, first + count)]


def test_the_loop_never_enters_reflection_to_read_betas_that_the_store_has_not_applied(
    tmp_path: Path, rounds: list[tuple[str, int]]
) -> None:
    with serving(tmp_path / "data") as (broker, port, loop_thread):
        client = RawClient(port).log_in().channel(confirms=True)
        client.declare("a", durable=True)
        sent = bodies_of(0, 400, 3600)  # over the watermark, and too little to end the quiet time of reflection
        publish(client, "a", sent)
        wait_until(lambda: facts_of(broker, "a")["q3"] > 0)
        assert broker.database.store.applied.epoch < broker.database.log.durable, "the store is behind"
        rounds.clear()
        assert consumed(client, "a", len(sent)) == sent
        assert [name for name, thread in rounds if thread == loop_thread] == []
        client.socket.close()


def test_the_loop_never_enters_reflection_to_read_deltas(tmp_path: Path, rounds: list[tuple[str, int]]) -> None:
    with serving(tmp_path / "data") as (broker, port, loop_thread):
        client = RawClient(port).log_in().channel(confirms=True)
        client.declare("a", durable=True)
        sent = bodies_of(0, 900, 3600)
        publish(client, "a", sent[:700])
        wait_until(lambda: facts_of(broker, "a")["delta"] > 0)
        publish(client, "a", sent[700:])  # behind delta, and not applied when they are read
        rounds.clear()
        assert consumed(client, "a", len(sent)) == sent
        assert [name for name, thread in rounds if thread == loop_thread] == []
        client.socket.close()
