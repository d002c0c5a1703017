"""Directories written by `warren serve` and `warren.open` of an earlier build open today, and continue.

    unpack ─▶ start, compare every queue ─▶ publish, ack, reject ─▶ end, start, compare ─▶ drain, start, all empty

The expectation is a plain model: a list of messages per queue, changed together with the broker. The directory that was
stopped cleanly is killed after it was continued, and the killed one is stopped: both kinds of start follow both kinds
of directory. How the archive was made: `make_broker_directories`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.cli.stage import run_process
from tests.formats.broker_contents import (
    LARGE_SIZES,
    LENGTH_MAX,
    PAGED_BYTES,
    PAGED_COUNT,
    QUEUES,
    STORED_BYTES,
    TRANSIENT_QUEUE,
    Death,
    Message,
    by_priority,
    contents,
    message,
    prioritised,
    redelivered,
)
from tests.formats.golden_archive import unpack
from tests.formats.make_broker_directories import (
    ARCHIVE,
    BODIES,
    EMBEDDED_LOG,
    EMBEDDED_OPTIONS,
    KEY_VALUES,
    ack,
    configured,
    connected,
    declare,
    publish,
    queue_facts,
    take,
)
from tests.interop.pika_stage import Pika, ready, refused, wait_until_ready
from tests.server.broker_process import BrokerProcess
from warren.embedded.database import Warren

ARCHIVES = sorted(ARCHIVE.parent.glob("broker_v*.tar.xz"))
Model = dict[str, list[Message]]
KeyValues = dict[str, dict[bytes, bytes]]
Bodies = dict[str, list[bytes]]
Delivery = tuple[Any, Any, bytes]  # method, properties, body
SILENCE_SECONDS_MAX = 30.0
NEW = 100_000  # numbers of messages that the test publishes begin here
PROPERTIES = """
    content_type content_encoding correlation_id reply_to message_id timestamp type app_id user_id expiration priority
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


def test_the_archive_has_four_directories_and_the_commit_that_wrote_them() -> None:
    assert ARCHIVE in ARCHIVES
    with tarfile.open(ARCHIVE) as packed:
        assert {name.partition("/")[0] for name in packed.getnames()} == {
            "clean",
            "killed",
            "embedded",
            "embedded_killed",
            "made.json",
        }


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_directory_of_the_broker_opens_and_continues(name: str, golden: Path) -> None:
    is_killed = name == "killed"
    model = contents()
    if is_killed:  # the start cannot know what was delivered
        model = {queue: redelivered(messages) for queue, messages in model.items()}
    verify_log(golden / name)
    times = json.loads((golden / "made.json").read_text(encoding="utf-8"))
    with BrokerProcess(golden / name, *configured(golden)) as process:
        facts = queue_facts(process, "paged")
        assert (facts["messages"], facts["messages_paged_out"]) == (PAGED_COUNT, PAGED_COUNT)
        with connected(process) as client:
            check_transients_are_gone(client)
            check(client, model)
            check_death_times(client, len(model["dead"]), times["first_second"], times["last_second"])
            model = {queue: redelivered(messages) for queue, messages in model.items()}
            continue_with(client, model)
        if is_killed:
            assert process.stop() == 0, process.log
        else:
            process.kill()
            model = {queue: redelivered(messages) for queue, messages in model.items()}
        process.start()
        with connected(process) as client:
            check(client, model)
            drain(client, model)
        assert process.stop() == 0, process.log
        process.start()
        with connected(process) as client:
            check(client, {queue: [] for queue in QUEUES})
    verify_log(golden / name)
    check_nothing_is_set_aside(golden / name)
    own = [line for line in process.log.splitlines() if "ERROR channel error" not in line]  # mistakes of the client
    assert not [line for line in own if "ERROR" in line or "Traceback" in line]


def verify_log(directory: Path) -> None:
    ended = run_process("log", "verify", directory / "log")
    assert ended.code == 0, ended


def check_nothing_is_set_aside(directory: Path) -> None:
    """The store was used as it is, not rebuilt from the log, and every byte of the log was accepted."""
    assert [path.name for path in (directory / "set-aside").iterdir()] == []
    assert [path.name for path in (directory / "log" / "quarantine").iterdir()] == []


# -- comparing -------------------------------------------------------------------------------------------------------


def check_transients_are_gone(client: Pika) -> None:
    with refused(404, TRANSIENT_QUEUE):
        client.channel().queue_declare(TRANSIENT_QUEUE, passive=True)


