"""Clients that come and go with a reply queue each: the log is not rotated for queues that hold nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.load import client_of
from warren.amqp import methods

pytestmark = pytest.mark.slow
CLIENTS = 50


def test_reply_queues_that_come_and_go_do_not_rotate_the_log(tmp_path: Path) -> None:
    """500 clients used to fill a history of 1 GiB: each deleted queue sealed files of 2 MiB."""
    with BrokerProcess(tmp_path / "data") as broker:
        for number in range(CLIENTS):
            with client_of(broker) as client:
                client.declare(f"reply.{number}", exclusive=True)
                client.publish(1, f"reply.{number}", b"answer")
                client.send_method(1, methods.BasicGet(queue=f"reply.{number}", no_ack=True))
                client.expect(methods.BasicGetOk)
                client.send_method(1, methods.QueueDelete(queue=f"reply.{number}"))
                client.expect(methods.QueueDeleteOk)
        assert not list((tmp_path / "data" / "log").glob("pwal_*.*")), "a file was sealed"
