"""A flipped bit inside a file of the safe snapshot store, under a real broker: the log has everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import run
from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.snapshot.rocksdb.verify import verify_store

MESSAGES = 2000  # each a run of its own, so that their rows fill several blocks


def fill(broker: BrokerProcess) -> None:
    client = RawClient(broker.port).log_in().channel(confirms=True)
    client.declare("a", durable=True)
    client.declare("b", durable=True)
    client.send_method(1, methods.ExchangeDeclare(exchange="both", type="fanout", durable=True))
    client.expect(methods.ExchangeDeclareOk)
    for queue in ("a", "b"):
        client.send_method(1, methods.QueueBind(queue=queue, exchange="both"))
        client.expect(methods.QueueBindOk)
    for number in range(MESSAGES):
        client.publish(1, "a", b"%08d" % number)
        client.expect(methods.BasicAck)
    client.socket.close()


def flip_a_bit(store: Path) -> Path:
    """In the middle of its largest file: among rows of the queue."""
    table = max(store.glob("*.sst"), key=lambda path: path.stat().st_size)
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2] ^= 1
    table.write_bytes(raw)
    return table


def test_the_queue_is_down_once_and_whole_after_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        fill(broker)
    flip_a_bit(data / "store")
    with BrokerProcess(data) as broker:
        client = RawClient(broker.port).log_in().channel(confirms=True)
        client.publish(1, "", b"for both", exchange="both")
        client.expect(methods.BasicNack)  # one of the two has not got it
        client.send_method(1, methods.QueueDeclare(queue="a", passive=True))
        answer = client.expect(methods.ChannelClose)
        assert answer.reply_code == 404 and "queue 'a' is down: cannot read the snapshot store" in answer.reply_text
        other = RawClient(broker.port).log_in().channel()
        assert other.declare("b", passive=True).message_count == 1, "other queues get their copies"
        client.socket.close()
        other.socket.close()
        assert "Traceback" not in broker.log
    with BrokerProcess(data) as broker:
        assert "the safe snapshot store was set aside and is rebuilt" in broker.log
        client = RawClient(broker.port).log_in().channel()
        assert client.declare("a", passive=True).message_count == MESSAGES
        client.send_method(1, methods.BasicConsume(queue="a", no_ack=True))
        client.expect(methods.BasicConsumeOk)
        assert [client.body() for _ in range(MESSAGES)] == [b"%08d" % number for number in range(MESSAGES)]
        client.socket.close()
    assert verify_store(str(data / "store")).damage is None
    assert not (data / "store.damaged").exists()


def test_verify_names_the_damaged_file_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        fill(broker)
        assert run(capsys, "log", "verify", data / "log").code == 0, "beside its owner"
    assert "every block of the safe snapshot store is whole" in run(capsys, "log", "verify", data / "log").out
    table = flip_a_bit(data / "store")
    answer = run(capsys, "log", "verify", data / "log")
    assert answer.code == 16
    assert f"damaged: {table} at byte" in answer.out
