"""Metrics for Prometheus, computed per scrape: RabbitMQ's names, so that its dashboards work, and Warren's own.

    /metrics              sums over all queues
    /metrics/per-object   the same, per queue
    /metrics/detailed     ?family=…&vhost=… : some families, per queue, with another prefix

`rabbitmq_identity_info` and `rabbitmq_build_info` come first: every panel joins its numbers with them. `own_metrics`
are those that only Warren has: epochs, the log, the memory of queues. `MetricsApplication` serves the three paths as
text, without a login, at a port of its own.

No state is kept between scrapes: counters are the broker's own (`MessageCounters`), everything else is read.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warren.base.errors import Refused
from warren.broker.counters import MessageCounters
from warren.files.protocol import join
from warren.log.file_record import FileState
from warren.log.store import LogStore
from warren.management.broker_facts import Alarm, BrokerView, QueueFact, QueueNumbers, process_facts
from warren.management.overview import reported_version
from warren.management.requests import FactsSource
from warren.management.statistics import delivered


def own_metrics(broker: BrokerView) -> Iterator[Metric]:
    log, monitor, counts = broker.database.log, broker.vhosts.monitor, broker.counts
    facts = {
        "epoch_durable": ("Everything up to this epoch is on disk", log.durable),
        "snapshot_epoch": ("The snapshot store has everything up to this epoch", broker.database.store.applied.epoch),
        "catalog_epoch": ("Of the newest change that the SQL catalog has", broker.catalog.applied),
        "wal_bytes": ("What the files of the log take", wal_bytes(log)),
        "queue_memory_bytes": ("What messages of all queues take in memory", monitor.used_bytes),
        "queue_memory_limit_bytes": ("Above it messages are paged out", monitor.limit_bytes),
        "damage": ("Damaged places of the store and of queues' messages: see /api/overview", len(broker.damage)),
        "problems": ("What an operator should look at: see /api/overview", len(broker.problems)),
    }
    for name, (help_text, value) in facts.items():
        yield GaugeMetricFamily(f"warren_{name}", help_text, value=value)
    yield from _background(broker)
    yield CounterMetricFamily("warren_received_bytes", "Of messages published", value=counts.received_bytes)
    yield CounterMetricFamily("warren_log_flushes", "Of max_write_buffers gathered blocks", value=log.writer.flushes)
    yield CounterMetricFamily("warren_messages_refused", "Publishes answered by a nack", value=counts.refused)


def _background(broker: BrokerView) -> Iterator[Metric]:
    background = broker.environment.background
    failing = {task.name for task in background.failing()}
    now = GaugeMetricFamily("warren_background_failing", "1 while the task's last round failed", labels=["task"])
    total = CounterMetricFamily("warren_background_failures", "Failed rounds since the start", labels=["task"])
    for name, failures in sorted(background.failures().items()):
        now.add_metric([name], float(name in failing))
        total.add_metric([name], failures)
    yield now
    yield total


def wal_bytes(log: LogStore) -> int:
    files, total = log.environment.files, 0
    for record in list(log.manifest.state.files.values()):
        if record.state is not FileState.DOOMED:
            with suppress(Refused):  # removed meanwhile
                total += files.stat(join(log.directory, record.name)).size_bytes
    return total


_NS: Final = 1_000_000_000
_PROTOCOL: Final = (("protocol", "amqp091"),)
_QUEUE_TYPE: Final = (*_PROTOCOL, ("queue_type", "rabbit_classic_queue"))


class OfQueue(NamedTuple):
    name: str
    help_text: str
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
# Families of /metrics/detailed, by RabbitMQ's names.
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


def all_metrics(broker: BrokerView, facts: Sequence[QueueFact], is_per_object: bool = False) -> Iterator[Metric]:
    yield from identity(broker)
    yield from _objects(broker, facts)
    yield from churn(broker.counts, "rabbitmq_")
    queues = _per_queue if is_per_object else _summed
    yield from queues((*COARSE, *CONSUMERS, *SIZES), facts, "rabbitmq_")
    yield from _messages(broker.counts)
    yield from _environment(broker)
    yield from own_metrics(broker)


def detailed(broker: BrokerView, facts: Sequence[QueueFact], families: Iterable[str]) -> Iterator[Metric]:
    """Unknown families are skipped, as in RabbitMQ."""
    yield from identity(broker)
    wanted: dict[str, OfQueue] = {}
    for family in families:
        wanted |= {each.name: each for each in FAMILIES.get(family, ())}
        if family == "connection_churn_metrics":
            yield from churn(broker.counts, "rabbitmq_detailed_")
        if family == "vhost_status":
            yield _vhosts(broker)
    yield from _per_queue(wanted.values(), facts, "rabbitmq_detailed_")


def identity(broker: BrokerView) -> Iterator[Metric]:
    timeline = f"{broker.database.log.manifest.state.timeline.id:016x}"
    who = {
        "rabbitmq_node": broker.node,
        "rabbitmq_cluster": broker.node,
        "rabbitmq_cluster_permanent_id": f"warren-{timeline}",
        "rabbitmq_endpoint": "",
    }
    build = {
        "rabbitmq_version": reported_version(broker),
        "prometheus_plugin_version": broker.version,
        "erlang_version": "",
        "product_name": broker.settings.product,
        "python_version": platform.python_version(),
    }
    for name, help_text, labels in (
        ("rabbitmq_identity_info", "What this server and its cluster are called", who),
        ("rabbitmq_build_info", "Versions", build),
    ):
        metric = UntypedMetricFamily(name, help_text, labels=list(labels))
        metric.add_metric(list(labels.values()), 1)
        yield metric


def churn(counts: MessageCounters, prefix: str) -> Iterator[Metric]:
    for name, field in CHURN.items():
        yield _counter(prefix + name, name.replace("_", " "), getattr(counts, field))


# -- parts -------------------------------------------------------------------------------------------------------


def _objects(broker: BrokerView, facts: Sequence[QueueFact]) -> Iterator[Metric]:
    consumers = sum(fact.numbers.consumers for fact in facts)
    yield _gauge("rabbitmq_connections", "Connections that are open", broker.connection_count)
    yield _gauge("rabbitmq_channels", "Channels that are open", broker.channel_count)
    yield _gauge("rabbitmq_consumers", "Consumers", consumers)
    yield _gauge("rabbitmq_queues", "Queues", len(facts))
    yield _gauge("rabbitmq_global_consumers", "Consumers", consumers, _PROTOCOL)


def _summed(wanted: Iterable[OfQueue], facts: Sequence[QueueFact], prefix: str) -> Iterator[Metric]:
    for each in wanted:
        yield _gauge(prefix + each.name, each.help_text, sum(each.value(fact.numbers) for fact in facts))


def _per_queue(wanted: Iterable[OfQueue], facts: Sequence[QueueFact], prefix: str) -> Iterator[Metric]:
    for each in wanted:
        metric = GaugeMetricFamily(prefix + each.name, each.help_text, labels=["vhost", "queue"])
        for fact in facts:
            metric.add_metric([fact.vhost, fact.row.name], each.value(fact.numbers))
        yield metric


def _messages(counts: MessageCounters) -> Iterator[Metric]:
    for fields, labels in ((_PER_PROTOCOL, _PROTOCOL), (_PER_QUEUE_TYPE, _QUEUE_TYPE)):
        for name, field in fields.items():
            help_text = f"Messages {name.replace('_', ' ')}"
            yield _counter(f"rabbitmq_global_messages_{name}", help_text, getattr(counts, field), labels)
    yield _counter("rabbitmq_global_messages_delivered", "Messages delivered", delivered(counts), _QUEUE_TYPE)


def _environment(broker: BrokerView) -> Iterator[Metric]:
    files, alarms = broker.environment.files, broker.alarms
    process = process_facts(files)
    uptime = (broker.environment.clock.wall_ns() - broker.started_ns) / _NS
    free = files.free_bytes(broker.database.directory)
    limit = broker.settings.disk_free_min_bytes
    yield _gauge("rabbitmq_process_resident_memory_bytes", "Memory of the process", process.resident_bytes)
    yield _gauge("rabbitmq_resident_memory_limit_bytes", "Above it publishers are blocked", broker.memory_limit_bytes)
    yield _gauge("rabbitmq_process_open_fds", "Open files", process.open_files)
    yield _gauge("rabbitmq_process_max_fds", "Most files that may be open", process.open_files_max)
    yield _gauge("rabbitmq_process_open_tcp_sockets", "Sockets of clients", broker.connection_count)
    yield _gauge("rabbitmq_disk_space_available_bytes", "Free space where the data is", free)
    yield _gauge("rabbitmq_disk_space_available_limit_bytes", "Below it publishers are blocked", limit)
    yield _gauge("rabbitmq_erlang_uptime_seconds", "Seconds since the start", uptime)
    for name, alarm in (("memory_used_watermark", Alarm.MEMORY), ("free_disk_space_watermark", Alarm.DISK)):
        yield _gauge(f"rabbitmq_alarms_{name}", "1 while publishers are blocked by it", float(alarm in alarms))
    yield _gauge("rabbitmq_alarms_file_descriptor_limit", "Never raised here", 0)


def _vhosts(broker: BrokerView) -> Metric:
    metric = GaugeMetricFamily("rabbitmq_cluster_vhost_status", "Whether a vhost is served", labels=["vhost"])
    for open_vhost in broker.vhosts.every():
        metric.add_metric([open_vhost.row.name], 1)
    return metric


def _gauge(name: str, help_text: str, value: float, labels: Sequence[tuple[str, str]] = ()) -> Metric:
    metric = GaugeMetricFamily(name, help_text, labels=[label for label, _ in labels])
    metric.add_metric([each for _, each in labels], value)
    return metric


def _counter(name: str, help_text: str, value: float, labels: Sequence[tuple[str, str]] = ()) -> Metric:
    metric = CounterMetricFamily(name, help_text, labels=[label for label, _ in labels])
    metric.add_metric([each for _, each in labels], value)
    return metric


_LOG = logging.getLogger(__name__)
_QUERY_FIELDS_MAX = 100
_HEADERS = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}

Query = dict[str, list[str]]


class MetricsApplication:
    """An ASGI application."""

    def __init__(self, source: FactsSource, executor: Executor) -> None:
        self._source = source
        self._executor = executor
        self._paths: dict[str, Callable[[Query], Iterable[Metric]]] = {
            "/metrics": lambda query: all_metrics(source.broker, self._facts()),
            "/metrics/per-object": lambda query: all_metrics(source.broker, self._facts(), is_per_object=True),
            "/metrics/detailed": self._detailed,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answered(scope)
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
            response.headers["connection"] = "close"  # bodies are not read
        await response(scope, receive, send)

    async def _answered(self, scope: Scope) -> Response:
        wanted = self._paths.get(scope["path"])
        if wanted is None:
            body = b'{"error":"Object Not Found","reason":"Not Found"}'
            return Response(body, 404, {**_HEADERS, "connection": "close"}, "application/json")
        if scope["method"] not in ("GET", "HEAD"):
            return Response(b"", 405, {**_HEADERS, "allow": "GET, HEAD", "connection": "close"})
        try:
            query = parse_qs(scope["query_string"].decode("ascii", "replace"), max_num_fields=_QUERY_FIELDS_MAX)
            loop = asyncio.get_running_loop()
            text = await loop.run_in_executor(self._executor, lambda: _text(wanted(query)))
        except ValueError:
            return Response(b"", 400, _HEADERS)
        except Exception:
            _LOG.exception("metrics request failed")
            return Response(b"", 500, _HEADERS)
        headers = {**_HEADERS, "content-type": CONTENT_TYPE_PLAIN_0_0_4, "content-length": str(len(text))}
        return Response(b"" if scope["method"] == "HEAD" else text, 200, headers)

    def _facts(self, vhosts: Sequence[str] = ()) -> list[QueueFact]:
        every = self._source.broker.vhosts.every()
        return self._source.facts.of(open_vhost for open_vhost in every if not vhosts or open_vhost.row.name in vhosts)

    def _detailed(self, query: Query) -> Iterable[Metric]:
        return detailed(self._source.broker, self._facts(query.get("vhost", [])), query.get("family", []))


class _Metrics:
    """A collector for `CollectorRegistry`."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(list(metrics)))
    return generate_latest(registry)
