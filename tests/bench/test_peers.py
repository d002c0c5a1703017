"""The other brokers start privately, answer, come back with what they kept, and leave nothing behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from warren.base.errors import Refused
from warren.bench import peers
from warren.bench.peers import AMQP_HEADER, HOST, Peer, start_nats, start_rabbitmq, start_redis

CONNECTION_START = b"\x00\x0a\x00\x0a"


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
    return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def _answer(port: int, hello: bytes) -> bytes:
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.sendall(hello)
        return client.recv(4096)
