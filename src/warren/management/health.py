"""Health checks: one question each, 200 and "ok", or 503 and why not. For probes, which read the status only.

    alarms, local-alarms                     no publisher is blocked, no background task fails, nothing is damaged
    virtual-hosts                            every vhost of the catalog is served
    port-listener, protocol-listener         somebody listens there
    is-in-service, ready-to-serve-clients    new clients are taken: false from the moment the server is being stopped

There is one node, so it is never critical to a quorum, and its alarms are all there are.

The aliveness test: a queue is declared, a message put into it and got out again, as a client would.

Nothing is pretended: the queue `aliveness-test` is made in the vhost by the same code and with the same permissions as
by AMQP, and stays there, as RabbitMQ's does. It is not durable, and neither is the message: what the disk is like is
asked by the health checks.
"""

from __future__ import annotations

from typing import Any, Final

from warren.amqp.methods import QueueDeclare
from warren.base.errors import WarrenError
from warren.base.messages import Publication
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_api import SettleCall
from warren.broker.vhost import Client, Owner
from warren.catalog import vhosts
from warren.management.requests import HttpRequest, HttpResponse, access_of, bad_request, is_not_permitted

_OK: Final = {"status": "ok"}
_SPELLINGS: Final = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "amqp091-0-9-1": "amqp"}
_PORT_MAX: Final = 65_535


def alarms(asked: HttpRequest) -> Any:
    running = asked.running
    told = [{"node": running.node, "resource": alarm.value} for alarm in running.alarms]
    told += [
        {"node": running.node, "resource": "background", "task": task.name, "reason": alarm}
        for task in running.environment.background.failing()
        for alarm in task.alarms()
    ]
    told += [{"node": running.node, "resource": "damage", "reason": reason} for reason in running.damage]
    return _failed("There are alarms in effect", alarms=told) if told else _OK


def virtual_hosts(asked: HttpRequest) -> Any:
    running = asked.running
    with running.catalog.reading() as connection:
        names = {row.name for row in vhosts.every(connection)}
    missing = sorted(names - {open_vhost.row.name for open_vhost in running.vhosts.every()})
    return _failed("Some virtual hosts are down", **{"virtual-hosts": missing}) if missing else _OK


def port_listener(asked: HttpRequest) -> Any:
    told = asked.names["port"]
    if not (told.isascii() and told.isdecimal() and len(told) <= 5 and int(told) <= _PORT_MAX):
        raise bad_request("Invalid port")
    ports = [listener.port for listener in asked.source.listeners()]
    port = int(told)
    return _OK | {"port": port} if port in ports else _failed("No active listener", missing=port, ports=ports)


def protocol_listener(asked: HttpRequest) -> Any:
    protocol = _SPELLINGS.get(asked.names["protocol"].lower(), asked.names["protocol"].lower())
    protocols = sorted({listener.protocol for listener in asked.source.listeners()})
    if protocol in protocols:
        return _OK | {"protocol": protocol}
    return _failed("No active listener", missing=protocol, protocols=protocols)


def in_service(asked: HttpRequest) -> Any:
    return _failed("This server is being stopped") if asked.running.is_draining else _OK


def quorum_critical(asked: HttpRequest) -> Any:
    return _OK | {"reason": "single node cluster"}


def _failed(reason: str, **facts: Any) -> HttpResponse:
    return HttpResponse({"status": "failed", "reason": reason, **facts}, 503)


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
    open_vhost, running = asked.vhost, asked.running
    access = access_of(running, asked.user, open_vhost)
    Declarations(open_vhost, running.counts).answer(Client(access, Owner("management")), QueueDeclare(queue=QUEUE))
    authorize(access, Operation.BASIC_PUBLISH, {NameRole.EXCHANGE: ""})
    authorize(access, Operation.BASIC_GET, {NameRole.QUEUE: QUEUE})
    handle = open_vhost.find_queue(QUEUE)
    now_ms = running.environment.clock.wall_ns() // 1_000_000
    open_vhost.queue_api.put(Publication([_MESSAGE], published_ms=now_ms), [handle])
    delivery = open_vhost.queue_api.get(handle, 1)
    if delivery is None:
        return False
    open_vhost.queue_api.ack(handle, SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched]))
    return True
