"""A publisher that sends everything at once and records the answers, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pika
import pika.exceptions

from tests.interop.brokers import Broker
from tests.interop.pika_stage import SECONDS_MAX


class Confirmation(NamedTuple):
    is_ack: bool
    tag: int
    multiple: bool


class Returned(NamedTuple):
    code: int
    text: str
    exchange: str
    routing_key: str
    body: bytes


def published(
    broker: Broker, messages: Sequence[tuple[str, str, bytes, bool]], **properties: Any
) -> list[Confirmation | Returned]:
    """Publishes (exchange, routing key, body, mandatory) without waiting, until all of them are confirmed."""
    publisher = _Publisher(messages, pika.BasicProperties(**properties))
    connection = pika.SelectConnection(
        pika.URLParameters(broker.url),
        on_open_callback=lambda opened: opened.channel(on_open_callback=publisher.begin),
        on_open_error_callback=lambda failed, error: failed.ioloop.stop(),
        on_close_callback=lambda closed, error: closed.ioloop.stop(),
    )
    deadline = connection.ioloop.call_later(SECONDS_MAX, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.remove_timeout(deadline)
    connection.ioloop.close()
    assert len(publisher.open) == 0, f"{len(publisher.open)} messages are not confirmed; said: {publisher.answers[-3:]}"
    return publisher.answers


class _Publisher:
    def __init__(self, messages: Sequence[tuple[str, str, bytes, bool]], properties: Any) -> None:
        self._properties = properties
        self.open = set(range(1, len(messages) + 1))
        self.answers: list[Confirmation | Returned] = []
        self._messages = messages

    def begin(self, channel: Any) -> None:
        self._connection = channel.connection
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish(channel))

    def _publish(self, channel: Any) -> None:
        for exchange, routing_key, body, mandatory in self._messages:
            channel.basic_publish(exchange, routing_key, body, self._properties, mandatory=mandatory)

    def _on_return(self, _: Any, method: Any, __: Any, body: bytes) -> None:
        self.answers.append(Returned(method.reply_code, method.reply_text, method.exchange, method.routing_key, body))

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        self.answers.append(Confirmation(isinstance(method, pika.spec.Basic.Ack), method.delivery_tag, method.multiple))
        self.open = {
            tag for tag in self.open if tag > method.delivery_tag or not (method.multiple or tag == method.delivery_tag)
        }
        if not self.open:
            self._connection.close()
