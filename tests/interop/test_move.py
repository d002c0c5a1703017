"""`warren move` between a real RabbitMQ and Warren, both ways: what arrives, and what is left when something is killed.

The command is a process of its own, as users run it. Messages are compared by the bytes of their content headers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.interop import brokers
from tests.interop.brokers import RABBITMQ, WARREN
from tests.server.broker_process import BrokerProcess
from tools.bench import peers
from warren.amqp import content, frames, methods, types
from warren.amqp.content import Properties
from warren.cli.move_client import open_client, parse_uri
from warren.cli.move_transfer import ConfirmWindow, MovedQueue

pytestmark = pytest.mark.slow

SECONDS_MAX = 120.0
WAIT_SECONDS_MAX = 60.0
MOVED = "x-warren-moved"
BOTH_DIRECTIONS = [(RABBITMQ, WARREN), (WARREN, RABBITMQ)]


@dataclass(frozen=True, slots=True)
class MovableBroker:
    """A broker that can be killed, and started again on the same port."""

    name: str
    port: int
    directory: Path
    kill: Callable[[], None]
    start: Callable[[], None]
    pause: Callable[[], None] = lambda: None
    resume: Callable[[], None] = lambda: None
    management_port: int = 0

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def connect(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self.uri))

    def declare(self, queue: str, **arguments: Any) -> str:
        with self.connect() as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)
        return queue

    def wait_for_durable(self, queue: str) -> None:
        """RabbitMQ answers a declare before Mnesia writes it: kill -9 within two seconds or so loses the queue."""
        if self.name == RABBITMQ:
            logs = [self.directory / "LATEST.LOG", self.directory / "rabbit_durable_queue.DCL"]
            wait_for(lambda: any(queue.encode() in log.read_bytes() for log in logs if log.exists()))

    def fill(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.declare(queue)
        asyncio.run(publish_raw(self.uri, queue, [(Properties(delivery_mode=2), body) for body in bodies]))

    def length(self, queue: str) -> int:
        with self.connect() as connection:
            count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
            return count

    def read(self, queue: str) -> list[tuple[bytes, Any]]:
        """All bodies and headers, in order; the queue is empty then."""
        found = []
        with self.connect() as connection:
            channel = connection.channel()
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found.append((got[2], got[1].headers))
        return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MovableBroker]]:
    if RABBITMQ in brokers.missing():
        pytest.skip(brokers.missing()[RABBITMQ])
    with (
        peers.start_rabbitmq(tmp_path_factory.mktemp(RABBITMQ)) as rabbitmq,
        BrokerProcess(tmp_path_factory.mktemp(WARREN) / "data") as warren,
    ):
        (mnesia,) = (path.parent for path in rabbitmq.directory.glob("mnesia/*/LATEST.LOG"))
        yield {
            RABBITMQ: MovableBroker(
                RABBITMQ, rabbitmq.port, mnesia, rabbitmq.kill, rabbitmq.start, rabbitmq.pause, rabbitmq.resume
            ),
            WARREN: MovableBroker(
                WARREN,
                warren.port,
                Path(warren.directory),
                warren.kill,
                warren.start,
                lambda: warren.process.send_signal(signal.SIGSTOP),
                lambda: warren.process.send_signal(signal.SIGCONT),
                warren.management_port,
            ),
        }


@pytest.fixture(params=BOTH_DIRECTIONS, ids=" to ".join)
def direction(request: pytest.FixtureRequest, pair: dict[str, MovableBroker]) -> tuple[MovableBroker, MovableBroker]:
    source, target = request.param
    return pair[source], pair[target]


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return f"move {os.urandom(6).hex()}"


def start_move(source: MovableBroker, target: MovableBroker, *arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "warren.cli.main", "move", "--json", "--from", source.uri, "--to", target.uri]
    return subprocess.Popen([*line, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@dataclass(frozen=True, slots=True)
class MoveResult:
    code: int
    report: Any
    err: str


def ended(process: subprocess.Popen[str]) -> MoveResult:
    out, err = process.communicate(timeout=SECONDS_MAX)
    return MoveResult(process.returncode, json.loads(out) if out else None, err)


def move(source: MovableBroker, target: MovableBroker, *arguments: str) -> MoveResult:
    return ended(start_move(source, target, *arguments))


def wait_for(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------------------- what arrives

EVERY_TYPE = {
    "bool": True,
    "i8": types.Byte(-3),
    "u8": types.UnsignedByte(200),
    "i16": types.Short(-300),
    "u16": types.UnsignedShort(60_000),
    "i32": 7,
    "u32": types.UnsignedInt(4_000_000_000),
    "i64": types.Long(7),
    "f32": types.Float(0.5),
    "f64": 0.1,
    "decimal": Decimal("12.34"),
    "time": types.Timestamp(1_700_000_000),
    "text": "grüße <b>\n%2F",
    "raw": types.RawString(b"\xff\xfe"),
    "bytes": b"\x00\x01",
    "none": None,
    "array": [1, "two", [3.0]],
    "table": {"x-death": [{"count": types.Long(2), "queue": "q"}]},
}
EVERY_PROPERTY = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers=EVERY_TYPE,
    delivery_mode=2,
    priority=5,
    correlation_id="c",
    reply_to="r",
    expiration="86400000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="",
)
MESSAGES = [
    (EVERY_PROPERTY, b"whole"),
    (Properties(), b""),
    (Properties(headers={}), b"\x00" * 1_000),
    (Properties(delivery_mode=1), b"transient"),
    (Properties(delivery_mode=2), os.urandom(700_000)),
]


async def publish_raw(uri: str, queue: str, messages: Sequence[tuple[Properties, bytes]]) -> None:
    """Returns when all of them are confirmed."""
    client = await open_client(parse_uri("source", uri))
    await client.call(1, methods.ChannelOpen(), methods.ChannelOpenOk)
    await client.call(1, methods.ConfirmSelect(), methods.ConfirmSelectOk)
    for properties, body in messages:
        client.send(frames.method_frame(1, methods.BasicPublish(routing_key=queue)))
        client.send(content.write_content(properties, body, 1, client.frame_max))
    window = ConfirmWindow()
    for _ in messages:
        window.add(MovedQueue(queue, queue), False)
    while not window.is_empty:
        for received in await client.receive():
            assert isinstance(received.method, methods.BasicAck), received.method
            window.confirm(received.method.delivery_tag, received.method.multiple)
    await client.close()


async def get_raw(uri: str, queue: str, is_ack: bool = False) -> list[tuple[bytes, bytes]]:
    """Content headers and bodies, as they are on the wire; they return to the queue unless they are acknowledged."""
    client = await open_client(parse_uri("source", uri))
    await client.call(1, methods.ChannelOpen(), methods.ChannelOpenOk)
    found: list[tuple[bytes, bytes]] = []
    while True:
        client.send(frames.method_frame(1, methods.BasicGet(queue=queue, no_ack=is_ack)))
        received = await client.receive()
        while not any(isinstance(each.method, methods.BasicGetOk | methods.BasicGetEmpty) for each in received):
            received = await client.receive()
        if isinstance(received[0].method, methods.BasicGetEmpty):
            await client.close()
            return found
        found.append((received[0].header, received[0].body))


def test_properties_headers_and_bodies_of_every_kind_arrive_byte_for_byte(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    source.declare(queue)
    asyncio.run(publish_raw(source.uri, queue, MESSAGES))
    first = move(source, target, "--declare", queue)
    assert (first.code, first.report["moved"], first.report["possible_repeats"]) == (0, len(MESSAGES), 0), first.err
    arrived = asyncio.run(get_raw(target.uri, queue, is_ack=True))
    expected = [
        (content.HEADER_HEAD.pack(content.BASIC, 0, len(body)) + content.write_properties(properties), body)
        for properties, body in MESSAGES
    ]
    assert arrived == expected
    assert source.length(queue) == 0


def test_ten_thousand_messages_keep_their_order(direction: tuple[MovableBroker, MovableBroker], queue: str) -> None:
    source, target = direction
    bodies = [b"message %d" % number for number in range(10_000)]
    source.fill(queue, bodies)
    result = move(source, target, "--declare", queue)
    assert result.code == 0, result.err
    assert result.report["queues"] == [{"queue": queue, "target": queue, "moved": 10_000, "possible_repeats": 0}]
    assert [body for body, _ in target.read(queue)] == bodies
    assert source.length(queue) == 0


def test_a_message_with_further_routing_keys_arrives_in_its_queue_only(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    other = target.declare(f"{queue} other")
    source.declare(queue)
    message = (Properties(headers={"CC": [other]}, delivery_mode=2), b"copied once")
    asyncio.run(publish_raw(source.uri, queue, [message] * 3))
    assert move(source, target, "--declare", queue).code == 0
    assert target.read(queue) == [(b"copied once", {"CC": [other]})] * 3
    assert target.length(other) == 0


def test_a_queue_gets_another_name(pair: dict[str, MovableBroker], queue: str) -> None:
    broker = pair[WARREN]
    old, new = f"{queue}=old", broker.declare(f"{queue}=new")
    broker.fill(old, [b"a", b"b"])
    refused = move(broker, broker, old)
    assert refused.code == 64 and "would be moved to itself" in refused.err
    result = move(broker, broker, "--rename", f"{old}={new}", old)
    assert result.report["queues"] == [{"queue": old, "target": new, "moved": 2, "possible_repeats": 0}]
    assert [body for body, _ in broker.read(new)] == [b"a", b"b"]


def test_all_queues_of_a_vhost_are_listed_by_the_management_api(pair: dict[str, MovableBroker], queue: str) -> None:
    source, target = pair[WARREN], pair[RABBITMQ]
    names = [f"{queue} <1>/%2F", f"{queue} 2"]
    for name in names:
        source.fill(name, [name.encode()])
    url = f"http://guest:guest@127.0.0.1:{source.management_port}"
    result = move(source, target, "--all", "--from-management", url, "--declare")
    assert result.code == 0, result.err
    moved = {row["queue"]: row["moved"] for row in result.report["queues"]}
    assert [moved[name] for name in names] == [1, 1]
    assert [target.read(name)[0][0] for name in names] == [name.encode() for name in names]


def test_followed_queues_are_moved_until_a_signal(direction: tuple[MovableBroker, MovableBroker], queue: str) -> None:
    source, target = direction
    names = [source.declare(target.declare(f"{queue} {number}")) for number in range(3)]
    process = start_move(source, target, "--follow", *names)
    for round_number in range(2):
        for name in names:
            source.fill(name, [b"%d" % round_number])
        wait_for(lambda count=round_number + 1: all(target.length(name) == count for name in names))  # type: ignore[misc]
    process.send_signal(signal.SIGTERM)
    result = ended(process)
    assert (result.code, result.report["moved"], result.report["possible_repeats"]) == (0, 6, 0), result.err
    assert [[body for body, _ in target.read(name)] for name in names] == [[b"0", b"1"]] * 3
    assert [source.length(name) for name in names] == [0, 0, 0]


# ------------------------------------------------------------------------------------------------- killed somewhere


def assert_all_arrived(bodies: Sequence[bytes], arrived: Sequence[tuple[bytes, Any]], queue: str) -> int:
    """Nothing is lost; of each message one copy at most is without the mark, and first copies are in order. The number
    of marked messages."""
    assert {body for body, _ in arrived} == set(bodies)
    plain = [body for body, headers in arrived if not headers]
    assert len(plain) == len(set(plain)), "a repeat is not marked"
    assert list(dict.fromkeys(body for body, _ in arrived)) == list(bodies)
    marks = [headers for _, headers in arrived if headers]
    assert all(headers == {MOVED: {"queue": queue, "redelivered": True}} for headers in marks)
    return len(marks)


def test_the_command_killed_at_random_moments_loses_nothing(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    bodies = [b"message %d" % number for number in range(10_000)]
    source.fill(queue, bodies)
    target.declare(queue)
    chance = random.Random(queue)
    kills = 0
    while kills < 5:
        process = start_move(source, target, "--prefetch", "100", queue)
        before = target.length(queue)
        wait_for(lambda process=process, before=before: target.length(queue) > before or process.poll() is not None)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.1))  # the moment of the kill, not a wait
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
    assert kills >= 1, "every run was quicker than its kill"
    last = move(source, target, queue)
    assert last.code == 0, last.err
    marked = assert_all_arrived(bodies, target.read(queue), queue)
    assert marked >= last.report["possible_repeats"]
    assert source.length(queue) == 0


@pytest.mark.parametrize("killed", ["source", "target"])
def test_a_broker_killed_in_the_middle_loses_nothing(
    direction: tuple[MovableBroker, MovableBroker], queue: str, killed: str
) -> None:
    source, target = direction
    bodies = [b"message %d" % number for number in range(10_000)]
    source.fill(queue, bodies)
    target.declare(queue)
    for each in direction:
        each.wait_for_durable(queue)
    process = start_move(source, target, "--prefetch", "100", queue)
    wait_for(lambda: target.length(queue) > 300)
    broker = source if killed == "source" else target
    broker.kill()
    broker.start()
    result = ended(process)
    assert result.code == 0, result.err
    assert "next attempt" in result.err, "it was over before the kill"
    marked = assert_all_arrived(bodies, target.read(queue), queue)
    assert result.report["possible_repeats"] == marked
    assert source.length(queue) == 0


def test_a_target_that_hangs_ends_the_move_and_loses_nothing(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    bodies = [b"message %d" % number for number in range(10_000)]
    source.fill(queue, bodies)
    target.declare(queue)
    process = start_move(source, target, "--prefetch", "100", "--retry-seconds", "2", queue)
    wait_for(lambda: target.length(queue) > 300)
    target.pause()
    try:
        result = ended(process)
    finally:
        target.resume()
    assert result.code == 69 and "has confirmed nothing for 2 seconds" in result.err
    assert 0 < result.report["moved"] < len(bodies)
    again = move(source, target, queue)
    assert again.code == 0, again.err
    marked = assert_all_arrived(bodies, target.read(queue), queue)
    assert again.report["possible_repeats"] == marked


def test_messages_that_another_consumer_gets_end_the_move(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    with source.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-single-active-consumer": True})
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", queue, b"")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, lambda *_: None)
        result = move(source, target, "--declare", "--retry-seconds", "1", queue)
    assert result.code == 69 and "has delivered nothing for 1 seconds" in result.err, result.err
    assert target.length(queue) == 0


# ---------------------------------------------------------------------------------------------------------- refused


def test_a_target_queue_that_is_deleted_ends_the_move_and_nothing_is_acknowledged(
    direction: tuple[MovableBroker, MovableBroker], queue: str
) -> None:
    source, target = direction
    source.declare(target.declare(queue))
    process = start_move(source, target, "--follow", queue)
    source.fill(queue, [b"moved"])
    wait_for(lambda: target.length(queue) == 1)
    with target.connect() as connection:
        connection.channel().queue_delete(queue)
    source.fill(queue, [b"first", b"second"])
    result = ended(process)
    assert (result.code, result.report["moved"]) == (64, 1)
    assert f"has no queue '{queue}'" in result.err
    wait_for(lambda: source.length(queue) == 2)
    assert [body for body, _ in source.read(queue)] == [b"first", b"second"]


def test_a_full_target_queue_ends_the_move(direction: tuple[MovableBroker, MovableBroker], queue: str) -> None:
    source, target = direction
    with target.connect() as connection:
        limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
        connection.channel().queue_declare(queue, durable=True, arguments=limits)
    source.fill(queue, [b"%d" % number for number in range(10)])
    result = move(source, target, "--prefetch", "1", queue)
    assert result.code == 64 and f"queue '{queue}'" in result.err and "did not accept" in result.err
    arrived = [body for body, _ in target.read(queue)]
    wait_for(lambda: source.length(queue) == 10 - len(arrived))
    assert arrived + [body for body, _ in source.read(queue)] == [b"%d" % number for number in range(10)]


def test_a_missing_queue_is_named(direction: tuple[MovableBroker, MovableBroker], queue: str) -> None:
    source, target = direction
    result = move(source, target, queue)
    assert result.code == 64 and f"queue '{queue}': refused by the source" in result.err
    source.fill(queue, [b"stays"])
    result = move(source, target, queue)
    assert result.code == 64 and f"queue '{queue}': refused by the target" in result.err
    assert [body for body, _ in source.read(queue)] == [b"stays"]


def test_a_wrong_password_is_refused_and_not_shown(direction: tuple[MovableBroker, MovableBroker], queue: str) -> None:
    source, target = direction
    line = [sys.executable, "-m", "warren.cli.main", "move", "--from", source.uri, "--to"]
    done = subprocess.run(
        [*line, target.uri.replace("guest@", "secret@"), queue], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 64 and "refused by the target" in done.stderr and "ACCESS_REFUSED" in done.stderr
    assert "secret" not in done.stderr


def test_a_target_behind_tls_needs_a_certificate_that_is_trusted(
    pair: dict[str, MovableBroker], queue: str, tmp_path: Path
) -> None:
    source, target = pair[RABBITMQ], pair[WARREN]
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *names], check=True, capture_output=True)
    source.fill(queue, [b"secret"])
    target.declare(queue)
    with tls_proxy(target.port, key, certificate) as port:
        line = [sys.executable, "-m", "warren.cli.main", "move", "--from", source.uri, "--to"]
        uri = f"amqps://guest:guest@127.0.0.1:{port}/%2F"
        refused = subprocess.run([*line, uri, queue], capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 64 and "is not trusted" in refused.stderr
        trusted = f"{uri}?cacertfile={certificate}"
        done = subprocess.run([*line, trusted, queue], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert target.read(queue) == [(b"secret", None)]


@contextmanager
def tls_proxy(port: int, key: Path, certificate: Path) -> Iterator[int]:
    """A TLS listener in front of a port without TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer), return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in (tasks := asyncio.all_tasks(loop)):
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()


def test_a_broker_that_is_not_there_is_tried_for_a_limited_time(pair: dict[str, MovableBroker], queue: str) -> None:
    (port,) = peers.free_ports(1)
    nothing = MovableBroker("nothing", port, Path(), lambda: None, lambda: None)
    result = move(pair[WARREN], nothing, "--retry-seconds", "1", queue)
    assert result.code == 69 and "next attempt" in result.err and "no connection to the target" in result.err
