"""systemd's notifications: what arrives at NOTIFY_SOCKET from a broker's start to its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from warren.app.service_manager import ServiceManager

SECONDS_MAX = 30.0


@contextmanager
def manager_at(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        manager.settimeout(SECONDS_MAX)
        yield manager


def received(manager: socket.socket, state: str) -> list[str]:
    """Messages up to the one with this state."""
    messages: list[str] = []
    while not messages or state not in messages[-1].split("\n"):
        messages.append(manager.recv(4096).decode())
    return messages


@pytest.mark.slow
@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_broker_notifies_its_service_manager_from_start_to_stop(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@warren-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with manager_at(name) as manager:
        env = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"}
        with BrokerProcess(tmp_path / "data", env=env) as broker:
            *before, ready = received(manager, "READY=1")
            assert all(each.startswith("STATUS=recovering: ") for each in before)
            assert ready == f"READY=1\nSTATUS=serving AMQP at 127.0.0.1:{broker.port}"
            assert received(manager, "WATCHDOG=1") == ["WATCHDOG=1"]
        *_, stopping = received(manager, "STOPPING=1")
        assert stopping == "STOPPING=1\nSTATUS=draining clients"


@pytest.mark.slow
def test_a_service_manager_that_is_gone_does_not_stop_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", env={"NOTIFY_SOCKET": str(tmp_path / "none")}) as broker:
        pass
    assert broker.process.returncode == 0
    assert broker.log.count("WARNING service manager not notified") == 1


def test_the_watchdog_is_for_the_process_that_it_names() -> None:
    variables = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000000"}
    assert ServiceManager(variables).watchdog_seconds == 15.0
    assert ServiceManager({**variables, "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 15.0
    assert ServiceManager({**variables, "WATCHDOG_PID": "1"}).watchdog_seconds == 0.0
    assert ServiceManager({"WATCHDOG_USEC": "30000000"}).watchdog_seconds == 0.0
    assert ServiceManager({"NOTIFY_SOCKET": "/run/notify"}).watchdog_seconds == 0.0
