"""Declarations: AMQP methods that declare, delete and bind queues and exchanges; one method in, its answer out.

    answer(client, method) ──▶ permitted? ──▶ catalog: log, then SQL, durable ──▶ routing ──▶ answer or PeerError

Any thread may call; the call waits for the disk. Refusals are `PeerError`s with RabbitMQ's codes and texts, and leave
nothing behind. Differences from RabbitMQ: docs/compatibility.md.

Messages are elsewhere (`request_batch`, `queue_api`), consumers too.
"""

from __future__ import annotations

from warren.amqp.errors import PeerError
from warren.amqp.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    QueueUnbindOk,
)
from warren.base.environment import Random, SystemRandom
from warren.base.errors import Misuse, WarrenError
from warren.base.ids import QueueId
from warren.broker.counters import MessageCounters
from warren.broker.declarations.bindings import BindingDeclarations, BindingRequest
from warren.broker.declarations.errors import client_error, plain
from warren.broker.declarations.exchanges import ExchangeDeclarations
from warren.broker.declarations.queues import QueueDeclarations
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import Client, Owner, Vhost


class Declarations:
    """The declarations of one vhost."""

    def __init__(self, vhost: Vhost, counts: MessageCounters, rng: Random | None = None) -> None:
        vhost.counts = counts
        self._queues = QueueDeclarations(vhost, rng or SystemRandom())
        self._exchanges = ExchangeDeclarations(vhost)
        self._bindings = BindingDeclarations(vhost)

    def answer(self, client: Client, method: Method) -> Method | None:
        """The answer to the client; None with no-wait."""
        try:
            answer = self._answer(client, method)
        except WarrenError as error:
            refusal = client_error(error)
            if isinstance(refusal, PeerError):
                refusal.class_id, refusal.method_id = method.SPEC.class_id, method.SPEC.method_id
            if refusal is error:
                raise
            raise refusal from error
        return None if getattr(method, "no_wait", False) else answer

    def release(self, owner: Owner) -> None:
        """A connection has closed: delete its exclusive queues."""
        self._queues.release(owner)

    def consumer_removed(self, id_: QueueId) -> None:
        """The last consumer of a queue was removed: delete the queue if it is auto-delete."""
        self._queues.consumer_removed(id_)

    def check_owner(self, client: Client, handle: QueueHandle) -> None:
        """For consume and get: refused if the queue is exclusive to another connection."""
        self._queues.check_owner(client, handle)

    def _answer(self, client: Client, method: Method) -> Method:
        match method:
            case QueueDeclare():
                return self._queues.declare(client, method)
            case QueueDelete():
                return self._queues.delete(client, method)
            case QueuePurge():
                return self._queues.purge(client, method)
            case QueueBind():
                self._bindings.bind(client, self._queue_binding(client, method))
                return QueueBindOk()
            case QueueUnbind():
                self._bindings.unbind(client, self._queue_binding(client, method))
                return QueueUnbindOk()
            case ExchangeDeclare():
                return self._exchanges.declare(client, method)
            case ExchangeDelete():
                return self._exchanges.delete(client, method)
            case ExchangeBind():
                self._bindings.bind(client, _exchange_binding(method))
                return ExchangeBindOk()
            case ExchangeUnbind():
                self._bindings.unbind(client, _exchange_binding(method))
                return ExchangeUnbindOk()
        raise Misuse(f"{method.SPEC.name} does not declare queues or exchanges")

    def _queue_binding(self, client: Client, method: QueueBind | QueueUnbind) -> BindingRequest:
        """Without queue and key, the queue that was declared last, and its name as key."""
        queue = self._queues.resolve_name(client, plain(method.queue))
        key = queue if not method.queue and not method.routing_key else method.routing_key
        return BindingRequest(plain(method.exchange), queue, True, key, method.arguments)


def _exchange_binding(method: ExchangeBind | ExchangeUnbind) -> BindingRequest:
    source, target = plain(method.source), plain(method.destination)
    return BindingRequest(source, target, False, method.routing_key, method.arguments)
