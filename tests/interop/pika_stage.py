"""pika for tests: connections that are closed again, waiting with a deadline, and refusals with their code and text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest

from tests.interop.brokers import Broker

SECONDS_MAX = 10.0


class Pika:
    """Makes connections and channels for one test and closes them after it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._connections: list[Any] = []

    def connect(self, **parameters: Any) -> Any:
        host, port = self.broker.host, self.broker.port
        credentials = pika.PlainCredentials(self.broker.user, self.broker.password)
        all_parameters = {"host": host, "port": port, "credentials": credentials, **parameters}
        connection = pika.BlockingConnection(pika.ConnectionParameters(**all_parameters))
        self._connections.append(connection)
        return connection

    def channel(self) -> Any:
        """A channel of a connection of its own, with confirms: what was published is in its queues."""
        channel = self.connect().channel()
        channel.confirm_delivery()
        return channel

    def close(self) -> None:
        for connection in self._connections:
            if connection.is_open:
                connection.close()


class Message(NamedTuple):
    method: Any
    properties: Any
    body: bytes


@dataclass(slots=True)
class Inbox:
    """What came to one consumer, in order."""

    channel: Any
    tag: str = ""
    messages: list[Message] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.messages.append(Message(method, properties, body))

    def wait_for(self, count: int) -> list[Message]:
        wait(self.channel, lambda: len(self.messages) >= count)
        assert len(self.messages) == count
        return self.messages

    def ack(self, *places: int, multiple: bool = False) -> None:
        for place in places:
            self.channel.basic_ack(self.messages[place].method.delivery_tag, multiple=multiple)


def consume(channel: Any, queue: str, **options: Any) -> Inbox:
    inbox = Inbox(channel)
    inbox.tag = channel.basic_consume(queue, inbox.take, **options)
    return inbox


def wait(channel: Any, is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < until, f"not within {SECONDS_MAX} s"
        channel.connection.process_data_events(time_limit=0.02)


def publish(channel: Any, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def get(channel: Any, queue: str) -> Message:
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None, f"{queue} is empty"
    return Message(method, properties, body)


def bodies_in(channel: Any, queue: str) -> list[bytes]:
    """Everything that is in the queue, taken out of it."""
    found = []
    while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(answer[2])
    return found


def ready(channel: Any, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def wait_until_ready(channel: Any, queue: str, count: int) -> None:
    wait(channel, lambda: ready(channel, queue) == count)


def settle(channel: Any, queue: str) -> None:
    """Deliveries that were on their way have come: the queue, then the channel have been asked something since."""
    for _ in range(2):
        ready(channel, queue)
    channel.connection.process_data_events(time_limit=0)


@contextmanager
def refused(code: int, text: str = "", error: Any = pika.exceptions.ChannelClosedByBroker) -> Iterator[None]:
    """The broker closes the channel with this code, and a text that contains these words."""
    with pytest.raises(error) as caught:
        yield
    assert (caught.value.reply_code, text in caught.value.reply_text) == (code, True), caught.value
