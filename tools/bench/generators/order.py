"""Order of a generator: one per process, as a JSON argument. The readings are numbers by name.

A body is a sequence number (8 bytes, big-endian), the time it was sent (8 bytes, nanoseconds of the machine's monotonic
clock, which all processes share), and letters. Time 0 marks the last message of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from tools.bench.killed_child import Child, Readings, child
from warren.base.errors import Refused

MODULE = "tools.bench.generators.main"
HOST = "127.0.0.1"
SILENCE_SECONDS_MAX = 120  # a broker that says nothing for so long is given up


class BrokerFailed(Refused):
    """A broker hung up, refused something, or broke a promise that a generator counts on."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    shape: str  # a key of generators/main.SHAPES
    port: int
    queue: str = "bench"
    size: int = 100  # of a body
    window: int = 1000  # unconfirmed at once
    count: int = 0  # messages at most; 0: as many as there is time for
    seconds: float = 0.0  # at most; 0: as long as it takes
    rate: float = 0.0  # messages/s, where a shape is paced
    prefetch: int = 500
    ack_every: int = 100  # 0: never
    connections: int = 100
    marks_end: bool = False  # the last message says that it is the last
    bare: str = ""  # a file to be written bare in between, and synced

    def but(self, **changes: object) -> LoadOrder:
        return replace(self, **changes)  # type: ignore[arg-type]

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


def order_of(argument: str) -> LoadOrder:
    return LoadOrder(**json.loads(argument))


@contextmanager
def generator(order: LoadOrder) -> Iterator[Child]:
    """A process that is connected and waits for the word; killed when the block ends."""
    with child(MODULE, order.as_argument()) as process:
        yield process


def generated(order: LoadOrder) -> Readings:
    with generator(order) as process:
        return process.do()
