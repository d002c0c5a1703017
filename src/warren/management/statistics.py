"""Statistics: rates and samples, taken from the counters of the broker and of its queues every five seconds.

    MessageCounters ──┐                     ring of the broker                       ten minutes
                      ├──▶ Statistics ──▶
    QueueCounters  ───┘                     ring of each queue with recent changes   one minute

    {"publish": 12, "publish_details": {"rate": 2.4}}
    … with msg_rates_age=60&msg_rates_incr=5: {"rate", "samples": [{"sample", "timestamp"} …], "avg_rate", "avg"}

There is no statistics database, and no work per message: a round compares one tuple per started queue. A queue without
a ring has the rate 0, and no samples.

Invariants: a ring has a fixed number of samples; a queue whose samples are all equal has no ring; a deleted queue has
none either.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from warren.base.errors import Refused
from warren.base.ids import QueueId
from warren.base.threads import BackgroundLoop
from warren.broker.counters import MessageCounters, QueueCounters
from warren.broker.queue_handle import QueueHandle
from warren.management.broker_facts import BrokerView

SAMPLE_SECONDS: Final = 5.0
BROKER_SAMPLES: Final = 121
QUEUE_SAMPLES: Final = 13
MESSAGE_RATES: Final = "msg_rates"  # prefixes of the query parameters `…_age` and `…_incr`, in seconds
LENGTHS: Final = "lengths"
_AGE_MAX: Final = 24 * 60 * 60
_LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
_CHURN: Final = {
    "connection_created": "connections_opened",
    "connection_closed": "connections_closed",
    "channel_created": "channels_opened",
    "channel_closed": "channels_closed",
    "queue_declared": "queues_declared",
    "queue_created": "queues_created",
    "queue_deleted": "queues_deleted",
}


class SampleWindow(NamedTuple):
    """The samples that a request asks for: of the last `age` seconds, one every `step` seconds."""

    age: int
    step: int


def window_of(query: Mapping[str, str], prefix: str) -> SampleWindow | None:
    """None: the query asks for no samples. Refused if it is not valid."""
    texts = [query.get(f"{prefix}_{name}") for name in ("age", "incr")]
    if None in texts:
        return None
    if not all(text and text.isascii() and text.isdecimal() and len(text) < 8 for text in texts):
        raise Refused(f"{prefix}_age and {prefix}_incr are numbers of seconds")
    age, step = (int(text or 0) for text in texts)
    if not step or age > _AGE_MAX:
        raise Refused(f"{prefix}_incr is at least 1, {prefix}_age at most {_AGE_MAX}")
    return SampleWindow(age, step)


class SampleRing:
    """The last samples of several numbers. Written by one thread; readers work on a copy."""

    __slots__ = ("_format", "_places", "_samples")

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._format = struct.Struct(f"<q{len(names)}q")  # milliseconds since 1970, then the numbers
        self._samples: deque[bytes] = deque(maxlen=size)

    def add(self, wall_ms: int, values: Sequence[int]) -> None:
        self._samples.append(self._format.pack(wall_ms, *values))

    @property
    def is_constant(self) -> bool:
        """Whether the ring is full of one set of numbers."""
        samples = self._samples
        return len(samples) == samples.maxlen and len({sample[8:] for sample in samples}) == 1

    def details(self, name: str, window: SampleWindow | None) -> dict[str, Any]:
        """The member `…_details` of a number."""
        samples = self._read(name)
        shown: dict[str, Any] = {"rate": _rate(samples[-2:])}
        if window is not None:
            chosen = _chosen(samples, window)
            shown["samples"] = [{"sample": value, "timestamp": at_ms} for at_ms, value in chosen]
            shown["avg_rate"] = _rate([chosen[-1], chosen[0]]) if chosen else 0.0
            shown["avg"] = sum(value for _, value in chosen) / len(chosen) if chosen else 0.0
        return shown

    def _read(self, name: str) -> list[tuple[int, int]]:
        """Time and number of each sample, oldest first."""
        place = 1 + self._places[name]
        unpacked = [self._format.unpack(sample) for sample in list(self._samples)]
        return [(values[0], values[place]) for values in unpacked]


def _rate(samples: Sequence[tuple[int, int]]) -> float:
    """Per second, from the first of the samples to the last."""
    for (from_ms, before), (to_ms, after) in pairwise(samples):
        return (after - before) * 1000 / (to_ms - from_ms) if to_ms > from_ms else 0.0
    return 0.0


def _chosen(samples: Sequence[tuple[int, int]], window: SampleWindow) -> list[tuple[int, int]]:
    """Newest first: the newest sample at or before each step back in time."""
    if not samples:
        return []
    newest_ms, place = samples[-1][0], len(samples) - 1
    chosen: list[tuple[int, int]] = []
    for back in range(0, window.age + 1, window.step):
        due_ms = newest_ms - back * 1000
        while place >= 0 and samples[place][0] > due_ms:
            place -= 1
        if place < 0:
            break
        if not chosen or chosen[-1] != samples[place]:
            chosen.append(samples[place])
    return chosen


class Statistics:
    """The rings. Thread-safe."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._of_broker = SampleRing([*message_stats(broker.counts), *churn(broker.counts), *_LENGTHS], BROKER_SAMPLES)
        self._of_queues: dict[QueueId, SampleRing] = {}
        self._last: dict[QueueId, tuple[int, ...]] = {}
        self._names = [*queue_stats(QueueCounters()), *_LENGTHS]
        environment = broker.environment
        task = environment.background.task("statistics", "rates are not measured")
        self._loop = BackgroundLoop(environment.threads, environment.clock, task, lambda is_requested: self.sample())

    def begin(self) -> None:
        self._loop.start("warren-statistics", SAMPLE_SECONDS)
        self.sample_soon()

    def sample_soon(self) -> None:
        self._loop.request()

    def stop(self) -> None:
        self._loop.stop()

    def sample(self) -> None:
        """Take one sample of everything."""
        now_ms = self._broker.environment.clock.wall_ns() // 1_000_000
        last: dict[QueueId, tuple[int, ...]] = {}
        ready = unacked = 0
        for vhost in self._broker.vhosts.every():
            for id_, handle in vhost.started_queues().items():
                values = _values(handle)
                last[id_] = values
                ready += values[-2]
                unacked += values[-1]
                self._add(id_, now_ms, values)
        for id_ in self._last.keys() - last.keys():
            self._of_queues.pop(id_, None)
        self._last = last
        counts = self._broker.counts
        numbers = [*message_stats(counts).values(), *churn(counts).values(), ready + unacked, ready, unacked]
        self._of_broker.add(now_ms, numbers)

    def _add(self, id_: QueueId, now_ms: int, values: tuple[int, ...]) -> None:
        ring = self._of_queues.get(id_)
        if ring is None:
            before = self._last.get(id_)
            if before == values or (before is None and not any(values)):
                return
            ring = self._of_queues[id_] = SampleRing(self._names, QUEUE_SAMPLES)
            ring.add(now_ms - int(SAMPLE_SECONDS * 1000), before or (0,) * len(values))
        ring.add(now_ms, values)
        if ring.is_constant:
            del self._of_queues[id_]

    # -- members of items ------------------------------------------------------------------------------------------

    def of_broker(self, totals: Mapping[str, int], window: SampleWindow | None) -> dict[str, Any]:
        """The numbers with their details."""
        return _with_details(totals, self._of_broker, window)

    def of_queue(self, id_: QueueId, totals: Mapping[str, int], window: SampleWindow | None) -> dict[str, Any]:
        return _with_details(totals, self._of_queues.get(id_), window)


