"""Clients that are slow, many, or speak something else."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.management.raw_http import head, raw
from tests.management.stage import ManagementStage
from tests.server.load import until
from warren.management.requests import AccessRule, HttpRequest, HttpRoute, ManagementSettings

SETTINGS = ManagementSettings(header_seconds=0.5, reader_seconds=0.5, stop_seconds=1)
LONG = "x" * (32 << 20)  # more than the system keeps for a client


def _long(request: HttpRequest) -> Any:
    return LONG


def _short(request: HttpRequest) -> Any:
    return dict(request.names)


ROUTES = (
    HttpRoute("/api/long", "GET", AccessRule.ANY_USER, _long),
    HttpRoute("/api/echo", "GET", AccessRule.MANAGEMENT, _short),
    HttpRoute("/api/echo/{first}/of/{second}", "GET", AccessRule.ANY_USER, _short),
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path_factory.mktemp("http_server") / "data", SETTINGS, ROUTES) as stage:
        yield stage


@pytest.mark.parametrize("sent", [b"", b"GET /api/ec", b"GET /api/echo HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_is_hung_up_on(stage: ManagementStage, sent: bytes) -> None:
    assert raw(stage, sent) == b""


def test_a_head_that_comes_byte_by_byte_gains_no_time(stage: ManagementStage) -> None:
    with socket.create_connection(stage.serving.addresses["http"], timeout=0.05) as client:
        for _ in range(200):
            try:
                client.sendall(b"X")
                if client.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the connection was not closed")


def test_a_head_that_is_too_long_is_refused(stage: ManagementStage) -> None:
    answer = raw(stage, head("GET", "/api/echo", "X-Long: " + "x" * 2_000_000))
    assert answer.split(b"\r\n")[0].split()[1:2] in ([b"400"], [])


@pytest.mark.parametrize("sent", [b"AMQP\x00\x00\x09\x01\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n", b"GET  HTTP/9\r\n\r\n"])
def test_what_is_no_http_is_refused(stage: ManagementStage, sent: bytes) -> None:
    assert raw(stage, sent).split(b"\r\n")[0].split()[1:2] == [b"400"]


BROKEN = {
    "not http": b"nonsense\r\n\r\n",
    "no host": b"GET /api/echo HTTP/1.1\r\n\r\n",
    "two lengths": head("PUT", "/api/echo", "Content-Length: 5", "Content-Length: 6"),
    "a length of letters": head("PUT", "/api/echo", "Content-Length: five"),
    "a coding that is not known": head("PUT", "/api/echo", "Transfer-Encoding: gzip"),
    "a chunk without a size": head("PUT", "/api/echo", "Transfer-Encoding: chunked") + b"zz\r\nhello\r\n0\r\n\r\n",
    "a chunk without an end": head("GET", "/api/echo", "Transfer-Encoding: chunked") + b"5\r\nhelloXX0\r\n\r\n",
    "a chunk behind HEAD": head("HEAD", "/api/echo/a/of/b", "Transfer-Encoding: chunked") + b"zz\r\n",
    "a login with a zero byte": b"GET /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Basic secret\x00\r\n\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("address", ["http", "http/prometheus"])
def test_a_broken_request_is_a_400_and_one_line_in_the_log(
    stage: ManagementStage, caplog: pytest.LogCaptureFixture, address: str, sent: bytes
) -> None:
    with caplog.at_level(logging.INFO):
        answer = raw(stage, sent, address)
        until(lambda: caplog.records, "the request is logged")
        stage.get("/api/echo/a/of/b")  # what the broken one left behind has run
    start, _, body = answer.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in start
    assert json.loads(body) == {"error": "bad_request", "reason": "The request is not valid HTTP"}
    [record] = [each for each in caplog.records if each.levelno >= logging.INFO and each.name != "httpx"]
    assert (record.getMessage(), record.exc_info) == ("HTTP request not valid", None)
    assert "secret" not in str(record.__dict__)


def test_one_connection_serves_several_requests(stage: ManagementStage) -> None:
    path = "/api/echo/a/of/b"
    answer = raw(stage, head("GET", path) + head("GET", path, "Connection: close"))
    assert answer.count(b"200 OK") == 2


def test_a_client_that_reads_nothing_is_hung_up_on(tmp_path: Path) -> None:
    """As long as it is there, it takes the room of another one."""
    settings = replace(SETTINGS, connections_max=2, reader_seconds=3.0)
    with ManagementStage(tmp_path / "data", settings, ROUTES) as stage, socket.socket() as client:
        client.connect(stage.serving.addresses["http"])
        client.sendall(head("GET", "/api/long") * 3)
        assert client.recv(1)
        assert stage.get("/api/echo/a/of/b").status_code == 503
        assert _is_served_in_time(stage)


def _is_served_in_time(stage: ManagementStage) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if stage.get("/api/echo/a/of/b").status_code == 200:
            return True
    return False


def test_a_client_that_reads_slowly_gets_all_of_its_answer(stage: ManagementStage) -> None:
    with stage.client() as client, client.stream("GET", "/api/long") as response:
        sizes = [len(piece) for piece in response.iter_raw(1 << 16)]
    assert sum(sizes) == len(LONG) + 2


def test_requests_without_a_login_fill_no_log(stage: ManagementStage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="uvicorn"):
        raw(stage, b"nonsense\r\n\r\n")
        raw(stage, head("GET", "/api/echo", "Upgrade: websocket", "Connection: upgrade, close"))
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_more_connections_than_the_limit_are_answered_with_503(tmp_path: Path) -> None:
    settings = ManagementSettings(connections_max=3)
    with ManagementStage(tmp_path / "data", settings, ROUTES) as stage:
        address = stage.serving.addresses["http"]
        connections = [socket.create_connection(address) for _ in range(3)]
        assert stage.get("/api/echo/a/of/b").status_code == 503
        for each in connections:
            each.close()
        assert _is_served_in_time(stage), "when they have gone, others are served"
