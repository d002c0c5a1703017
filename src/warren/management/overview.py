"""The server in the API: overview, nodes, vhosts, whoami.

There is one node and no cluster; both are shown in RabbitMQ's form, since tools expect them.

Queues in the API.

Only known values are shown; rates and samples come from `statistics`. RabbitMQ's internals (reductions, garbage
collection) are not shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from warren.broker.exchanges.routing import KINDS
from warren.broker.policies import Policy
from warren.broker.vhost import Vhost
from warren.catalog import parameters
from warren.catalog.vhosts import VhostRow
from warren.management.broker_facts import Alarm, BrokerView, Listener, QueueFact, process_facts
from warren.management.connections import queue_consumers
from warren.management.listing import columns, listed, listed_whole, shown
from warren.management.requests import HttpRequest, HttpResponse, bad_request, not_found, sees_server, visible
from warren.management.statistics import LENGTHS, MESSAGE_RATES, churn, message_stats, queue_stats, window_of

_CLUSTER_NAME: Final = "cluster_name"
_FEATURE_FLAGS: Final = (
    *(
        "classic_mirrored_queue_version",
        "drop_unroutable_metric",
        "empty_basic_get_metric",
        "implicit_default_bindings",
    ),
    *("maintenance_mode_status", "quorum_queue", "user_limits", "virtual_host_metadata"),
)


def whoami(request: HttpRequest) -> Any:
    return {"name": request.user.name, "tags": list(request.user.tags)}


def version(request: HttpRequest) -> Any:
    return reported_version(request.broker)


def cluster_name(request: HttpRequest) -> Any:
    return {"name": cluster_name_of(request.broker)}


def set_cluster_name(request: HttpRequest) -> Any:
    """A global parameter, as in RabbitMQ."""
    name = request.body.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request(["key_missing", "name"] if name is None else ["not_string", name])
    request.broker.catalog.change(lambda writer: parameters.put(writer, None, parameters.GLOBAL, _CLUSTER_NAME, name))
    return HttpResponse(None, 204)


def cluster_name_of(broker: BrokerView) -> str:
    """The name that was set; the node's, if there is none."""
    with broker.catalog.reading() as connection:
        row = parameters.get(connection, None, parameters.GLOBAL, _CLUSTER_NAME)
    return broker.node if row is None else str(row.value)


def extensions(request: HttpRequest) -> Any:
    """Scripts of a web interface: there is none."""
    return []


def feature_flags(request: HttpRequest) -> Any:
    """What clients of RabbitMQ may ask for. All of them are in effect, and cannot be disabled."""
    common = {"desc": "", "doc_url": "", "provided_by": "rabbit", "stability": "stable", "state": "enabled"}
    return [common | {"name": name} for name in _FEATURE_FLAGS]


def overview(request: HttpRequest) -> Any:
    broker = request.broker
    vhosts = visible(broker, request.user)
    facts, statistics = request.source.facts.of(vhosts), request.source.statistics
    rates, lengths = window_of(request.query, MESSAGE_RATES), window_of(request.query, LENGTHS)
    item: dict[str, Any] = {
        "management_version": broker.version,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [600], "basic": [60], "detailed": [60]},
        "exchange_types": _exchange_types(),
        "product_version": reported_version(broker),
        "product_name": broker.settings.product,
        "rabbitmq_version": reported_version(broker),
        "cluster_name": cluster_name_of(broker),
        "disable_stats": False,
        "enable_queue_totals": True,
        "message_stats": statistics.of_broker(message_stats(broker.counts), rates),
        "churn_rates": statistics.of_broker(churn(broker.counts), rates),
        "queue_totals": statistics.of_broker(totals(facts), lengths),
        "object_totals": _object_totals(broker, vhosts, facts),
        "statistics_db_event_queue": 0,
    }
    if sees_server(request.user):
        item |= {"node": broker.node, "listeners": _listeners(request), "contexts": [], "problems": [*broker.problems]}
    return columns(item, request.query)


def nodes(request: HttpRequest) -> Any:
    return listed_whole([_node(request)], request.query)


def node(request: HttpRequest) -> Any:
    if request.names["node"] != request.broker.node:
        raise not_found()
    return columns(_node(request), request.query)


def vhosts(request: HttpRequest) -> Any:
    """Users who see the server see all vhosts, also without a permission in them."""
    broker, user = request.broker, request.user
    vhosts = broker.vhosts.every() if sees_server(user) else visible(broker, user)
    return listed(_vhosts(request, vhosts), request.query)


def vhost(request: HttpRequest) -> Any:
    return columns(_vhosts(request, [request.vhost])[0], request.query)


# -- parts -------------------------------------------------------------------------------------------------------


def reported_version(broker: BrokerView) -> str:
    """The version in the AMQP handshake."""
    return broker.settings.announced_version


def totals(facts: Iterable[QueueFact]) -> dict[str, int]:
    ready = unacked = 0
    for fact in facts:
        ready += fact.numbers.ready
        unacked += fact.numbers.unacked
    return {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}


