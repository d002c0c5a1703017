"""Clients that overload a broker, and the memory use of a process.

    Flood      publishes as fast as it is read, in a thread of its own; with or without confirms
    settled    how much of it was confirmed

Bodies begin with the publisher's number and their own, so that what is found can be compared with what was promised.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods

SECONDS_MAX = 60.0
WATERMARK_BYTES = 280 << 20
AT_ONCE = 20


def broker_with(directory: Path, *lines: str) -> BrokerProcess:
    """Of little memory; `lines` of rabbitmq.conf more."""
    conf = directory / "rabbitmq.conf"
    conf.write_text("\n".join([f"vm_memory_high_watermark.absolute = {WATERMARK_BYTES}", *lines, ""]))
    return BrokerProcess(directory / "data", "--config", str(conf))


def resident_bytes(broker: BrokerProcess) -> int:
    """Memory of the process at the moment; pages of mapped files count."""
    return _status(broker, "VmRSS")


def most_resident_bytes(broker: BrokerProcess) -> int:
    """The most that it ever was."""
    return _status(broker, "VmHWM")


def _status(broker: BrokerProcess, name: str) -> int:
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"nothing is known of {name}")


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def body_of(publisher: int, number: int, size: int) -> bytes:
    return b"%04d %08d " % (publisher, number) + bytes(size - 14)


def number_of(body: bytes) -> tuple[int, int]:
    publisher, number = body[:13].split()
    return int(publisher), int(number)


def client_of(
    broker: BrokerProcess, confirms: bool = False, seconds: float = SECONDS_MAX, notify_blocked: bool = False
) -> RawClient:
    """Logged in, with a channel."""
    client = RawClient(broker.port)
    client.socket.settimeout(seconds)
    return client.log_in(connection__blocked=notify_blocked).channel(confirms=confirms)


def declared(broker: BrokerProcess, *queues: str) -> None:
    with client_of(broker) as client:
        for queue in queues:
            client.declare(queue, durable=True)


def count_of(broker: BrokerProcess, queue: str) -> int:
    with client_of(broker) as client:
        return client.declare(queue, passive=True).message_count


def consume(client: RawClient, queue: str, prefetch: int = 0, no_ack: bool = False) -> None:
    if prefetch:
        client.send_method(1, methods.BasicQos(0, prefetch))
        client.expect(methods.BasicQosOk)
    client.send_method(1, methods.BasicConsume(queue=queue, consumer_tag="tag", no_ack=no_ack))
    client.expect(methods.BasicConsumeOk)


class Flood:
    """One publisher; `sent` messages have left it, or some of the next few."""

    def __init__(
        self,
        broker: BrokerProcess,
        number: int,
        queue: str,
        size: int,
        count: int | None = None,
        confirms: bool = False,
    ) -> None:
        self.sent = self.confirmed = 0
        self.error: Exception | None = None
        self.received: list[methods.Method] = []  # all but confirms
        self._client = client_of(broker, confirms, notify_blocked=True)
        self._number, self._queue, self._size, self._count = number, queue, size, count
        self._is_over = False
        self._threads = [threading.Thread(target=self._caught, args=(self._publish,), daemon=True)]
        self._threads += [threading.Thread(target=self._caught, args=(self._listen,), daemon=True)]
        for thread in self._threads:
            thread.start()

    def has_received(self, kind: type[methods.Method]) -> bool:
        return any(isinstance(each, kind) for each in self.received)

    def finish(self) -> int:
        """Send no more, once what is being sent has left; how many did."""
        self._is_over = True
        self._threads[0].join(SECONDS_MAX)
        assert not self._threads[0].is_alive(), "a publisher was never read again"
        return self.sent

    def close(self) -> None:
        self._is_over = True
        with suppress(OSError):  # the broker may have hung up
            self._client.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        self._client.socket.close()

    def _caught(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:
            if not self._is_over:
                self.error = error

    def _publish(self) -> None:
        while not self._is_over and (self._count is None or self.sent < self._count):
            bodies = [body_of(self._number, self.sent + at, self._size) for at in range(AT_ONCE)]
            self._client.publish(1, self._queue, *bodies)
            self.sent += AT_ONCE

    def _listen(self) -> None:
        while True:
            method = self._client.method()
            if isinstance(method, methods.BasicAck):
                assert method.multiple or method.delivery_tag == self.confirmed + 1
                self.confirmed = method.delivery_tag
            else:
                self.received.append(method)
