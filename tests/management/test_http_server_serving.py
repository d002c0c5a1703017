"""Started and stopped: ports, the local socket, and leftovers."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import httpx
import pytest

from tests.management.stage import ManagementStage
from warren.base.errors import Refused
from warren.management.http_server import start
from warren.management.requests import AccessRule, HttpRequest, HttpRoute, ManagementSettings


def test_every_client_of_the_socket_is_an_administrator(stage: ManagementStage) -> None:
    with stage.local() as client:
        assert client.get("/api/whoami").json() == {"name": "local socket", "tags": ["administrator"]}
        assert client.get("/api/queues/other").status_code == 200
        assert client.get("/api/nodes").status_code == 200


def test_only_its_owner_can_open_the_socket(stage: ManagementStage) -> None:
    found = os.stat(stage.socket_path)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_the_name_of_the_socket_goes_with_the_server_and_an_old_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "data" / "warren.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with ManagementStage(path.parent) as stage, stage.local() as client:
        assert client.get("/api/whoami").status_code == 200
    assert not path.exists()


def test_a_path_that_is_longer_than_a_socket_may_have_is_reached_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    assert len(str(deep / "warren.sock")) > 107
    with ManagementStage(tmp_path / "data", socket_path=str(deep / "warren.sock")):
        assert stat.S_ISSOCK(os.stat(deep / "warren.sock").st_mode)
        short = tmp_path / "short.sock"
        short.symlink_to(deep / "warren.sock")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(short)), base_url="http://warren") as client:
            assert client.get("/api/whoami").status_code == 200


def test_a_port_that_is_taken_is_refused_and_nothing_stays_behind(stage: ManagementStage, tmp_path: Path) -> None:
    host, port = stage.serving.addresses["http"]
    with pytest.raises(Refused, match="already in use"):
        stage.run(start(stage.broker, host, 0, port, str(tmp_path / "warren.sock")))
    assert not (tmp_path / "warren.sock").exists()


def test_what_is_not_wanted_is_not_served(stage: ManagementStage) -> None:
    serving = stage.run(start(stage.broker, "127.0.0.1", None, 0, None))
    try:
        assert set(serving.addresses) == {"http/prometheus"}
    finally:
        stage.run(serving.stop())


def test_an_address_of_the_newer_kind_is_served_too(stage: ManagementStage) -> None:
    serving = stage.run(start(stage.broker, "::1", 0, None, None))
    try:
        host, port = serving.addresses["http"]
        assert httpx.get(f"http://[{host}]:{port}/api/version", trust_env=False).status_code == 200
    finally:
        stage.run(serving.stop())


def test_a_request_under_way_is_answered_before_the_server_stops(tmp_path: Path) -> None:
    reached, release = threading.Event(), threading.Event()

    def block(request: HttpRequest) -> object:
        reached.set()
        release.wait(30)
        return {"answered": True}

    answers: list[httpx.Response] = []
    with ManagementStage(
        tmp_path / "data", ManagementSettings(), [HttpRoute("/hold", "GET", AccessRule.ANY_USER, block)]
    ) as stage:
        request_thread = threading.Thread(target=lambda: answers.append(stage.get("/hold")))
        request_thread.start()
        assert reached.wait(10)
        threading.Timer(0.2, release.set).start()
        stage.run(stage.serving.stop())
        request_thread.join()
        assert answers[0].json() == {"answered": True}
        with pytest.raises(httpx.ConnectError):
            stage.get("/hold")
