"""Overload: the broker slows down fast publishers, closes misbehaving connections, and keeps its memory bounded."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.load import (
    WATERMARK_BYTES,
    Flood,
    broker_with,
    client_of,
    consume,
    count_of,
    declared,
    most_resident_bytes,
    number_of,
    resident_bytes,
    until,
)
from warren.amqp import frames, methods

HANDSHAKE_SECONDS = 2
CUT_OFF_SECONDS_MAX = 60  # of a socket's read: passes only if the broker does not cut it off
SILENT_CLIENTS = 1000
HALF_OPEN = 10_000
CHANNELS = 2047
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("flood")
    with broker_with(directory, f"handshake_timeout = {HANDSHAKE_SECONDS * 1000}", "heartbeat = 0") as broker:
        yield broker


def test_publishers_are_slowed_down_and_memory_stays_where_it_is(broker: BrokerProcess) -> None:
    """Promise 4; no connection is closed, and everything that was confirmed is there, in order."""
    declared(broker, "flood")
    floods = [Flood(broker, number, "flood", 8000, 5000, confirms=number < 2) for number in range(4)]
    until(lambda: all(flood.sent == 5000 for flood in floods), "publishers are not read")
    until(lambda: all(flood.confirmed == 5000 for flood in floods[:2]), "confirms do not come")
    until(lambda: count_of(broker, "flood") == 20_000, "messages are missing")
    assert [flood.error for flood in floods] == [None] * 4
    assert most_resident_bytes(broker) < WATERMARK_BYTES
    found: dict[int, list[int]] = {number: [] for number in range(4)}
    with client_of(broker) as client:
        consume(client, "flood", no_ack=True)
        for _ in range(20_000):
            publisher, number = number_of(client.body())
            found[publisher].append(number)
    assert all(numbers == list(range(5000)) for numbers in found.values())
    assert most_resident_bytes(broker) < WATERMARK_BYTES
    for flood in floods:
        flood.close()


def test_a_client_connects_among_a_thousand_silent_ones(broker: BrokerProcess) -> None:
    """All of those are cut off when their time is over; what they took serves the next ones."""
    taken = []
    for _ in range(2):
        with ExitStack() as clients:
            idle = [clients.enter_context(_silent_client(broker.port)) for _ in range(SILENT_CLIENTS)]
            with client_of(broker) as client:
                client.declare("in")
            for each in idle:
                _read_to_the_end(each)
        taken.append(resident_bytes(broker))
    assert taken[1] < taken[0] + 8 * MIB
    with client_of(broker) as client:
        client.declare("in")


def test_a_client_gets_in_beside_ten_thousand_half_open_connections(tmp_path: Path) -> None:
    """The broker waits a minute for each of those: without dropping some, none of their places would be free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(HALF_OPEN, hard - 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with broker_with(tmp_path, "handshake_timeout = 60000") as broker, ExitStack() as clients:
            for number in range(count):
                clients.enter_context(_resetting(_silent_client(broker.port)))
                if number % (count // 4) == 0:
                    with client_of(broker) as client:
                        client.declare("in")
            with client_of(broker) as client:
                client.declare("in")
            until(lambda: "half-open connections dropped" in broker.log, "what was dropped is logged")
            assert "handshake timed out" not in broker.log
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _resetting(socket_: socket.socket) -> socket.socket:
    """Its end leaves no port behind."""
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return socket_


def test_a_connection_has_2047_channels_and_gives_them_back(broker: BrokerProcess) -> None:
    """The next one is refused, with the whole connection: the limit was negotiated."""
    for attempt in range(3):
        with client_of(broker) as client:
            client.send(b"".join(_open(number) for number in range(2, CHANNELS + 1)))
            for _ in range(2, CHANNELS + 1):
                client.expect(methods.ChannelOpenOk)
            client.send_method(CHANNELS + 1, methods.ChannelOpen())
            assert client.expect(methods.ConnectionClose).reply_code == 530
        if not attempt:
            first = resident_bytes(broker)
    assert resident_bytes(broker) < first + 8 * MIB, "what the first one took is used again"


def _open(number: int) -> bytes:
    return frames.method_frame(number, methods.ChannelOpen())


def _silent_client(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=CUT_OFF_SECONDS_MAX)


def _read_to_the_end(silent: socket.socket) -> None:
    try:
        while silent.recv(4096):
            pass
    except ConnectionResetError:
        return


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_consumers_do_not_settle_leaves_memory_too(broker: BrokerProcess, is_durable: bool) -> None:
    """So publishers are not blocked. Without a prefetch one consumer receives everything."""
    with client_of(broker) as holder:
        queue = f"hands.{is_durable}"
        holder.declare(queue, durable=is_durable)
        consume(holder, queue)
        flood = Flood(broker, 1, queue, 20_000, 8000)
        for number in range(8000):
            tag = holder.expect(methods.BasicDeliver).delivery_tag
            assert number_of(holder.body()) == (1, number)
        assert most_resident_bytes(broker) < WATERMARK_BYTES
        assert flood.received == [] and flood.error is None
        flood.close()
        holder.send_method(1, methods.BasicAck(tag, multiple=True))
        assert holder.declare(queue, passive=True).message_count == 0
