"""`warren serve` as a process: what it says, who comes in, how it ends, and what it refuses to begin."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import HEADER

pytestmark = pytest.mark.slow
SECONDS_MAX = 60.0


def come_in(broker: BrokerProcess, user: str, password: str, vhost: str = "/") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, vhost, credentials, socket_timeout=SECONDS_MAX)
    )


def refused(directory: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A start that comes to nothing."""
    line = [sys.executable, "-m", "warren.cli.main", "serve", "--data-dir", str(directory), "--port", "0"]
    line += ["--management-port", "0", "--prometheus-port", "0", *options]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS_MAX, env=env or None, check=False)
    assert ended.returncode == 64, ended
    assert not ended.stdout
    assert "Traceback" not in ended.stderr
    return ended


def test_it_prints_where_it_listens_and_keeps_its_data_private(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.port and broker.management_port and broker.prometheus_port
        for port in (broker.port, broker.management_port, broker.prometheus_port):
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX).close()
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "data" / "warren.sock").stat().st_mode) == 0o600
        assert re.search(r"INFO starting version=\S+ kernels=(pure|compiled) directory=", broker.log)
        come_in(broker, "guest", "guest").close()
    assert broker.process.returncode == 0


def test_the_first_user_is_the_one_that_the_environment_names(tmp_path: Path) -> None:
    names = {"RABBITMQ_DEFAULT_USER": "ann", "RABBITMQ_DEFAULT_PASS": "secret", "RABBITMQ_DEFAULT_VHOST": "prod"}
    with BrokerProcess(tmp_path / "data", env=names) as broker:
        come_in(broker, "ann", "secret", "prod").close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED - Login was refused"):
            come_in(broker, "guest", "guest", "prod")
    again = {"RABBITMQ_DEFAULT_USER": "bob", "RABBITMQ_NODENAME": "rabbit@elsewhere"}
    with BrokerProcess(tmp_path / "data", env=again) as broker:
        come_in(broker, "ann", "secret", "prod").close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            come_in(broker, "bob", "guest", "prod")
        assert "RABBITMQ_NODENAME is ignored" in broker.log


def test_rabbitmq_conf_is_read(tmp_path: Path) -> None:
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("default_user = carl\ndefault_pass = 'a # b'\nheartbeat = 17\nno.such.key = 1\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf), "--product", "RabbitMQ") as broker:
        with come_in(broker, "carl", "a # b") as connection:
            assert connection._impl.server_properties["product"] == "RabbitMQ"
            assert connection._impl.params.heartbeat == 17
        assert f"{conf}:4: no.such.key is ignored: unknown key" in broker.log


def test_clients_are_notified_before_it_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--pid-file", str(tmp_path / "pid")) as broker:
        assert int((tmp_path / "pid").read_text()) == broker.process.pid
        connection = come_in(broker, "guest", "guest")
        broker.process.send_signal(signal.SIGTERM)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
            connection.process_data_events(SECONDS_MAX)
        assert broker.process.wait(SECONDS_MAX) == 0
        assert not (tmp_path / "pid").exists()


def test_who_does_not_go_is_waited_for_until_a_second_signal(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--drain-seconds", "3600") as broker:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS_MAX) as client:
            client.sendall(HEADER)
            assert client.recv(1)
            deaf = come_in(broker, "guest", "guest")
            broker.process.send_signal(signal.SIGTERM)
            while client.recv(1 << 16):  # it is stopping: clients that have not logged in are not waited for
                continue
            with pytest.raises(subprocess.TimeoutExpired):
                broker.process.wait(0.5)
            broker.process.send_signal(signal.SIGINT)
            assert broker.process.wait(SECONDS_MAX) == 0
        assert "stopping at once" in broker.log
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            deaf.process_data_events(SECONDS_MAX)


def test_a_second_broker_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        messages = refused(tmp_path / "data").stderr
        assert f"is locked by warren log store, process {broker.process.pid}" in messages
        assert "hint: stop that one first" in messages


def test_a_port_in_use_is_refused_and_the_directory_released(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        messages = refused(tmp_path / "data", "--port", str(port)).stderr
        assert f"address 127.0.0.1:{port} is already in use" in messages
        messages = refused(tmp_path / "data", "--management-port", str(port)).stderr
        assert f"127.0.0.1:{port} is already in use" in messages
    with BrokerProcess(tmp_path / "data"):
        pass


def test_op_04_without_a_data_directory_the_store_must_be_named(tmp_path: Path) -> None:
    """OP-04; OP-03: the store is where --store-dir says."""
    line = [sys.executable, "-m", "warren.cli.main", "serve", "--no-data-dir"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 64
    assert "name one with --store-dir" in ended.stderr
    with BrokerProcess(tmp_path / "data", "--store-dir", str(tmp_path / "store"), "--catalog", "shop"):
        assert (tmp_path / "store" / "catalog" / "shop.sqlite").exists()  # OP-02
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "r.conf").write_text("heartbeat = soon")
    ended = refused(tmp_path / "data", "--config", str(tmp_path / "r.conf"))
    assert "r.conf:1: heartbeat: 'soon' is no number from 0 to 65535\n  hint: write digits only" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_failed_sync_ends_it_with_an_error(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.app.broker_on_a_failing_disk", str(tmp_path / "data")]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "log failed: nothing is confirmed any more" in ended.stderr
    assert "cannot sync" in ended.stderr
    with BrokerProcess(tmp_path / "data") as broker:
        come_in(broker, "guest", "guest").close()