def check(client: Pika, model: Model) -> None:
    """Count, order, bodies, properties, deaths and flags; the messages are ready again afterwards."""
    channel = client.channel()
    assert {queue: ready(channel, queue) for queue in QUEUES} == {queue: len(model[queue]) for queue in QUEUES}
    for queue, expected in model.items():
        with consumed(client, queue, len(expected)) as (_, deliveries):
            for place, (delivery, wanted) in enumerate(zip(deliveries, expected, strict=True)):
                assert received(*delivery) == wanted, f"message {place} of {queue}"
        wait_until_ready(channel, queue, len(expected))


@contextmanager
def consumed(client: Pika, queue: str, count: int) -> Iterator[tuple[Any, list[Delivery]]]:
    """A channel and all messages of a queue, delivered to it. Those that are not acked in the block are requeued."""
    channel = client.channel()
    deliveries: list[Delivery] = []
    consumer = channel.consume(queue, inactivity_timeout=SILENCE_SECONDS_MAX)
    while len(deliveries) < count:
        method, properties, body = next(consumer)
        assert method is not None, f"{queue} delivers {len(deliveries)} of {count} messages"
        deliveries.append((method, properties, body))
    yield channel, deliveries
    channel.connection.close()


def received(method: Any, properties: Any, body: bytes) -> Message:
    """A delivery in the form of the model."""
    assert properties.delivery_mode == 2
    headers = dict(properties.headers or {})
    headers.pop("x-delivery-count", None)  # sent since consumers are told how often a message came back
    deaths = tuple(death_of(entry) for entry in headers.pop("x-death", []))
    first = [headers.pop(f"x-first-death-{name}", None) for name in ("queue", "reason", "exchange")]
    assert first == ([deaths[-1].queue, deaths[-1].reason, deaths[-1].exchange] if deaths else [None] * 3)
    found = {name: value for name in PROPERTIES.split() if (value := getattr(properties, name)) is not None}
    if headers:
        found["headers"] = headers
    return Message(body, found, deaths, method.redelivered)


def death_of(entry: dict[str, Any]) -> Death:
    [key] = entry["routing-keys"]
    return Death(entry["queue"], entry["reason"], entry["exchange"], key, entry["count"])


def check_death_times(client: Pika, count: int, first_second: int, last_second: int) -> None:
    with consumed(client, "dead", count) as (_, deliveries):
        for _, properties, _ in deliveries:
            for entry in properties.headers["x-death"]:
                assert first_second <= entry["time"].replace(tzinfo=UTC).timestamp() <= last_second
    wait_until_ready(client.channel(), "dead", count)


# -- continuing ------------------------------------------------------------------------------------------------------


def continue_with(client: Pika, model: Model) -> None:
    """Confirmed publishes follow the acks, so that those are durable too."""
    channel = client.channel()
    acked = {"plain": 7, "priority": 3, "paged": 50, "sql": 4, "sql.priority": 2, "large": 4, "fan.a": 2, "fan.b": 3}
    for queue, count in acked.items():
        ack(channel, queue, count)
        del model[queue][:count]
    [tag] = take(channel, "bounded", 1)
    channel.basic_reject(tag, requeue=False)
    dead_lettered(channel, model, "rejected", 1)
    publish_to_queues(channel, model)
    dead_lettered(channel, model, "maxlen", len(model["bounded"]) - LENGTH_MAX)
    publish_to_exchanges(channel, model)
    with refused(406):
        client.channel().queue_declare("plain", durable=True, arguments={"x-max-priority": 3})
    declare(channel)  # all is equivalent, else 406; last, since it would restore a lost binding


def dead_lettered(channel: Any, model: Model, reason: str, count: int) -> None:
    """So many messages move from `bounded` to `dead`."""
    fallen, model["bounded"] = model["bounded"][:count], model["bounded"][count:]
    death = Death("bounded", reason, "", "bounded")
    model["dead"] += [each._replace(deaths=(death,), redelivered=False) for each in fallen]
    wait_until_ready(channel, "dead", len(model["dead"]))


def publish_to_queues(channel: Any, model: Model) -> None:
    new: Model = {
        "plain": [message("plain", NEW + number) for number in range(3)],
        "paged": [message("paged", NEW + number, PAGED_BYTES) for number in range(3)],
        "sql": [message("sql", NEW + number, STORED_BYTES) for number in range(3)],
        "quorum": [message("quorum", NEW)],
        "large": [message("large", NEW + number, size) for number, size in enumerate(LARGE_SIZES)],
        "bounded": [message("bounded", NEW + number) for number in range(5)],
    }
    for queue, messages in new.items():
        publish(channel, "", queue, *messages)
        model[queue] += messages
    for queue in ("priority", "sql.priority"):
        messages = [prioritised(queue, NEW + number) for number in range(7)]
        publish(channel, "", queue, *messages)
        model[queue] = by_priority(model[queue] + messages)


