"""The load generators count exactly: all that was published was confirmed, all of it comes out once, and what is amiss
is seen. RabbitMQ, Redis and NATS are the brokers here."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tools.bench.generators import consume, nats, publish, redis, wire
from tools.bench.generators.batch import PublishBatch, SinglePublish, batch_count
from tools.bench.generators.confirms import ConfirmCounter
from tools.bench.generators.deliveries import Deliveries
from tools.bench.generators.line import BrokerConnection
from tools.bench.generators.order import HOST, BrokerFailed, LoadOrder, generated, generator, order_of
from tools.bench.generators.plug import Plug
from tools.bench.generators.redis import _ERROR
from tools.bench.peers import Peer, start_nats, start_redis
from warren.base.errors import DiskFailure

FRAME_BYTES_MAX = 4096


@pytest.fixture
def order(rabbitmq: Peer) -> Iterator[LoadOrder]:
    with BrokerConnection(rabbitmq.port) as line:
        line.declare("test")
    yield LoadOrder("publish", rabbitmq.port, queue="test")
    with BrokerConnection(rabbitmq.port) as line:
        line.delete("test")


def depth(order: LoadOrder) -> int:
    with BrokerConnection(order.port) as line:
        return line.depth(order.queue)


def at_once() -> None:
    """No waiting."""


@pytest.mark.parametrize(("count", "size", "window"), [(3000, 100, 1000), (7, 16, 1), (40, 300_000, 8)])
def test_what_was_published_was_confirmed_and_comes_out_once(
    order: LoadOrder, count: int, size: int, window: int
) -> None:
    readings = generated(order.but(count=count, size=size, window=window))
    assert readings["confirmed"] == count == depth(order)
    assert readings["rate"] == pytest.approx(count / readings["seconds"])
    assert generated(order.but(shape="drain", count=count))["received"] == count
    assert depth(order) == 0


def test_a_publisher_stops_when_its_time_is_up_and_all_is_confirmed(order: LoadOrder) -> None:
    readings = generated(order.but(seconds=0.2))
    assert readings["confirmed"] == depth(order) > 0 and readings["seconds"] >= 0.2


@pytest.mark.parametrize("how", [{"shape": "publish"}, {"shape": "paced", "rate": 2000.0}])
def test_a_consumer_follows_to_the_message_that_says_it_is_the_last(order: LoadOrder, how: dict[str, object]) -> None:
    with (
        generator(order.but(shape="follow")) as consumer,
        generator(order.but(seconds=0.3, marks_end=True, **how)) as publisher,
    ):
        consumer.go()
        readings, came = publisher.do(), consumer.readings()
    assert readings["confirmed"] == came["received"] > 1 and depth(order) == 0
    assert 0 < came["p50"] <= came["p99"]


def test_one_in_flight_is_measured_in_turns_with_the_bare_disk(order: LoadOrder, tmp_path: Path) -> None:
    readings = generated(order.but(shape="one_in_flight", window=1, count=120, bare=str(tmp_path / "bare")))
    assert readings["confirmed"] == 120 == depth(order)
    assert 0 < readings["p50"] <= readings["p99"] and 0 < readings["bare_p50"] <= readings["bare_p99"]
    assert "bare_p50" not in generated(order.but(shape="one_in_flight", window=1, count=10))


def test_many_connections_have_one_message_each(order: LoadOrder) -> None:
    readings = generated(order.but(shape="many", connections=7, seconds=0.2))
    assert readings["confirmed"] == depth(order) >= 7


def test_a_consumer_that_holds_its_messages_gives_them_back_when_it_is_killed(order: LoadOrder) -> None:
    generated(order.but(count=20))
    with generator(order.but(shape="hold", prefetch=5)) as holder:
        holder.go()
        assert generated(order.but(shape="first"))["delivered"] == 1


def test_a_message_that_is_missing_is_seen(order: LoadOrder) -> None:
    generated(order.but(count=10))
    with BrokerConnection(order.port) as line:
        line.consume(order.queue, 1)
        line.expect(wire.DELIVER)
        line.send(wire.ack(1))
    with pytest.raises(BrokerFailed, match="message 0 was due, 1 came"):
        consume.drain(order.but(count=9), at_once)


def test_a_message_that_comes_again_is_seen(order: LoadOrder) -> None:
    generated(order.but(count=10))
    generated(order.but(shape="first"))
    with pytest.raises(BrokerFailed, match="for the second time"):
        consume.drain(order.but(count=10), at_once)


def test_a_broker_s_refusal_is_reported_in_its_own_words(order: LoadOrder) -> None:
    with pytest.raises(BrokerFailed, match="404 NOT_FOUND - no queue 'nowhere'"):
        consume.drain(order.but(queue="nowhere", count=1), at_once)
    with pytest.raises(DiskFailure, match="ended early"):
        generated(order.but(queue="nowhere", shape="drain", count=1))


def test_a_publish_to_a_broker_that_is_not_there_fails() -> None:
    with pytest.raises(ConnectionRefusedError):
        publish.full_speed(LoadOrder("publish", 1), at_once)


def test_a_broker_that_was_held_resumes_where_it_stood(rabbitmq: Peer, order: LoadOrder) -> None:
    generated(order.but(count=1000))
    rabbitmq.pause()
    rabbitmq.resume()
    assert depth(order) == 1000
    assert generated(order.but(count=500))["confirmed"] == 500
    assert depth(order) == 1500


def test_an_id_of_redis_that_is_cut_is_no_error_and_an_error_is() -> None:
    assert not _ERROR.search(b"-211\r\n*2\r\n$1\r\nb\r\n")
    assert _ERROR.search(b"-ERR unknown command\r\n") and _ERROR.search(b"$3\r\n1-1\r\n-OOM no memory\r\n")


@pytest.mark.parametrize("synced", ["always", "everysec"])
def test_redis_has_every_entry_and_gives_each_once(tmp_path: Path, synced: str) -> None:
    with start_redis(tmp_path / "redis", synced) as peer:
        readings = generated(LoadOrder("redis_publish", peer.port, count=1000))
        assert readings["confirmed"] >= 1000
        count = int(readings["confirmed"])
        assert generated(LoadOrder("redis_drain", peer.port, count=count))["received"] == count
        redis.delete(peer.port, "bench")
        count = int(generated(LoadOrder("redis_publish", peer.port, count=1000))["confirmed"])
        assert generated(LoadOrder("redis_drain", peer.port, count=count))["received"] == count, "nothing was left"


def test_nats_has_every_message_and_gives_each_once(tmp_path: Path) -> None:
    with start_nats(tmp_path / "nats") as peer:
        readings = generated(LoadOrder("nats_publish", peer.port, count=1000))
        assert readings["confirmed"] >= 1000
        count = int(readings["confirmed"])
        assert generated(LoadOrder("nats_drain", peer.port, count=count))["received"] == count
        assert list(tmp_path.rglob("streams/bench"))
        nats.delete(peer.port, "bench")
        assert not list(tmp_path.rglob("streams/bench"))


def test_a_paced_publisher_sends_what_is_due_and_no_more(order: LoadOrder) -> None:
    assert generated(order.but(shape="paced", rate=2000.0, seconds=0.2))["confirmed"] == 400 == depth(order)


def test_an_order_is_read_as_it_was_written() -> None:
    order = LoadOrder("many", 5672, size=7, seconds=0.5, marks_end=True)
    assert order_of(order.as_argument()) == order


@pytest.mark.parametrize(
    ("size", "window", "count"), [(100, 1000, 128), (100, 4, 1), (65_536, 1000, 4), (16, 5000, 256)]
)
def test_batches_are_a_power_of_two_within_a_quarter_of_the_window(size: int, window: int, count: int) -> None:
    assert batch_count(LoadOrder("publish", 1, size=size, window=window)) == count


@pytest.mark.parametrize(("first", "count"), [(0, 4), (252, 4), (256, 4), (1 << 40, 4)])
def test_a_batch_is_numbered_and_stamped_like_single_messages(first: int, count: int) -> None:
    batch, single = PublishBatch("q", 40, count, FRAME_BYTES_MAX), SinglePublish("q", 40, FRAME_BYTES_MAX)
    batch.stamped(1 << 20, 99)
    expected = b"".join(bytes(single.stamped(number, 7)) for number in range(first, first + count))
    assert bytes(batch.stamped(first, 7)) == expected
    assert bytes(batch.stamped(first, 7, 2)) == expected[: len(expected) // 2]


def acked(tag: int, is_multiple: bool = False) -> bytes:
    return wire.method(wire.ACK, struct.pack(">QB", tag, is_multiple))


HEARTBEAT = wire.frame(wire.HEARTBEAT, b"", 0)


@pytest.mark.parametrize(
    "frames",
    [
        [acked(tag) for tag in range(1, 11)],
        [acked(10, True)],
        [acked(3), acked(1), acked(7, True), acked(9), acked(8), acked(10)],
        [acked(5, True), HEARTBEAT, acked(6), acked(4, True), acked(10, True)],
    ],
)
@pytest.mark.parametrize("step", [1, 20, 21, 50, 10_000])
def test_each_publish_is_confirmed_once_however_it_is_sent_and_cut(frames: list[bytes], step: int) -> None:
    confirms, received = ConfirmCounter(), b"".join(frames)
    confirms.send(10)
    for at in range(0, len(received), step):
        confirms.feed(received[at : at + step])
    assert (confirms.confirmed, confirms.open) == (10, 0)


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        (acked(3), "publish 3 was confirmed, and 2 were sent"),
        (acked(3, True), "publish 3 was confirmed, and 2 were sent"),
        (acked(1) + acked(1), "publish 1 was confirmed twice"),
        (wire.method(wire.NACK, struct.pack(">QB", 1, 0)), "nacked a publish"),
        (wire.method(wire.CHANNEL_CLOSE, struct.pack(">H", 404) + wire.short("gone") + bytes(4)), "404 gone"),
    ],
)
def test_a_confirm_that_cannot_be_is_seen(frames: bytes, match: str) -> None:
    confirms = ConfirmCounter()
    confirms.send(2)
    with pytest.raises(BrokerFailed, match=match):
        confirms.feed(frames)


def delivery(tag: int, number: int, size: int = 40) -> bytes:
    arguments = wire.short("bench") + struct.pack(">QB", tag, tag % 2) + wire.short("") + wire.short("q")
    body = struct.pack(">QQ", number, number * 1000) + b"x" * (size - 16)
    header = wire.frame(wire.HEADER, struct.pack(">HHQ", 60, 0, size) + wire.PERSISTENT)
    halves = [wire.frame(wire.BODY, part) for part in (body[:32], body[32:])]
    return wire.method(wire.DELIVER, arguments) + header + b"".join(halves)


@pytest.mark.parametrize("step", [1, 7, 100, 1000, 100_000])
def test_deliveries_are_found_however_they_are_cut_and_whatever_stands_between(step: int) -> None:
    sizes = [40] * 6 + [50] * 3 + [40] * 2
    wires = [delivery(at + 1, at + 100, size) for at, size in enumerate(sizes)]
    wires.insert(4, HEARTBEAT)
    received, deliveries = b"".join(wires), Deliveries()
    found = [some for at in range(0, len(received), step) for some in deliveries.feed(received[at : at + step])]
    tags = np.concatenate([some.tags for some in found]).tolist()
    assert tags == list(range(1, 12))
    assert np.concatenate([some.numbers for some in found]).tolist() == list(range(100, 111))
    assert np.concatenate([some.times_ns for some in found]).tolist() == [n * 1000 for n in range(100, 111)]
    assert np.concatenate([some.is_redelivered for some in found]).tolist() == [tag % 2 for tag in tags]


def test_a_client_times_out_on_a_silent_or_blocked_broker() -> None:
    with socket.create_server((HOST, 0)) as silent:
        plug = Plug(silent.getsockname()[1], silence_seconds_max=1)
        with pytest.raises(BrokerFailed, match="said nothing for 1 s"):
            plug.receive()
        with pytest.raises(BrokerFailed, match="took nothing for 1 s"):
            plug.send(bytes(64 << 20))
        plug.close()


def test_only_the_message_under_way_is_confirmed_the_short_way() -> None:
    confirms = ConfirmCounter()
    for tag in (1, 2, 3):
        confirms.send(1)
        confirms.feed(acked(tag))
        assert (confirms.confirmed, confirms.open) == (tag, 0)
    confirms.send(2)
    confirms.feed(acked(5))
    with pytest.raises(BrokerFailed, match="publish 5 was confirmed twice"):
        confirms.feed(acked(5))
