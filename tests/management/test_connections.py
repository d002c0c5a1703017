"""Connections, channels and consumers in the API, and closing connections; clients are pika and raw sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker, ProbableAuthenticationError

from tests.management.questions import ANSWERS, clients_shown, connected, kinds
from tests.management.stage import NODE, PASSWORD, ManagementStage
from tests.server.raw_client import HEADER, RawClient
from warren.amqp import frames, methods
from warren.server import connection as server_connection
from warren.server.alarms import DISK, UNSAFE

SECONDS_MAX = 10.0
RABBITMQ: dict[str, Any] = json.loads(ANSWERS.read_text())["clients"]
# Internals of RabbitMQ's VM, and rates.
NOT_SHOWN = {"garbage_collection", "reductions", "reductions_details", "pending_raft_commands"}
NOT_SHOWN |= {"recv_oct_details", "send_oct_details"}
FORCED = 320


class ClientStage(ManagementStage):
    """With AMQP, and one user for each tag, who may do everything in "/"."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for tag in ("management", "policymaker", "monitoring", "administrator"):
            self.user(tag, tag, vhost="/")
        self.user("guest", vhost="/")
        self.port = self.serve_amqp()
        self.server.call_in_loop(self.server.monitor.stop)  # tests set and clear the alarms
        self.opened: list[pika.BlockingConnection] = []

    def connect(self, user: str = "guest", vhost: str = "/", **properties: Any) -> pika.BlockingConnection:
        credentials = pika.PlainCredentials(user, PASSWORD)
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.port, vhost, credentials, client_properties=properties, heartbeat=600
        )
        self.opened.append(pika.BlockingConnection(parameters))
        return self.opened[-1]

    def close_clients(self) -> None:
        while self.opened:
            with suppress(AMQPConnectionError):
                self.opened.pop().close()
        wait_until(lambda: not self.server.connections)

    def raw(self, user: str = "guest") -> RawClient:
        return RawClient(self.port).log_in(user, PASSWORD)

    def json(self, path: str, user: str = "administrator") -> Any:
        response = self.get(path, user)
        assert response.status_code == 200, response.text
        return response.json()

    def names(self, user: str = "administrator", path: str = "/api/connections") -> list[str]:
        return [item["name"] for item in self.json(path, user)]

    def delete(self, path: str, user: str = "administrator", reason: bytes | None = None) -> httpx.Response:
        with self.client(user) as client:
            return client.delete(path, headers={b"X-Reason": reason} if reason is not None else {})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientStage]:
    with ClientStage(tmp_path_factory.mktemp("clients") / "data") as stage:
        yield stage


@pytest.fixture(autouse=True)
def no_client_stays(stage: ClientStage) -> Iterator[None]:
    yield
    stage.close_clients()


