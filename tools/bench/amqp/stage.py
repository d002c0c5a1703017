"""One run of all brokers, side by side in time: the machine's speed changes within seconds, so what is compared has to
be measured within seconds too.

    start     one broker after the other, each on an empty directory; once it answers it is held (SIGSTOP)
    round     shapes that are compared with each other; one slice of each broker there, and one back:
              rabbitmq · warren · quorum · redis · redis_everysec · nats │ nats · redis_everysec · … · warren · rabbitmq
    slice     what others wrote is synced · the broker resumes (SIGCONT) · its shape is measured · it may finish what
              it has left to do (the queue is deleted by then), for five seconds at most · it is held again
    backlog   when all these are gone: one broker after the other, each started anew

While a broker is measured no other has a thread that runs, and none has anything left for the disk. There and back,
all have the same middle in time, so that a machine that becomes slower steadily is slower for all of them. Whatever
ends a run, all brokers are killed, held or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from tools.bench.amqp.backlog import BACKLOG_READINGS, backlog
from tools.bench.amqp.run import AmqpRun, Bench
from tools.bench.amqp.shapes import AMQP_SHAPES, ROUNDS
from tools.bench.amqp.slices import Shape, Slice, joined
from tools.bench.amqp.stream_shapes import OTHER_SHAPES
from tools.bench.amqp.subjects import OURS, Subject
from tools.bench.generators.order import BrokerFailed
from tools.bench.peers import NotInstalled
from warren.base.errors import WarrenError

Needed = Mapping[str, set[str]]  # readings by broker …
Found = dict[str, dict[str, float]]  # … and what they are


@dataclass(frozen=True, slots=True)
class _Step:
    """One shape of one broker."""

    bench: Bench
    name: str
    shape: Shape
    slices: list[Slice] = field(default_factory=list)

    def play(self) -> None:
        """One slice; all brokers are held before and after."""
        os.sync()
        with _named(self.bench.subject, self.name):
            self.bench.peer.resume()
            self.slices.append(self.shape(self.bench))
            self.bench.peer.settle()
            self.bench.peer.pause()


def measured_side_by_side(run: AmqpRun, needed: Needed, title: str) -> Found:
    """One run: the readings of each broker that is installed."""
    found: Found = {}
    shaped = {reading for each in ROUNDS for readings in each.values() for reading in readings}
    wanted = [subject for name, subject in run.subjects.items() if needed[name] & shaped]
    with _all_held(run, wanted, title) as benches:
        for each in ROUNDS:
            if steps := _steps(benches, each, needed):
                run.began(f"{title}: {', '.join(dict.fromkeys(step.name for step in steps))}")
                _play(run, steps, found)
    for name, subject in run.subjects.items():
        if needed[name] & set(BACKLOG_READINGS):
            run.began(f"{title}: backlog of {name}")
            with _if_installed(run, subject), _started(run, subject) as bench, _named(subject, "backlog"):
                found.setdefault(name, {}).update(backlog(bench))
    return found


def shapes_of(subject: Subject) -> Mapping[str, Shape]:
    return AMQP_SHAPES if subject.speaks == "amqp" else OTHER_SHAPES


def _steps(benches: Sequence[Bench], shapes: Mapping[str, tuple[str, ...]], needed: Needed) -> list[_Step]:
    return [
        _Step(bench, name, shapes_of(bench.subject)[name])
        for bench in benches
        for name, readings in shapes.items()
        if needed[bench.subject.name] & set(readings)
    ]


def _play(run: AmqpRun, steps: Sequence[_Step], found: Found) -> None:
    """All slices of a round; every other time from the last step to the first."""
    order = [step for number in range(run.effort.slices) for step in (steps, steps[::-1])[number % 2]]
    for at, step in enumerate(order):
        step.play()
        run.reached((at + 1) / len(order))
    for step in steps:
        found.setdefault(step.bench.subject.name, {}).update(joined(step.slices))


@contextmanager
def _all_held(run: AmqpRun, subjects: Sequence[Subject], title: str) -> Iterator[list[Bench]]:
    """Those that are installed."""
    with ExitStack() as stack:
        benches = []
        run.began(f"{title}: starting {', '.join(subject.name for subject in subjects)}")
        for at, subject in enumerate(subjects):
            with _if_installed(run, subject):
                bench = stack.enter_context(_started(run, subject))
                bench.peer.pause()
                benches.append(bench)
            run.reached((at + 1) / len(subjects))
        yield benches


@contextmanager
def _started(run: AmqpRun, subject: Subject) -> Iterator[Bench]:
    """On an empty directory; killed at the end."""
    is_ours = subject.name == OURS
    with run.room() as room, ExitStack() as stack:
        start = perf_counter()
        with _named(subject, "its start"):
            peer = stack.enter_context(subject.start(room / "broker"))
        yield Bench(
            subject,
            peer,
            run.effort.of_a_slice(),
            room,
            perf_counter() - start,
            run.entries if is_ours else run.peer_backlog,
            1.0 if is_ours else run.peer_factor,
        )


@contextmanager
def _if_installed(run: AmqpRun, subject: Subject) -> Iterator[None]:
    try:
        yield
    except NotInstalled as error:
        run.absent[subject.name] = error.what


@contextmanager
def _named(subject: Subject, what: str) -> Iterator[None]:
    """Errors name the broker and the operation."""
    try:
        yield
    except NotInstalled:
        raise
    except WarrenError as error:
        if error.what.startswith(subject.name):
            raise
        raise BrokerFailed(f"{subject.name}, {what}: {error.what}", error.hint) from error
    except OSError as error:
        raise BrokerFailed(f"{subject.name}, {what}: {error}") from error
