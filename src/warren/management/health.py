"""Health checks: 200 and "ok", or 503 and the reason. For probes, which read only the status.

    alarms, local-alarms                     no publisher is blocked, no background task fails, nothing is damaged
    virtual-hosts                            every vhost of the catalog is served
    port-listener, protocol-listener         the port or protocol is served
    certificate-expiration                   no certificate of a listener with TLS ends within the time
    is-in-service, ready-to-serve-clients    new clients are accepted: false as soon as the server begins to stop

There is one node, so it is never critical to a quorum, and it has all alarms.

The aliveness test declares a queue, publishes a message and gets it back, as a client would. The queue
`aliveness-test` is created in the vhost by the same code and with the same permissions as by AMQP, and stays there, as
in RabbitMQ. Queue and message are not durable: the disk is covered by the health checks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from warren.amqp.methods import QueueDeclare
from warren.base.errors import WarrenError
from warren.base.messages import Publication
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_api import SettleCall
from warren.broker.vhost import Client, Owner
from warren.catalog import vhosts
from warren.files.protocol import Files
from warren.management.broker_facts import Listener
from warren.management.requests import HttpRequest, HttpResponse, access_of, bad_request, is_not_permitted
from warren.server.tls import expiry_dates

_OK: Final = {"status": "ok"}
_SPELLINGS: Final = {
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1", "amqp091-0-9-1"), "amqp"),
    **dict.fromkeys(("amqps", "amqp+ssl", "amqp_ssl", "amqp-ssl"), "amqp/ssl"),
}
_UNIT_SECONDS: Final = {"days": 86_400, "weeks": 604_800, "months": 2_592_000, "years": 31_536_000}
_WITHIN_DIGITS_MAX: Final = 6
_PEM_BYTES_MAX: Final = 1 << 20
_PORT_MAX: Final = 65_535


def alarms(request: HttpRequest) -> Any:
    broker = request.broker
    effective = [{"node": broker.node, "resource": alarm.value} for alarm in broker.alarms]
    effective += [
        {"node": broker.node, "resource": "background", "task": task.name, "reason": alarm}
        for task in broker.environment.background.failing()
        for alarm in task.alarms()
    ]
    effective += [{"node": broker.node, "resource": "damage", "reason": reason} for reason in broker.damage]
    return _failed("There are alarms in effect", alarms=effective) if effective else _OK


def virtual_hosts(request: HttpRequest) -> Any:
    broker = request.broker
    with broker.catalog.reading() as connection:
        names = {row.name for row in vhosts.every(connection)}
    missing = sorted(names - {open_vhost.row.name for open_vhost in broker.vhosts.every()})
    return _failed("Some virtual hosts are down", **{"virtual-hosts": missing}) if missing else _OK


def port_listener(request: HttpRequest) -> Any:
    text = request.names["port"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= _PORT_MAX):
        raise bad_request("Invalid port")
    ports = [listener.port for listener in request.source.listeners()]
    port = int(text)
    return _OK | {"port": port} if port in ports else _failed("No active listener", missing=port, ports=ports)


def protocol_listener(request: HttpRequest) -> Any:
    protocol = _SPELLINGS.get(request.names["protocol"].lower(), request.names["protocol"].lower())
    protocols = sorted({listener.protocol for listener in request.source.listeners()})
    if protocol in protocols:
        return _OK | {"protocol": protocol}
    return _failed("No active listener", missing=protocol, protocols=protocols)


def certificate_expiration(request: HttpRequest) -> Any:
    seconds = _seconds(request.names["within"], request.names["unit"])
    until = datetime.fromtimestamp(request.broker.environment.clock.wall_ns() / 1e9, UTC) + timedelta(seconds=seconds)
    expiring = [item for each in request.source.listeners() if (item := _expiring(request, each, until)) is not None]
    return _failed("Certificates expiring", expired=expiring) if expiring else _OK


def _seconds(within: str, unit: str) -> int:
    if unit.lower() not in _UNIT_SECONDS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    if not (within.isascii() and within.isdecimal() and len(within) <= _WITHIN_DIGITS_MAX):
        raise bad_request("Invalid expiration value.")
    return min(int(within) * _UNIT_SECONDS[unit.lower()], _UNIT_SECONDS["years"] * 1000)


def _expiring(request: HttpRequest, listener: Listener, until: datetime) -> dict[str, Any] | None:
    if listener.tls is None:
        return None
    files = request.broker.environment.files
    paths = {"cacertfile_expires_on": listener.tls.cacertfile, "certfile_expires_on": listener.tls.certfile}
    dates = {name: expiry_dates(_pem(files, path)) if path else [] for name, path in paths.items()}
    if not any(date < until for some in dates.values() for date in some):
        return None
    item = {name: [f"{date:%Y-%m-%d %H:%M:%S}" for date in some] for name, some in dates.items()}
    where = {"interface": listener.host, "port": listener.port, "protocol": listener.protocol}
    return {"node": request.broker.node, **where, **item}


def _pem(files: Files, path: str) -> str:
    file = files.open(path)
    try:
        return file.read_at(0, _PEM_BYTES_MAX).decode("ascii", "replace")
    finally:
        file.close()


def in_service(request: HttpRequest) -> Any:
    return _failed("This server is being stopped") if request.broker.is_draining else _OK


def quorum_critical(request: HttpRequest) -> Any:
    return _OK | {"reason": "single node cluster"}


def _failed(reason: str, **facts: Any) -> HttpResponse:
    return HttpResponse({"status": "failed", "reason": reason, **facts}, 503)


QUEUE: Final = "aliveness-test"
_MESSAGE: Final = b"test_message"


def aliveness(request: HttpRequest) -> Any:
    try:
        is_alive = _round_trip(request)
    except WarrenError as error:
        if is_not_permitted(error):
            raise
        return HttpResponse({"status": "failed", "reason": error.what}, 503)
    return (
        {"status": "ok"}
        if is_alive
        else HttpResponse({"status": "failed", "reason": "the message did not come back"}, 503)
    )


def _round_trip(request: HttpRequest) -> bool:
    open_vhost, broker = request.vhost, request.broker
    access = access_of(broker, request.user, open_vhost)
    Declarations(open_vhost, broker.counts).answer(Client(access, Owner("management")), QueueDeclare(queue=QUEUE))
    authorize(access, Operation.BASIC_PUBLISH, {NameRole.EXCHANGE: ""})
    authorize(access, Operation.BASIC_GET, {NameRole.QUEUE: QUEUE})
    handle = open_vhost.find_queue(QUEUE)
    now_ms = broker.environment.clock.wall_ns() // 1_000_000
    open_vhost.queue_api.put(Publication([_MESSAGE], published_ms=now_ms), [handle])
    delivery = open_vhost.queue_api.get(handle, 1)
    if delivery is None:
        return False
    open_vhost.queue_api.ack(handle, SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched]))
    return True
