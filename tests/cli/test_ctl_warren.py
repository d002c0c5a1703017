"""`warren ctl` against a running Warren, and through the files of a stopped one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.cli.ask_rabbitmqctl import declare_some
from tests.cli.ctl_lines import LINES, LISTS
from tests.cli.ctl_stage import CtlStage
from tests.server.broker_process import BrokerProcess

NODE = f"warren@{os.uname().nodename.partition('.')[0]}"
POLL_SECONDS_MAX = 20.0

NOT_OFFERED = {"trace_on", "trace_off"}  # there is no firehose


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--log-file", str(tmp_path / "events.log")) as process:
        yield process


@pytest.fixture
def ctl(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CtlStage:
    return CtlStage(capsys, monkeypatch, ["--data-dir", broker.directory], str(tmp_path), NODE, broker.port)


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + POLL_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def connected(broker: BrokerProcess, **parameters: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters))


def test_every_line_is_answered_as_by_rabbitmqctl(broker: BrokerProcess, ctl: CtlStage) -> None:
    first = LINES.index(LISTS[0])
    differences = ctl.differences(line for line in LINES[:first] if line.verb not in NOT_OFFERED)
    declare_some(broker.port)
    differences += ctl.differences(line for line in LINES[first:] if line.verb not in NOT_OFFERED)
    assert not differences, "\n".join(differences)


def test_status_shows_the_process_and_its_listeners(broker: BrokerProcess, ctl: CtlStage) -> None:
    status = json.loads(ctl.run("status", "--json").out)
    assert (status["pid"], status["data_directory"]) == (broker.process.pid, broker.directory)
    assert {each["port"] for each in status["listeners"]} >= {broker.port, broker.management_port}
    text = ctl.run("status").out
    assert f"OS PID: {broker.process.pid}\n" in text and "Virtual host count: 1\n" in text
    assert ctl.run("check_port_connectivity").code == 0
    assert "list_queues" not in text and "Listing queues for vhost /" in ctl.run("report").out


def test_a_password_is_checked_without_an_http_login(ctl: CtlStage) -> None:
    assert ctl.run("authenticate_user", "guest", "guest").out.endswith("Success\n")
    refused = ctl.run("authenticate_user", "guest", "wrong")
    assert (refused.code, "invalid credentials" in refused.err) == (65, True)
    assert ctl.run("authenticate_user", "guest", typed="guest\n").code == 0


def test_the_environment_shows_options_and_no_secret(ctl: CtlStage) -> None:
    shown = json.loads(ctl.run("environment", "--json").out)
    assert shown["First user"]["default_user"] == "guest"
    assert shown["First user"]["default_pass"] == "(secret)"
    assert shown["AMQP server"]["heartbeat"] == "60"


# -- start and stop -----------------------------------------------------------------------------------------------


def test_stop_ends_the_process_in_order(broker: BrokerProcess, ctl: CtlStage) -> None:
    assert ctl.run("stop").code == 0
    assert broker.process.wait(POLL_SECONDS_MAX) == 0
    assert ctl.run("ping").code == 69
    assert ctl.run("stop").code == 69
    assert ctl.run("stop", "--idempotent").code == 0


def test_stop_app_closes_clients_and_start_app_accepts_them_again(broker: BrokerProcess, ctl: CtlStage) -> None:
    connection = connected(broker)
    connection.channel().queue_declare("kept", durable=True)
    assert ctl.run("stop_app").code == 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(POLL_SECONDS_MAX)
    assert closed.value.reply_code == 320
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connected(broker)
    assert ctl.run("ping").code == 0
    assert ctl.run("check_running").code == 69
    assert ctl.run("check_protocol_listener", "amqp").code == 69
    assert ctl.run("start_app").code == 0
    assert ctl.run("check_running").code == 0
    with connected(broker) as again:
        again.channel().queue_declare("kept", passive=True)


def test_a_suspended_broker_stops_in_order(broker: BrokerProcess, ctl: CtlStage) -> None:
    ctl.run("stop_app")
    assert ctl.run("stop").code == 0
    assert broker.process.wait(POLL_SECONDS_MAX) == 0


def test_wait_returns_when_the_process_of_the_pid_file_accepts_clients(
    broker: BrokerProcess, ctl: CtlStage, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    file.write_text(f"{broker.process.pid}\n")
    assert ctl.run("wait", str(file)).code == 0
    assert ctl.run("wait", "--pid", str(broker.process.pid)).code == 0
    ctl.run("stop")
    ended = ctl.run("wait", str(file), "--timeout", "30")
    assert (ended.code, "is not running" in ended.err) == (69, True)
    assert ctl.run("await_startup", "--timeout", "1").code == 75


# -- settings of the running broker ---------------------------------------------------------------------------------


def test_a_memory_limit_blocks_publishers_until_it_is_raised(broker: BrokerProcess, ctl: CtlStage) -> None:
    blocked: list[str] = []
    connection = connected(broker)
    connection.add_on_connection_blocked_callback(lambda _, method: blocked.append(method.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, method: blocked.append("unblocked"))
    assert ctl.run("set_vm_memory_high_watermark", "0.000001").code == 0
    alarms = ctl.run("check_local_alarms")
    assert (alarms.code, alarms.err) == (69, f"Error:\nMemory alarm on node {NODE}\n")
    assert "Memory alarm" in ctl.run("status").out
    until(lambda: connection.process_data_events(0) or blocked == ["low on memory"])
    assert ctl.run("set_vm_memory_high_watermark", "absolute", "64GB").code == 0
    assert ctl.run("check_local_alarms").code == 0
    assert json.loads(ctl.run("status", "--json").out)["vm_memory_high_watermark_limit"] == 64_000_000_000
    until(lambda: connection.process_data_events(0) or blocked == ["low on memory", "unblocked"])
    connection.close()


def test_a_disk_limit_blocks_publishers_until_it_is_lowered(broker: BrokerProcess, ctl: CtlStage) -> None:
    assert ctl.run("set_disk_free_limit", "900TB").code == 0
    until(lambda: ctl.run("check_alarms").code == 69)
    assert json.loads(ctl.run("status", "--json").out)["disk_free_limit"] == 900 * 10**12
    assert ctl.run("set_disk_free_limit", "1MB").code == 0
    assert ctl.run("check_alarms").code == 0


def test_limits_last_until_the_next_start(broker: BrokerProcess, ctl: CtlStage) -> None:
    ctl.run("set_disk_free_limit", "900TB")
    ctl.run("set_vm_memory_high_watermark", "0")
    broker.kill()
    broker.start()
    assert ctl.run("check_alarms").code == 0
    assert json.loads(ctl.run("status", "--json").out)["disk_free_limit"] == 50_000_000


def test_the_log_level_changes_and_a_moved_log_is_created_again(
    broker: BrokerProcess, ctl: CtlStage, tmp_path: Path
) -> None:
    log, moved = tmp_path / "events.log", tmp_path / "events.log.1"
    assert ctl.run("set_log_level", "critical").code == 0
    log.rename(moved)
    assert ctl.run("rotate_logs").code == 0
    assert log.exists()
    ctl.run("authenticate_user", "guest", "wrong")  # an error
    assert "login refused" not in log.read_text()
    assert ctl.run("set_log_level", "connection", "debug").code == 0
    assert ctl.run("set_log_level", "info").code == 0
    ctl.run("authenticate_user", "guest", "wrong")
    assert "login refused" in log.read_text()
    assert ctl.run("set_log_level", "no such", "info").code == 69


# -- a stopped broker -----------------------------------------------------------------------------------------------


def test_the_files_of_a_stopped_broker_are_used_and_it_starts_again(broker: BrokerProcess, ctl: CtlStage) -> None:
    assert broker.stop() == 0
    vhosts = ctl.run("list_vhosts", "--formatter", "json")
    assert (vhosts.code, json.loads(vhosts.out)) == (0, [{"name": "/"}])
    assert "is not running: using its files" in vhosts.err
    assert ctl.run("authenticate_user", "guest", "guest").code == 0
    assert ctl.run("list_queues").code == 69
    broker.start()
    assert ctl.run("list_vhosts").err == ""


def test_files_are_not_used_while_a_process_that_does_not_answer_has_them_open(
    broker: BrokerProcess, ctl: CtlStage
) -> None:
    Path(broker.directory, "warren.sock").unlink()
    refused = ctl.run("list_vhosts")
    assert refused.code == 69
    assert "locked by" in refused.err


def test_a_directory_without_a_store_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = CtlStage(capsys, monkeypatch, ["--data-dir", str(tmp_path)], str(tmp_path))
    refused = stage.run("list_vhosts")
    assert (refused.code, "no broker is running" in refused.err) == (69, True)
    assert list(tmp_path.iterdir()) == []
