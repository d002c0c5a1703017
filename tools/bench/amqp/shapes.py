"""Workload shapes for brokers that speak AMQP, and their readings.

    publish_SIZE      window 1000, one connection                          messages/s up to the last confirm
    publish_limited   the same into a queue with a TTL, a maximum length and a consumer that keeps up …
    publish_held      … or one that holds its prefetch and never answers
    many_connections  a hundred clients, each with one message unconfirmed
    drain             prefetch 500, all up to a tag acknowledged every 100 messages
    end_to_end        publisher and consumer at once                       messages/s at the consumer, ms on the way
    paced             the same at 5,000/s                                  ms on the way
    one_in_flight     publish, wait for the confirm                        µs; bare synced writes in turns with it
    disk              no broker: bare writes of 4 MB each, synced

A call of a shape is one slice of it. Each has a queue of its own, deleted behind it. Counts are compared: published,
confirmed, in the queue, received. Shapes whose readings are compared with each other are measured in one round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tools.bench.amqp.run import Bench
from tools.bench.amqp.slices import Rate, Shape, Slice, rate_of, times_of
from tools.bench.generators.order import LoadOrder, generated, generator
from tools.bench.generators.wire import Table
from tools.bench.killed_child import Readings
from tools.bench.references import bare_seconds
from warren.base.errors import Damage

SIZES = {"100": 100, "1k": 1024, "64k": 65_536}
LIMITS: Table = {"x-message-ttl": 3_600_000, "x-max-length": 100_000_000}  # neither is reached: all must come out
DISK_WRITE_BYTES = 4 << 20
_DEPTH_SECONDS_MAX = 10.0  # RabbitMQ's counts follow a little later
_POLL_SECONDS = 0.05


def publish_of(size: str) -> Shape:
    def publish(bench: Bench) -> Slice:
        with _queue(bench) as queue:
            order = bench.order("publish").but(queue=queue, size=SIZES[size], seconds=bench.effort.seconds)
            readings = generated(order)
            check_depth(bench, queue, readings["confirmed"])
        return {f"publish_{size}": rate_of(readings)}

    return publish


def publish_limited(bench: Bench) -> Slice:
    with _queue(bench, LIMITS) as queue:
        sent, _ = _both(bench, queue, bench.order("publish").but(seconds=bench.effort.seconds))
    return {"publish_limited": rate_of(sent)}


def publish_held(bench: Bench) -> Slice:
    with _queue(bench, LIMITS) as queue:
        with generator(bench.order("hold").but(queue=queue)) as holder:
            holder.go()
            readings = generated(bench.order("publish").but(queue=queue, seconds=bench.effort.seconds))
        check_depth(bench, queue, readings["confirmed"])
    return {"publish_held": rate_of(readings)}


def many_connections(bench: Bench) -> Slice:
    with _queue(bench) as queue:
        order = bench.order("many").but(queue=queue, seconds=bench.effort.seconds, connections=bench.effort.connections)
        readings = generated(order)
        check_depth(bench, queue, readings["confirmed"])
    return {"many_connections": rate_of(readings), **times_of(readings, "many_connections")}


def drain(bench: Bench) -> Slice:
    with _queue(bench) as queue:
        effort = bench.effort
        fill = bench.order("publish").but(queue=queue, count=effort.drain_messages, seconds=effort.fill_seconds)
        filled = generated(fill)
        check_depth(bench, queue, filled["confirmed"])
        readings = generated(bench.order("drain").but(queue=queue, count=int(filled["confirmed"])))
        check_depth(bench, queue, 0)
    return {"drain": rate_of(readings, "received")}


def end_to_end(bench: Bench) -> Slice:
    with _queue(bench) as queue:
        _, came = _both(bench, queue, bench.order("publish").but(seconds=bench.effort.seconds))
    return {"end_to_end": rate_of(came, "received"), **times_of(came, "end_to_end")}


def paced(bench: Bench) -> Slice:
    with _queue(bench) as queue:
        order = bench.order("paced").but(seconds=bench.effort.seconds, rate=bench.effort.rate)
        _, came = _both(bench, queue, order)
    return times_of(came, "paced")


def one_in_flight(bench: Bench) -> Slice:
    bare = bench.room / "bare"
    with _queue(bench) as queue:
        order = bench.order("one_in_flight").but(queue=queue, window=1, count=bench.effort.singles, bare=str(bare))
        readings = generated(order)
        check_depth(bench, queue, readings["confirmed"])
    bare.unlink()
    return {**times_of(readings, "one_in_flight"), **times_of(readings, "bare_sync", "bare_")}


def disk(bench: Bench) -> Slice:
    path, size = bench.room / "bare", bench.effort.disk_bytes
    seconds = bare_seconds(path, size, size // DISK_WRITE_BYTES)
    path.unlink()
    return {"bare_write": Rate(size / 1e6, seconds)}


AMQP_SHAPES: Mapping[str, Shape] = {
    "disk": disk,
    **{f"publish_{size}": publish_of(size) for size in SIZES},
    "publish_limited": publish_limited,
    "publish_held": publish_held,
    "many_connections": many_connections,
    "drain": drain,
    "end_to_end": end_to_end,
    "paced": paced,
    "one_in_flight": one_in_flight,
}

ROUNDS: tuple[Mapping[str, tuple[str, ...]], ...] = (  # shapes that are measured next to each other, and their readings
    {"disk": ("bare_write",)},
    {"publish_100": ("publish_100",), "publish_limited": ("publish_limited",), "publish_held": ("publish_held",)},
    {"publish_1k": ("publish_1k",)},
    {"publish_64k": ("publish_64k",)},
    {"many_connections": ("many_connections", "many_connections_p99")},
    {"drain": ("drain",)},
    {"end_to_end": ("end_to_end", "end_to_end_p50", "end_to_end_p99")},
    {"paced": ("paced_p50", "paced_p99")},
    {"one_in_flight": ("one_in_flight_p50", "one_in_flight_p99", "bare_sync_p50", "bare_sync_p99")},
)


def check_depth(bench: Bench, queue: str, expected: float) -> None:
    """As many messages are ready, or held by a consumer that has just gone, as were confirmed and not acknowledged."""
    end = time.monotonic() + _DEPTH_SECONDS_MAX
    with bench.line() as line:
        while (found := line.depth(queue)) != expected:
            if time.monotonic() > end:
                what = f"{bench.subject.name} has {found} messages in a queue, {expected:.0f} should be there"
                raise Damage(what, hint="its figures mean nothing; check its log")
            time.sleep(_POLL_SECONDS)


@contextmanager
def _queue(bench: Bench, arguments: Table | None = None) -> Iterator[str]:
    bench.declare("bench", arguments)
    yield "bench"
    bench.delete("bench")


def _both(bench: Bench, queue: str, publish: LoadOrder) -> tuple[Readings, Readings]:
    """A publisher and a consumer at once; the readings of each."""
    with (
        generator(bench.order("follow").but(queue=queue)) as consumer,
        generator(publish.but(queue=queue, marks_end=True)) as publisher,
    ):
        consumer.go()
        publisher.go()
        sent, came = publisher.readings(), consumer.readings()
    if sent["confirmed"] != came["received"]:
        what = f"{sent['confirmed']:.0f} messages were confirmed, {came['received']:.0f} came"
        raise Damage(f"{bench.subject.name}: {what}", hint="its figures mean nothing; check its log")
    check_depth(bench, queue, 0)
    return sent, came
