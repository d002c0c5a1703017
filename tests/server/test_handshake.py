"""The handshake: what a client may do before its login, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import HEADER, Closed, RawClient
from warren import __version__
from warren.amqp import frames, methods
from warren.server.settings import RABBITMQ_VERSION

HANDSHAKE_SECONDS = 1.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("handshake")
    conf = directory / "rabbitmq.conf"
    conf.write_text(f"handshake_timeout = {int(HANDSHAKE_SECONDS * 1000)}\nheartbeat = 60\n")
    with BrokerProcess(directory / "data", "--config", str(conf)) as broker:
        yield broker


def test_another_protocol_is_answered_by_ours_and_cut_off(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.socket.recv(64) == HEADER
        assert client.is_closed()


def test_a_client_without_a_handshake_is_closed(broker: BrokerProcess) -> None:
    began = time.monotonic()
    with RawClient(broker.port) as client:
        client.send(HEADER)
        client.expect(methods.ConnectionStart)
        assert client.is_closed()
    assert time.monotonic() - began >= HANDSHAKE_SECONDS


def test_a_large_frame_is_refused_before_the_login(broker: BrokerProcess) -> None:
    """By its length alone: nothing is kept of it."""
    with RawClient(broker.port) as client:
        client.send(HEADER)
        client.expect(methods.ConnectionStart)
        client.send(frames.HEAD.pack(frames.METHOD, 0, 1 << 30))
        assert client.is_closed()


def test_a_wrong_password_is_reported_to_clients_with_the_capability(broker: BrokerProcess) -> None:
    refusal = "ACCESS_REFUSED - Login was refused using authentication mechanism"
    with RawClient(broker.port) as client, pytest.raises(AssertionError, match=refusal):
        client.log_in(password="wrong", authentication_failure_close=True)
    with RawClient(broker.port) as client, pytest.raises(Closed):
        client.log_in(password="wrong")


def test_an_unknown_vhost_is_refused(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client, pytest.raises(AssertionError, match="NOT_ALLOWED - vhost nowhere not found"):
        client.log_in(vhost="nowhere")


def test_the_server_properties_are_true(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send(HEADER)
        start = client.expect(methods.ConnectionStart)
    assert start.server_properties["product"] == "Warren"
    assert start.server_properties["information"] == f"Warren {__version__}"
    assert start.mechanisms.split() == [b"PLAIN", b"AMQPLAIN"]
    assert start.server_properties["capabilities"]["direct_reply_to"] is True
    assert start.server_properties["capabilities"]["connection.blocked"] is True


def test_clients_that_compare_the_version_find_that_of_rabbitmq(broker: BrokerProcess) -> None:
    """The version it claims compatibility with: clients use features from some version on."""
    with RawClient(broker.port) as client:
        client.send(HEADER)
        version = client.expect(methods.ConnectionStart).server_properties["version"]
    assert version == RABBITMQ_VERSION
    assert tuple(map(int, version.split("."))) > (3, 3, 5)


def test_a_client_may_send_eight_kib_before_frame_max_is_agreed(broker: BrokerProcess) -> None:
    """RabbitMQ 3.10 closes the socket above 4 KiB, later versions above 8 KiB."""
    with RawClient(broker.port) as client:
        client.send(HEADER)
        client.expect(methods.ConnectionStart)
        client.send_method(0, methods.ConnectionStartOk({"pad": "x" * 8000}, "PLAIN", b"\0guest\0guest"))
        client.expect(methods.ConnectionTune)
    with RawClient(broker.port) as client:
        client.send(HEADER)
        client.expect(methods.ConnectionStart)
        client.send_method(0, methods.ConnectionStartOk({"pad": "x" * 8192}, "PLAIN", b"\0guest\0guest"))
        assert client.is_closed()


def test_heartbeats_are_sent_and_required(broker: BrokerProcess) -> None:
    """A client that is silent for two heartbeats is dead; until then it receives heartbeats."""
    began = time.monotonic()
    with RawClient(broker.port) as client:
        client.log_in(heartbeat=1)
        assert [client.frame().kind for _ in range(2)] == [frames.HEARTBEAT] * 2
        assert client.is_closed()
    assert time.monotonic() - began >= 2.0


def test_a_client_that_sends_heartbeats_stays(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.log_in(heartbeat=1)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            client.send(frames.HEARTBEAT_FRAME)
            client.frame()
        client.channel()


def test_a_client_that_closes_is_answered(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.log_in()
        client.send_method(0, methods.ConnectionClose(200, "bye"))
        client.expect(methods.ConnectionCloseOk)
        assert client.is_closed()


def test_the_directory_is_private(broker: BrokerProcess) -> None:
    assert Path(broker.directory).stat().st_mode & 0o777 == 0o700


def test_a_refused_login_is_answered_however_short_the_limit_of_the_handshake_is(tmp_path: Path) -> None:
    """The answer is delayed for a second, which does not count as the client's time."""
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("handshake_timeout = 500\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf)) as broker:
        for _ in range(2):
            with RawClient(broker.port) as client, pytest.raises(AssertionError, match="ACCESS_REFUSED"):
                client.log_in(password="wrong", authentication_failure_close=True)
