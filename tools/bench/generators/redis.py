"""Redis Streams, as a queue: XADD with a window of unanswered ones; XREADGROUP, and XACK for every hundred.

    *5 $4 XADD $5 bench $1 * $1 b $100 body         one entry, answered with its id when it is as safe as Redis makes it

Answers are counted by their lines, since no body has a line end in it: an XADD's has two; a read's has five and eight
for each entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic_ns

from tools.bench.generators.batch import batch_count, body_of
from tools.bench.generators.order import BrokerFailed, LoadOrder
from tools.bench.generators.plug import Plug
from tools.bench.generators.times import times_to_readings
from tools.bench.killed_child import Readings

_LINE = b"\r\n"
_ID = re.compile(rb"\n(\d+-\d+)\r")
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n\S+\r\n\*(\d+)\r\n")
_HEAD_LINES, _ENTRY_LINES, _ADD_LINES = 5, 8, 2
_ERROR = re.compile(rb"(?:^|\n)-[A-Z]")  # an id that is cut at its dash has a digit behind it
_NOTHING = b"*-1\r\n"
_GROUP, _CONSUMER = b"group", b"one"


class _RedisConnection(Plug):
    def receive(self) -> bytes:
        received = super().receive()
        if not received or _ERROR.search(received):
            raise BrokerFailed(f"Redis says {received[:200]!r}")
        return received

    def ask(self, *words: bytes) -> bytes:
        """A call whose answer is one line or two."""
        self.send(command(*words))
        return self.receive()


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def publish(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    """As many unanswered as the window allows; with a window of 1 the times are those of single ones."""
    line = _RedisConnection(order.port)
    letters = body_of(order.size).replace(b"\0", b"0")
    one = command(b"XADD", order.queue.encode(), b"*", b"b", letters)
    together = batch_count(order)
    many, sent, lines, taken = one * together, 0, 0, []
    get_ready()
    start = monotonic_ns()
    end = start + int(order.seconds * 1e9) if order.seconds else 1 << 62
    while (is_on := _is_on(order, sent, end)) or lines < sent * _ADD_LINES:
        began = monotonic_ns()
        while is_on and sent - lines // _ADD_LINES + together <= order.window:
            line.send(many)
            sent += together
        lines += line.receive().count(_LINE)
        taken.append((monotonic_ns() - began) / 1000)
    seconds = (monotonic_ns() - start) / 1e9
    line.close()
    return {"confirmed": sent, "seconds": seconds, "rate": sent / seconds, **times_to_readings(taken)}


def _is_on(order: LoadOrder, sent: int, end: int) -> bool:
    return (not order.count or sent < order.count) and monotonic_ns() < end


def delete(port: int, queue: str) -> None:
    line = _RedisConnection(port)
    line.ask(b"DEL", queue.encode())
    line.close()


def drain(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    line, queue = _RedisConnection(order.port), order.queue.encode()
    line.ask(b"XGROUP", b"CREATE", queue, _GROUP, b"0")
    prefetch = b"%d" % order.prefetch
    read = command(b"XREADGROUP", b"GROUP", _GROUP, _CONSUMER, b"COUNT", prefetch, b"STREAMS", queue, b">")
    count = 0
    get_ready()
    start = monotonic_ns()
    while count < order.count:
        line.send(read)
        ids = _entries(line)
        groups = [ids[at : at + order.ack_every] for at in range(0, len(ids), order.ack_every)]
        line.send(b"".join(command(b"XACK", queue, _GROUP, *some) for some in groups))
        answered = 0
        while answered < len(groups):
            answered += line.receive().count(_LINE)
        count += len(ids)
    seconds = (monotonic_ns() - start) / 1e9
    line.close()
    return {"received": count, "seconds": seconds, "rate": count / seconds}


def _entries(line: _RedisConnection) -> list[bytes]:
    """The ids of one answer, once it is whole."""
    data = line.receive()
    while True:
        if data == _NOTHING:
            raise BrokerFailed("Redis has fewer entries than were added")
        head = _HEAD.match(data)
        if head is not None and data.count(_LINE) >= _HEAD_LINES + _ENTRY_LINES * int(head[1]):
            return _ID.findall(data)
        data += line.receive()
