"""The server in the API: overview, nodes, vhosts."""

from __future__ import annotations

import os
from dataclasses import replace

from tests.management.stage import NODE, ManagementStage


def test_the_overview_adds_up_what_the_user_sees(stage: ManagementStage) -> None:
    stage.queue("hidden", "other", b"x", b"y")
    stage.broker.counts.received = 7
    everything = stage.get("/api/overview").json()
    lengths = {name: number for name, number in everything["queue_totals"].items() if not name.endswith("_details")}
    assert lengths == {"messages": 3, "messages_ready": 3, "messages_unacknowledged": 0}
    assert everything["object_totals"] == {
        "channels": 5,
        "connections": 3,
        "consumers": 0,
        "exchanges": 14,
        "queues": 2,
    }
    assert everything["message_stats"]["publish"] == 7
    seen = stage.get("/api/overview", user="management-in").json()
    assert (seen["queue_totals"]["messages"], seen["object_totals"]["queues"]) == (1, 1)
    assert stage.get("/api/overview", user="management-out").json()["object_totals"]["exchanges"] == 0


def test_product_and_version_can_be_configured(stage: ManagementStage) -> None:
    own = stage.broker.settings
    assert stage.get("/api/overview?columns=product_name,rabbitmq_version").json() == {
        "product_name": "Warren",
        "rabbitmq_version": "3.10.8",
    }
    stage.broker.settings = replace(own, product="RabbitMQ", product_version="3.13.7")
    try:
        item = stage.get("/api/overview?columns=product_name,rabbitmq_version,management_version").json()
        assert item == {"product_name": "RabbitMQ", "rabbitmq_version": "3.13.7", "management_version": "0.1"}
        assert stage.get("/api/version").json() == "3.13.7"
        assert 'rabbitmq_version="3.13.7"' in stage.metrics()
    finally:
        stage.broker.settings = own


def test_only_monitoring_users_get_the_listeners(stage: ManagementStage) -> None:
    stage.broker.problems = ["a file is damaged"]
    item = stage.get("/api/overview", user="monitoring-out").json()
    assert {each["protocol"] for each in item["listeners"]} == {"amqp", "http", "http/prometheus"}
    assert (item["problems"], item["node"]) == (["a file is damaged"], NODE)
    assert not {"listeners", "problems", "node"} & stage.get("/api/overview", user="policymaker-in").json().keys()


def test_only_monitoring_users_get_all_vhosts(stage: ManagementStage) -> None:
    def names(user: str) -> list[str]:
        return [each["name"] for each in stage.get("/api/vhosts", user=user).json()]

    assert names("monitoring-out") == names("administrator-out") == ["/", "other"]
    assert (names("management-in"), names("policymaker-out")) == (["/"], [])


def test_a_node_describes_its_process(stage: ManagementStage) -> None:
    item = stage.get(f"/api/nodes/{NODE}").json()
    assert (item["os_pid"], item["running"], item["mem_limit"]) == (str(os.getpid()), True, 1 << 30)
    assert item["mem_used"] > 10 << 20 and 10 < item["fd_used"] <= item["fd_total"]
    assert item["disk_free"] > 0 and 0 <= item["uptime"] < 10**9
    assert stage.get("/api/nodes/rabbit@elsewhere").status_code == 404
