"""Requests to a vhost, case by case: some valid steps, and a last one whose answer is compared.

    a, b    connections of guest, who may do everything
    n       of ann: configure for names with a c, write for names with a w, read for names with an r
    t       of tom, who may do everything, but read from the exchange `topics` only by keys that begin with `ok`

The expected answers are in expected_topology.tsv, recorded from RabbitMQ 3.10.8 (`declarations_replay`). A random name
reads `amq.gen-*` there. A `~` at the end of an answer: the rest of RabbitMQ's text differs in wording from Warren's.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from warren.amqp.methods import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from warren.amqp.types import Byte, Float, Long, Timestamp, UnsignedShort

EXPECTED_FILE: Final = Path(__file__).with_name("expected_topology.tsv")


class Publish(NamedTuple):
    """So many messages to a queue."""

    queue: str
    messages: int = 1


class Consume(NamedTuple):
    """A consumer that takes nothing."""

    queue: str


Action = Method | Publish | Consume


class By(NamedTuple):
    """By another connection than a."""

    client_name: str
    action: Action


Step = Action | By


def q(name: str = "q", **more: Any) -> QueueDeclare:
    return QueueDeclare(queue=name, **more)


def x(name: str = "e", type_: str = "direct", **more: Any) -> ExchangeDeclare:
    return ExchangeDeclare(exchange=name, type=type_, **more)


def args(**arguments: Any) -> dict[str, Any]:
    """x_max_length=1 → {"x-max-length": 1}"""
    return {"arguments": {name.replace("_", "-"): value for name, value in arguments.items()}}


PASSIVE: Final[dict[str, Any]] = {"passive": True}
LONG: Final = "n" * 255
_TTL: Final = args(x_message_ttl=1000)
_AE: Final[dict[str, Any]] = {"arguments": {"alternate-exchange": "other"}}

QUEUES: Final[dict[str, list[Step]]] = {
    "declared": [q()],
    "declared twice": [q(), q()],
    "declared with counts": [q(), Publish("q", 3), Consume("q"), q("q2"), Publish("q2", 2), q("q2")],
    "declared and consumed": [q(), Consume("q"), q()],
    "named by the server": [q("")],
    "named by the server twice": [q(""), q("")],
    "of 255 bytes": [q(LONG)],
    "with a newline in its name": [q("q\r\nr")],
    "newlines only": [q("\r\n")],
    "reserved": [q("amq.q")],
    "reserved, passive": [q("amq.q", **PASSIVE)],
    "reserved prefix without dot": [q("amqq")],
    "passive, there": [q(), Publish("q", 2), q(**PASSIVE)],
    "passive, other flags": [q(), q(passive=True, durable=True, auto_delete=True, **_TTL)],
    "passive, not there": [q(**PASSIVE)],
    "passive, no name": [q("", **PASSIVE)],
    "passive, no name after a declaration": [q(), q("", **PASSIVE)],
    "passive, newline": [q("q\n", **PASSIVE)],
    "durable": [q(durable=True), q(durable=True)],
    "durable, received true": [q(), q(durable=True)],
    "durable, received false": [q(durable=True), q()],
    "auto-delete, received true": [q(), q(auto_delete=True)],
    "auto-delete, received false": [q(auto_delete=True), q()],
    "exclusive of ours": [q(exclusive=True), q(exclusive=True)],
    "exclusive of ours, not exclusive": [q(exclusive=True), q()],
    "not exclusive, exclusive": [q(), q(exclusive=True)],
    "exclusive and durable": [q(exclusive=True, durable=True), q(exclusive=True)],
    "exclusive of another": [q(exclusive=True), By("b", q(exclusive=True))],
    "exclusive of another, plain": [q(exclusive=True), By("b", q())],
    "exclusive of another, passive": [q(exclusive=True), By("b", q(**PASSIVE))],
    "exclusive of another, durable": [q(exclusive=True), By("b", q(durable=True, **_TTL))],
    "argument, same": [q(**_TTL), q(**_TTL)],
    "argument, wider": [q(**_TTL), q(**args(x_message_ttl=Long(1000)))],
    "argument, wider limit": [q(**args(x_max_length=UnsignedShort(10))), q(**args(x_max_length=Byte(10)))],
    "argument, double": [q(**_TTL), q(**args(x_message_ttl=1000.0))],
    "argument, float": [q(**_TTL), q(**args(x_message_ttl=Float(1000)))],
    "argument, double expires": [q(**args(x_expires=100000)), q(**args(x_expires=100000.0))],
    "argument, double length": [q(**args(x_max_length=10)), q(**args(x_max_length=10.0))],
    "argument, double bytes": [q(**args(x_max_length_bytes=10)), q(**args(x_max_length_bytes=10.0))],
    "argument, double priority": [q(**args(x_max_priority=1)), q(**args(x_max_priority=1.0))],
    "argument, double version": [q(**args(x_queue_version=1)), q(**args(x_queue_version=1.0))],
    "argument, void": [q(**_TTL), q(**args(x_message_ttl=None))],
    "argument, time": [q(**_TTL), q(**args(x_message_ttl=Timestamp(1000)))],
    "argument, other": [q(**_TTL), q(**args(x_message_ttl=2000))],
    "argument, more": [q(), q(**_TTL)],
    "argument, more, long": [q(), q(**args(x_message_ttl=Long(1000)))],
    "argument, less": [q(**_TTL), q()],
    "argument, text more": [q(), q(**args(x_dead_letter_exchange="e"))],
    "argument, text less": [q(**args(x_dead_letter_exchange="e")), q()],
    "argument, text other": [q(**args(x_dead_letter_exchange="e")), q(**args(x_dead_letter_exchange="f"))],
    "argument, two differ": [q(), q(**args(x_message_ttl=1, x_expires=100000))],
    "argument, bool more": [q(), q(**args(x_single_active_consumer=True))],
    "argument, bool other": [q(**args(x_single_active_consumer=False)), q(**args(x_single_active_consumer=True))],
    "argument, unknown": [q(), q(**args(x_whatever=1))],
    "argument, unknown differs": [q(**args(x_whatever=2)), q(**args(x_whatever=1))],
    "argument, durable differs too": [q(), q(durable=True, **_TTL)],
    "ttl negative": [q(**args(x_message_ttl=-1))],
    "ttl zero": [q(**args(x_message_ttl=0))],
    "ttl text": [q(**args(x_message_ttl="1"))],
    "ttl float": [q(**args(x_message_ttl=1.5))],
    "ttl single float": [q(**args(x_message_ttl=Float(1.5)))],
    "ttl time": [q(**args(x_message_ttl=Timestamp(1000)))],
    "ttl decimal": [q(**args(x_message_ttl=Decimal(10)))],
    "version double": [q(**args(x_queue_version=1.0))],
    "version bool": [q(**args(x_queue_version=True))],
    "version text": [q(**args(x_queue_version="1"))],
    "single active long": [q(**args(x_single_active_consumer=Long(1)))],
    "ttl bool": [q(**args(x_message_ttl=True))],
    "ttl void": [q(**args(x_message_ttl=None))],
    "ttl too large": [q(**args(x_message_ttl=1 << 40))],
    "expires negative": [q(**args(x_expires=-1))],
    "expires zero": [q(**args(x_expires=0))],
    "expires text": [q(**args(x_expires="1"))],
    "expires too large": [q(**args(x_expires=1 << 40))],
    "max-length negative": [q(**args(x_max_length=-1))],
    "max-length zero": [q(**args(x_max_length=0))],
    "max-length text": [q(**args(x_max_length="1"))],
    "max-length-bytes negative": [q(**args(x_max_length_bytes=-1))],
    "max-length-bytes text": [q(**args(x_max_length_bytes="1"))],
    "max-priority zero": [q(**args(x_max_priority=0))],
    "max-priority negative": [q(**args(x_max_priority=-1))],
    "max-priority 255": [q(**args(x_max_priority=255))],
    "max-priority 256": [q(**args(x_max_priority=256))],
    "max-priority text": [q(**args(x_max_priority="1"))],
    "overflow drop-head": [q(**args(x_overflow="drop-head"))],
    "overflow reject-publish": [q(**args(x_overflow="reject-publish"))],
    "overflow reject-publish-dlx": [q(**args(x_overflow="reject-publish-dlx"))],
    "overflow unknown": [q(**args(x_overflow="none"))],
    "overflow number": [q(**args(x_overflow=1))],
    "dead letters": [q(**args(x_dead_letter_exchange="e", x_dead_letter_routing_key="k"))],
    "dead letters, empty": [q(**args(x_dead_letter_exchange=""))],
    "dead letters, number": [q(**args(x_dead_letter_exchange=1))],
    "dead letters, only a key": [q(**args(x_dead_letter_routing_key="k"))],
    "dead letters, key is a number": [q(**args(x_dead_letter_exchange="e", x_dead_letter_routing_key=1))],
    "mode lazy": [q(**args(x_queue_mode="lazy"))],
    "mode unknown": [q(**args(x_queue_mode="quick"))],
    "mode number": [q(**args(x_queue_mode=1))],
    "single active consumer, text": [q(**args(x_single_active_consumer="true"))],
    "single active consumer": [q(**args(x_single_active_consumer=True))],
    "type classic": [q(**args(x_queue_type="classic"))],
    "type classic, said later": [q(), q(**args(x_queue_type="classic"))],
    "type classic, said first": [q(**args(x_queue_type="classic")), q()],
    "type quorum": [q(durable=True, **args(x_queue_type="quorum"))],
    "type quorum, not durable": [q(**args(x_queue_type="quorum"))],
    "type quorum, exclusive": [q(durable=True, exclusive=True, **args(x_queue_type="quorum"))],
    "type quorum, auto-delete": [q(durable=True, auto_delete=True, **args(x_queue_type="quorum"))],
    "type quorum, delivery limit": [q(durable=True, **args(x_queue_type="quorum", x_delivery_limit=3))],
    "type quorum, priorities": [q(durable=True, **args(x_queue_type="quorum", x_max_priority=3))],
    "type quorum, lazy": [q(durable=True, **args(x_queue_type="quorum", x_queue_mode="lazy"))],
    "type quorum, reject-publish-dlx": [
        q(durable=True, **args(x_queue_type="quorum", x_overflow="reject-publish-dlx"))
    ],
    "type quorum, expires": [q(durable=True, **args(x_queue_type="quorum", x_expires=60000))],
    "type quorum, ttl": [q(durable=True, **args(x_queue_type="quorum", x_message_ttl=60000))],
    "type quorum, named by the server": [q("", durable=True, **args(x_queue_type="quorum"))],
    "type classic, delivery limit": [q(**args(x_delivery_limit=3))],
    "type quorum, was classic": [q(durable=True), q(durable=True, **args(x_queue_type="quorum"))],
    "type classic, was quorum": [q(durable=True, **args(x_queue_type="quorum")), q(durable=True)],
    "type unknown": [q(durable=True, **args(x_queue_type="fast"))],
    "type unknown, was there": [q(durable=True), q(durable=True, **args(x_queue_type="fast"))],
    "type number": [q(durable=True, **args(x_queue_type=1))],
    "type empty": [q(durable=True, **args(x_queue_type=""))],
    "deleted": [q(), Publish("q", 3), QueueDelete(queue="q")],
    "deleted, not there": [QueueDelete(queue="q")],
    "deleted, no name": [QueueDelete()],
    "deleted, last declared": [q(), QueueDelete()],
    "deleted, then the last declared": [q(), QueueDelete(queue="q"), QueueDelete()],
    "deleted, newline": [q(), Publish("q"), QueueDelete(queue="q\n")],
    "deleted if unused": [q(), QueueDelete(queue="q", if_unused=True)],
    "deleted if unused, used": [q(), Consume("q"), QueueDelete(queue="q", if_unused=True)],
    "deleted if empty": [q(), QueueDelete(queue="q", if_empty=True)],
    "deleted if empty, not empty": [q(), Publish("q"), QueueDelete(queue="q", if_empty=True)],
    "deleted if unused and empty, neither": [
        q(),
        Consume("q"),
        q("q2"),
        Publish("q2"),
        QueueDelete(queue="q2", if_empty=True, if_unused=True),
    ],
    "deleted if unused, not there": [QueueDelete(queue="q", if_unused=True, if_empty=True)],
    "deleted, of another": [q(exclusive=True), By("b", QueueDelete(queue="q"))],
    "deleted if empty, used": [q(), Consume("q"), QueueDelete(queue="q", if_empty=True)],
    "exclusive and auto-delete": [q(exclusive=True, auto_delete=True), q(exclusive=True)],
    "passive, of ours": [q(exclusive=True), q(**PASSIVE)],
    "deleted quorum if unused": [
        q(durable=True, **args(x_queue_type="quorum")),
        QueueDelete(queue="q", if_unused=True, if_empty=True),
    ],
    "deleted, reserved": [QueueDelete(queue="amq.gen-nothing")],
    "purged": [q(), Publish("q", 3), QueuePurge(queue="q")],
    "purged, empty": [q(), QueuePurge(queue="q")],
    "purged, last declared": [q(), Publish("q", 1), QueuePurge()],
    "purged, not there": [QueuePurge(queue="q")],
    "purged, no name": [QueuePurge()],
    "purged, newline": [q(), Publish("q", 2), QueuePurge(queue="q\n")],
    "purged, of another": [q(exclusive=True), By("b", QueuePurge(queue="q"))],
}

_BOUND: Final[list[Step]] = [q(), x()]
_QB: Final[dict[str, Any]] = {"queue": "q", "exchange": "e"}
_HEADERS: Final[list[Step]] = [q(), x(type_="headers")]

BINDINGS: Final[dict[str, list[Step]]] = {
    "bound": [*_BOUND, QueueBind(**_QB)],
    "bound twice": [*_BOUND, QueueBind(**_QB), QueueBind(**_QB)],
    "bound, no queue": [x(), QueueBind(**_QB)],
    "bound, no exchange": [q(), QueueBind(**_QB)],
    "bound, neither": [QueueBind(**_QB)],
    "bound, no name": [x(), QueueBind(exchange="e", routing_key="k")],
    "bound, last declared": [*_BOUND, QueueBind(exchange="e", routing_key="k")],
    "bound, last declared by its name": [
        *_BOUND,
        QueueBind(exchange="e"),
        QueueUnbind(**_QB, routing_key="q"),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "bound, last declared and not by no name": [
        *_BOUND,
        QueueBind(exchange="e"),
        QueueUnbind(**_QB),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "unbound, last declared by its name": [
        *_BOUND,
        QueueBind(**_QB, routing_key="q"),
        QueueUnbind(exchange="e"),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "unbound, last declared and not by its name": [
        *_BOUND,
        QueueBind(**_QB),
        QueueUnbind(exchange="e"),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "bound to the default": [q(), QueueBind(queue="q", routing_key="q")],
    "bound to the default, no queue": [QueueBind(queue="q", routing_key="q")],
    "bound, newline": [*_BOUND, QueueBind(queue="q\n", exchange="e\r")],
    "bound, of another": [x(), q(exclusive=True), By("b", QueueBind(**_QB))],
    "bound, internal exchange": [q(), x(internal=True), QueueBind(**_QB)],
    "bound by headers": [*_HEADERS, QueueBind(**_QB, arguments={"x-match": "any", "a": 1})],
    "bound by headers, no match": [*_HEADERS, QueueBind(**_QB, arguments={"a": 1})],
    "bound by headers, unknown match": [*_HEADERS, QueueBind(**_QB, arguments={"x-match": "some"})],
    "bound by headers, number": [*_HEADERS, QueueBind(**_QB, arguments={"x-match": 1})],
    "bound by headers, with x": [*_HEADERS, QueueBind(**_QB, arguments={"x-match": "all-with-x"})],
    "match is not for others": [*_BOUND, QueueBind(**_QB, arguments={"x-match": "some"})],
    "unbound": [*_BOUND, QueueBind(**_QB), QueueUnbind(**_QB)],
    "unbound, not bound": [*_BOUND, QueueUnbind(**_QB)],
    "unbound, other key": [
        *_BOUND,
        QueueBind(**_QB),
        QueueUnbind(**_QB, routing_key="k"),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "unbound, other arguments": [
        *_BOUND,
        QueueBind(**_QB),
        QueueUnbind(**_QB, arguments={"a": 1}),
        ExchangeDelete(exchange="e", if_unused=True),
    ],
    "unbound, no queue": [x(), QueueUnbind(**_QB)],
    "unbound, no exchange": [q(), QueueUnbind(**_QB)],
    "unbound, neither": [QueueUnbind(**_QB)],
    "unbound from the default": [q(), QueueUnbind(queue="q", routing_key="q")],
    "unbound, no name": [x(), QueueUnbind(exchange="e", routing_key="k")],
    "unbound, of another": [x(), q(exclusive=True), By("b", QueueUnbind(**_QB))],
    "unbound, of another, bound": [x(), q(exclusive=True), QueueBind(**_QB), By("b", QueueUnbind(**_QB))],
    "unbound by headers, unknown match": [*_HEADERS, QueueUnbind(**_QB, arguments={"x-match": "some"})],
    "tied": [x(), x("d"), ExchangeBind(source="e", destination="d")],
    "tied to itself": [x(), ExchangeBind(source="e", destination="e")],
    "tied, no source": [x("d"), ExchangeBind(source="e", destination="d")],
    "tied, no destination": [x(), ExchangeBind(source="e", destination="d")],
    "tied, neither": [ExchangeBind(source="e", destination="d")],
    "tied from the default": [x("d"), ExchangeBind(source="", destination="d")],
    "tied to the default": [x(), ExchangeBind(source="e", destination="")],
    "tied by headers, unknown match": [
        x(type_="headers"),
        x("d"),
        ExchangeBind(source="e", destination="d", arguments={"x-match": "some"}),
    ],
    "untied": [x(), x("d"), ExchangeBind(source="e", destination="d"), ExchangeUnbind(source="e", destination="d")],
    "untied, not tied": [x(), x("d"), ExchangeUnbind(source="e", destination="d")],
    "untied, no source": [x("d"), ExchangeUnbind(source="e", destination="d")],
    "untied, no destination": [x(), ExchangeUnbind(source="e", destination="d")],
    "untied from the default": [x("d"), ExchangeUnbind(source="", destination="d")],
    "tied, newline": [x(), x("d"), ExchangeBind(source="e\n", destination="d\r")],
}

EXCHANGES: Final[dict[str, list[Step]]] = {
    **{f"made {each}": [x(type_=each)] for each in ("direct", "fanout", "topic", "headers")},
    "made twice": [x(durable=True), x(durable=True)],
    "unknown type": [x(type_="none")],
    "unknown type, there": [x(), x(type_="none")],
    "unknown type, passive, there": [x(), x(type_="none", **PASSIVE)],
    "no type": [x(type_="")],
    "type of a module": [x(type_="lists")],
    "passive exchange": [x(), x(type_="topic", passive=True, durable=True)],
    "passive exchange, not there": [x(**PASSIVE)],
    "passive exchange, default": [x("", **PASSIVE)],
    "passive exchange, reserved": [x("amq.direct", **PASSIVE)],
    "passive exchange, reserved, not there": [x("amq.none", **PASSIVE)],
    "passive exchange, newline": [x(), x("e\n", **PASSIVE)],
    "reserved exchange": [x("amq.none")],
    "reserved exchange, there and equal": [x("amq.direct", durable=True)],
    "reserved exchange, there and other": [x("amq.direct")],
    "reserved exchange, other type": [x("amq.direct", "fanout", durable=True)],
    "default exchange": [x("", durable=True)],
    "default exchange, unknown type": [x("", "none", durable=True)],
    "exchange with a newline": [x("e\r\nf")],
    "exchange of 255 bytes": [x(LONG)],
    "type differs": [x(), x(type_="fanout")],
    "durable differs": [x(), x(durable=True)],
    "durable differs, false": [x(durable=True), x()],
    "auto-delete differs": [x(), x(auto_delete=True)],
    "internal differs": [x(), x(internal=True)],
    "all differs": [x(), x(type_="topic", durable=True, auto_delete=True, internal=True, **_AE)],
    "alternate": [x(**_AE), x(**_AE)],
    "alternate, more": [x(), x(**_AE)],
    "alternate, less": [x(**_AE), x()],
    "alternate, other": [x(**_AE), x(arguments={"alternate-exchange": "e2"})],
    "alternate, number": [x(arguments={"alternate-exchange": 1})],
    "alternate, empty": [x(arguments={"alternate-exchange": ""})],
    "other argument differs": [x(), x(arguments={"x-what": 1})],
    "exchange deleted": [x(), ExchangeDelete(exchange="e")],
    "exchange deleted, not there": [ExchangeDelete(exchange="e")],
    "exchange deleted, not there, if unused": [ExchangeDelete(exchange="e", if_unused=True)],
    "exchange deleted, default": [ExchangeDelete(exchange="")],
    "exchange deleted, reserved": [ExchangeDelete(exchange="amq.direct")],
    "exchange deleted, reserved, not there": [ExchangeDelete(exchange="amq.none")],
    "exchange deleted, newline": [x(), ExchangeDelete(exchange="e\n"), x(**PASSIVE)],
    "exchange deleted if unused": [x(), ExchangeDelete(exchange="e", if_unused=True)],
    "exchange deleted if unused, used": [*_BOUND, QueueBind(**_QB), ExchangeDelete(exchange="e", if_unused=True)],
    "exchange deleted if unused, is a destination": [
        x(),
        x("d"),
        ExchangeBind(source="e", destination="d"),
        ExchangeDelete(exchange="d", if_unused=True),
    ],
    "exchange deleted, used": [*_BOUND, QueueBind(**_QB), ExchangeDelete(exchange="e")],
    "goes with its last binding": [q(), x(auto_delete=True), QueueBind(**_QB), QueueUnbind(**_QB), x(**PASSIVE)],
    "does not go with another": [
        q(),
        x(auto_delete=True),
        QueueBind(**_QB),
        QueueBind(**_QB, routing_key="k"),
        QueueUnbind(**_QB),
        x(**PASSIVE),
    ],
    "does not go without a binding": [q(), x(auto_delete=True), QueueUnbind(**_QB), x(**PASSIVE)],
    "goes with its queue": [q(), x(auto_delete=True), QueueBind(**_QB), QueueDelete(queue="q"), x(**PASSIVE)],
    "goes with its last destination": [
        q(),
        x(auto_delete=True),
        x("d", auto_delete=True),
        ExchangeBind(source="e", destination="d"),
        QueueBind(queue="q", exchange="d"),
        QueueDelete(queue="q"),
        x(**PASSIVE),
    ],
    "does not go as a destination": [
        x(),
        x("d", auto_delete=True),
        ExchangeBind(source="e", destination="d"),
        ExchangeUnbind(source="e", destination="d"),
        x("d", **PASSIVE),
    ],
    "queue stays without its exchange": [*_BOUND, QueueBind(**_QB), ExchangeDelete(exchange="e"), q(**PASSIVE)],
}

_N: Final = "n"
REFUSALS: Final[dict[str, list[Step]]] = {
    "ann declares": [By(_N, q("c"))],
    "ann declares what she may not": [By(_N, q("wr"))],
    "ann declares anything passively": [q("q"), By(_N, q(**PASSIVE))],
    "ann declares what is there": [q(), By(_N, q())],
    "ann declares reserved": [By(_N, q("amq.q"))],
    "ann's dead letters": [By(_N, q("c", **args(x_dead_letter_exchange="w")))],
    "ann's dead letters, unwritten": [By(_N, q("cr", **args(x_dead_letter_exchange="e")))],
    "ann's dead letters, by default": [By(_N, q("cr", **args(x_dead_letter_exchange="")))],
    "ann's dead letters, there": [
        q("c", **args(x_dead_letter_exchange="e")),
        By(_N, q("c", **args(x_dead_letter_exchange="e"))),
    ],
    "ann deletes": [By(_N, QueueDelete(queue="wr"))],
    "ann purges": [q("cw"), By(_N, QueuePurge(queue="cw"))],
    "ann purges nothing": [By(_N, QueuePurge(queue="q"))],
    "ann binds": [q("cr"), x("r"), By(_N, QueueBind(queue="cr", exchange="r"))],
    "ann binds from": [q("w"), x("cw"), By(_N, QueueBind(queue="w", exchange="cw"))],
    "ann binds from the default": [q("w"), By(_N, QueueBind(queue="w", exchange=""))],
    "ann binds nothing": [By(_N, QueueBind(queue="w", exchange="r"))],
    "ann unbinds": [q("cr"), x("r"), By(_N, QueueUnbind(queue="cr", exchange="r"))],
    "ann makes": [By(_N, x("wr"))],
    "ann makes nothing": [By(_N, x("e", "none"))],
    "ann makes what is there": [x(), By(_N, x())],
    "ann makes reserved": [By(_N, x("amq.q"))],
    "ann's alternate": [By(_N, x("c", arguments={"alternate-exchange": "w"}))],
    "ann's alternate, unwritten": [By(_N, x("cr", arguments={"alternate-exchange": "e"}))],
    "ann's alternate, there": [x("c", **_AE), By(_N, x("c", **_AE))],
    "ann unmakes": [x("wr"), By(_N, ExchangeDelete(exchange="wr"))],
    "ann unmakes reserved": [By(_N, ExchangeDelete(exchange="amq.topic"))],
    "ann unmakes the default": [By(_N, ExchangeDelete(exchange=""))],
    "ann ties": [x("cr"), x("r"), By(_N, ExchangeBind(source="r", destination="cr"))],
    "ann ties from": [x("w"), x("cw"), By(_N, ExchangeBind(source="cw", destination="w"))],
    "ann ties to the default": [x("cw"), By(_N, ExchangeBind(source="cw", destination=""))],
    "tom binds": [q(), x("topics", "topic"), By("t", QueueBind(queue="q", exchange="topics", routing_key="ok.1"))],
    "tom binds what he may not": [
        q(),
        x("topics", "topic"),
        By("t", QueueBind(queue="q", exchange="topics", routing_key="no.1")),
    ],
    "tom unbinds what he may not": [
        q(),
        x("topics", "topic"),
        By("t", QueueUnbind(queue="q", exchange="topics", routing_key="no.1")),
    ],
    "tom ties what he may not": [
        x("d"),
        x("topics", "topic"),
        By("t", ExchangeBind(source="topics", destination="d", routing_key="no.1")),
    ],
    "tom unties what he may not": [
        x("d"),
        x("topics", "topic"),
        By("t", ExchangeUnbind(source="topics", destination="d", routing_key="no.1")),
    ],
    "tom binds to what is no topic": [
        q(),
        x("topics", "direct"),
        By("t", QueueBind(queue="q", exchange="topics", routing_key="no.1")),
    ],
    "tom binds nothing": [x("topics", "topic"), By("t", QueueBind(queue="q", exchange="topics", routing_key="no.1"))],
}

CASES: Final = QUEUES | BINDINGS | EXCHANGES | REFUSALS
assert len(CASES) == len(QUEUES) + len(BINDINGS) + len(EXCHANGES) + len(REFUSALS), "every case has its own name"

QUEUE_NAMES: Final = ("q", "q2", "qr", LONG, "amqq", "c", "wr", "cr", "cw", "w", "r")  # what cases leave behind
EXCHANGE_NAMES: Final = ("e", "d", "ef", LONG, "topics", "c", "wr", "cr", "cw", "w", "r")


def expected_answers() -> dict[str, str]:
    lines = EXPECTED_FILE.read_text(encoding="utf-8").splitlines()
    return {case: answer for case, _, answer in (line.partition("\t") for line in lines)}
