"""Publishers: each says when it has sent its last message that all are confirmed.

full_speed     as many as the window allows unconfirmed, until the count or the time is reached
paced          so many a second, whatever the broker does: every millisecond what is due by then, stamped with the
               time at which it was due, so that a broker that falls behind is charged for it
one_in_flight  publish, wait for its confirm, and so on; in turns with bare synced writes, if a file is named
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns, perf_counter_ns

from tools.bench.generators.batch import PublishBatch, SinglePublish, batch_count
from tools.bench.generators.confirms import ConfirmCounter
from tools.bench.generators.line import BrokerConnection
from tools.bench.generators.order import LoadOrder
from tools.bench.generators.times import times_to_readings
from tools.bench.killed_child import Readings
from tools.bench.references import BareFile

_ENDLESS = 1 << 60
_TICK_NS = 1_000_000
_SPIN_NS = 200_000  # no sleep when the next tick is this close
TURN = 100  # one in flight: so many of each, in turns
BARE_BYTES = 160  # a message of 100 bytes with what a log keeps around it


def full_speed(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    with BrokerConnection(order.port) as line:
        line.select_confirms()
        batch = PublishBatch(order.queue, order.size, batch_count(order), line.frame_bytes_max)
        confirms = ConfirmCounter()
        get_ready()
        start = monotonic_ns()
        _blast(order, line, batch, confirms, start)
        if order.marks_end:
            _send_last(order, line, confirms)
        _settle(line, confirms)
        seconds = (monotonic_ns() - start) / 1e9
    return {"confirmed": confirms.confirmed, "seconds": seconds, "rate": confirms.confirmed / seconds}


def _blast(order: LoadOrder, line: BrokerConnection, batch: PublishBatch, confirms: ConfirmCounter, start: int) -> None:
    wanted = order.count or _ENDLESS
    end = start + int(order.seconds * 1e9) if order.seconds else _ENDLESS
    while confirms.confirmed < wanted:
        if wanted > confirms.sent and monotonic_ns() >= end:
            wanted = confirms.sent
        while (count := min(batch.count, wanted - confirms.sent)) > 0 and confirms.open + count <= order.window:
            stamped = batch.stamped(confirms.sent, monotonic_ns(), count)
            confirms.send(count)
            line.send(stamped)
        if confirms.open:
            confirms.feed(line.receive())


def _send_last(order: LoadOrder, line: BrokerConnection, confirms: ConfirmCounter) -> None:
    line.send(SinglePublish(order.queue, order.size, line.frame_bytes_max).stamped(confirms.sent, 0))
    confirms.send(1)


def _settle(line: BrokerConnection, confirms: ConfirmCounter) -> None:
    while confirms.open:
        confirms.feed(line.receive())


def paced(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    total = int(order.seconds * order.rate)
    with BrokerConnection(order.port) as line:
        line.select_confirms()
        single, confirms = SinglePublish(order.queue, order.size, line.frame_bytes_max), ConfirmCounter()
        get_ready()
        start, tick = monotonic_ns(), 0
        while confirms.sent < total:
            tick += 1
            due = start + tick * _TICK_NS
            _wait_until(due, line, confirms)
            first, wanted = confirms.sent, min(total, int(tick * _TICK_NS * order.rate / 1e9))
            if wanted > first:
                confirms.send(wanted - first)
                line.send(b"".join(bytes(single.stamped(at, due)) for at in range(first, wanted)))
        if order.marks_end:
            _send_last(order, line, confirms)
        _settle(line, confirms)
        seconds = (monotonic_ns() - start) / 1e9
    return {"confirmed": confirms.confirmed, "seconds": seconds, "rate": confirms.confirmed / seconds}


def _wait_until(due: int, line: BrokerConnection, confirms: ConfirmCounter) -> None:
    """To the microsecond: a poll sleeps whole milliseconds, and would be late by up to one."""
    while (left := due - monotonic_ns()) > 0:
        if select.select([line.socket], [], [], max(left - _SPIN_NS, 0) / 1e9)[0]:
            confirms.feed(line.receive())


def one_in_flight(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    """Until the count is reached; times are in microseconds."""
    bare = BareFile(Path(order.bare), BARE_BYTES, order.count + TURN) if order.bare else None
    taken: list[float] = []
    of_bare: list[float] = []
    with nullcontext() if bare is None else closing(bare), BrokerConnection(order.port) as line:
        line.select_confirms()
        single, confirms = SinglePublish(order.queue, order.size, line.frame_bytes_max), ConfirmCounter()

        def publish() -> None:
            stamped = single.stamped(confirms.sent, 0)
            confirms.send(1)
            line.send(stamped)
            _settle(line, confirms)

        get_ready()
        while confirms.sent < order.count:
            taken += _timed(publish, min(TURN, order.count - confirms.sent))
            if bare is not None:
                of_bare += _timed(bare.append, TURN)
    return {"confirmed": confirms.confirmed, **times_to_readings(taken), **times_to_readings(of_bare, "bare_")}


def _timed(work: Callable[[], None], count: int) -> list[float]:
    """Microseconds of each."""
    stamps = [perf_counter_ns()]
    for _ in range(count):
        work()
        stamps.append(perf_counter_ns())
    return [(after - before) / 1000 for before, after in pairwise(stamps)]