def _object_totals(broker: BrokerView, vhosts: Sequence[Vhost], facts: Sequence[QueueFact]) -> dict[str, int]:
    exchanges = 0
    for open_vhost in vhosts:
        with open_vhost.lock:
            exchanges += open_vhost.routing.exchange_count
    return {
        "channels": broker.channel_count,
        "connections": broker.connection_count,
        "consumers": sum(fact.numbers.consumers for fact in facts),
        "exchanges": exchanges,
        "queues": len(facts),
    }


def _vhosts(request: HttpRequest, vhosts: Sequence[Vhost]) -> list[dict[str, Any]]:
    by_name: dict[str, list[QueueFact]] = {open_vhost.row.name: [] for open_vhost in vhosts}
    for fact in request.source.facts.of(vhosts):
        by_name[fact.vhost].append(fact)
    return [_vhost(open_vhost.row, request.broker.node, by_name[open_vhost.row.name]) for open_vhost in vhosts]


def _vhost(row: VhostRow, node_name: str, facts: list[QueueFact]) -> dict[str, Any]:
    tags = list(row.tags)
    item = {"name": row.name, "description": row.description, "tags": tags, "default_queue_type": "undefined"}
    metadata = {"description": row.description, "tags": tags}
    return item | {"metadata": metadata, "tracing": False, "cluster_state": {node_name: "running"}} | totals(facts)


def _node(request: HttpRequest) -> dict[str, Any]:
    broker = request.broker
    process = process_facts(broker.environment.files)
    settings = broker.settings
    return {
        "name": broker.node,
        "type": "disc",
        "running": not broker.is_draining,
        "uptime": (broker.environment.clock.wall_ns() - broker.started_ns) // 1_000_000,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count() or 1,
        "mem_used": process.resident_bytes,
        "mem_limit": broker.memory_limit_bytes,
        "mem_alarm": Alarm.MEMORY in broker.alarms,
        "mem_calculation_strategy": "rss",
        "disk_free": broker.environment.files.free_bytes(broker.database.directory),
        "disk_free_limit": settings.disk_free_min_bytes,
        "disk_free_alarm": Alarm.DISK in broker.alarms,
        "fd_used": process.open_files,
        "fd_total": process.open_files_max,
        "sockets_used": broker.connection_count,
        "sockets_total": process.open_files_max,
        "rates_mode": "basic",
        "exchange_types": _exchange_types(),
        "auth_mechanisms": [_offered(name, f"SASL {name}") for name in settings.offered_mechanisms],
        "applications": [{"name": "warren", "description": settings.product, "version": broker.version}],
        "contexts": [],
        "log_files": [],
        "db_dir": broker.database.directory,
        "config_files": [],
        "enabled_plugins": [],
        "partitions": [],
        "cluster_links": [],
        **churn(broker.counts),
    }


def _listeners(request: HttpRequest) -> list[dict[str, Any]]:
    return [_listener(each, request.broker.node) for each in request.source.listeners()]


def _listener(listener: Listener, node_name: str) -> dict[str, Any]:
    item = {"node": node_name, "protocol": listener.protocol, "ip_address": listener.host, "port": listener.port}
    return item | {"socket_opts": {}}


def _exchange_types() -> list[dict[str, Any]]:
    return [_offered(name, f"AMQP {name} exchange") for name in sorted(KINDS)]


def _offered(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "enabled": True}


def every(request: HttpRequest) -> Any:
    """Queues of all vhosts that the user sees."""
    return _listed(request, request.source.facts.of(visible(request.broker, request.user)))


def of_vhost(request: HttpRequest) -> Any:
    return _listed(request, request.source.facts.of([request.vhost]))


def one(request: HttpRequest) -> Any:
    fact = request.source.facts.one(request.vhost, request.names["name"])
    if fact is None:
        raise not_found()
    item = _item(request, fact) | {"consumer_details": queue_consumers(request, fact.row.name)}
    return columns(item, request.query)


def _listed(request: HttpRequest, facts: list[QueueFact]) -> Any:
    return listed([_item(request, fact) for fact in facts], request.query)


def _item(request: HttpRequest, fact: QueueFact) -> dict[str, Any]:
    """A queue with its rates. Without any message so far it has no `message_stats`, as in RabbitMQ."""
    item, id_, statistics = queue_item(fact, request.broker.node), fact.row.id, request.source.statistics
    lengths = {name: item[name] for name in ("messages", "messages_ready", "messages_unacknowledged")}
    item |= statistics.of_queue(id_, lengths, window_of(request.query, LENGTHS))
    if any((stats := queue_stats(fact.numbers.counts)).values()):
        item["message_stats"] = statistics.of_queue(id_, stats, window_of(request.query, MESSAGE_RATES))
    return item


def queue_item(fact: QueueFact, node: str) -> dict[str, Any]:
    row, numbers, sizes = fact.row, fact.numbers, fact.numbers.sizes
    return {
        "arguments": shown(row.arguments) if row.arguments else {},
        "auto_delete": row.auto_delete,
        "consumers": numbers.consumers,
        "durable": row.durable,
        "effective_policy_definition": fact.policies.definition,
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
        "operator_policy": _policy_name(fact.policies.operator_policy),
        "policy": _policy_name(fact.policies.policy),
        "state": numbers.state,
        "type": str(row.arguments.get("x-queue-type", "classic")),
        "vhost": fact.vhost,
    }


def _policy_name(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name
