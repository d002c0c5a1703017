"""Metrics for Prometheus, found out when they are asked for: RabbitMQ's names, so that its dashboards draw, and ours.

    /metrics              sums over all queues
    /metrics/per-object   the same, each queue by itself
    /metrics/detailed     ?family=…&vhost=… : some families of it, each queue by itself, with another prefix

`rabbitmq_identity_info` and `rabbitmq_build_info` come first: every panel joins its numbers with them.

Nothing is kept between two scrapes: counters are the broker's own (`MessageCounters`), everything else is looked at.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UntypedMetricFamily,
)

from warren.broker.counts import MessageCounters
from warren.management.own_metrics import own_metrics
from warren.management.process import process_facts
from warren.management.queue_facts import QueueFact, QueueNumbers
from warren.management.running import Alarm, BrokerView
from warren.management.server import delivered, told_version

_NS: Final = 1_000_000_000
_PROTOCOL: Final = (("protocol", "amqp091"),)
_QUEUE_TYPE: Final = (*_PROTOCOL, ("queue_type", "rabbit_classic_queue"))


class OfQueue(NamedTuple):
    name: str
    told: str
    value: Callable[[QueueNumbers], int]


COARSE: Final = (
    OfQueue("queue_messages_ready", "Messages that are ready", lambda n: n.ready),
    OfQueue("queue_messages_unacked", "Messages that were delivered and not acknowledged", lambda n: n.unacked),
    OfQueue("queue_messages", "Messages, ready or not acknowledged", lambda n: n.ready + n.unacked),
)
CONSUMERS: Final = (OfQueue("queue_consumers", "Consumers of a queue", lambda n: n.consumers),)
SIZES: Final = (
    OfQueue("queue_messages_bytes", "Bytes of messages, ready or not acknowledged", lambda n: n.size_bytes),
    OfQueue("queue_messages_ready_bytes", "Bytes of messages that are ready", lambda n: n.ready_bytes),
    OfQueue(
        "queue_messages_unacked_bytes",
        "Bytes of messages that were delivered and not acknowledged",
        lambda n: n.sizes.pending_bytes,
    ),
    OfQueue("queue_messages_persistent", "Messages that are persistent", lambda n: n.sizes.persistent),
    OfQueue(
        "queue_messages_persistent_bytes", "Bytes of messages that are persistent", lambda n: n.sizes.persistent_bytes
    ),
    OfQueue(
        "queue_messages_ram", "Messages whose contents are in memory", lambda n: n.sizes.ready_ram + n.sizes.pending_ram
    ),
    OfQueue("queue_messages_ready_ram", "Messages that are ready and in memory", lambda n: n.sizes.ready_ram),
    OfQueue(
        "queue_messages_unacked_ram", "Messages not acknowledged that are in memory", lambda n: n.sizes.pending_ram
    ),
    OfQueue("queue_messages_ram_bytes", "Bytes of messages in memory", lambda n: n.sizes.ram_bytes),
    OfQueue("queue_messages_paged_out", "Messages whose contents are on disk only", lambda n: n.paged_out),
    OfQueue(
        "queue_messages_paged_out_bytes",
        "Bytes of messages whose contents are on disk only",
        lambda n: n.size_bytes - n.sizes.ram_bytes,
    ),
    OfQueue("queue_process_memory_bytes", "Memory that its messages take", lambda n: n.memory_bytes),
)
# What /metrics/detailed can be asked for, by RabbitMQ's names.
FAMILIES: Final = {
    "queue_coarse_metrics": COARSE,
    "queue_consumer_count": CONSUMERS,
    "queue_metrics": (*CONSUMERS, *SIZES),
}
CHURN: Final = {
    "connections_opened": "connections_opened",
    "connections_closed": "connections_closed",
    "channels_opened": "channels_opened",
    "channels_closed": "channels_closed",
    "queues_declared": "queues_declared",
    "queues_created": "queues_created",
    "queues_deleted": "queues_deleted",
}
_PER_PROTOCOL: Final = {
    "received": "received",
    "received_confirm": "received_confirm",
    "routed": "routed",
    "confirmed": "confirmed",
    "unroutable_returned": "unroutable_returned",
    "unroutable_dropped": "unroutable_dropped",
}
_PER_QUEUE_TYPE: Final = {
    "delivered_consume_auto_ack": "delivered_auto_ack",
    "delivered_consume_manual_ack": "delivered_manual_ack",
    "delivered_get_auto_ack": "got_auto_ack",
    "delivered_get_manual_ack": "got_manual_ack",
    "redelivered": "redelivered",
    "acknowledged": "acknowledged",
    "get_empty": "got_empty",
}


def all_metrics(running: BrokerView, facts: Sequence[QueueFact], is_per_object: bool = False) -> Iterator[Metric]:
    yield from identity(running)
    yield from _objects(running, facts)
    yield from churn(running.counts, "rabbitmq_")
    queues = _per_queue if is_per_object else _summed
    yield from queues((*COARSE, *CONSUMERS, *SIZES), facts, "rabbitmq_")
    yield from _messages(running.counts)
    yield from _machine(running)
    yield from own_metrics(running)


def detailed(running: BrokerView, facts: Sequence[QueueFact], families: Iterable[str]) -> Iterator[Metric]:
    """A family that is not known is passed over, as RabbitMQ does."""
    yield from identity(running)
    wanted: dict[str, OfQueue] = {}
    for family in families:
        wanted |= {each.name: each for each in FAMILIES.get(family, ())}
        if family == "connection_churn_metrics":
            yield from churn(running.counts, "rabbitmq_detailed_")
        if family == "vhost_status":
            yield _vhosts(running)
    yield from _per_queue(wanted.values(), facts, "rabbitmq_detailed_")


def identity(running: BrokerView) -> Iterator[Metric]:
    timeline = f"{running.database.log.manifest.state.timeline.id:016x}"
    who = {
        "rabbitmq_node": running.node,
        "rabbitmq_cluster": running.node,
        "rabbitmq_cluster_permanent_id": f"warren-{timeline}",
        "rabbitmq_endpoint": "",
    }
    build = {
        "rabbitmq_version": told_version(running),
        "prometheus_plugin_version": running.version,
        "erlang_version": "",
        "product_name": running.settings.product,
        "python_version": platform.python_version(),
    }
    for name, told, labels in (
        ("rabbitmq_identity_info", "What this server and its cluster are called", who),
        ("rabbitmq_build_info", "Versions", build),
    ):
        metric = UntypedMetricFamily(name, told, labels=list(labels))
        metric.add_metric(list(labels.values()), 1)
        yield metric


def churn(counts: MessageCounters, prefix: str) -> Iterator[Metric]:
    for name, field in CHURN.items():
        yield _counter(prefix + name, name.replace("_", " "), getattr(counts, field))


# -- parts -------------------------------------------------------------------------------------------------------


def _objects(running: BrokerView, facts: Sequence[QueueFact]) -> Iterator[Metric]:
    consumers = sum(fact.numbers.consumers for fact in facts)
    yield _gauge("rabbitmq_connections", "Connections that are open", running.connection_count)
    yield _gauge("rabbitmq_channels", "Channels that are open", running.channel_count)
    yield _gauge("rabbitmq_consumers", "Consumers", consumers)
    yield _gauge("rabbitmq_queues", "Queues", len(facts))
    yield _gauge("rabbitmq_global_consumers", "Consumers", consumers, _PROTOCOL)


def _summed(wanted: Iterable[OfQueue], facts: Sequence[QueueFact], prefix: str) -> Iterator[Metric]:
    for each in wanted:
        yield _gauge(prefix + each.name, each.told, sum(each.value(fact.numbers) for fact in facts))


def _per_queue(wanted: Iterable[OfQueue], facts: Sequence[QueueFact], prefix: str) -> Iterator[Metric]:
    for each in wanted:
        metric = GaugeMetricFamily(prefix + each.name, each.told, labels=["vhost", "queue"])
        for fact in facts:
            metric.add_metric([fact.vhost, fact.row.name], each.value(fact.numbers))
        yield metric


def _messages(counts: MessageCounters) -> Iterator[Metric]:
    for fields, labels in ((_PER_PROTOCOL, _PROTOCOL), (_PER_QUEUE_TYPE, _QUEUE_TYPE)):
        for name, field in fields.items():
            told = f"Messages {name.replace('_', ' ')}"
            yield _counter(f"rabbitmq_global_messages_{name}", told, getattr(counts, field), labels)
    yield _counter("rabbitmq_global_messages_delivered", "Messages delivered", delivered(counts), _QUEUE_TYPE)


def _machine(running: BrokerView) -> Iterator[Metric]:
    files, alarms = running.machine.files, running.alarms
    process = process_facts(files)
    uptime = (running.machine.clock.wall_ns() - running.started_ns) / _NS
    free = files.free_bytes(running.database.directory)
    limit = running.settings.disk_free_min_bytes
    yield _gauge("rabbitmq_process_resident_memory_bytes", "Memory of the process", process.resident_bytes)
    yield _gauge("rabbitmq_resident_memory_limit_bytes", "Above it publishers are blocked", running.memory_limit_bytes)
    yield _gauge("rabbitmq_process_open_fds", "Open files", process.open_files)
    yield _gauge("rabbitmq_process_max_fds", "Most files that may be open", process.open_files_max)
    yield _gauge("rabbitmq_process_open_tcp_sockets", "Sockets of clients", running.connection_count)
    yield _gauge("rabbitmq_disk_space_available_bytes", "Free space where the data is", free)
    yield _gauge("rabbitmq_disk_space_available_limit_bytes", "Below it publishers are blocked", limit)
    yield _gauge("rabbitmq_erlang_uptime_seconds", "Seconds since the start", uptime)
    for name, alarm in (("memory_used_watermark", Alarm.MEMORY), ("free_disk_space_watermark", Alarm.DISK)):
        yield _gauge(f"rabbitmq_alarms_{name}", "1 while publishers are blocked by it", float(alarm in alarms))
    yield _gauge("rabbitmq_alarms_file_descriptor_limit", "Never raised here", 0)


def _vhosts(running: BrokerView) -> Metric:
    metric = GaugeMetricFamily("rabbitmq_cluster_vhost_status", "Whether a vhost is served", labels=["vhost"])
    for realm in running.realms.every():
        metric.add_metric([realm.vhost.name], 1)
    return metric


def _gauge(name: str, told: str, value: float, labels: Sequence[tuple[str, str]] = ()) -> Metric:
    metric = GaugeMetricFamily(name, told, labels=[label for label, _ in labels])
    metric.add_metric([each for _, each in labels], value)
    return metric


def _counter(name: str, told: str, value: float, labels: Sequence[tuple[str, str]] = ()) -> Metric:
    metric = CounterMetricFamily(name, told, labels=[label for label, _ in labels])
    metric.add_metric([each for _, each in labels], value)
    return metric
