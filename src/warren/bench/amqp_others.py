"""The same shapes, as far as they fit, for brokers that do not speak AMQP: publish and confirm, drain, one in flight.

Each has a broker of its own in every turn, so streams need no names: a shape empties what was there by starting with
a stream of its own, which is named like the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warren.bench.amqp_run import Bench
from warren.bench.amqp_shapes import SIZES, Shape
from warren.bench.generators.order import Order, generated
from warren.bench.killed_child import Told


def publish_of(size: str) -> Shape:
    def publish(bench: Bench) -> Told:
        order = _order(bench, "publish", f"publish{size}")
        told = generated(order.but(size=SIZES[size], seconds=bench.effort.seconds))
        return {f"publish_{size}": told["rate"]}

    return publish


def drain(bench: Bench) -> Told:
    effort = bench.effort
    fill = _order(bench, "publish", "drain").but(count=effort.drain_messages, seconds=effort.fill_seconds)
    filled = generated(fill)
    told = generated(_order(bench, "drain", "drain").but(count=int(filled["confirmed"])))
    return {"drain": told["rate"]}


def one_in_flight(bench: Bench) -> Told:
    told = generated(_order(bench, "publish", "single").but(window=1, count=bench.effort.singles))
    return {"one_in_flight_p50": told["p50"], "one_in_flight_p99": told["p99"]}


def _order(bench: Bench, what: str, queue: str) -> Order:
    return bench.order(f"{bench.subject.speaks}_{what}").but(queue=queue)


OTHER_SHAPES: Mapping[Callable[[Bench], Told], tuple[str, ...]] = {
    **{publish_of(size): (f"publish_{size}",) for size in SIZES},
    drain: ("drain",),
    one_in_flight: ("one_in_flight_p50", "one_in_flight_p99"),
}
