"""Health checks, as probes use them."""

from __future__ import annotations

from pathlib import Path

from tests.management.stage import NODE, ManagementStage
from warren.catalog import vhosts
from warren.management.broker_facts import Alarm

CHECKS = "/api/health/checks"


def test_alarms_are_reported_with_a_status_that_a_probe_understands(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        assert stage.get(f"{CHECKS}/alarms").json() == {"status": "ok"}
        stage.broker.alarms = (Alarm.DISK,)
        response = stage.get(f"{CHECKS}/local-alarms")
        assert response.status_code == 503
        assert response.json()["alarms"] == [{"node": NODE, "resource": "disk"}]
        assert stage.get("/api/nodes").json()[0]["disk_free_alarm"] is True
        assert "rabbitmq_alarms_free_disk_space_watermark 1.0" in stage.metrics()
        assert "rabbitmq_alarms_memory_used_watermark 0.0" in stage.metrics()


def test_a_server_that_is_being_stopped_is_not_in_service(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        for check in ("is-in-service", "ready-to-serve-clients"):
            assert stage.get(f"{CHECKS}/{check}", user=None).status_code == 200
        stage.broker.is_draining = True
        for check in ("is-in-service", "ready-to-serve-clients"):
            assert stage.get(f"{CHECKS}/{check}", user=None).status_code == 503


def test_a_vhost_that_is_not_served_is_reported(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        stage.catalog.change(lambda change: vhosts.declare(change, "forgotten"))
        response = stage.get(f"{CHECKS}/virtual-hosts")
        assert (response.status_code, response.json()["virtual-hosts"]) == (503, ["forgotten"])


def test_our_own_listeners_are_among_those_that_are_found(stage: ManagementStage) -> None:
    ports = [port for _, port in stage.serving.addresses.values()]
    for port in (*ports, 5672):
        assert stage.get(f"{CHECKS}/port-listener/{port}").json() == {"status": "ok", "port": port}
    assert set(stage.get(f"{CHECKS}/port-listener/1").json()["ports"]) == {*ports, 5672}
    assert stage.get(f"{CHECKS}/protocol-listener/http%2Fprometheus").status_code == 200
    for nonsense in ("70000", "-1", "1e3", "²"):
        assert stage.get(f"{CHECKS}/port-listener/{nonsense}").status_code == 400


def test_damage_is_an_alarm_with_its_reason_and_a_metric(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        assert "warren_damage 0.0" in stage.metrics()
        stage.broker.damage = ("queue 'a': 2 runs of messages cannot be read",)
        response = stage.get(f"{CHECKS}/alarms")
        assert response.status_code == 503
        assert response.json()["alarms"] == [{"node": NODE, "resource": "damage", "reason": stage.broker.damage[0]}]
        assert "warren_damage 1.0" in stage.metrics()
