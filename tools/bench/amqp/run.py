"""One run of `warren bench amqp`: which brokers, how many times, how much of everything, and which rows are wanted.

Every run starts its own brokers on empty directories (amqp/stage); a broker gets the seconds of a row in slices,
between those of the others.

A broker that is not installed is left out and named; goals about it are missed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.bench.amqp.subjects import OURS, SUBJECTS, Subject
from tools.bench.generators.line import BrokerConnection
from tools.bench.generators.order import LoadOrder
from tools.bench.generators.wire import Table
from tools.bench.peers import Peer
from tools.bench.run import BenchRun, Watcher, run_in
from warren.base.errors import Refused

ROOM_BYTES_PER_MESSAGE = 1000  # of a backlog of 100 bytes; as much is enough for some seconds of large bodies


@dataclass(frozen=True, slots=True)
class RunSize:
    """How much of everything, for each broker in each run, in all its slices together."""

    seconds: float = 4.0  # of a row at full speed
    slices: int = 2
    drain_messages: int = 2_000_000  # at most: what can be filled in half as much time again
    singles: int = 2000  # one in flight
    rate: float = 5000.0  # where a row is paced
    connections: int = 100
    disk_bytes: int = 256 << 20

    def of_a_slice(self) -> RunSize:
        return replace(
            self,
            seconds=self.seconds / self.slices,
            drain_messages=self.drain_messages // self.slices,
            singles=self.singles // self.slices,
            disk_bytes=self.disk_bytes // self.slices,
        )

    @property
    def fill_seconds(self) -> float:
        return self.seconds * 1.5


QUICK = RunSize(0.4, 2, 4000, 200, 1000.0, 10, 8 << 20)
QUICK_BACKLOG = (5000, 2500)


@dataclass(frozen=True, slots=True)
class AmqpRun(BenchRun):
    """`entries` is the length of Warren's backlog."""

    wanted: frozenset[str]  # rows
    runs: int = 3
    effort: RunSize = field(default_factory=RunSize)
    peer_backlog: int = 300_000
    subjects: Mapping[str, Subject] = field(default_factory=lambda: SUBJECTS)
    absent: dict[str, str] = field(default_factory=dict)  # brokers that could not be started, and why

    @property
    def focus(self) -> str:
        """The broker that is measured; the others stand beside it."""
        return OURS if OURS in self.subjects else next(iter(self.subjects))

    @property
    def peer_factor(self) -> float:
        """By which a peer's backlog is shorter than Warren's."""
        return self.entries / self.peer_backlog


@dataclass(frozen=True, slots=True)
class Bench:
    """One broker that runs, and what is measured with it."""

    subject: Subject
    peer: Peer
    effort: RunSize  # of one slice
    room: Path
    started_seconds: float  # an empty one
    backlog: int
    factor: float  # by which that is shorter than it should be

    def order(self, shape: str) -> LoadOrder:
        return LoadOrder(shape, self.peer.port)

    def line(self) -> BrokerConnection:
        return BrokerConnection(self.peer.port)

    def declare(self, queue: str, arguments: Table | None = None) -> None:
        with self.line() as line:
            line.declare(queue, {**self.subject.arguments, **(arguments or {})})

    def delete(self, queue: str) -> None:
        with self.line() as line:
            line.delete(queue)


@contextmanager
def amqp_run(
    directory: Path,
    watcher: Watcher,
    wanted: Collection[str],
    subjects: Mapping[str, Subject],
    backlogs: tuple[int, int],  # Warren's, and a peer's
    runs: int = 3,
    effort: RunSize | None = None,
) -> Iterator[AmqpRun]:
    """A run below a directory; everything it writes is removed at its end."""
    backlog, peer_backlog = backlogs
    with run_in(directory, max(backlogs), watcher, ROOM_BYTES_PER_MESSAGE, "backlog") as run:
        yield AmqpRun(run.home, backlog, watcher, frozenset(wanted), runs, effort or RunSize(), peer_backlog, subjects)


def chosen(names: Sequence[str]) -> dict[str, Subject]:
    """The brokers of these names, all if there are none; at least one must have every row."""
    if unknown := sorted(set(names) - set(SUBJECTS)):
        raise Refused(f"there is no broker {unknown[0]}", f"brokers are {', '.join(SUBJECTS)}")
    found = {name: subject for name, subject in SUBJECTS.items() if not names or name in names}
    if next(iter(found.values())).speaks != "amqp":
        raise Refused(f"{next(iter(found))} has not every row", "name a broker that speaks AMQP as well")
    return found