def wait_until(is_met: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_met():
        assert time.monotonic() < end, "the condition is not met"
        time.sleep(0.01)


def path_of(name: str) -> str:
    return f"/api/connections/{quote(name, safe='')}"


def name_of(connection: pika.BlockingConnection, stage: ClientStage) -> str:
    host, port = connection._impl._transport._sock.getsockname()
    return f"{host}:{port} -> 127.0.0.1:{stage.port}"


def raw_name(client: RawClient, stage: ClientStage) -> str:
    host, port = client.socket.getsockname()
    return f"{host}:{port} -> 127.0.0.1:{stage.port}"


def closed_with(connection: pika.BlockingConnection) -> tuple[int, str]:
    """How the broker closes it."""
    end = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < end:
            connection.process_data_events(0.1)
    except ConnectionClosedByBroker as error:
        return error.reply_code, error.reply_text
    raise AssertionError("the broker does not close it")


# -- lists and items ---------------------------------------------------------------------------------------------


def test_fields_of_clients_have_rabbitmqs_names_and_kinds(stage: ClientStage) -> None:
    user = "administrator"
    with connected(stage.port, user) as connection:
        wait_until(lambda: "idle_since" in stage.json("/api/channels")[0])
        answers = clients_shown(stage.json, user)
        assert connection.is_open
    assert set(answers) == set(RABBITMQ)
    for name, answer in answers.items():
        ours, theirs = kinds(answer), RABBITMQ[name]
        for shape in (ours, theirs):
            for item in shape if isinstance(shape, list) else [shape]:
                assert isinstance(item, dict)
                for field in NOT_SHOWN:
                    item.pop(field, None)
        assert ours == theirs, name


def test_a_connection_is_shown_with_the_values_of_its_client(stage: ClientStage) -> None:
    began_ms = time.time_ns() // 1_000_000
    connection = stage.connect(connection_name="billing", product="a test")
    connection.channel()
    connection.channel()
    name = name_of(connection, stage)
    item = stage.json(path_of(name))
    local_port = int(name.partition(" ")[0].rpartition(":")[2])
    expected = {
        "name": name,
        "user": "guest",
        "user_who_performed_action": "guest",
        "user_provided_name": "billing",
        "vhost": "/",
        "host": "127.0.0.1",
        "port": stage.port,
        "peer_host": "127.0.0.1",
        "peer_port": local_port,
        "node": NODE,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": "PLAIN",
        "ssl": False,
        "state": "running",
        "timeout": 600,
        "frame_max": 131_072,
        "channel_max": 2047,
        "channels": 2,
        "send_pend": 0,
    }
    assert {field: item[field] for field in expected} == expected
    assert began_ms <= item["connected_at"] <= time.time_ns() // 1_000_000
    assert item["client_properties"]["product"] == "a test"
    assert [each["name"] for each in stage.json("/api/connections")] == [name]
    connection.close()
    assert stage.get(path_of(name), "administrator").status_code == 404


def test_bytes_and_socket_calls_are_counted(stage: ClientStage) -> None:
    with stage.raw() as client:
        name = raw_name(client, stage)
        before = stage.json(path_of(name))
        client.channel(1)
        after = stage.json(path_of(name))
    opened, answered = methods.ChannelOpen(), methods.ChannelOpenOk()
    sizes = [8 + len(methods.encode(method)) for method in (opened, answered)]
    assert [after[field] - before[field] for field in ("recv_oct", "send_oct")] == sizes
    assert [after[field] - before[field] for field in ("recv_cnt", "send_cnt")] == [1, 1]


def test_a_connection_is_listed_from_the_end_of_its_handshake(stage: ClientStage) -> None:
    with RawClient(stage.port) as client:
        client.send(HEADER)
        client.expect(methods.ConnectionStart)
        name = raw_name(client, stage)
        assert stage.names() == []
        assert [stage.get(path_of(name), "administrator").status_code, stage.delete(path_of(name)).status_code] == [
            404,
            404,
        ]
        response = f"\0guest\0{PASSWORD}".encode()
        client.send_method(0, methods.ConnectionStartOk({}, "PLAIN", response))
        tune = client.expect(methods.ConnectionTune)
        client.send_method(0, methods.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        assert stage.names() == []
        client.send_method(0, methods.ConnectionOpen("/"))
        client.expect(methods.ConnectionOpenOk)
        assert stage.names() == [name]


def test_a_list_of_connections_has_pages_and_columns(stage: ClientStage) -> None:
    users = ("guest", "management", "monitoring")
    for user in users:
        stage.connect(user)
    path = "/api/connections?page=1&page_size=2&sort=user&sort_reverse=true&columns=user"
    page = stage.json(path)
    assert page["items"] == [{"user": "monitoring"}, {"user": "management"}]
    assert (page["total_count"], page["page_count"]) == (3, 2)


def test_a_channel_shows_its_mode_and_its_messages(stage: ClientStage) -> None:
    connection = stage.connect()
    plain, confirming = connection.channel(), connection.channel()
    plain.queue_declare("channel facts", exclusive=True)
    confirming.confirm_delivery()
    confirming.basic_qos(prefetch_count=7)
    confirming.basic_qos(prefetch_count=9, global_qos=True)
    for _ in range(3):
        confirming.basic_publish("", "channel facts", b"x")
    plain.basic_get("channel facts")
    plain.basic_get("channel facts")
    name = name_of(connection, stage)
    items = stage.json(f"{path_of(name)}/channels")
    fields = ("number", "confirm", "prefetch_count", "global_prefetch_count", "messages_unacknowledged")
    assert [[item[field] for field in fields] for item in items] == [[1, False, 0, 0, 2], [2, True, 7, 9, 0]]
    assert [item["name"] for item in items] == [f"{name} (1)", f"{name} (2)"]
    assert all(item["messages_unconfirmed"] == item["messages_uncommitted"] == 0 for item in items)
    assert not any(item["transactional"] for item in items)
    shown = stage.json(f"/api/channels/{quote(f'{name} (2)', safe='')}")
    assert (shown["number"], shown["connection_details"]["name"]) == (2, name)
    assert stage.names(path="/api/channels") == stage.names(path="/api/vhosts/%2F/channels")
    confirming.close()
    assert stage.names(path="/api/channels") == [f"{name} (1)"]


def test_a_channel_is_idle_when_nothing_is_sent_either_way(stage: ClientStage) -> None:
    with stage.raw() as client:
        client.channel(1)
        wait_until(lambda: "idle_since" in stage.json("/api/channels")[0])
        since = datetime.fromisoformat(stage.json("/api/channels")[0]["idle_since"]).timestamp()
        assert time.time() - 1.0 - SECONDS_MAX < since <= time.time() - 1.0
        reads = stage.json("/api/connections")[0]["recv_cnt"]
        client.send(frames.HEARTBEAT_FRAME)
        wait_until(lambda: stage.json("/api/connections")[0]["recv_cnt"] > reads)
        assert "idle_since" in stage.json("/api/channels")[0], "a heartbeat is no activity"
        client.channel(2)
        assert all("idle_since" not in item for item in stage.json("/api/channels"))


def test_consumers_are_shown_with_their_queue_and_channel(stage: ClientStage) -> None:
    connection = stage.connect()
    first, second = connection.channel(), connection.channel()
    name = name_of(connection, stage)
    first.basic_qos(prefetch_count=4)
    first.queue_declare("shared", auto_delete=True)
    first.queue_declare("one by one", auto_delete=True, arguments={"x-single-active-consumer": True})
    first.basic_consume("shared", print, consumer_tag="a", exclusive=True, arguments={"x-priority": 3})
    first.basic_consume("one by one", print, consumer_tag="b")
    second.basic_consume("one by one", print, consumer_tag="c", auto_ack=True)
    items = {item["consumer_tag"]: item for item in stage.json("/api/consumers")}
    fields = ("ack_required", "exclusive", "prefetch_count", "active", "activity_status", "arguments")
    assert {tag: [item[field] for field in fields] for tag, item in items.items()} == {
        "a": [True, True, 4, True, "up", {"x-priority": 3}],
        "b": [True, False, 4, True, "single_active", {}],
        "c": [False, False, 0, False, "waiting", {}],
    }
    assert items["c"]["queue"] == {"name": "one by one", "vhost": "/"}
    assert items["c"]["channel_details"] == {
        "name": f"{name} (2)",
        "number": 2,
        "user": "guest",
        "node": NODE,
        "connection_name": name,
        "peer_host": "127.0.0.1",
        "peer_port": int(name.partition(" ")[0].rpartition(":")[2]),
    }
    details = stage.json("/api/queues/%2F/one%20by%20one")["consumer_details"]
    assert details == [items["b"], items["c"]]
    channel = stage.json(f"/api/channels/{quote(f'{name} (1)', safe='')}")
    assert channel["consumer_details"] == [items["a"], items["b"]]
    first.basic_cancel("b")
    [remaining] = stage.json("/api/queues/%2F/one%20by%20one")["consumer_details"]
    assert (remaining["consumer_tag"], remaining["activity_status"]) == ("c", "single_active")


def test_consumers_are_listed_without_pages(stage: ClientStage) -> None:
    channel = stage.connect().channel()
    channel.queue_declare("paged", auto_delete=True)
    for tag in ("a", "b"):
        channel.basic_consume("paged", print, consumer_tag=tag)
    path = (
        "/api/consumers?page=1&page_size=1&name=a&sort=consumer_tag&sort_reverse=true&columns=consumer_tag,queue.name"
    )
    rows = [{"consumer_tag": tag, "queue": {"name": "paged"}} for tag in ("b", "a")]
    assert stage.json(path) == rows
    assert len(stage.json("/api/consumers/%2F")) == 2


def test_a_blocked_publisher_is_shown_as_rabbitmq_shows_it(stage: ClientStage) -> None:
    publisher, other = stage.connect(), stage.connect("monitoring")
    channel = publisher.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "nowhere", b"")
    names = {name_of(publisher, stage): "publisher", name_of(other, stage): "other"}

    def states() -> dict[str, str]:
        return {names[item["name"]]: item["state"] for item in stage.json("/api/connections")}

    pressure = stage.server.pressure
    assert states() == {"publisher": "running", "other": "running"}
    for reason, expected in [(DISK, ("blocked", "blocking")), (UNSAFE, ("flow", "running"))]:
        stage.server.call_in_loop(lambda: pressure.set(reason, True))  # noqa: B023
        try:
            assert states() == dict(zip(("publisher", "other"), expected, strict=True))
        finally:
            stage.server.call_in_loop(lambda: pressure.set(reason, False))  # noqa: B023
    assert states() == {"publisher": "running", "other": "running"}


# -- odd names ---------------------------------------------------------------------------------------------------

ODD = 'a/b%2F <b>&"é☃'


def test_odd_names_stay_text_and_stay_in_their_vhost(stage: ClientStage) -> None:
    stage.vhost(ODD)
    stage.user(ODD, "administrator", vhost=ODD)
    connection = stage.connect(ODD, ODD, connection_name=f"{ODD}\n", nested={ODD: [ODD, None, True]})
    channel = connection.channel()
    channel.queue_declare(ODD, auto_delete=True)
    channel.basic_consume(ODD, print, consumer_tag=ODD, arguments={ODD: ODD})
    name, encoded = name_of(connection, stage), quote(ODD, safe="")
    item = stage.json(path_of(name))
    assert [item["user"], item["vhost"], item["user_provided_name"]] == [ODD, ODD, f"{ODD}\n"]
    assert item["client_properties"]["nested"] == {ODD: [ODD, None, True]}
    [consumer] = stage.json(f"/api/consumers/{encoded}")
    assert [consumer["consumer_tag"], consumer["queue"], consumer["arguments"]] == [
        ODD,
        {"name": ODD, "vhost": ODD},
        {ODD: ODD},
    ]
    assert stage.json(f"/api/queues/{encoded}/{encoded}")["consumer_details"] == [consumer]
    assert stage.names(path=f"/api/vhosts/{encoded}/connections") == [name]
    assert stage.names(path=f"/api/connections/username/{encoded}") == [name]
    assert stage.names(path="/api/vhosts/%2F/connections") == []
    assert stage.json("/api/consumers/%2F") == []
    assert stage.delete(f"/api/connections/username/{encoded}", reason=ODD.encode()).status_code == 204
    assert closed_with(connection) == (FORCED, f"CONNECTION_FORCED - {ODD}")


# -- who sees what -----------------------------------------------------------------------------------------------


def test_others_than_monitoring_see_their_own_clients_only(stage: ClientStage) -> None:
    users = ("guest", "management", "policymaker", "monitoring", "administrator")
    connections = {user: stage.connect(user) for user in users}
    for user, connection in connections.items():
        channel = connection.channel()
        channel.queue_declare(f"of {user}", exclusive=True)
        channel.basic_consume(f"of {user}", print)
    for user in users[1:]:
        expected = sorted(users if user in ("monitoring", "administrator") else [user])
        paths = ("connections", "vhosts/%2F/connections", "channels", "vhosts/%2F/channels")
        for path in paths:
            assert sorted(item["user"] for item in stage.json(f"/api/{path}", user)) == expected, (user, path)
        for path in ("consumers", "consumers/%2F"):
            found = [item["channel_details"]["user"] for item in stage.json(f"/api/{path}", user)]
            assert sorted(found) == expected, (user, path)
        for owner, connection in connections.items():
            name = name_of(connection, stage)
            channel_path = f"/api/channels/{quote(f'{name} (1)', safe='')}"
            for path in (
                path_of(name),
                f"{path_of(name)}/channels",
                channel_path,
                f"/api/connections/username/{owner}",
            ):
                response = stage.get(path, user)
                assert response.status_code == (200 if owner in expected else 401), (user, path)
                if response.status_code == 401:
                    refusal = {"error": "not_authorised", "reason": "User not authorised to access object"}
                    assert response.json() == refusal


def test_only_administrators_close_connections_of_others(stage: ClientStage) -> None:
    connection = stage.connect()
    for user in ("management", "policymaker", "monitoring"):
        for path in (path_of(name_of(connection, stage)), "/api/connections/username/guest"):
            response = stage.delete(path, user)
            assert (response.status_code, response.json()["reason"]) == (401, "User not authorised to access object")
    connection.process_data_events(0)
    assert connection.is_open
    own = stage.connect("management")
    assert stage.delete(path_of(name_of(own, stage)), "management").status_code == 204
    assert closed_with(own)[0] == FORCED


def test_the_local_socket_closes_every_connection(stage: ClientStage) -> None:
    connection = stage.connect()
    with stage.local() as client:
        assert client.delete(path_of(name_of(connection, stage))).status_code == 204
    assert closed_with(connection)[0] == FORCED


# -- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (None, "CONNECTION_FORCED - Closed via management plugin"),
        (b"maintenance", "CONNECTION_FORCED - maintenance"),
        ("ümläut <b>".encode(), "CONNECTION_FORCED - ümläut <b>"),
        (b"r" * 400, f"CONNECTION_FORCED - {'r' * 232}..."),
        (b"\xff", "CONNECTION_FORCED - \ufffd"),
    ],
)
def test_a_closed_client_gets_the_code_and_the_reason(stage: ClientStage, header: bytes | None, text: str) -> None:
    connection = stage.connect()
    path = path_of(name_of(connection, stage))
    response = stage.delete(path, reason=header)
    assert (response.status_code, response.content) == (204, b"")
    assert "content-type" not in response.headers
    assert closed_with(connection) == (FORCED, text)
    wait_until(lambda: stage.names() == [])
    assert stage.delete(path).status_code == 404


