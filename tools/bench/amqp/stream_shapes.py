"""The same shapes, as far as they fit, for brokers that do not speak AMQP: publish and confirm, drain, one in flight.

A stream is named like its shape, and deleted behind every slice, as queues are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tools.bench.amqp.run import Bench
from tools.bench.amqp.shapes import SIZES
from tools.bench.amqp.slices import Shape, Slice, rate_of, times_of
from tools.bench.generators import nats, redis
from tools.bench.generators.order import LoadOrder, generated

_DELETE: Mapping[str, Callable[[int, str], None]] = {"redis": redis.delete, "nats": nats.delete}


def publish_of(size: str) -> Shape:
    def publish(bench: Bench) -> Slice:
        with _stream(bench, f"publish{size}") as order_of:
            readings = generated(order_of("publish").but(size=SIZES[size], seconds=bench.effort.seconds))
        return {f"publish_{size}": rate_of(readings)}

    return publish


def drain(bench: Bench) -> Slice:
    effort = bench.effort
    with _stream(bench, "drain") as order_of:
        filled = generated(order_of("publish").but(count=effort.drain_messages, seconds=effort.fill_seconds))
        readings = generated(order_of("drain").but(count=int(filled["confirmed"])))
    return {"drain": rate_of(readings, "received")}


def one_in_flight(bench: Bench) -> Slice:
    with _stream(bench, "single") as order_of:
        readings = generated(order_of("publish").but(window=1, count=bench.effort.singles))
    return times_of(readings, "one_in_flight")


@contextmanager
def _stream(bench: Bench, name: str) -> Iterator[Callable[[str], LoadOrder]]:
    """Orders about a stream, by what is to be done with it."""
    speaks = bench.subject.speaks
    yield lambda what: bench.order(f"{speaks}_{what}").but(queue=name)
    _DELETE[speaks](bench.peer.port, name)


OTHER_SHAPES: Mapping[str, Shape] = {
    **{f"publish_{size}": publish_of(size) for size in SIZES},
    "drain": drain,
    "one_in_flight": one_in_flight,
}
