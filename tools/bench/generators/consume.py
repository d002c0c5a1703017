"""Consumers: every message once, in the order in which it was published, or the run ends.

    drain    until a count has come                      rate from the consume to the last message
    follow   until the message that says it is the last  the same, and how long each message took to come
    hold     takes what its prefetch allows and keeps it, until it is killed
    first    waits for the first delivery; it is requeued, since it is not acknowledged

Acknowledged are all up to a tag, every `ack_every` messages, and the rest at the end. Then the consumer is cancelled,
and the answer waited for: acknowledgements before it have been taken by then.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

import numpy as np
from numpy.typing import NDArray

from tools.bench.generators import wire
from tools.bench.generators.deliveries import Deliveries, ReceivedMessages
from tools.bench.generators.line import BrokerConnection
from tools.bench.generators.order import BrokerFailed, LoadOrder
from tools.bench.generators.times import times_to_readings
from tools.bench.killed_child import Readings


class _Received:
    """What has come so far; checks that each is the next one."""

    def __init__(self) -> None:
        self.count = 0
        self.is_last_there = False

    def take(self, delivered: ReceivedMessages) -> None:
        count = len(delivered)
        after = self.count + count
        if not np.array_equal(delivered.tags, np.arange(self.count + 1, after + 1, dtype=np.uint64)):
            raise BrokerFailed(f"delivery tags behind {self.count} do not count on")
        if not np.array_equal(delivered.numbers, np.arange(self.count, after, dtype=np.uint64)):
            raise BrokerFailed(
                f"message {self.count} was due, {delivered.numbers[0]} came, or others behind it are amiss"
            )
        if delivered.is_redelivered.any():
            raise BrokerFailed("a message is said to come for the second time")
        self.count = after
        self.is_last_there = not delivered.times_ns[-1]


class _Acks:
    def __init__(self, line: BrokerConnection, every: int) -> None:
        self._line, self._every, self._acked = line, every, 0

    def come(self, count: int) -> None:
        if not self._every:
            return
        tags = range(self._acked + self._every, count + 1, self._every)
        if tags:
            self._line.send(b"".join(map(wire.ack, tags)))
            self._acked = tags[-1]

    def finish(self, count: int) -> None:
        if count > self._acked:
            self._line.send(wire.ack(count))
        self._line.call(wire.CANCEL, wire.short("bench") + b"\0", wire.CANCEL_OK)


def drain(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    return _consume(order, get_ready, lambda received: received.count >= order.count)


def follow(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    return _consume(order, get_ready, lambda received: received.is_last_there, waits_ready=True)


def hold(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    with BrokerConnection(order.port) as line:
        line.consume(order.queue, order.prefetch)
        get_ready()
        while True:
            line.receive()


def first(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    get_ready()
    with BrokerConnection(order.port) as line:
        line.consume(order.queue, 1)
        line.expect(wire.DELIVER)
    return {"delivered": 1}


def _consume(
    order: LoadOrder, get_ready: Callable[[], None], is_over: Callable[[_Received], bool], waits_ready: bool = False
) -> Readings:
    """One that waits ready is at the queue before it says so; the other begins with the word to go."""
    received, deliveries, taken = _Received(), Deliveries(), [np.empty(0)]
    with BrokerConnection(order.port) as line:
        acks = _Acks(line, order.ack_every)
        if waits_ready:
            line.consume(order.queue, order.prefetch)
        get_ready()
        start = monotonic_ns()
        if not waits_ready:
            line.consume(order.queue, order.prefetch)
        arrived, line.unread = line.unread, b""
        while True:
            now = monotonic_ns()
            for delivered in deliveries.feed(arrived):
                received.take(delivered)
                taken.append(_milliseconds(now, delivered))
            acks.come(received.count)
            if is_over(received):
                break
            arrived = line.receive()
        seconds = (now - start) / 1e9
        acks.finish(received.count)
    return {
        "received": received.count,
        "seconds": seconds,
        "rate": received.count / seconds,
        **times_to_readings(np.concatenate(taken)),
    }


def _milliseconds(now: int, delivered: ReceivedMessages) -> NDArray[np.float64]:
    """Since each was sent; nothing of the last, which says no time."""
    sent = delivered.times_ns
    return (np.int64(now) - sent[sent > 0].astype(np.int64)) / 1e6
