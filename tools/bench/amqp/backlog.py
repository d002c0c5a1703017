"""A long backlog over AMQP: how long it takes to fill, what memory the broker needs for it, how soon it is back.

    fill      window 1000, bodies of 100 bytes           seconds
    memory    of all its processes, sampled meanwhile    MB, pages of mapped files included
    kill      SIGKILL to all of them
    restart   started again, to the first delivery       seconds

A peer may have a shorter one, since RabbitMQ takes five minutes for five million. Its figures are then scaled: seconds
of filling by the factor, memory and restart by what they are above those of an empty broker. That is linear, and so in
the peer's favour: RabbitMQ slows down when its memory is used up.
"""

from __future__ import annotations

from time import perf_counter

from tools.bench.amqp.run import Bench
from tools.bench.amqp.shapes import check_depth
from tools.bench.generators.order import generated, generator
from tools.bench.killed_child import Readings
from tools.bench.memory_watch import watched_tree

QUEUE = "backlog"
BACKLOG_READINGS = ("backlog_fill", "backlog_memory", "backlog_restart")
_MEGABYTES_A_MIB = (1 << 20) / 1_000_000


def backlog(bench: Bench) -> Readings:
    """Needs a broker without earlier load."""
    bench.declare(QUEUE)
    with watched_tree(bench.peer.pid) as peak:
        empty = peak.resident
        filled = generated(bench.order("publish").but(queue=QUEUE, count=bench.backlog))
    check_depth(bench, QUEUE, bench.backlog)
    restart = _restart(bench)
    check_depth(bench, QUEUE, bench.backlog)
    return {
        "backlog_fill": filled["seconds"] * bench.factor,
        "backlog_memory": _scaled(peak.resident, empty, bench.factor) * _MEGABYTES_A_MIB,
        "backlog_restart": _scaled(restart, bench.started_seconds, bench.factor),
    }


def _restart(bench: Bench) -> float:
    bench.peer.kill()
    with generator(bench.order("first").but(queue=QUEUE)) as consumer:
        start = perf_counter()
        bench.peer.start()
        consumer.do()
        return perf_counter() - start


def _scaled(measured: float, empty: float, factor: float) -> float:
    """Scale the part above that of an empty broker."""
    return measured if factor == 1 else empty + max(0.0, measured - empty) * factor
