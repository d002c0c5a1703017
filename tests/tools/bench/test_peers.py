"""The other brokers start privately, answer, come back with what they kept, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.bench import peers
from tools.bench.peers import (
    AMQP_HEADER,
    HOST,
    Peer,
    PeerProcess,
    free_ports,
    start_nats,
    start_rabbitmq,
    start_redis,
    started,
)
from warren.base.errors import Refused

CONNECTION_START = b"\x00\x0a\x00\x0a"


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Peer]:
    """A peer that computes for a second after a request."""
    (port,) = free_ports(1)
    program = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = listener.accept()
    client.sendall(b"yes")
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
"""
    with started(Peer("busy", tmp_path, [PeerProcess([sys.executable, "-c", program, str(port)], port, b"?")])) as peer:
        yield peer


def test_a_peer_may_finish_what_it_has_left_to_do(busy: Peer) -> None:
    begun = time.monotonic()
    assert busy.settle()
    assert 0.6 < time.monotonic() - begun < 4
    again = time.monotonic()
    assert busy.settle() and time.monotonic() - again < 0.6


@pytest.mark.parametrize("start", [pytest.param(start_rabbitmq, marks=pytest.mark.slow), start_redis, start_nats])
def test_a_peer_starts_stops_and_leaves_no_process_behind(start: Callable[[Path], Peer], tmp_path: Path) -> None:
    with start(tmp_path / "peer") as peer:
        pids = peer.pids()
        assert peer.pid in pids
        assert peer.resident_mb() > 1
        peer.stop()
        assert peer.pids() == []
    assert [pid for pid in pids if _lives(pid)] == []
    assert not _listens(peer.port)


@pytest.mark.slow
def test_rabbitmq_answers_the_header_is_killed_at_once_and_comes_back_at_the_same_port(tmp_path: Path) -> None:
    with start_rabbitmq(tmp_path / "peer") as peer:
        assert _answer(peer.port, AMQP_HEADER)[7:11] == CONNECTION_START
        pids = peer.pids()
        peer.kill()
        assert [pid for pid in pids if _lives(pid)] == []
        assert not _listens(peer.port)
        peer.restart()
        assert _answer(peer.port, AMQP_HEADER)[7:11] == CONNECTION_START
        pids = peer.pids()
    assert [pid for pid in pids if _lives(pid)] == []


@pytest.mark.parametrize("start", [start_redis, start_nats])
def test_a_peer_that_is_stopped_does_nothing_and_then_resumes(start: Callable[[Path], Peer], tmp_path: Path) -> None:
    hello = b"PING\r\n"
    with start(tmp_path / "peer") as peer:
        peer.pause()
        assert [_state(pid) for pid in peer.pids()] == ["T"] * len(peer.pids())
        with socket.create_connection((HOST, peer.port), timeout=0.2) as client:
            client.sendall(hello)
            with pytest.raises(TimeoutError):
                client.recv(1)
        peer.pause()
        peer.resume()
        assert _answer(peer.port, hello)
        assert "T" not in [_state(pid) for pid in peer.pids()]


@pytest.mark.parametrize("end", [Peer.kill, Peer.stop])
def test_a_peer_that_is_held_can_be_ended(end: Callable[[Peer], None], tmp_path: Path) -> None:
    with start_redis(tmp_path / "peer") as peer:
        pids = peer.pids()
        peer.pause()
        end(peer)
        assert [pid for pid in pids if _lives(pid)] == []
        peer.start()
        assert _answer(peer.port, b"PING\r\n") == b"+PONG\r\n"


def test_a_peer_that_died_while_it_was_held_does_not_go_on(tmp_path: Path) -> None:
    with start_redis(tmp_path / "peer") as peer:
        peer.pause()
        os.kill(peer.pid, signal.SIGKILL)
        with pytest.raises(Refused, match="redis did not go on"):
            peer.resume()


def test_two_of_a_kind_run_beside_each_other(tmp_path: Path) -> None:
    with start_redis(tmp_path / "one") as one, start_redis(tmp_path / "two") as two:
        assert one.port != two.port
        assert not set(one.pids()) & set(two.pids())


def test_redis_syncs_before_it_answers(tmp_path: Path) -> None:
    with start_redis(tmp_path / "peer") as peer:
        assert b"always" in _answer(peer.port, b"CONFIG GET appendfsync\r\n")


def test_a_peer_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RABBITMQ_HOME", tmp_path)
    with pytest.raises(Refused, match="rabbitmq-server is not installed"):
        start_rabbitmq(tmp_path / "peer")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return _state(pid) != "Z"


def _state(pid: int) -> str:
    return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0]


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def _answer(port: int, hello: bytes) -> bytes:
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.sendall(hello)
        return client.recv(4096)
