"""The queue index against plain dicts: any publishes, dequeues, requeues and counters, in any sessions.

    real     IndexBatch and QueueIndex over a database on a memory disk; containers, steps and buffers at minimum size
    model    of each sub-queue its messages by sequence id, and the counters that were written last

Sessions hold several steps about several queues, and are ended, aborted, or lost with the power. The database is
reopened, its store lost, its log rotated and cleaned in between. Afterwards every sub-queue is as the model says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.queue_index.index_stage import IndexStage, a_run, ranges_of
from tests.queue_index.plain_model import Model, Queue, RunState, copied, recovered
from tests.snapshot.database_stage import DatabaseStage
from warren.base.ids import QueueId
from warren.base.messages import QueuePlace
from warren.queue_index.batch import IndexBatch
from warren.queue_index.cleaner import Cleaner
from warren.queue_index.history_format import DequeueReason
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

PLACES = [QueuePlace(QueueId(5 << 32)), QueuePlace(QueueId(5 << 32), 1), QueuePlace(QueueId(6 << 32))]
CONTENTS = st.lists(st.sampled_from([b"", b"x", b"yy" * 20, b"zzz" * 100]), min_size=1, max_size=5)


class Publish(NamedTuple):
    place: QueuePlace
    contents: list[bytes]
    skipped: int  # sequence ids of transient messages in between


class Dequeue(NamedTuple):
    which: int  # of the places and runs that there are then
    bits: int


class Count(NamedTuple):
    place: QueuePlace
    share: float
    is_clean: bool


class Deliver(NamedTuple):
    place: QueuePlace
    first: int


Step = Publish | Dequeue | Count | Deliver
PLACE = st.sampled_from(PLACES)
PUBLISH = st.builds(Publish, PLACE, CONTENTS, st.sampled_from([0, 0, 0, 1, 20000]))
DEQUEUE = st.builds(Dequeue, st.integers(0, 20), st.sampled_from([0b1, 0b10, 0b11, 0b101, 0b11111, 0b11111]))
OTHERS = st.builds(Count, PLACE, st.floats(0, 1), st.booleans()) | st.builds(Deliver, PLACE, st.integers(0, 50))
STEP = st.one_of(PUBLISH, DEQUEUE, PUBLISH, DEQUEUE, OTHERS)


class IndexMachine(RuleBasedStateMachine):
    """Queues write counters in every session that dequeues, as queues do."""

    def __init__(self) -> None:
        super().__init__()
        self.real: IndexStage | None = None
        self.model: Model = {place: Queue() for place in PLACES}

    @initialize(mode=st.sampled_from([Mode.NOTIFY, Mode.PUSH, Mode.OFF]))
    def begin(self, mode: Mode) -> None:
        disk = DatabaseStage(mode)
        disk.log_settings = replace(disk.log_settings, retention_seconds=0.0, retention_bytes=0)
        self.real = IndexStage(disk)

    # -- sessions ------------------------------------------------------------------------------------------------

    @rule(steps=st.lists(STEP, min_size=1, max_size=8), ending=st.sampled_from(["waited for", "ended", "aborted"]))
    def write(self, steps: list[Step], ending: str) -> None:
        batch = self.real_one.index.begin()
        before, dequeued = copied(self.model), set[QueuePlace]()
        for step in steps:
            if isinstance(step, Publish):
                self._publish(batch, step)
            elif isinstance(step, Dequeue):
                dequeued |= self._dequeue(batch, step)
            elif isinstance(step, Count):
                self._count(batch, step.place, int(self.model[step.place].next * step.share), step.is_clean)
            else:
                batch.delivered(step.place, [(step.first, step.first + 3)], "ann")
                batch.requeued(step.place, [(step.first, step.first + 2)])
        for place in PLACES:
            if place in dequeued:
                self._count(batch, place, 0, is_clean=False)
        self._end(batch, ending, before)

    @rule(queue=st.sampled_from([place.queue for place in PLACES]), ending=st.sampled_from(["ended", "aborted"]))
    def remove_queue(self, queue: QueueId, ending: str) -> None:
        """An id is never reused; here the next queue takes it, and continues its sequence ids."""
        batch, before = self.real_one.index.begin(), copied(self.model)
        batch.remove_queue(queue)
        self.model |= {place: Queue(next=self.model[place].next) for place in PLACES if place.queue == queue}
        self._end(batch, ending, before)

    # -- what happens to the disk --------------------------------------------------------------------------------

    @rule(loses_store=st.booleans())
    def restart(self, loses_store: bool) -> None:
        if self.real_one.database.log.manifest.state.horizon:
            loses_store = False  # what left the log is in the store only
        self.real_one.database.close()
        if loses_store:
            self.real_one.stage.store = None
        self.real_one.open()

    @rule(model=st.sampled_from(CrashModel), seed=st.integers(0, 99))
    def cut_the_power(self, model: CrashModel, seed: int) -> None:
        self.real_one.database.make_durable()
        self.real_one.database.abandon()
        self.real_one.stage.crash(model, seed)
        self.real_one.open()

    @rule()
    def clean(self) -> None:
        """Rotate, let the store have it, and write again what is alive in files of which most is not."""
        stage = self.real_one
        stage.database.settle()
        stage.database.log.rotate()
        stage.database.settle()
        if stage.database.reflection is not None:
            stage.database.reflection.flush()
        queues = sorted({place.queue for place in PLACES})
        Cleaner(stage.database, stage.stream, lambda: queues, stage.index.stream_lock).run()
        stage.database.log.purge()

    # -- what must be so -----------------------------------------------------------------------------------------

    @invariant()
    def every_queue_is_as_it_should_be(self) -> None:
        if self.real is None:
            return
        for place, queue in self.model.items():
            assert self.real.alive(place) == queue.messages()
            assert self.real.index.recover(place, self.real.newest) == recovered(queue)
            self._check_parts(place, queue)

    def _check_parts(self, place: QueuePlace, queue: Queue) -> None:
        """From the middle of the queue on, and of each run its last content, by the run as its queue holds it."""
        messages = queue.messages()
        middle = sorted(messages)[len(messages) // 2] if messages else 0
        found = [run.first for run, _ in self.real_one.runs(place, middle)]
        assert found == [first for first, run_state in sorted(queue.runs.items()) if run_state.run.end > middle]
        pieces = [
            (run_state.run, at, at + 1)
            for run_state in queue.runs.values()
            if not run_state.gone >> (at := run_state.run.count - 1) & 1
        ]
        assert self.real_one.index.contents_of(place, pieces) == [
            [queue.runs[run.first].contents[at]] for run, at, _ in pieces
        ]

    def teardown(self) -> None:
        if self.real is not None:
            self.real.database.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def real_one(self) -> IndexStage:
        assert self.real is not None
        return self.real

    def _publish(self, batch: IndexBatch, step: Publish) -> None:
        queue = self.model[step.place]
        run = a_run(queue.next + step.skipped, step.contents)
        batch.publish(step.place, run, step.contents)
        queue.runs[run.first], queue.next = RunState(run, step.contents), run.end

    def _dequeue(self, batch: IndexBatch, step: Dequeue) -> set[QueuePlace]:
        """From a place that has something, if there is one; which."""
        places = [place for place in PLACES if self.model[place].runs]
        if not places:
            return set()
        place = places[step.which % len(places)]
        runs = self.model[place].runs
        run_state = runs[sorted(runs)[step.which % len(runs)]]
        newly = step.bits & (1 << run_state.run.count) - 1 & ~run_state.gone
        if not newly:
            return set()
        run_state.gone |= newly
        batch.dequeue(
            place,
            run_state.run,
            run_state.gone,
            ranges_of(run_state.run, newly),
            list(DequeueReason)[step.which % len(DequeueReason)],
        )
        if run_state.gone.bit_count() == run_state.run.count:
            del runs[run_state.run.first]
        return {place}

    def _count(self, batch: IndexBatch, place: QueuePlace, delivered_to: int, is_clean: bool) -> None:
        queue = self.model[place]
        queue.written = queue.counters(delivered_to, is_clean)
        batch.counters(place, queue.written)

    def _end(self, batch: IndexBatch, ending: str, before: Model) -> None:
        if ending == "aborted":
            batch.abort()
            self.model = before
            return
        self.real_one.newest = max(self.real_one.newest, batch.end())
        if ending == "waited for":
            self.real_one.database.log.wait(self.real_one.newest)


def test_the_index_equals_the_model_after_any_operations() -> None:
    few = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(IndexMachine, settings=few)


@pytest.mark.torture
def test_the_index_equals_the_model_after_many_operations() -> None:
    many = settings(max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(IndexMachine, settings=many)
