"""Metrics, read by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.management.stage import NODE, ManagementStage
from warren.broker.counters import MessageCounters

# Metrics that dashboards and alerts for RabbitMQ read, as far as they exist here.
READ = """
rabbitmq_connections rabbitmq_channels rabbitmq_consumers rabbitmq_queues rabbitmq_connections_opened_total
rabbitmq_connections_closed_total rabbitmq_channels_opened_total rabbitmq_channels_closed_total
rabbitmq_queues_declared_total rabbitmq_queues_created_total rabbitmq_queues_deleted_total rabbitmq_queue_messages
rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked rabbitmq_global_messages_received_total
rabbitmq_global_messages_received_confirm_total rabbitmq_global_messages_routed_total
rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_delivered_total
rabbitmq_global_messages_delivered_consume_auto_ack_total rabbitmq_global_messages_delivered_consume_manual_ack_total
rabbitmq_global_messages_delivered_get_auto_ack_total rabbitmq_global_messages_delivered_get_manual_ack_total
rabbitmq_global_messages_redelivered_total rabbitmq_global_messages_acknowledged_total
rabbitmq_global_messages_get_empty_total rabbitmq_global_messages_unroutable_returned_total
rabbitmq_global_messages_unroutable_dropped_total rabbitmq_process_resident_memory_bytes rabbitmq_process_open_fds
rabbitmq_process_max_fds rabbitmq_resident_memory_limit_bytes rabbitmq_disk_space_available_bytes
rabbitmq_disk_space_available_limit_bytes rabbitmq_erlang_uptime_seconds rabbitmq_alarms_memory_used_watermark
rabbitmq_alarms_free_disk_space_watermark rabbitmq_alarms_file_descriptor_limit warren_epoch_durable warren_wal_bytes
"""


def samples(text: str) -> Iterator[Sample]:
    return (sample for family in text_string_to_metric_families(text) for sample in family.samples)


def values(text: str) -> dict[str, float]:
    return {sample.name: sample.value for sample in samples(text)}


def test_identity_and_build_come_first(stage: ManagementStage) -> None:
    first, second, *_ = samples(stage.metrics())
    assert (first.name, first.value, first.labels["rabbitmq_node"]) == ("rabbitmq_identity_info", 1, NODE)
    assert (second.name, second.labels["rabbitmq_version"]) == ("rabbitmq_build_info", "3.10.8")


def test_everything_that_dashboards_read_is_there(stage: ManagementStage) -> None:
    assert set(READ.split()) <= values(stage.metrics()).keys()


def test_every_count_of_the_broker_is_exported(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        for number, field in enumerate(fields(MessageCounters)):
            setattr(stage.broker.counts, field.name, 1000 + number)
        shown = set(values(stage.metrics()).values())
        missing = {field.name for number, field in enumerate(fields(MessageCounters)) if 1000 + number not in shown}
    assert not missing


def test_queues_are_summed_or_listed_one_by_one(stage: ManagementStage) -> None:
    stage.queue('odd"name\\', "other", b"x", b"y")
    assert values(stage.metrics())["rabbitmq_queue_messages_ready"] == 3
    by_queue = {
        (sample.labels["vhost"], sample.labels["queue"]): sample.value
        for sample in samples(stage.metrics("/metrics/per-object"))
        if sample.name == "rabbitmq_queue_messages"
    }
    assert by_queue == {("/", "q1"): 1, ("other", 'odd"name\\'): 2}


def test_details_are_selected_by_family_and_vhost(stage: ManagementStage) -> None:
    shown = list(samples(stage.metrics("/metrics/detailed?family=queue_coarse_metrics&vhost=%2F")))
    names = {sample.name for sample in shown if not sample.name.endswith("_info")}
    assert names == {f"rabbitmq_detailed_queue_messages{end}" for end in ("", "_ready", "_unacked")}
    assert {sample.labels.get("vhost", "/") for sample in shown} == {"/"}
    both = "/metrics/detailed?family=queue_consumer_count&family=queue_metrics&family=connection_churn_metrics"
    assert "rabbitmq_detailed_connections_opened_total" in values(stage.metrics(both))
    assert values(stage.metrics("/metrics/detailed?family=vhost_status"))["rabbitmq_cluster_vhost_status"] == 1
    assert len(values(stage.metrics("/metrics/detailed?family=nope"))) == 2, "identity and build, and nothing else"


def test_our_own_metrics_follow_the_log(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        before = values(stage.metrics())
        stage.queue("orders", "/", b"x" * 1000)
        after = values(stage.metrics())
        assert after["warren_epoch_durable"] > before["warren_epoch_durable"]
        assert after["warren_catalog_epoch"] > before["warren_catalog_epoch"]
        assert after["warren_queue_memory_bytes"] > before["warren_queue_memory_bytes"] == 0
        assert after["warren_wal_bytes"] >= 1 << 20


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/overview", 404),
        ("POST", "/metrics", 405),
        ("GET", "/metrics/detailed?" + "family=x&" * 200, 400),
        ("HEAD", "/metrics", 200),
    ],
)
def test_nothing_else_is_served_there(stage: ManagementStage, method: str, path: str, status: int) -> None:
    response = httpx.request(method, stage.metrics_url + path, trust_env=False)
    assert response.status_code == status
    if status == 200:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
