"""Publishers and consumers that outlive their broker, and record what was confirmed and what was delivered.

    python -m tests.server.kill_clients publish PORT EXCHANGE KEY NUMBER BODY_BYTES FILE    until SIGTERM
    python -m tests.server.kill_clients consume PORT FILE QUEUE …                           until SIGTERM

A publisher writes `seq` when it is confirmed; it never sends a message twice. A consumer writes `queue publisher seq
redelivered` before it acknowledges. Both connect again when the broker has gone, for as long as it takes.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import IO

from tests.server.raw_client import Closed, RawClient
from warren.amqp import methods
from warren.amqp.frames import HEADER, METHOD

BATCH_MAX = 40
OUTSTANDING_MAX = 100
PREFETCH = 50
IDLE_SECONDS = 0.5
_GONE = (Closed, OSError, AssertionError)  # an unexpected answer is one of a broker that goes down


class Stopped:
    def __init__(self) -> None:
        self.is_so = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self.is_so = True


def publish(port: int, exchange: str, key: str, number: int, body_bytes: int, path: str) -> None:
    stopped, rng = Stopped(), random.Random(number)
    sent = 0
    with Path(path).open("w") as confirmed:
        while not stopped.is_so:
            try:
                with RawClient(port) as client:
                    client.log_in()
                    client.channel(confirms=True)
                    sent = _published(client, exchange, key, number, body_bytes, sent, confirmed, stopped, rng)
            except _GONE as error:
                sent = int(getattr(error, "sent", sent))
                time.sleep(0.02)
    sys.stdout.write(f"{sent}\n")


def _published(
    client: RawClient,
    exchange: str,
    key: str,
    number: int,
    body_bytes: int,
    sent: int,
    confirmed: IO[str],
    stopped: Stopped,
    rng: random.Random,
) -> int:
    base, confirmed_count = sent, 0  # this connection's tags begin behind `base`; so many of them are confirmed
    try:
        while not stopped.is_so or confirmed_count < sent - base:
            if not stopped.is_so:
                count = rng.randint(1, BATCH_MAX)
                bodies = [b"%d %d " % (number, sent + at + 1) for at in range(count)]
                sent += count
                client.publish(1, key, *(body.ljust(body_bytes, b"x") for body in bodies), exchange=exchange)
            while sent - base - confirmed_count > (0 if stopped.is_so else OUTSTANDING_MAX):
                ack = client.expect(methods.BasicAck)
                first = confirmed_count + 1 if ack.multiple else ack.delivery_tag
                assert first == confirmed_count + 1, "confirms of one connection come in order"
                confirmed_count = ack.delivery_tag
                confirmed.write("".join(f"{base + tag}\n" for tag in range(first, confirmed_count + 1)))
                confirmed.flush()
    except _GONE as error:
        error.sent = sent  # type: ignore[union-attr]
        raise
    return sent


def consume(port: int, path: str, queues: list[str]) -> None:
    stopped = Stopped()
    with Path(path).open("w") as delivered:
        while not stopped.is_so:
            try:
                with RawClient(port) as client:
                    client.log_in()
                    client.channel()
                    client.send_method(1, methods.BasicQos(prefetch_count=PREFETCH))
                    client.expect(methods.BasicQosOk)
                    for queue in queues:
                        client.send_method(1, methods.BasicConsume(queue=queue, consumer_tag=queue, no_wait=True))
                    client.socket.settimeout(IDLE_SECONDS)
                    _consumed(client, delivered, stopped)
            except _GONE:
                time.sleep(0.02)


def _consumed(client: RawClient, delivered: IO[str], stopped: Stopped) -> None:
    while not stopped.is_so:
        try:
            frame = client.frame()
        except TimeoutError:
            continue
        if frame.kind != METHOD:
            continue
        method = methods.read_fields(methods.spec_of(frame.payload), frame.payload)
        if not isinstance(method, methods.BasicDeliver):
            continue
        head = client.frame()
        assert head.kind == HEADER
        left, body = int.from_bytes(head.payload[4:12], "big"), b""
        while len(body) < left:
            body += client.frame().payload
        publisher, seq, _ = body.split(b" ", 2)
        delivered.write(f"{method.consumer_tag} {int(publisher)} {int(seq)} {int(method.redelivered)}\n")
        delivered.flush()
        client.send_method(1, methods.BasicAck(method.delivery_tag))


if __name__ == "__main__":
    what, port, *rest = sys.argv[1:]
    if what == "publish":
        publish(int(port), rest[0], rest[1], int(rest[2]), int(rest[3]), rest[4])
    else:
        consume(int(port), rest[0], rest[1:])
