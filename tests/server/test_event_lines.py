"""The log of a day, as a broker writes it: clients that come, fail and leave; nothing secret, nothing forged."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.load import until
from tests.server.raw_client import HEADER, RawClient
from warren.amqp import frames, methods

pytestmark = pytest.mark.slow
PASSWORD = "open sesame"
BODY = b"the body of a message"
Event = dict[str, Any]


class LoggingBroker:
    """A broker whose events are read back. `mark` before what is done, then `event` or `events` behind the mark."""

    def __init__(self, process: BrokerProcess, path: Path) -> None:
        self.process = process
        self.path = path
        self._mark = 0
        self._earlier_clients: set[str] = set()

    @property
    def port(self) -> int:
        return self.process.port

    def begin_test(self) -> None:
        """Clients of earlier tests may still be closing: they do not count."""
        self._earlier_clients = {each["client"] for each in self.events_of_the_day() if "client" in each}
        self.mark()

    def mark(self) -> None:
        self._mark = len(self.events_of_the_day())

    def events_since_mark(self) -> list[Event]:
        events = self.events_of_the_day()[self._mark :]
        return [each for each in events if each.get("client") not in self._earlier_clients]

    def events_of_the_day(self) -> list[Event]:
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def events(self, *messages: str) -> list[Event]:
        """Wait for these messages, in this order, others aside; their events."""
        found: list[Event] = []

        def has_all() -> bool:
            nonlocal found
            found = [each for each in self.events_since_mark() if each["msg"] in messages]
            return [each["msg"] for each in found] == list(messages)

        until(has_all, f"{messages}; {self.path.read_text()[-3000:]}")
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingBroker]:
    directory = tmp_path_factory.mktemp("day")
    log = directory / "events.log"
    options = ("--log-file", str(log), "--log-format", "json", "--log-level", "debug", "--login-delay-seconds", "0")
    with BrokerProcess(directory / "data", *options) as process:
        yield LoggingBroker(process, log)
    text = log.read_text(encoding="utf-8")  # of all tests of this module
    assert PASSWORD not in text
    assert BODY.decode() not in text and BODY[:16].hex(" ") not in text


@pytest.fixture(autouse=True)
def _marked(broker: LoggingBroker) -> None:
    broker.begin_test()


def level_and_facts(event: Event, *leaves_out: str) -> tuple[str, Event]:
    facts = {name: value for name, value in event.items() if name not in ("time", "level", "msg", *leaves_out)}
    return event["level"], facts


def name_of(client: RawClient) -> str:
    here, there = client.socket.getsockname(), client.socket.getpeername()
    return f"{here[0]}:{here[1]} -> {there[0]}:{there[1]}"


def test_a_connection_is_accepted_authenticated_and_closed_by_its_client(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in() as client:
        name = name_of(client)
        client.send_method(0, methods.ConnectionClose(200, "Goodbye"))
        client.expect(methods.ConnectionCloseOk)
    accepted, authenticated, closed = broker.events("connection accepted", "authenticated", "connection closed")
    user = {"client": name, "user": "guest", "vhost": "/"}
    assert level_and_facts(accepted) == ("info", {"client": name})
    assert level_and_facts(authenticated) == ("info", {**user, "mechanism": "PLAIN"})
    assert level_and_facts(closed) == ("info", {**user, "by": "client", "code": 200, "why": "Goodbye"})


def test_the_name_that_a_client_gives_its_connection_is_logged(broker: LoggingBroker) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, client_properties={"connection_name": "invoices"})
    pika.BlockingConnection(parameters).close()
    [authenticated] = broker.events("authenticated")
    assert authenticated["name"] == "invoices"


def test_an_abrupt_end_is_a_warning(broker: LoggingBroker) -> None:
    RawClient(broker.port).log_in().socket.close()
    [closed] = broker.events("connection closed abruptly")
    assert level_and_facts(closed, "client") == (
        "warning",
        {"user": "guest", "vhost": "/", "why": "client closed the socket without connection.close"},
    )


def test_a_probe_of_the_port_is_logged_at_debug_level_only(broker: LoggingBroker) -> None:
    RawClient(broker.port).socket.close()
    [closed] = broker.events("connection closed without a protocol header")
    assert closed["level"] == "debug"


def test_another_protocol_is_an_error(broker: LoggingBroker) -> None:
    with RawClient(broker.port) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.socket.recv(64) == HEADER
    [closed] = broker.events("connection closed")
    assert (closed["level"], closed["by"]) == ("error", "broker")
    assert "GET / HT" in closed["why"]


def test_a_channel_error_has_its_method_code_and_text(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in().channel(7) as client:
        client.send_method(7, methods.QueueDeclare(queue="none", passive=True))
        client.expect(methods.ChannelClose)
        [error] = broker.events("channel error")
    assert level_and_facts(error, "client") == (
        "error",
        {
            "user": "guest",
            "vhost": "/",
            "channel": 7,
            "method": "queue.declare",
            "code": 404,
            "text": "NOT_FOUND - no queue 'none' in vhost '/'",
        },
    )


def test_a_connection_error_is_logged_before_the_close_by_the_broker(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in() as client:
        client.send_method(3, methods.QueueDeclare(queue="q"))  # the channel is not open
        assert client.expect(methods.ConnectionClose).reply_code == 504
        client.send_method(0, methods.ConnectionCloseOk())
        error, closed = broker.events("connection error", "connection closed")
    assert (error["level"], error["method"], error["code"]) == ("error", "queue.declare", 504)
    assert (closed["level"], closed["by"], closed["code"]) == ("info", "broker", 504)


@pytest.mark.parametrize(("user", "reason"), [("guest", "wrong password"), ("stranger", "no such user")])
def test_a_refused_login_has_its_reason_and_no_password(broker: LoggingBroker, user: str, reason: str) -> None:
    credentials = pika.PlainCredentials(user, PASSWORD)
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials))
    refused, closed = broker.events("login refused", "connection closed")
    facts = {"user": user, "peer": "127.0.0.1", "mechanism": "PLAIN", "why": reason}
    assert level_and_facts(refused) == ("error", facts)
    assert (closed["level"], closed["code"]) == ("info", 403)


def test_an_unknown_vhost_is_a_connection_error(broker: LoggingBroker) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, "nowhere"))
    [error] = broker.events("connection error")
    assert (error["user"], error["text"]) == ("guest", "NOT_ALLOWED - vhost nowhere not found")


def test_missed_heartbeats_are_an_error(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in(heartbeat=1) as client:
        assert client.is_closed()
    missed, closed = broker.events("missed heartbeats from client", "connection closed")
    assert (missed["level"], missed["heartbeat_seconds"]) == ("error", 1)
    assert closed["why"] == "missed heartbeats"


def test_declarations_and_consumers_are_logged_at_debug_level(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in().channel() as client:
        client.declare("jobs")
        client.declare("jobs")  # exists: no event
        client.send_method(1, methods.ExchangeDeclare(exchange="shop", type="topic"))
        client.expect(methods.ExchangeDeclareOk)
        client.send_method(1, methods.QueueBind(queue="jobs", exchange="shop", routing_key="new.#"))
        client.expect(methods.QueueBindOk)
        client.send_method(1, methods.BasicConsume(queue="jobs", consumer_tag="worker"))
        client.expect(methods.BasicConsumeOk)
        client.send_method(1, methods.BasicCancel("worker"))
        client.expect(methods.BasicCancelOk)
        client.send_method(1, methods.QueueUnbind(queue="jobs", exchange="shop", routing_key="new.#"))
        client.expect(methods.QueueUnbindOk)
        client.send_method(1, methods.ExchangeDelete(exchange="shop"), methods.QueueDelete(queue="jobs"))
        client.expect(methods.ExchangeDeleteOk)
        client.expect(methods.QueueDeleteOk)
    made = ("queue declared", "exchange declared", "binding added", "consumer added")
    gone = ("consumer cancelled", "binding removed", "exchange deleted", "queue deleted")
    events = broker.events(*made, *gone)
    assert {each["level"] for each in events} == {"debug"}
    assert {each["vhost"] for each in events} == {"/"}
    binding = {"source": "shop", "destination": "jobs", "routing_key": "new.#", "vhost": "/", "user": "guest"}
    assert level_and_facts(events[2])[1] == level_and_facts(events[5])[1] == binding


def test_messages_are_not_logged(broker: LoggingBroker) -> None:
    with RawClient(broker.port).log_in().channel(1, confirms=True) as client:
        client.declare("parcels", exclusive=True)
        broker.events("queue declared")
        broker.mark()
        client.publish(1, "parcels", *[BODY] * 100)
        while client.expect(methods.BasicAck).delivery_tag != 100:
            continue
        client.send_method(1, methods.BasicGet(queue="parcels", no_ack=True))
        assert client.body() == BODY
        client.send_method(1, methods.ChannelClose(200, ""))
        client.expect(methods.ChannelCloseOk)
        assert not broker.events_since_mark()


@pytest.mark.parametrize("channel", [0, 1])
def test_a_frame_out_of_place_is_logged_without_its_bytes(broker: LoggingBroker, channel: int) -> None:
    with RawClient(broker.port).log_in().channel() as client:
        client.send(frames.write_frame(frames.BODY, channel, BODY))
        close = client.expect(methods.ConnectionClose)
        assert (close.reply_code, BODY[:16].hex(" ") in close.reply_text) == (505, channel == 0)
        [error] = broker.events("connection error")
    assert BODY[:16].hex(" ") not in error["text"]
    assert error["text"].startswith("UNEXPECTED_FRAME")


def test_a_name_with_line_breaks_cannot_forge_a_line(tmp_path: Path) -> None:
    forged = 'x\n2026-01-01T00:00:00.000Z CRITICAL forged why="all is lost"\r\x1b[2J\u2028'
    log = tmp_path / "events.log"
    with BrokerProcess(tmp_path / "data", "--log-file", str(log), "--login-delay-seconds", "0") as process:
        with RawClient(process.port).log_in().channel() as client:
            client.send_method(1, methods.QueueDeclare(queue=forged, passive=True))
            client.expect(methods.ChannelClose)
        credentials = pika.PlainCredentials(forged, "x")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", process.port, credentials=credentials))
    lines = log.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert all(re.match(rb"\d{4}-\d\d-\d\dT\S+Z (INFO|WARNING|ERROR) [ -~]+$", line) for line in lines), lines
    assert len([line for line in lines if b"forged" in line]) >= 2, "as part of a value"


def test_the_day_begins_with_version_and_addresses_and_ends_with_stopped(tmp_path: Path) -> None:
    log, data = tmp_path / "events.log", tmp_path / "data"
    with BrokerProcess(data, "--log-file", str(log), "--log-format", "json") as process:
        port = process.port
    events = [json.loads(line) for line in log.read_text().splitlines()]
    first, *_, last = events
    assert (first["msg"], first["directory"], first["pid"]) == ("starting", str(data), process.process.pid)
    assert first["version"] and first["kernels"] in ("pure", "compiled")
    listening = {each["protocol"]: each["address"] for each in events if each["msg"] == "listening"}
    assert listening["amqp"] == f"127.0.0.1:{port}"
    assert listening.keys() == {"amqp", "management", "prometheus"}
    assert (last["level"], last["msg"]) == ("info", "stopped")
    pure = [each for each in events if each["msg"].startswith("running as pure Python")]
    assert len(pure) == (first["kernels"] == "pure")


def test_categories_have_levels_of_their_own(tmp_path: Path) -> None:
    conf, log = tmp_path / "rabbitmq.conf", tmp_path / "events.log"
    conf.write_text("log.connection.level = error\nlog.queue.level = debug\nlog.channel.level = none\n")
    with (
        BrokerProcess(tmp_path / "data", "--config", str(conf), "--log-file", str(log)) as process,
        RawClient(process.port).log_in().channel() as client,
    ):
        client.declare("jobs")
        client.send_method(1, methods.QueueDeclare(queue="none", passive=True))
        client.expect(methods.ChannelClose)
    text = log.read_text()
    assert "DEBUG queue declared queue=jobs" in text
    assert "INFO ready" in text, "the default category"
    assert "connection accepted" not in text and "channel error" not in text


def test_sighup_creates_a_log_file_that_was_moved_and_does_not_end_the_broker(tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    with BrokerProcess(tmp_path / "data", "--log-file", str(log)) as process:
        log.rename(tmp_path / "events.log.1")
        process.process.send_signal(signal.SIGHUP)
        until(log.exists, "the log file")
        with RawClient(process.port).log_in():
            pass
    assert "INFO event log reopened" in log.read_text()
    assert "INFO ready" in (tmp_path / "events.log.1").read_text()
    assert process.process.returncode == 0
