"""Makes the golden directories of the broker and of `warren.open`: `python -m tests.formats.make_broker_directories`.

    clean/             `warren serve` with pika clients, stopped with SIGTERM
    killed/            the same, killed with SIGKILL while messages are unacked
    embedded/          `warren.open`: key-values and queues, closed
    embedded_killed/   the same, killed with SIGKILL
    made.json          commit, and when: deaths in `x-death` lie between `first_second` and `last_second`

`broker_v1.tar.xz` was made by the build of commit f0551bd, before the code base was reorganised: `src` of a clone of
that commit stood first on PYTHONPATH, uncompiled, and the commit was given as argument. It is never made again: it
proves that a directory written *then* opens and continues now. What is in it: `broker_contents`.

The log has the smallest containers (512 KiB) and files (1 MiB), so `paged` fills many files. The memory limit of
252 MiB leaves 16 MiB to messages; `paged` is larger, so part of it is on disk only.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions

import warren
from tests.formats.broker_contents import (
    BINDINGS,
    EMBEDDED_BYTES,
    EXCHANGES,
    LARGE_SIZES,
    LENGTH_MAX,
    PAGED_BYTES,
    PAGED_COUNT,
    PASSWORD,
    QUEUES,
    STORED_BYTES,
    TRANSIENT_QUEUE,
    USER,
    Message,
    body_of,
    message,
    plain,
    prioritised,
)
from tests.formats.golden_archive import ARCHIVES, check_absent, pack
from tests.interop.brokers import WARREN, Broker
from tests.interop.pika_publisher import published
from tests.interop.pika_stage import Pika, wait_until_ready
from tests.server.broker_process import BrokerProcess

ARCHIVE = ARCHIVES / "broker_v1.tar.xz"
SMALL = ("--container-size", "512KiB", "--rotate-bytes", "1MiB")
MEMORY_LINE = "vm_memory_high_watermark.absolute = 252MiB\n"
FIRST_USER = f"default_user = {USER}\ndefault_pass = {PASSWORD}\ndefault_user_tags.administrator = true\n"
PUBLISHED_AT_ONCE = 2_000
KEY_COUNT = 500
# What `warren.open` finds: storage → key → value, and queue → bodies.
KEY_VALUES = {
    "users": {b"ada": b"countess", b"alan": b"professor", b"grace": b"admiral"},
    "cleared": {b"after": b"the clear"},
    "many": {b"key-%04d" % number: b"value %d " % number * 8 for number in range(0, KEY_COUNT, 2)},
}
BODIES = {
    "jobs": [body_of("jobs", number, EMBEDDED_BYTES) for number in range(3, 50)],
    "mails": [body_of("mails", number, EMBEDDED_BYTES) for number in (3, 7, 2, 6, 1, 5, 0, 4)],
    "audit": [body_of("orders", number, STORED_BYTES) for number in range(6)],
    "billing": [body_of("orders", number, STORED_BYTES) for number in range(2, 6)],
    "large": [body_of("large", number, size) for number, size in enumerate(LARGE_SIZES)],
    "dead": [body_of("tasks", 0, EMBEDDED_BYTES)],
    "tasks": [body_of("tasks", 1, EMBEDDED_BYTES)],
}
EMBEDDED_OPTIONS: dict[str, dict[str, Any]] = {"mails": {"max_priority": 3}, "tasks": {"dead_letter": "dead"}}
EMBEDDED_LOG = warren.LogSettings(container_bytes=512 << 10, rotate_bytes=1 << 20)


@contextmanager
def connected(process: BrokerProcess) -> Iterator[Pika]:
    client = Pika(Broker(WARREN, process.port, process.kill, user=USER, password=PASSWORD))
    try:
        yield client
    finally:
        with suppress(pika.exceptions.AMQPError):  # the broker may be gone
            client.close()


def configured(folder: Path, text: str = MEMORY_LINE) -> tuple[str, ...]:
    """Options of `warren serve` with little memory and small log files."""
    path = folder / "rabbitmq.conf"
    path.write_text(text, encoding="utf-8")
    return ("--config", str(path), *SMALL)


def publish(channel: Any, exchange: str, key: str, *messages: Message, delivery_mode: int = 2) -> None:
    """The channel confirms, so each message is durable when the call returns."""
    for each in messages:
        properties = pika.BasicProperties(delivery_mode=delivery_mode, **each.properties)
        channel.basic_publish(exchange, key, each.body, properties)


def take(channel: Any, queue: str, count: int) -> list[int]:
    """Delivery tags of so many messages from the head."""
    tags = []
    for _ in range(count):
        method, _, _ = channel.basic_get(queue)
        assert method is not None, f"{queue} is empty"
        tags.append(method.delivery_tag)
    return tags


def ack(channel: Any, queue: str, count: int) -> None:
    for tag in take(channel, queue, count):
        channel.basic_ack(tag)


def declare(channel: Any) -> None:
    for name, (kind, arguments) in EXCHANGES.items():
        channel.exchange_declare(name, kind, durable=True, arguments=arguments)
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    for each in BINDINGS:
        bind = channel.exchange_bind if each.is_to_exchange else channel.queue_bind
        bind(each.destination, each.source, each.key, arguments=each.arguments)


def fill(client: Pika) -> None:
    """Ends with a confirmed publish, so that all acks before it are durable as well."""
    channel = client.channel()
    declare(channel)
    channel.queue_declare(TRANSIENT_QUEUE, exclusive=False)
    publish(channel, "", TRANSIENT_QUEUE, message(TRANSIENT_QUEUE, 0))
    publish(channel, "", "plain", *(plain(number) for number in range(20)))
    publish(channel, "", "plain", message("transient", 0), message("transient", 1), delivery_mode=1)
    publish(channel, "", "plain", *(plain(number) for number in range(20, 40)))
    ack(channel, "plain", 5)
    requeue(channel, "plain", 3)
    publish(channel, "", "priority", *(prioritised("priority", number) for number in range(30)))
    ack(channel, "priority", 4)
    requeue(channel, "priority", 1)
    publish(channel, "", "sql", *(message("sql", number, STORED_BYTES) for number in range(20)))
    ack(channel, "sql", 3)
    publish(channel, "", "sql.priority", *(prioritised("sql.priority", number) for number in range(14)))
    ack(channel, "sql.priority", 2)
    publish(channel, "", "quorum", *(message("quorum", number) for number in range(6)))
    for _ in range(2):
        requeue(channel, "quorum", 1)
    publish(channel, "", "large", *(message("large", number, size) for number, size in enumerate(LARGE_SIZES)))
    fill_by_exchanges(channel)
    fill_dead_letters(channel)
    fill_paged(client.broker)
    publish(channel, "orders", "europe.france", message("europe", 0))


def requeue(channel: Any, queue: str, count: int) -> None:
    for tag in take(channel, queue, count):
        channel.basic_nack(tag, requeue=True)


def fill_by_exchanges(channel: Any) -> None:
    """Bodies that three queues share; a route over two exchanges; the alternate exchange."""
    publish(channel, "fan", "", *(message("fan", number, STORED_BYTES) for number in range(12)))
    publish(channel, "fan", "", message("fan", 12, LARGE_SIZES[-1]))
    ack(channel, "fan.a", 4)
    ack(channel, "fan.c", 10)
    publish(channel, "orders", "asia.japan", message("unrouted", 0))
    publish(channel, "everything", "asia.japan", message("red", 0, headers={"colour": "red"}))


def fill_dead_letters(channel: Any) -> None:
    """Reasons `maxlen`, `rejected` and `expired`, then a message that dies twice; one after the other."""
    publish(channel, "", "bounded", *(message("bounded", number) for number in range(LENGTH_MAX + 2)))
    wait_until_ready(channel, "dead", 2)
    for tag in take(channel, "bounded", 2):
        channel.basic_reject(tag, requeue=False)
    wait_until_ready(channel, "dead", 4)
    publish(channel, "", "expiring", *(message("expiring", number) for number in range(3)))
    wait_until_ready(channel, "dead", 7)
    publish(channel, "", "rejecting", message("rejecting", 0))
    [tag] = take(channel, "rejecting", 1)
    channel.basic_reject(tag, requeue=False)
    wait_until_ready(channel, "dead", 8)


def fill_paged(broker: Broker) -> None:
    for first in range(0, PAGED_COUNT, PUBLISHED_AT_ONCE):
        numbers = range(first, min(first + PUBLISHED_AT_ONCE, PAGED_COUNT))
        bodies = [message("paged", number, PAGED_BYTES).body for number in numbers]
        published(broker, [("", "paged", body, False) for body in bodies], delivery_mode=2)


def queue_facts(process: BrokerProcess, queue: str) -> dict[str, Any]:
    """From the management API: `messages_paged_out`, `messages_ram`, …"""
    url = f"http://127.0.0.1:{process.management_port}/api/queues/%2F/{queue}"
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        facts: dict[str, Any] = json.load(response)
    return facts


def make_served(directory: Path, is_killed: bool) -> None:
    """Two messages of `fan.b` are unacked when the broker ends."""
    options = configured(directory.parent, FIRST_USER + MEMORY_LINE)
    with BrokerProcess(directory, *options) as process, connected(process) as client:
        fill(client)
        assert queue_facts(process, "paged")["messages_paged_out"] > 0
        take(client.channel(), "fan.b", 2)
        if is_killed:
            process.kill()
        else:
            assert process.stop() == 0, process.log


def fill_embedded(directory: Path, is_killed: bool) -> None:
    db = warren.open(str(directory), log_settings=EMBEDDED_LOG)
    users, many = db.kv("users"), db.kv("many")
    users.put_many({b"ada": b"countess", b"alan": b"baker", b"linus": b"student"})
    users.put_many({b"alan": b"professor", b"grace": b"admiral"})
    users.discard(b"linus")
    db.kv("cleared").put_many({b"before": b"the clear"})
    db.kv("cleared").clear()
    db.kv("cleared")[b"after"] = b"the clear"
    many.put_many({b"key-%04d" % number: b"value %d " % number * 8 for number in range(KEY_COUNT)})
    many.discard(*(b"key-%04d" % number for number in range(1, KEY_COUNT, 2)))
    jobs = db.queue("jobs")
    jobs.put_many(body_of("jobs", number, EMBEDDED_BYTES) for number in range(50))
    jobs.get_many(3).ack()
    jobs.get_many(2).nack()
    mails = db.queue("mails", max_priority=3)
    for number in range(8):
        mails.put(body_of("mails", number, EMBEDDED_BYTES), priority=number % 4)
    for name in ("audit", "billing"):
        db.queue(name)
    db.publish([body_of("orders", number, STORED_BYTES) for number in range(6)], ["audit", "billing"])
    db.queue("billing").get_many(2).ack()
    db.queue("large").put_many(BODIES["large"])
    db.queue("dead")
    tasks = db.queue("tasks", dead_letter="dead")
    tasks.put_many(body_of("tasks", number, EMBEDDED_BYTES) for number in range(2))
    rejected = tasks.get(timeout=1)
    assert rejected is not None
    rejected.nack(requeue=False)
    for name in BODIES:
        db.queue(name, **EMBEDDED_OPTIONS.get(name, {})).sync()
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    db.close()


def make_embedded(directory: Path, is_killed: bool) -> None:
    """In a process of its own, which may kill itself."""
    words = ["--embedded", str(directory), str(int(is_killed))]
    ended = subprocess.run([sys.executable, "-m", "tests.formats.make_broker_directories", *words], check=False)
    assert ended.returncode == (-signal.SIGKILL if is_killed else 0)


def main() -> None:
    if sys.argv[1] == "--embedded":
        fill_embedded(Path(sys.argv[2]), sys.argv[3] == "1")
        return
    check_absent(ARCHIVE)
    print("warren is", warren.__file__)
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory() as beside:
        home, work = Path(temporary), Path(beside)
        facts = {"commit": sys.argv[1], "first_second": int(time.time())}
        for name, is_killed in (("clean", False), ("killed", True)):
            make_served(work / name, is_killed)
            (work / name).rename(home / name)
            make_embedded(home / ("embedded_killed" if is_killed else "embedded"), is_killed)
        facts["last_second"] = int(time.time()) + 1
        (home / "made.json").write_text(json.dumps(facts), encoding="utf-8")
        pack(ARCHIVE, home)


if __name__ == "__main__":
    main()