def test_all_connections_of_a_user_are_closed_and_no_others(stage: ClientStage) -> None:
    mine, other = [stage.connect() for _ in range(3)], stage.connect("management")
    assert len(stage.names(path="/api/connections/username/guest")) == 3
    assert stage.delete("/api/connections/username/guest", reason=b"bye").status_code == 204
    assert [closed_with(connection) for connection in mine] == [(FORCED, "CONNECTION_FORCED - bye")] * 3
    assert stage.delete("/api/connections/username/none").status_code == 204
    wait_until(lambda: stage.names() == [name_of(other, stage)])


def test_messages_of_a_closed_client_are_ready_again(stage: ClientStage) -> None:
    connection = stage.connect()
    channel = connection.channel()
    channel.queue_declare("kept messages")
    channel.basic_publish("", "kept messages", b"x")
    wait_until(lambda: channel.basic_get("kept messages")[0] is not None)
    stage.delete(path_of(name_of(connection, stage)))
    again = stage.connect().channel()
    method, _, body = again.basic_get("kept messages", auto_ack=True)
    assert (method.redelivered, body) == (True, b"x")
    again.queue_delete("kept messages")


@contextmanager
def busy_catalog(stage: ClientStage) -> Iterator[None]:
    """Changes of the catalog wait, and so do logins."""
    is_busy, is_over = threading.Event(), threading.Event()

    def change(writer: object) -> None:
        is_busy.set()
        assert is_over.wait(SECONDS_MAX)

    thread = threading.Thread(target=stage.catalog.change, args=(change,))
    thread.start()
    try:
        assert is_busy.wait(SECONDS_MAX)
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_connection_that_waits_for_a_declare_is_closed_at_once(stage: ClientStage) -> None:
    """The declare is executed and not answered; what follows it is discarded."""
    with stage.raw() as client, stage.local() as local:
        client.channel(1)
        path = path_of(raw_name(client, stage))
        with busy_catalog(stage):
            declare = frames.method_frame(1, methods.QueueDeclare(queue="slow", durable=True))
            client.send(declare + client.message(1, methods.BasicPublish(routing_key="slow"), b"x"))
            wait_until(lambda: all(connection.is_paused for connection in stage.server.connections))
            assert local.delete(path, headers={"x-reason": "enough"}).status_code == 204
            assert client.expect(methods.ConnectionClose).reply_text == "CONNECTION_FORCED - enough"
            assert local.get(path).json()["state"] == "closing"
            assert local.delete(path).status_code == 204, "it is closing already"
            client.send_method(0, methods.ConnectionCloseOk())
        assert client.is_closed()
    wait_until(lambda: stage.names() == [])
    assert stage.json("/api/queues/%2F/slow")["messages"] == 0
    stage.connect().channel().queue_delete("slow")