def _with_details(totals: Mapping[str, int], ring: SampleRing | None, window: SampleWindow | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, total in totals.items():
        shown[name] = total
        shown[f"{name}_details"] = {"rate": 0.0} if ring is None else ring.details(name, window)
    return shown


def _values(handle: QueueHandle) -> tuple[int, ...]:
    """The counters, then messages, ready and unacked."""
    with handle.lock:
        queue = handle.queue
        ready, unacked = (0, 0) if queue is None else (len(queue.backing), queue.backing.pending_count)
    return (*queue_stats(handle.counts).values(), ready + unacked, ready, unacked)


# -- counters by RabbitMQ's names --------------------------------------------------------------------------------


def message_stats(counts: MessageCounters) -> dict[str, int]:
    """Of the broker, since its start."""
    return {
        "publish": counts.received,
        "confirm": counts.confirmed,
        "return_unroutable": counts.unroutable_returned,
        "drop_unroutable": counts.unroutable_dropped,
        "deliver": counts.delivered_manual_ack,
        "deliver_no_ack": counts.delivered_auto_ack,
        "get": counts.got_manual_ack,
        "get_no_ack": counts.got_auto_ack,
        "get_empty": counts.got_empty,
        "deliver_get": delivered(counts),
        "redeliver": counts.redelivered,
        "ack": counts.acknowledged,
    }


def delivered(counts: MessageCounters) -> int:
    """Deliveries to consumers and by get, with and without acknowledgement."""
    consumed = counts.delivered_manual_ack + counts.delivered_auto_ack
    return consumed + counts.got_manual_ack + counts.got_auto_ack


def churn(counts: MessageCounters) -> dict[str, int]:
    return {name: getattr(counts, counter) for name, counter in _CHURN.items()}


def queue_stats(counts: QueueCounters) -> dict[str, int]:
    return {
        "publish": counts.publish,
        "deliver": counts.deliver,
        "deliver_no_ack": counts.deliver_no_ack,
        "get": counts.get,
        "get_no_ack": counts.get_no_ack,
        "get_empty": counts.get_empty,
        "deliver_get": counts.deliver + counts.deliver_no_ack + counts.get + counts.get_no_ack,
        "redeliver": counts.redeliver,
        "ack": counts.ack,
    }
