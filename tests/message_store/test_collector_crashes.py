"""The power is cut at every file operation of a collection, and of the work beside it.

    publish, seal, dequeue ─▶ │ collect, purge, collect the copies, purge ∥ a reader ∥ a publisher │

It is played once to count its steps, then once for each step from the mark on at which the power goes. What is
left of the disk is judged by each crash model: every message that was acknowledged and is not gone is there, whole, and
stays so when the collector, after the restart, has done all that there is to do. `check_state(seed, step)` plays one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.message_store.store_stage import A, B, StoreStage, content
from tests.snapshot.crash_stage import CrashStage, Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.messages import QueuePlace, Run
from warren.snapshot.reflection import Mode
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import CrashModel

SEED = 5


@dataclass(slots=True)
class Promise:
    """A run that was acknowledged, and which of its messages must be there."""

    place: QueuePlace
    run: Run
    contents: list[bytes]
    wanted: int

    def check(self, stage: StoreStage, run: Run) -> None:
        for at in range(run.count):
            if self.wanted >> at & 1:
                assert stage.contents(run, at, at + 1) == [self.contents[at]], f"message {at} of {self}"


@dataclass(slots=True)
class Life:
    crash: CrashStage
    promises: list[Promise] = field(default_factory=list)
    begun_at: int = -1  # the step with which collecting began

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        stage = StoreStage(open_database=open_database, read_cache_bytes=0)
        self.prepare(stage)
        assert self.crash._files is not None
        self.begun_at = len(self.crash._files.steps)
        beside = [
            threads.start("reader", lambda: self.read(stage)),
            threads.start("publisher", lambda: self.publish(stage, [content(50, 700)], A, B)),
        ]
        self.collect(stage)
        for each in beside:
            each.join()
        stage.stores.close()
        stage.database.close()

    def prepare(self, stage: StoreStage) -> None:
        """Two files, both more than half garbage: shared and large units, some of them half dead."""
        for n in range(2):
            self.publish(stage, [content(n * 10 + at, 150) for at in range(5)], A, B)
            self.publish(stage, [content(n * 10 + 6, 2300), content(n * 10 + 7, 40)], A)
            dead = stage.publish([content(99, 900), content(98, 2900)], A)[A]
            stage.seal()
            stage.dequeue(A, dead)
        for promise in self.promises:
            if promise.place == A and promise.run.count == 5:
                stage.dequeue(A, promise.run)
                promise.wanted = 0
            elif promise.place == B:
                promise.wanted &= ~0b10011
                stage.dequeue(B, promise.run, 0b10011)

    def publish(self, stage: StoreStage, contents: list[bytes], *places: QueuePlace) -> None:
        """Promised once it is acknowledged; before that it may be there or not."""
        runs = stage.publish(contents, *places)
        self.promises += [Promise(place, run, contents, (1 << run.count) - 1) for place, run in runs.items()]

    def read(self, stage: StoreStage) -> None:
        for _ in range(4):
            for promise in list(self.promises):
                promise.check(stage, promise.run)

    def collect(self, stage: StoreStage) -> None:
        """Collect, release the files, dequeue some copies, collect those."""
        assert stage.collect().released
        stage.log.purge()
        stage.seal()
        moved = next(p for p in self.promises if p.place == A and p.wanted == 0b11)
        moved.wanted = 0
        stage.dequeue(A, moved.run)
        stage.collect()
        assert stage.database.reflection is not None
        stage.database.catch_up()
        stage.database.reflection.flush()
        stage.log.purge()


def check_state(seed: int, step: int | None) -> list[str]:
    """Cut the power before one step, or half way through it; whatever is wrong in any model."""
    crash = CrashStage(Mode.NOTIFY)
    life = Life(crash)
    crash.play(seed, life.body, cut_at=step, fraction=0.5 if step and step % 2 else None)
    wrong: list[str] = []
    for model in CrashModel:
        try:
            check_restart(life, crash.crashed(model, step or 0))
        except Exception as error:
            wrong.append(f"seed {seed}, step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def check_restart(life: Life, after: CrashStage) -> None:
    stage = StoreStage(after)
    check_promises(life, stage)
    while stage.collect().released:
        stage.log.purge()
        check_promises(life, stage)
    assert stage.stores.collector.alarms() == []
    stage.reopen()
    check_promises(life, stage)
    stage.close()


def check_promises(life: Life, stage: StoreStage) -> None:
    for place in (A, B):
        found = {run.first: (run, gone) for run, gone in stage.recovered(place)}
        for promise in life.promises:
            if promise.place == place and promise.wanted:
                run, gone = found[promise.run.first]
                assert not gone & promise.wanted
                promise.check(stage, run)
        for run, gone in found.values():  # an unconfirmed run is whole as well, or not there
            alive = [at for at in range(run.count) if not gone >> at & 1]
            assert all(len(stage.contents(run, at, at + 1)[0]) == run.size_of(at, at + 1) for at in alive)


def steps_of(seed: int) -> tuple[list[FaultStep], int]:
    crash = CrashStage(Mode.NOTIFY)
    life = Life(crash)
    return crash.play(seed, life.body), life.begun_at


def test_a_life_without_a_cut_joins_files_twice_and_keeps_every_promise() -> None:
    steps, begun_at = steps_of(SEED)
    assert len(steps) - begun_at > 60
    assert {"rename", "remove", "sync", "write"} <= {step.operation for step in steps[begun_at:]}
    assert check_state(SEED, None) == []


@pytest.mark.parametrize("part", range(4))
def test_the_power_can_go_at_any_step_of_a_collection(part: int) -> None:
    """GC-04: nothing that was acknowledged is lost, and every reader gets what was written. The collector's
    location updates and deletes are each there or not there, whatever the publisher's counts do beside them."""
    steps, begun_at = steps_of(SEED)
    wrong = [reported for step in range(begun_at + part, len(steps), 4) for reported in check_state(SEED, step)]
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize("seed", range(30, 60))
def test_readers_get_what_was_written_in_every_interleaving(seed: int) -> None:
    """GC-04, MS-08: a reader and a publisher beside the collector, which may be interrupted at each file operation."""
    crash = CrashStage(Mode.NOTIFY)
    life = Life(crash)
    crash.play(seed, life.body)
    assert len(life.promises) == 8