def test_a_connection_whose_declare_does_not_end_is_disconnected(
    stage: ClientStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "CLOSE_SECONDS", 0.1)
    with stage.raw() as client, stage.local() as local:
        client.channel(1)
        with busy_catalog(stage):
            client.send_method(1, methods.QueueDeclare(queue="endless", exclusive=True))
            wait_until(lambda: all(connection.is_paused for connection in stage.server.connections))
            assert local.delete(path_of(raw_name(client, stage))).status_code == 204
            assert client.is_closed()
            wait_until(lambda: local.get("/api/connections").json() == [])
    wait_until(lambda: stage.get("/api/queues/%2F/endless").status_code == 404)


def test_a_client_that_does_not_read_is_disconnected(stage: ClientStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "CLOSE_SECONDS", 0.2)
    channel = stage.connect().channel()
    channel.queue_declare("flood", auto_delete=True)
    with stage.raw() as client:
        client.channel(1)
        client.send_method(1, methods.BasicConsume(queue="flood", no_ack=True))
        client.expect(methods.BasicConsumeOk)
        for _ in range(64):
            channel.basic_publish("", "flood", bytes(1 << 20))
        name = raw_name(client, stage)
        wait_until(lambda: stage.json(path_of(name))["send_pend"] > 0)
        assert stage.delete(path_of(name)).status_code == 204
        wait_until(lambda: name not in stage.names())
        assert client.is_closed()


