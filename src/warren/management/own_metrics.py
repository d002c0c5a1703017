"""Metrics of what only Warren has: epochs, the log, the memory of queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from warren.base.errors import Refused
from warren.files.protocol import join
from warren.log.file_record import FileState
from warren.log.store import LogStore
from warren.management.running import BrokerView


def own_metrics(running: BrokerView) -> Iterator[Metric]:
    log, monitor, counts = running.database.log, running.realms.monitor, running.counts
    facts = {
        "epoch_durable": ("Everything up to this epoch is on disk", log.durable),
        "snapshot_epoch": ("The snapshot store has everything up to this epoch", running.database.store.applied.epoch),
        "catalog_epoch": ("Of the newest change that the SQL catalog has", running.catalog.applied),
        "wal_bytes": ("What the files of the log take", wal_bytes(log)),
        "queue_memory_bytes": ("What messages of all queues take in memory", monitor.used_bytes),
        "queue_memory_limit_bytes": ("Above it messages are paged out", monitor.limit_bytes),
        "damage": ("Damaged places of the store and of queues' messages: see /api/overview", len(running.damage)),
        "problems": ("What an operator should look at: see /api/overview", len(running.problems)),
    }
    for name, (told, value) in facts.items():
        yield GaugeMetricFamily(f"warren_{name}", told, value=value)
    yield from _background(running)
    yield CounterMetricFamily("warren_received_bytes", "Of messages published", value=counts.received_bytes)
    yield CounterMetricFamily("warren_log_flushes", "Of max_write_buffers gathered blocks", value=log.appender.flushes)
    yield CounterMetricFamily("warren_messages_refused", "Publishes answered by a nack", value=counts.refused)


def _background(running: BrokerView) -> Iterator[Metric]:
    background = running.machine.background
    failing = {task.name for task in background.failing()}
    now = GaugeMetricFamily("warren_background_failing", "1 while the task's last round failed", labels=["task"])
    total = CounterMetricFamily("warren_background_failures", "Failed rounds since the start", labels=["task"])
    for name, failures in sorted(background.failures().items()):
        now.add_metric([name], float(name in failing))
        total.add_metric([name], failures)
    yield now
    yield total


def wal_bytes(log: LogStore) -> int:
    files, total = log.machine.files, 0
    for record in list(log.manifest.state.files.values()):
        if record.state is not FileState.DOOMED:
            with suppress(Refused):  # it has gone in this moment
                total += files.stat(join(log.directory, record.name)).size_bytes
    return total
