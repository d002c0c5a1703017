"""The aliveness test: a queue is declared, a message put into it and got out again, as a client would.

Nothing is pretended: the queue `aliveness-test` is made in the vhost by the same code and with the same permissions as
by AMQP, and stays there, as RabbitMQ's does. It is not durable, and neither is the message: what the disk is like is
asked by the health checks.
"""

from __future__ import annotations

from typing import Any, Final

from warren.amqp.topology_methods import QueueDeclare
from warren.base.errors import WarrenError
from warren.base.runs import Publication
from warren.broker.client import Client, Owner
from warren.broker.permissions import NameRole, Operation, authorize
from warren.broker.topology import Declarations
from warren.broker.traffic import SettleCall
from warren.management.refusals import is_not_permitted
from warren.management.routing import HttpRequest, HttpResponse
from warren.management.who import access_of

QUEUE: Final = "aliveness-test"
_MESSAGE: Final = b"test_message"


def aliveness(asked: HttpRequest) -> Any:
    try:
        got = _went_through(asked)
    except WarrenError as error:
        if is_not_permitted(error):
            raise
        return HttpResponse({"status": "failed", "reason": error.what}, 503)
    return (
        {"status": "ok"} if got else HttpResponse({"status": "failed", "reason": "the message did not come back"}, 503)
    )


def _went_through(asked: HttpRequest) -> bool:
    realm, running = asked.vhost, asked.running
    access = access_of(running, asked.user, realm)
    Declarations(realm, running.counts).answer(Client(access, Owner("management")), QueueDeclare(queue=QUEUE))
    authorize(access, Operation.BASIC_PUBLISH, {NameRole.EXCHANGE: ""})
    authorize(access, Operation.BASIC_GET, {NameRole.QUEUE: QUEUE})
    child = realm.queues.find(QUEUE)
    now_ms = running.machine.clock.wall_ns() // 1_000_000
    realm.traffic.put(Publication([_MESSAGE], published_ms=now_ms), [child])
    delivery = realm.traffic.get(child, 1)
    if delivery is None:
        return False
    realm.traffic.ack(child, SettleCall(delivery.life, [each.tags for each in delivery.fetched]))
    return True
