"""A client that closes its connection affects its own channels only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.loop_stage import LoopStage, serving
from tests.server.raw_client import RawClient
from warren.amqp import frames, methods
from warren.server.alarms import DISK

CLOSE = frames.method_frame(0, methods.ConnectionClose(200, "bye"))
BAD_FRAME = b"\x09\x00\x01\x00\x00\x00\x00\xce"
GET = frames.method_frame(2, methods.BasicGet(queue="other"))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LoopStage]:
    with serving(tmp_path) as stage:
        yield stage


def consuming(stage: LoopStage) -> RawClient:
    """Channel 1 is the last consumer of a queue and holds a message unacknowledged; channel 2 is open."""
    client = RawClient(stage.port).log_in().channel(1).channel(2)
    client.declare("jobs")
    client.declare("other")
    client.publish(1, "jobs", b"held")
    client.send_method(1, methods.BasicConsume(queue="jobs"))
    client.expect(methods.BasicConsumeOk)
    client.expect(methods.BasicDeliver)
    return client


@pytest.mark.parametrize("ending", [CLOSE, BAD_FRAME], ids=["close", "bad frame"])
def test_a_get_and_a_close_in_one_segment_leave_other_clients_alone(stage: LoopStage, ending: bytes) -> None:
    """Issue 12, number 2: the reply to the get raised inside the batch, while channel 1 was torn down."""
    with RawClient(stage.port).log_in().channel(confirms=True) as publisher:
        with consuming(stage) as client:
            with stage.paused():
                publisher.publish(1, "other", b"1", b"2")
                client.send(GET + ending)
            assert publisher.expect(methods.BasicAck).delivery_tag == 2
            assert client.is_closed()
        stage.wait_until(lambda: len(stage.server.connections) == 1)
        stage.wait_until(lambda: stage.length("jobs") == (1, 0))
        stage.wait_until(lambda: stage.length("other") == (2, 0))
        assert stage.server.counts.connections_opened - stage.server.counts.connections_closed == 1


def test_a_callback_that_raises_ends_its_own_client_only(stage: LoopStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to a get fails for a reason of its own: the others in the batch are served."""
    with RawClient(stage.port).log_in().channel(confirms=True) as publisher, consuming(stage) as client:

        def broken(*given: object) -> list[bytes]:
            raise ValueError("no frames")

        monkeypatch.setattr("warren.server.handlers.basic.contents_of", broken)
        with stage.paused():
            publisher.publish(1, "other", b"1")
            client.send(GET)
        assert publisher.expect(methods.BasicAck).delivery_tag == 1
        assert client.expect(methods.ConnectionClose).reply_code == 541
        stage.wait_until(lambda: stage.length("jobs") == (1, 0))
        stage.wait_until(lambda: stage.length("other") == (1, 0))


def test_a_delivery_that_raises_ends_its_own_client_only(stage: LoopStage, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawClient(stage.port).log_in().channel(confirms=True) as publisher, consuming(stage) as client:

        def broken(*given: object) -> bytes:
            raise ValueError("no frames")

        monkeypatch.setattr("warren.server.consumer.emit_deliveries", broken)
        publisher.publish(1, "jobs", b"1")
        assert publisher.expect(methods.BasicAck).delivery_tag == 1
        assert client.expect(methods.ConnectionClose).reply_code == 541
        stage.wait_until(lambda: stage.length("jobs") == (2, 0))


def test_an_alarm_reaches_clients_behind_one_that_is_closing(stage: LoopStage) -> None:
    """`connection.blocked` may not be sent to a connection that is closing."""
    with (
        RawClient(stage.port).log_in(connection__blocked=True) as closing,
        RawClient(stage.port).log_in(connection__blocked=True) as other,
    ):
        closing.send(BAD_FRAME)
        closing.expect(methods.ConnectionClose)
        stage.call(lambda: stage.server.pressure.set(DISK, True))
        other.expect(methods.ConnectionBlocked)
        stage.call(lambda: stage.server.pressure.set(DISK, False))
        other.expect(methods.ConnectionUnblocked)
