"""Process of a generator: one order, executed on a signal, its readings printed as one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from tools.bench import killed_child
from tools.bench.generators import consume, nats, publish, redis
from tools.bench.generators.many import many
from tools.bench.generators.order import LoadOrder, order_of
from tools.bench.killed_child import Readings

SHAPES: Mapping[str, Callable[[LoadOrder, Callable[[], None]], Readings]] = {
    "publish": publish.full_speed,
    "paced": publish.paced,
    "one_in_flight": publish.one_in_flight,
    "many": many,
    "drain": consume.drain,
    "follow": consume.follow,
    "hold": consume.hold,
    "first": consume.first,
    "redis_publish": redis.publish,
    "redis_drain": redis.drain,
    "nats_publish": nats.publish,
    "nats_drain": nats.drain,
}


def run(argument: str) -> None:
    order = order_of(argument)
    killed_child.done(SHAPES[order.shape](order, killed_child.get_ready))


if __name__ == "__main__":
    run(sys.argv[1])
