"""A served vhost on a memory disk, and clients that declare queues, exchanges and bindings."""

from __future__ import annotations

import re
from typing import Any

from tests.broker.declarations_cases import Action, By, Consume, Publish, Step
from tests.broker.stage import BrokerStage
from warren.amqp import methods
from warren.amqp.errors import PeerError, is_hard, reply_text
from warren.amqp.methods import Method
from warren.base.errors import WarrenError
from warren.base.ids import QueueId
from warren.broker.auth.permissions import Access, TopicPatterns
from warren.broker.counters import MessageCounters
from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import Client, Owner
from warren.catalog import bindings, exchanges, queues
from warren.catalog.bindings import BindingRow
from warren.queues.backing_queue import Fetched

ALL = ".*"
USERS = {
    "a": Access("guest", "/", ALL, ALL, ALL, {}),
    "b": Access("guest", "/", ALL, ALL, ALL, {}),
    "n": Access("ann", "/", "c", "w", "r", {}),
    "t": Access("tom", "/", ALL, ALL, ALL, {"topics": TopicPatterns(ALL, "^ok")}),
}


class Idle:
    """A consumer that takes nothing. Is a `Consumer`."""

    priority = 0
    is_exclusive = False
    is_auto_ack = False

    def room(self) -> int:
        return 0

    def room_bytes(self) -> int:
        return 0

    def take(self, incarnation: int, fetched: list[Fetched]) -> None:
        raise AssertionError("there was no room")

    def cancelled(self, reason: WarrenError) -> None:
        """Ignored."""


class DeclarationsStage(BrokerStage):
    """`up`, then `request`."""

    def up(self) -> DeclarationsStage:
        super().up()
        self.counts = MessageCounters()
        self.declarations = Declarations(self.vhost, self.counts)
        self.clients: dict[str, Client] = {}
        return self

    def client(self, client_name: str = "a") -> Client:
        if client_name not in self.clients:
            self.clients[client_name] = Client(USERS[client_name], Owner(f"connection {client_name}"))
        return self.clients[client_name]

    def request(self, method: Method, client_name: str = "a") -> Method | None:
        return self.declarations.answer(self.client(client_name), method)

    def consume(self, name: str) -> tuple[QueueHandle, Idle]:
        handle, consumer = self.vhost.find_queue(name), Idle()
        with handle.lock:
            handle.consumers.add(consumer)
        return handle, consumer

    def leave(self, handle: QueueHandle, consumer: Idle) -> None:
        with handle.lock:
            handle.consumers.remove(consumer)
        self.declarations.consumer_removed(handle.id)

    def step(self, step: Step) -> str:
        """The answer to a client, as written in the table of expected answers."""
        client_name, action = step if isinstance(step, By) else ("a", step)
        try:
            return answer_line(self._done(action, client_name))
        except PeerError as error:
            text = reply_text(error.code, error.explanation)
            return shown(f"{'hard' if is_hard(error.code) else 'soft'} {error.code.value} {text}")

    def case(self, steps: list[Step]) -> str:
        answer = "nothing"
        for step in steps:
            if answer.startswith(("soft", "hard")):
                return f"too early: {answer}"
            answer = self.step(step)
        return answer

    def clean(self) -> None:
        """Close all clients, and delete everything."""
        for client in self.clients.values():
            self.declarations.release(client.owner)
        self.clients = {}
        for name in self.vhost.queue_names():
            self.vhost.delete_queue(self.vhost.find_queue(name))
        with self.storage.catalog.reading() as connection:
            names = [row.name for row in exchanges.every(connection, self.vhost.row.id)]
        for name in [each for each in names if each and not each.startswith("amq.")]:
            self.request(methods.ExchangeDelete(exchange=name))
        self.check()

    def check(self) -> None:
        """Memory and catalog have the same objects."""
        with self.storage.catalog.reading() as connection:
            rows = {row.name: row.id for row in queues.every(connection, self.vhost.row.id)}
            known = exchanges.every(connection, self.vhost.row.id)
            bound = {row.id: row for row in bindings.every(connection, self.vhost.row.id)}
        routing = self.vhost.routing
        assert routing._queue_names == rows
        assert {row.id for row in known} == set(routing._exchanges)
        assert _bound(routing._exchanges.values()) == bound
        assert set(self.vhost.owners) <= set(rows.values())
        assert {id_ for owner in self.vhost.owners.values() for id_ in owner.exclusive} == set(self.vhost.owners)

    def seen(self) -> list[object]:
        """Everything that the catalog has of this vhost."""
        with self.storage.catalog.reading() as connection:
            vhost = self.vhost.row.id
            rows = [queues.every(connection, vhost), exchanges.every(connection, vhost)]
            return [*rows, bindings.every(connection, vhost)]

    def ids(self) -> dict[str, QueueId]:
        with self.storage.catalog.reading() as connection:
            return {row.name: row.id for row in queues.every(connection, self.vhost.row.id)}

    def _done(self, action: Action, client_name: str) -> Method | None:
        if isinstance(action, Publish):
            self.put(*[b"m"] * action.messages, to=action.queue)
            return None
        if isinstance(action, Consume):
            self.consume(action.queue)
            return None
        return self.request(action, client_name)


def answer_line(answer: Method | None) -> str:
    match answer:
        case methods.QueueDeclareOk(queue=name, message_count=messages, consumer_count=consumers):
            return shown(f"ok {name} {messages} {consumers}")
        case methods.QueueDeleteOk(message_count=messages) | methods.QueuePurgeOk(message_count=messages):
            return f"ok {messages}"
    return "ok"


def shown(text: str) -> str:
    """One line, and the same for every random name."""
    return re.sub(r"amq\.gen-[-_A-Za-z0-9]{22}", "amq.gen-*", text).replace("\r", "\\r").replace("\n", "\\n")


def _bound(exchanges: Any) -> dict[int, BindingRow]:
    return {id_: row for each in exchanges for id_, row in each.bindings.items()}
