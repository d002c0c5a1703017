"""`warren status` and `warren doctor`, of a running broker, a stopped one, a killed one and none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import Ended, run
from tests.server.broker_process import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def findings(ended: Ended) -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in ended.json["findings"]}


def test_status_is_one_page_or_one_object(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    page = run(capsys, "status", "--data-dir", broker.directory)
    assert page.code == 0
    assert f"amqp 127.0.0.1:{broker.port}" in page.out and "0 connections, 0 queues, 1 virtual hosts" in page.out
    shown = run(capsys, "status", "--data-dir", broker.directory, "--json").json
    assert (shown["pid"], shown["state"], shown["alarms"]) == (broker.process.pid, "running", [])
    broker.stop()
    ended = run(capsys, "status", "--data-dir", broker.directory)
    assert (ended.code, ended.out, "no broker is running" in ended.err) == (69, "", True)


def test_the_doctor_finds_nothing_wrong_with_a_good_broker(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run(capsys, "doctor", "--data-dir", broker.directory, "--json")
    assert (ended.code, ended.json["is_good"]) == (0, True)
    assert findings(ended)["broker"] == "ok" and findings(ended)["port"] == "ok"
    assert run(capsys, "doctor", "--data-dir", broker.directory).out.count("answers at") == 3


def test_the_doctor_names_what_is_wrong_and_what_to_do(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(broker.directory).chmod(0o755)
    run(capsys, "ctl", "--data-dir", broker.directory, "set_vm_memory_high_watermark", "0")
    run(capsys, "ctl", "--data-dir", broker.directory, "stop_app")
    ended = run(capsys, "doctor", "--data-dir", broker.directory, "--json")
    assert ended.code == 1
    wrong = {each["check"]: each["hint"] for each in ended.json["findings"] if each["verdict"] == "PROBLEM"}
    assert wrong.keys() == {"permissions", "alarm", "clients"}
    assert wrong["permissions"] == f"chmod 700 {broker.directory}"


def test_the_doctor_knows_how_a_broker_ended(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    broker.kill()
    killed = run(capsys, "doctor", "--data-dir", broker.directory, "--json")
    assert (killed.code, findings(killed)["last stop"], findings(killed)["lock"]) == (0, "note", "ok")
    broker.start()
    broker.stop()
    stopped = run(capsys, "doctor", "--data-dir", broker.directory, "--json")
    assert (stopped.code, findings(stopped)["last stop"]) == (0, "ok")


def test_the_doctor_sees_a_process_that_has_the_directory_open_and_does_not_answer(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(broker.directory, "warren.sock").unlink()
    ended = run(capsys, "doctor", "--data-dir", broker.directory)
    assert ended.code == 1
    assert f"process {broker.process.pid} has the directory open" in ended.out


def test_the_doctor_creates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = run(capsys, "doctor", "--data-dir", tmp_path / "none")
    assert (ended.code, "does not exist" in ended.out) == (1, True)
    tmp_path.chmod(0o700)
    assert run(capsys, "doctor", "--data-dir", tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []
