"""Every route with every user: RabbitMQ's answers to the same requests are expected."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.management.questions import ANSWERS, REFUSED, SHOWN, USERS, ask, kinds, refusal, walk
from tests.management.stage import AMQP, NODE, ManagementStage
from tools.http_page import PAGE, table
from warren.management import openapi
from warren.management.requests import AccessRule
from warren.management.routes import ROUTES

RABBITMQ: dict[str, Any] = json.loads(ANSWERS.read_text())
NOT_IN_3_10 = {"/api/version", "/api/health/checks/is-in-service", "/api/health/checks/ready-to-serve-clients"}
WALK = walk(NODE, AMQP.port)

# Keys of RabbitMQ that Warren does not show: internals of its VM, statistics with a history, missing features.
NOT_SHOWN = {
    "overview": {"erlang_version", "erlang_full_version", "release_series_support_status"},
    "vhost": {"message_stats"},
    "vhosts": {"message_stats"},
    "nodes": {
        *("context_switches", "gc_bytes_reclaimed", "gc_num", "metrics_gc_queue_length", "net_ticktime", "run_queue"),
        *("proc_total", "proc_used", "ra_open_file_metrics", "mnesia_disk_tx_count", "mnesia_ram_tx_count"),
        *("msg_store_read_count", "msg_store_write_count", "queue_index_read_count", "queue_index_write_count"),
        *(f"io_{each}_count" for each in ("read", "reopen", "seek", "sync", "write")),
        *(f"io_{each}_avg_time" for each in ("read", "seek", "sync", "write")),
        *("io_read_bytes", "io_write_bytes"),
    },
}
_OF_QUEUES = {
    *("backing_queue_status", "consumer_capacity", "consumer_utilisation", "exclusive_consumer_tag"),
    *("garbage_collection", "head_message_timestamp", "idle_since", "message_stats", "recoverable_slaves"),
    *("reductions", "single_active_consumer_tag"),
}
# Where RabbitMQ 3.10 fails for users who see only their own clients, and answers 500.
FAILS_IN_3_10 = {
    "/api/channels/{channel}": 404,
    "/api/connections/{name}": 404,
    "/api/connections/{name}/channels": 404,
    "/api/connections/username/{user}": 401,
}
NOT_SHOWN |= {"queues": _OF_QUEUES, "queue": {*_OF_QUEUES, "deliveries", "incoming"}}
OUR_OWN = {"overview": {"problems"}}


@pytest.mark.parametrize("user", [user for user, _, _ in USERS])
def test_every_route_is_open_to_whom_rabbitmq_opens_it(stage: ManagementStage, user: str) -> None:
    recorded = {name: RABBITMQ["statuses"][name][user] for name in WALK if name not in NOT_IN_3_10}
    expected = {name: FAILS_IN_3_10[name] if status == 500 else status for name, status in recorded.items()}
    if user == "management-in":  # which the walk names: its own connections
        expected["/api/connections/username/{user}"] = 200
    with stage.client(user) as client:
        answer = {name: client.get(path).status_code for name, path in WALK.items() if name not in NOT_IN_3_10}
    assert answer == expected


@pytest.mark.parametrize("name", sorted(NOT_IN_3_10))
def test_public_routes_need_no_login(stage: ManagementStage, name: str) -> None:
    assert stage.get(WALK[name], user=None).status_code == 200


def test_every_other_route_needs_a_login(stage: ManagementStage) -> None:
    with stage.client(None) as client:
        for route in ROUTES:
            for name, path in WALK.items():
                if name.split()[0] == route.path and name not in NOT_IN_3_10:
                    assert client.request(route.method, path).status_code == 401, (route.method, name)


def test_a_route_without_a_line_in_the_table_of_answers_would_be_seen() -> None:
    assert set(WALK) == set(RABBITMQ["statuses"])
    assert {route.path for route in ROUTES if route.rule is AccessRule.ANY_USER} == NOT_IN_3_10 | {
        "/",
        "/api",
        openapi.PATH,
    }


def test_the_address_that_a_start_prints_leads_to_the_api(stage: ManagementStage) -> None:
    with stage.client(None) as client:
        page = client.get("/", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert client.get("/api/version").json() in page.text
        assert "is running" in page.text
        links = re.findall(r'href="([^"]+)"', page.text)
        assert links and all(client.get(link).status_code in (200, 401) for link in links)


def test_the_root_of_the_api_lists_the_routes(stage: ManagementStage) -> None:
    for path in ("/api", "/api/"):
        listed = stage.get(path, user=None).json()
        assert [(each["path"], each["method"]) for each in listed] == [(each.path, each.method) for each in ROUTES]
    assert {"path": "/api/nodes", "method": "GET", "tag": "monitoring"} in listed


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_rabbitmqs_to_the_letter(stage: ManagementStage, name: str) -> None:
    """Except for one word: RabbitMQ names the kind of access since 3.11."""
    with stage.client(None) as client:
        answer = refusal(ask(client, REFUSED[name]))
    if answer["body"] is not None:
        answer["body"]["reason"] = answer["body"]["reason"].replace("configure access to", "access to")
    assert answer == RABBITMQ["refused"][name]


@pytest.mark.parametrize("name", SHOWN)
def test_fields_have_rabbitmqs_names_and_kinds(stage: ManagementStage, name: str) -> None:
    response = stage.get(SHOWN[name], user="administrator-in")
    assert response.status_code == RABBITMQ["told"][name]["status"]
    ours, theirs = _item(kinds(response.json())), _item(RABBITMQ["told"][name]["kinds"])
    left_out = {field for field in theirs if not field.endswith("_details")} - ours.keys()
    assert left_out == NOT_SHOWN.get(name, set())
    assert ours.keys() - theirs.keys() == OUR_OWN.get(name, set())
    assert {field for field in ours.keys() & theirs.keys() if not _is_same(ours[field], theirs[field])} == set()


def _item(item: Any) -> dict[str, Any]:
    """Of a list or a page, one of its items and what is around them."""
    if isinstance(item, list):
        return dict(item[0])
    found = dict(item)
    if "items" in found:
        found["items"] = "list"
    return found


def _is_same(ours: Any, theirs: Any) -> bool:
    """Objects and lists may hold other things; a field that is null may get a value."""
    return type(ours) is type(theirs) and (not isinstance(ours, str) or ours == theirs)


def test_the_page_has_the_table_of_routes() -> None:
    """Otherwise: python -m tools.http_page --write."""
    assert all(route.summary for route in ROUTES)
    assert table() in PAGE.read_text()
