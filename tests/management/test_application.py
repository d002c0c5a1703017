"""Requests of every shape over a real socket: what is refused, what is answered, and that the others are served."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.management.raw_http import head, raw
from tests.management.stage import PASSWORD, ManagementStage
from warren.base.errors import Refused
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.management.requests import CHALLENGE, AccessRule, HttpRequest, HttpRoute, ManagementSettings, access_of

SETTINGS = ManagementSettings(header_seconds=0.5, body_bytes_max=10_000, body_seconds=0.5, stop_seconds=1)
REACHED = threading.Event()
RELEASED = threading.Event()


def _echo(request: HttpRequest) -> Any:
    return {"body": request.body, "names": request.names, "query": request.query, "user": request.user.name}


def _block(request: HttpRequest) -> Any:
    REACHED.set()
    return {"was_released": RELEASED.wait(5)}


def _fail(request: HttpRequest) -> Any:
    raise ValueError("a secret password")


def _refuse(request: HttpRequest) -> Any:
    raise Refused("not today")


def _purge(request: HttpRequest) -> Any:
    authorize(access_of(request.broker, request.user, request.vhost), Operation.QUEUE_PURGE, {NameRole.QUEUE: "q"})
    return {}


ROUTES = (
    HttpRoute("/api/echo", "GET", AccessRule.MANAGEMENT, _echo),
    HttpRoute("/api/echo", "PUT", AccessRule.MANAGEMENT, _echo),
    HttpRoute("/api/echo/{first}/of/{second}", "GET", AccessRule.ANY_USER, _echo),
    HttpRoute("/api/hold", "GET", AccessRule.ANY_USER, _block),
    HttpRoute("/api/fail", "GET", AccessRule.ANY_USER, _fail),
    HttpRoute("/api/refuse", "GET", AccessRule.ANY_USER, _refuse),
    HttpRoute("/api/purge/{vhost}", "GET", AccessRule.MANAGEMENT, _purge),
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path_factory.mktemp("application") / "data", SETTINGS, ROUTES) as stage:
        yield stage


def put(stage: ManagementStage, content: Any, **headers: str) -> httpx.Response:
    with stage.client() as client:
        return client.put("/api/echo", content=content, headers=headers)


# -- bodies ------------------------------------------------------------------------------------------------------


def test_a_body_of_json_reaches_its_handler(stage: ManagementStage) -> None:
    sent = {"arguments": {"x": [1, 2.5, None, True, "ö"]}}
    assert put(stage, json.dumps(sent)).json()["body"] == sent
    assert put(stage, b"").json()["body"] == {}


@pytest.mark.parametrize(
    "content", [b"{bad", b"[1]", b"1", b'"text"', b"\xff{}", b'{"a": NaN}', b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_a_body_that_is_no_json_object_is_refused(stage: ManagementStage, content: bytes) -> None:
    response = put(stage, content)
    assert (response.status_code, response.json()) == (400, {"error": "bad_request", "reason": "not_json"})


def test_json_that_is_nested_too_deeply_never_reaches_the_parser(stage: ManagementStage) -> None:
    allowed = b'{"a":' * 31 + b"[]" + b"}" * 31
    assert put(stage, allowed).status_code == 200
    response = put(stage, b'{"a":' + allowed + b"}")
    assert (response.status_code, response.json()["reason"]) == (400, "JSON is nested deeper than 32")
    assert put(stage, b"[" * 9_000).status_code == 400
    assert put(stage, json.dumps({"a": "[" * 9_000})).status_code == 200, "a bracket in a text is a text"


def test_a_body_with_a_too_large_content_length_is_refused_unread(stage: ManagementStage) -> None:
    request = head("PUT", "/api/echo", "Content-Length: 10001")
    assert b"413" in raw(stage, request).split(b"\r\n")[0]
    request = head("PUT", "/api/echo", f"Content-Length: {'9' * 4000}")
    assert raw(stage, request).split(b"\r\n")[0].split()[1] in (b"400", b"413")


def test_a_body_is_counted_while_it_comes(stage: ManagementStage) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 5_000

    try:
        response = put(stage, endless())
    except (httpx.WriteError, httpx.RemoteProtocolError):
        return  # it was hung up on while it sent, which is as good
    assert response.status_code == 413
    assert response.headers["connection"] == "close"


def test_a_body_that_does_not_come_to_its_end_is_cut_by_the_clock(stage: ManagementStage) -> None:
    answer = raw(stage, head("PUT", "/api/echo", "Content-Length: 100") + b'{"a":')
    assert b"408" in answer.split(b"\r\n")[0]
    assert b'"request_timeout"' in answer and b"connection: close" in answer.lower()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
def test_a_compressed_body_is_not_unpacked(stage: ManagementStage, encoding: str) -> None:
    response = put(stage, b"{}", **{"content-encoding": encoding})
    assert (response.status_code, response.json()["error"]) == (415, "unsupported_encoding")


def test_the_body_of_a_get_is_read_and_ignored(stage: ManagementStage) -> None:
    with stage.client() as client:
        response = client.request("GET", "/api/echo", content=b"not json")
        assert (response.status_code, response.json()["body"]) == (200, {})


# -- paths and methods -------------------------------------------------------------------------------------------


def test_names_in_a_path_are_decoded_after_it_was_split(stage: ManagementStage) -> None:
    names = stage.get("/api/echo/a%2Fb%25/of/%C3%B6%20%2F").json()["names"]
    assert names == {"first": "a/b%", "second": "ö /"}
    assert stage.get("/api/echo/a/b/of/c").status_code == 404, "a slash that was sent is a slash"
    assert stage.get("/api/echo/%FF/of/c").status_code == 404, "no name"


def test_one_slash_at_the_end_is_no_matter(stage: ManagementStage) -> None:
    assert stage.get("/api/echo/").status_code == 200
    assert stage.get("/api/echo//").status_code == 404


def test_a_query_reaches_its_handler(stage: ManagementStage) -> None:
    assert stage.get("/api/echo?a=%2F&b=").json()["query"] == {"a": "/", "b": ""}


def test_head_is_get_without_its_body(stage: ManagementStage) -> None:
    with stage.client() as client:
        response, head = client.get("/api/echo"), client.head("/api/echo")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(response.content))


def test_options_lists_the_methods(stage: ManagementStage) -> None:
    with stage.client(None) as client:
        response = client.options("/api/echo")
    assert (response.status_code, response.headers["allow"]) == (200, "HEAD, GET, PUT, OPTIONS")


# -- logins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        "Basic %%%",
        "Basic",
        "Basic " + base64.b64encode(b"admin").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(b"admin:" + b"x" * 5000).decode(),
        "basic " + base64.b64encode(b":").decode(),
    ],
)
def test_a_login_that_cannot_be_read_has_failed(stage: ManagementStage, sent: str) -> None:
    response = stage.get("/api/echo", user=None, authorization=sent)
    assert (response.status_code, response.json()["reason"]) == (401, "Login failed")
    assert response.headers["www-authenticate"] == CHALLENGE["www-authenticate"]


def test_a_password_may_hold_colons_and_other_letters(stage: ManagementStage) -> None:
    login = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
    assert stage.get("/api/echo", user=None, authorization=f"bAsIc {login}").json()["user"] == "admin"


def test_an_address_in_a_header_is_not_trusted(stage: ManagementStage) -> None:
    stage.user("guest", "administrator")
    sent = {"x-forwarded-for": "203.0.113.9", "forwarded": "for=203.0.113.9"}
    assert stage.get("/api/echo", user="guest", **sent).status_code == 200, "it may come from this machine, and does"


def test_requests_about_queues_check_permissions(stage: ManagementStage) -> None:
    stage.user("reader", "management", vhost="/")
    assert stage.get("/api/purge/%2F", user="reader").status_code == 200
    response = stage.get("/api/purge/%2F", user="admin")
    assert (response.status_code, response.json()["error"]) == (401, "not_authorised"), "a tag is not a permission"


# -- answers -----------------------------------------------------------------------------------------------------


def test_every_answer_has_headers_that_protect_a_browser(stage: ManagementStage) -> None:
    for response in (stage.get("/api/echo"), stage.get("/api/nope"), stage.get("/api/fail")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe-inline" not in response.headers["content-security-policy"]
        assert response.headers["x-frame-options"] == "DENY"
        assert "date" in response.headers and "server" not in response.headers


def test_pages_of_other_origins_may_read_nothing(stage: ManagementStage) -> None:
    request = {"origin": "https://elsewhere.example", "access-control-request-method": "GET"}
    with stage.client(**request) as client:
        answers = [client.get("/api/echo"), client.options("/api/echo")]
    assert not [name for each in answers for name in each.headers if name.startswith("access-control")]


def test_an_internal_error_is_reported_to_the_operator_and_not_to_the_client(
    stage: ManagementStage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = stage.get("/api/fail")
    assert (response.status_code, response.json()["error"]) == (500, "internal_error")
    assert "password" not in response.text
    assert "a secret password" in caplog.text


def test_what_the_broker_refuses_is_a_bad_request(stage: ManagementStage) -> None:
    response = stage.get("/api/refuse")
    assert (response.status_code, response.json()) == (400, {"error": "bad_request", "reason": "not today"})


def test_a_handler_that_waits_does_not_block_the_loop(stage: ManagementStage) -> None:
    REACHED.clear()
    RELEASED.clear()
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(stage.get, "/api/hold")
        assert REACHED.wait(10)
        assert stage.get("/api/echo/a/of/b").status_code == 200
        RELEASED.set()
        assert waiting.result().json() == {"was_released": True}
