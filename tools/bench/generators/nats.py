"""NATS JetStream, as a queue: publishes that are answered, with a window of unanswered ones; a pull consumer.

    PUB bench inbox.a 100       answered at inbox.a with the stream's sequence number, once JetStream has it
    … CONSUMER.MSG.NEXT …       asks for so many; every hundredth is acknowledged, which covers all before it

The stream keeps its messages in files. JetStream syncs them every two minutes: an answer there promises less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from tools.bench.generators.batch import batch_count, body_of
from tools.bench.generators.order import BrokerFailed, LoadOrder
from tools.bench.generators.plug import Plug
from tools.bench.generators.times import times_to_readings
from tools.bench.killed_child import Readings

CONSUMER = "one"
_ANSWERED = b'"seq":'
_DELIVERED = re.compile(rb"MSG \S+ \d+ (\$JS\.ACK\.\S+) (\d+)\r\n")
_REQUESTS_UNDER_WAY = 2


class _NatsConnection(Plug):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.receive()
        self.send(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB inbox.> 1\r\n')

    def receive(self) -> bytes:
        received = super().receive()
        if not received or b"-ERR" in received or b'"error"' in received:
            raise BrokerFailed(f"NATS says {received[:300]!r}")
        if b"PING\r\n" in received:
            self.send(b"PONG\r\n")
        return received

    def ask(self, subject: str, about: dict[str, Any]) -> None:
        self.send(_published(f"$JS.API.{subject}", "inbox.x", json.dumps(about).encode()))
        data = self.receive()
        while b'"type"' not in data or not data.endswith(b"\r\n"):
            data += self.receive()


def _published(subject: str, answer_to: str, body: bytes) -> bytes:
    return f"PUB {subject} {answer_to} {len(body)}\r\n".encode() + body + b"\r\n"


def publish(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    """Into a stream that has the queue's name, and is made first."""
    line = _NatsConnection(order.port)
    line.ask(f"STREAM.CREATE.{order.queue}", {"name": order.queue, "subjects": [order.queue], "storage": "file"})
    together = batch_count(order)
    many = _published(order.queue, "inbox.a", body_of(order.size).replace(b"\0", b"0")) * together
    sent, answered, tail, taken = 0, 0, b"", []
    get_ready()
    start = monotonic_ns()
    end = start + int(order.seconds * 1e9) if order.seconds else 1 << 62
    while (is_on := (not order.count or sent < order.count) and monotonic_ns() < end) or answered < sent:
        began = monotonic_ns()
        while is_on and sent - answered + together <= order.window:
            line.send(many)
            sent += together
        data = tail + line.receive()
        answered += data.count(_ANSWERED)
        tail = data[-(len(_ANSWERED) - 1) :]
        taken.append((monotonic_ns() - began) / 1000)
    seconds = (monotonic_ns() - start) / 1e9
    line.close()
    return {"confirmed": sent, "seconds": seconds, "rate": sent / seconds, **times_to_readings(taken)}


def delete(port: int, queue: str) -> None:
    line = _NatsConnection(port)
    line.ask(f"STREAM.DELETE.{queue}", {})
    line.close()


def drain(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    line = _NatsConnection(order.port)
    about = {"durable_name": CONSUMER, "ack_policy": "all", "max_ack_pending": 4 * order.prefetch}
    line.ask(f"CONSUMER.DURABLE.CREATE.{order.queue}.{CONSUMER}", {"stream_name": order.queue, "config": about})
    batch = json.dumps({"batch": order.prefetch}).encode()
    request = _published(f"$JS.API.CONSUMER.MSG.NEXT.{order.queue}.{CONSUMER}", "inbox.d", batch)
    count, asked, data = 0, 0, b""
    get_ready()
    start = monotonic_ns()
    while count < order.count:
        while asked - count < _REQUESTS_UNDER_WAY * order.prefetch:
            line.send(request)
            asked += order.prefetch
        data += line.receive()
        answers, at = _whole(data)
        first = order.ack_every - 1 - count % order.ack_every
        acked = [*answers[first :: order.ack_every], *(answers[-1:] if count + len(answers) >= order.count else ())]
        line.send(b"".join(b"PUB %s 4\r\n+ACK\r\n" % answer for answer in acked))
        count, data = count + len(answers), data[at:]
    seconds = (monotonic_ns() - start) / 1e9
    line.close()
    return {"received": count, "seconds": seconds, "rate": count / seconds}


def _whole(data: bytes) -> tuple[list[bytes], int]:
    """Where the messages that are whole want to be acknowledged, and how far they go."""
    answers, at = [], 0
    for found in _DELIVERED.finditer(data):
        end = found.end() + int(found[2]) + 2
        if end > len(data):
            break
        answers.append(found[1])
        at = end
    return answers, at
