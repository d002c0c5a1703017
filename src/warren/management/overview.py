"""The server itself, as the API tells of it: overview, nodes, vhosts, who is asking.

There is one node and no cluster; both are told in RabbitMQ's words, since tools look for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from warren.broker.counters import MessageCounters
from warren.broker.exchanges.routing import KINDS
from warren.broker.vhost import Vhost
from warren.catalog.vhosts import VhostRow
from warren.management.broker_facts import Alarm, BrokerView, Listener, QueueFact, process_facts
from warren.management.listing import columns, listed
from warren.management.requests import HttpRequest, not_found, sees_server, visible


def whoami(asked: HttpRequest) -> Any:
    return {"name": asked.user.name, "tags": list(asked.user.tags)}


def version(asked: HttpRequest) -> Any:
    return reported_version(asked.running)


def cluster_name(asked: HttpRequest) -> Any:
    return {"name": asked.running.node}


def overview(asked: HttpRequest) -> Any:
    running = asked.running
    vhosts = visible(running, asked.user)
    facts = asked.source.facts.of(vhosts)
    told: dict[str, Any] = {
        "management_version": running.version,
        "rates_mode": "none",
        "exchange_types": _exchange_types(),
        "product_version": reported_version(running),
        "product_name": running.settings.product,
        "rabbitmq_version": reported_version(running),
        "cluster_name": running.node,
        "disable_stats": False,
        "enable_queue_totals": True,
        "message_stats": message_stats(running.counts),
        "churn_rates": churn(running.counts),
        "queue_totals": totals(facts),
        "object_totals": _object_totals(running, vhosts, facts),
        "statistics_db_event_queue": 0,
    }
    if sees_server(asked.user):
        told |= {"node": running.node, "listeners": _listeners(asked), "contexts": [], "problems": [*running.problems]}
    return columns(told, asked.query)


def nodes(asked: HttpRequest) -> Any:
    return listed([_node(asked)], asked.query)


def node(asked: HttpRequest) -> Any:
    if asked.names["node"] != asked.running.node:
        raise not_found()
    return columns(_node(asked), asked.query)


def vhosts(asked: HttpRequest) -> Any:
    """Whoever may look at the server sees that a vhost is there, also without a permission in it."""
    running, user = asked.running, asked.user
    vhosts = running.vhosts.every() if sees_server(user) else visible(running, user)
    return listed(_vhosts(asked, vhosts), asked.query)


def vhost(asked: HttpRequest) -> Any:
    return columns(_vhosts(asked, [asked.vhost])[0], asked.query)


# -- parts -------------------------------------------------------------------------------------------------------


def reported_version(running: BrokerView) -> str:
    """As in the handshake of AMQP."""
    return running.settings.announced_version


def message_stats(counts: MessageCounters) -> dict[str, int]:
    """Since the start."""
    return {
        "publish": counts.received,
        "confirm": counts.confirmed,
        "return_unroutable": counts.unroutable_returned,
        "drop_unroutable": counts.unroutable_dropped,
        "deliver": counts.delivered_manual_ack,
        "deliver_no_ack": counts.delivered_auto_ack,
        "get": counts.got_manual_ack,
        "get_no_ack": counts.got_auto_ack,
        "get_empty": counts.got_empty,
        "deliver_get": delivered(counts),
        "redeliver": counts.redelivered,
        "ack": counts.acknowledged,
    }


def delivered(counts: MessageCounters) -> int:
    """In all the ways there are."""
    consumed = counts.delivered_manual_ack + counts.delivered_auto_ack
    return consumed + counts.got_manual_ack + counts.got_auto_ack


def churn(counts: MessageCounters) -> dict[str, int]:
    return {
        "connection_created": counts.connections_opened,
        "connection_closed": counts.connections_closed,
        "channel_created": counts.channels_opened,
        "channel_closed": counts.channels_closed,
        "queue_declared": counts.queues_declared,
        "queue_created": counts.queues_created,
        "queue_deleted": counts.queues_deleted,
    }


def totals(facts: Iterable[QueueFact]) -> dict[str, int]:
    ready = unacked = 0
    for fact in facts:
        ready += fact.numbers.ready
        unacked += fact.numbers.unacked
    return {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}


def _object_totals(running: BrokerView, vhosts: Sequence[Vhost], facts: Sequence[QueueFact]) -> dict[str, int]:
    exchanges = 0
    for open_vhost in vhosts:
        with open_vhost.lock:
            exchanges += open_vhost.routing.exchange_count
    return {
        "channels": running.channel_count,
        "connections": running.connection_count,
        "consumers": sum(fact.numbers.consumers for fact in facts),
        "exchanges": exchanges,
        "queues": len(facts),
    }


def _vhosts(asked: HttpRequest, vhosts: Sequence[Vhost]) -> list[dict[str, Any]]:
    by_name: dict[str, list[QueueFact]] = {open_vhost.row.name: [] for open_vhost in vhosts}
    for fact in asked.source.facts.of(vhosts):
        by_name[fact.vhost].append(fact)
    return [_vhost(open_vhost.row, asked.running.node, by_name[open_vhost.row.name]) for open_vhost in vhosts]


def _vhost(row: VhostRow, node_name: str, facts: list[QueueFact]) -> dict[str, Any]:
    tags = list(row.tags)
    told = {"name": row.name, "description": row.description, "tags": tags, "default_queue_type": "undefined"}
    metadata = {"description": row.description, "tags": tags}
    return told | {"metadata": metadata, "tracing": False, "cluster_state": {node_name: "running"}} | totals(facts)


def _node(asked: HttpRequest) -> dict[str, Any]:
    running = asked.running
    process = process_facts(running.environment.files)
    settings = running.settings
    return {
        "name": running.node,
        "type": "disc",
        "running": not running.is_draining,
        "uptime": (running.environment.clock.wall_ns() - running.started_ns) // 1_000_000,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count() or 1,
        "mem_used": process.resident_bytes,
        "mem_limit": running.memory_limit_bytes,
        "mem_alarm": Alarm.MEMORY in running.alarms,
        "mem_calculation_strategy": "rss",
        "disk_free": running.environment.files.free_bytes(running.database.directory),
        "disk_free_limit": settings.disk_free_min_bytes,
        "disk_free_alarm": Alarm.DISK in running.alarms,
        "fd_used": process.open_files,
        "fd_total": process.open_files_max,
        "sockets_used": running.connection_count,
        "sockets_total": process.open_files_max,
        "rates_mode": "none",
        "exchange_types": _exchange_types(),
        "auth_mechanisms": [_offered(name, f"SASL {name}") for name in settings.mechanisms],
        "applications": [{"name": "warren", "description": settings.product, "version": running.version}],
        "contexts": [],
        "log_files": [],
        "db_dir": running.database.directory,
        "config_files": [],
        "enabled_plugins": [],
        "partitions": [],
        "cluster_links": [],
        **churn(running.counts),
    }


def _listeners(asked: HttpRequest) -> list[dict[str, Any]]:
    return [_listener(each, asked.running.node) for each in asked.source.listeners()]


def _listener(listener: Listener, node_name: str) -> dict[str, Any]:
    told = {"node": node_name, "protocol": listener.protocol, "ip_address": listener.host, "port": listener.port}
    return told | {"socket_opts": {}}


def _exchange_types() -> list[dict[str, Any]]:
    return [_offered(name, f"AMQP {name} exchange") for name in sorted(KINDS)]


def _offered(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "enabled": True}