def test_a_paused_publisher_is_closed_in_an_orderly_way(stage: ClientStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again for its close-ok. Without that it would stay until the time limit."""
    monkeypatch.setattr(server_connection, "CLOSE_SECONDS", 600.0)
    with stage.raw() as client:
        client.channel(1, confirms=True)
        client.publish(1, "nowhere", b"x")
        client.expect(methods.BasicAck)
        stage.server.call_in_loop(lambda: stage.server.pressure.set(DISK, True))
        try:
            wait_until(lambda: stage.json(path_of(raw_name(client, stage)))["state"] == "blocked")
            assert stage.delete(path_of(raw_name(client, stage))).status_code == 204
            client.expect(methods.ConnectionClose)
            client.send_method(0, methods.ConnectionCloseOk())
            assert client.is_closed()
        finally:
            stage.server.call_in_loop(lambda: stage.server.pressure.set(DISK, False))
    wait_until(lambda: stage.names() == [])


# -- login attempts ----------------------------------------------------------------------------------------------


def test_login_attempts_are_counted_by_protocol(stage: ClientStage) -> None:
    path = f"/api/auth/attempts/{NODE}"
    assert stage.delete(path, "monitoring").status_code == 204
    stage.connect().close()
    with pytest.raises(ProbableAuthenticationError):
        stage.connect("nobody")
    with stage.client("nobody") as client:
        assert client.get("/api/whoami").status_code == 401
    attempts = {item.pop("protocol"): list(item.values()) for item in stage.json(path)}
    assert attempts == {"amqp091": [2, 1, 1], "http": [2, 1, 1]}
    assert stage.json(f"{path}/source") == []
    assert stage.delete(f"{path}/source").status_code == 204
    assert [item["protocol"] for item in stage.json(path)] == ["http"]