def publish_to_exchanges(channel: Any, model: Model) -> None:
    """Every binding of the directory routes."""
    shared, european = message("fan", NEW, LARGE_SIZES[-1]), message("europe", NEW)
    red = message("red", NEW, headers={"colour": "red"})
    publish(channel, "fan", "", shared)
    publish(channel, "everything", "europe.spain", european)
    publish(channel, "colours", "", red)
    publish(channel, "everything", "asia.china", red)
    publish(channel, "graves", "fallen", european)
    routed = {"fan.a": [shared], "fan.b": [shared], "fan.c": [shared], "europe": [european], "dead": [european]}
    for queue, messages in {**routed, "red": [red, red], "unrouted": [red]}.items():
        model[queue] += messages


def drain(client: Pika, model: Model) -> None:
    """Acks everything, each queue with one `multiple` ack; ends with a confirmed publish and its ack."""
    for queue, expected in model.items():
        if expected:
            with consumed(client, queue, len(expected)) as (channel, deliveries):
                channel.basic_ack(deliveries[-1][0].delivery_tag, multiple=True)
    channel = client.channel()
    publish(channel, "", "plain", message("plain", NEW))
    ack(channel, "plain", 1)


# -- warren.open -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["embedded", "embedded_killed"])
def test_a_directory_of_warren_open_opens_and_continues(name: str, golden: Path) -> None:
    key_values = {storage: dict(rows) for storage, rows in KEY_VALUES.items()}
    bodies = {queue: list(found) for queue, found in BODIES.items()}
    with warren.open(str(golden / name), log_settings=EMBEDDED_LOG) as db:
        check_embedded(db, key_values, bodies)
        check_flags(db, is_killed=name == "embedded_killed")
        continue_embedded(db, key_values, bodies)
    for _ in range(2):
        with warren.open(str(golden / name), log_settings=EMBEDDED_LOG) as db:
            check_embedded(db, key_values, bodies)
    check_nothing_is_set_aside(golden / name)


def check_embedded(db: Warren, key_values: KeyValues, bodies: Bodies) -> None:
    assert {storage: dict(db.kv(storage)) for storage in db.names()} == key_values
    assert sorted(db.queues()) == sorted(bodies)
    for queue, expected in bodies.items():
        assert list(db.queue(queue, **EMBEDDED_OPTIONS.get(queue, {})).browse()) == expected, queue
    assert not db.alarms()


def check_flags(db: Warren, is_killed: bool) -> None:
    """After a clean stop two messages are flagged: those of `jobs` that were requeued."""
    for queue, expected in BODIES.items():
        batch = db.find_queue(queue).get_many(len(expected))
        requeued = 2 if queue == "jobs" else 0
        assert batch.redelivered == [is_killed or place < requeued for place in range(len(expected))], queue
        batch.nack()


def continue_embedded(db: Warren, key_values: KeyValues, bodies: Bodies) -> None:
    db.kv("users").put_many({b"alan": b"fellow", b"edsger": b"programmer"})
    db.kv("users").discard(b"ada")
    key_values["users"] = {b"alan": b"fellow", b"edsger": b"programmer", b"grace": b"admiral"}
    db.kv("many").clear()
    key_values["many"] = {}
    db.kv("new")[b"key"] = b"value"
    key_values["new"] = {b"key": b"value"}
    for queue in ("jobs", "mails", "audit", "large"):
        db.find_queue(queue).get_many(2).ack()
        del bodies[queue][:2]
    rejected = db.find_queue("tasks").get(timeout=1)
    assert rejected is not None
    rejected.nack(requeue=False)
    bodies["dead"].append(bodies["tasks"].pop())
    urgent, shared = message("mails", NEW).body, message("orders", NEW, LARGE_SIZES[-1]).body
    db.find_queue("mails").put(urgent, priority=3)
    bodies["mails"].insert(0, urgent)  # both of priority 3 are acked
    db.publish([shared], ["audit", "billing", "jobs"])
    for queue in ("audit", "billing", "jobs"):
        bodies[queue].append(shared)
    for queue in bodies:
        db.find_queue(queue).sync()
