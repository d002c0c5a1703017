"""Where continuing is unsafe the process ends: the commit, and the way of a confirm."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.stage import DEFECT, SECONDS_MAX
from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import Closed, RawClient
from warren.amqp import methods

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", ["witness", "lead", "wait", "confirm", "watching"])
def test_a_process_that_cannot_confirm_safely_ends_with_an_error_and_loses_nothing(what: str, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.chaos.broker_to_break", str(tmp_path / "data"), what]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = 0
        while not (reported := process.stdout.readline()).startswith("ready"):
            assert reported, process.stderr and process.stderr.read()
            if reported.startswith("amqp"):
                port = int(reported.rpartition(":")[2])
        confirmed = _published_until_the_end(port)
        _, log = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode not in (0, None), log
    assert DEFECT in log and "Traceback" in log
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.port).log_in().channel() as client:
        client.send_method(1, methods.QueueDeclare(queue="q", durable=True, passive=bool(confirmed)))
        assert client.expect(methods.QueueDeclareOk).message_count >= confirmed


def _published_until_the_end(port: int) -> int:
    """How many were confirmed before the broker had gone. Half of them are acknowledged behind a get, without a
    waiter: the background thread commits that."""
    confirmed = 0
    with suppress(Closed, ConnectionError, TimeoutError, AssertionError), RawClient(port) as client:
        client.log_in().channel(confirms=True)
        client.send_method(1, methods.QueueDeclare(queue="q", durable=True))
        client.expect(methods.QueueDeclareOk)
        client.send_method(1, methods.QueueDeclare(queue="got", durable=True))
        client.expect(methods.QueueDeclareOk)
        while True:
            client.publish(1, "q", b"kept")
            client.expect(methods.BasicAck)
            confirmed += 1
            client.publish(1, "got", b"taken")
            client.expect(methods.BasicAck)
            client.send_method(1, methods.BasicGet(queue="got", no_ack=True))
            client.expect(methods.BasicGetOk)
    return confirmed
