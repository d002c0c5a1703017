"""Queues in the API.

Only known values are shown. There are no rates: a client that needs one reads the counters twice. RabbitMQ's internals
(reductions, garbage collection) are not shown.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from warren.management.broker_facts import QueueFact
from warren.management.listing import columns, listed
from warren.management.requests import HttpRequest, not_found, visible


def every(request: HttpRequest) -> Any:
    """Queues of all vhosts that the user sees."""
    return _listed(request, request.source.facts.of(visible(request.broker, request.user)))


def of_vhost(request: HttpRequest) -> Any:
    return _listed(request, request.source.facts.of([request.vhost]))


def one(request: HttpRequest) -> Any:
    fact = request.source.facts.one(request.vhost, request.names["name"])
    if fact is None:
        raise not_found()
    return columns(queue_item(fact, request.broker.node) | {"consumer_details": []}, request.query)


def _listed(request: HttpRequest, facts: list[QueueFact]) -> Any:
    node = request.broker.node
    return listed([queue_item(fact, node) for fact in facts], request.query)


def queue_item(fact: QueueFact, node: str) -> dict[str, Any]:
    row, numbers, sizes = fact.row, fact.numbers, fact.numbers.sizes
    return {
        "arguments": shown(row.arguments) if row.arguments else {},
        "auto_delete": row.auto_delete,
        "consumers": numbers.consumers,
        "durable": row.durable,
        "effective_policy_definition": {},
        "exclusive": row.exclusive,
        "memory": numbers.memory_bytes,
        "message_bytes": numbers.size_bytes,
        "message_bytes_paged_out": numbers.size_bytes - sizes.ram_bytes,
        "message_bytes_persistent": sizes.persistent_bytes,
        "message_bytes_ram": sizes.ram_bytes,
        "message_bytes_ready": numbers.ready_bytes,
        "message_bytes_unacknowledged": sizes.pending_bytes,
        "messages": numbers.ready + numbers.unacked,
        "messages_paged_out": numbers.paged_out,
        "messages_persistent": sizes.persistent,
        "messages_ram": sizes.ready_ram + sizes.pending_ram,
        "messages_ready": numbers.ready,
        "messages_ready_ram": sizes.ready_ram,
        "messages_unacknowledged": numbers.unacked,
        "messages_unacknowledged_ram": sizes.pending_ram,
        "name": row.name,
        "node": node,
        "operator_policy": None,
        "policy": None,
        "state": numbers.state,
        "type": str(row.arguments.get("x-queue-type", "classic")),
        "vhost": fact.vhost,
    }


def shown(value: Any) -> Any:
    """A value of an AMQP table as JSON; not reversible."""
    match value:
        case Mapping():
            return {str(key): shown(each) for key, each in value.items()}
        case list() | tuple():
            return [shown(each) for each in value]
        case bytes():
            return value.decode() if value.isascii() else base64.b64encode(value).decode()
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value
