"""Routes of our own below /api/warren: for administrators, with checked bodies (effects: tests/cli/test_ctl_warren)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.management.stage import PASSWORD, ManagementStage
from warren.management.control import ROUTES

GOOD: dict[str, dict[str, Any]] = {
    "/api/warren/stop": {},
    "/api/warren/stop-app": {},
    "/api/warren/start-app": {},
    "/api/warren/memory-limit": {"relative": 0.5},
    "/api/warren/disk-limit": {"absolute": "50MB"},
    "/api/warren/log-level": {"level": "debug"},
    "/api/warren/rotate-logs": {},
    "/api/warren/environment": {},
    "/api/warren/authenticate": {"username": "admin", "password": PASSWORD},
}


@pytest.fixture
def control_stage(tmp_path: Path) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path / "data") as stage:
        yield stage


def test_only_administrators_and_the_socket_control_the_broker(control_stage: ManagementStage) -> None:
    stage = control_stage
    for tag in ("management", "policymaker", "monitoring"):
        stage.user(tag, tag, vhost="/")
    assert GOOD.keys() == {route.path for route in ROUTES}
    for route in ROUTES:
        for user, expected in {"management": 401, "policymaker": 401, "monitoring": 401, "admin": 200}.items():
            with stage.client(user) as client:
                assert client.request(route.method, route.path, json=GOOD[route.path]).status_code == expected, route
            assert bool(stage.broker.control.requested) == (expected == 200 and _is_recorded(route.path))
        with stage.client(None) as client:
            assert client.request(route.method, route.path, json=GOOD[route.path]).status_code == 401
        stage.broker.control.requested.clear()
        with stage.local() as client:
            assert client.request(route.method, route.path, json=GOOD[route.path]).status_code == 200
        stage.broker.control.requested.clear()


def _is_recorded(path: str) -> bool:
    return path not in ("/api/warren/environment", "/api/warren/authenticate")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("memory-limit", {}),
        ("memory-limit", {"relative": 0.5, "absolute": "1GB"}),
        ("memory-limit", {"relative": 1.5}),
        ("memory-limit", {"relative": "x"}),
        ("memory-limit", {"relative": True}),
        ("memory-limit", {"absolute": [1]}),
        ("disk-limit", {"relative": 0.5}),
        ("disk-limit", {"mem_relative": -1}),
        ("log-level", {}),
        ("log-level", {"level": 3}),
        ("log-level", {"level": "info", "category": ["a"]}),
    ],
)
def test_a_wrong_body_is_refused_and_changes_nothing(
    control_stage: ManagementStage, path: str, body: dict[str, Any]
) -> None:
    with control_stage.local() as client:
        answer = client.put(f"/api/warren/{path}", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert control_stage.broker.control.requested == []


def test_a_password_is_checked(control_stage: ManagementStage) -> None:
    with control_stage.local() as client:
        for body, status in (
            ({"username": "admin", "password": PASSWORD}, 200),
            ({"username": "admin", "password": "wrong"}, 401),
            ({"username": "nobody", "password": PASSWORD}, 401),
            ({"username": "admin"}, 400),
        ):
            assert client.post("/api/warren/authenticate", json=body).status_code == status
