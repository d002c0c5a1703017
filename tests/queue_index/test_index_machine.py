"""The queue index against plain dicts: whatever is published, dequeued, requeued and counted, in whatever sessions.

    real     Changes and QueueIndex over a database on a memory disk; containers, steps and buffers as small as they go
    model    of each sub-queue its messages by sequence id, and the counters that were written last

Sessions hold several steps about several queues, and are ended, aborted, or lost with the power. The database is
reopened, its store lost, its log rotated and cleaned in between. Afterwards every sub-queue is as the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.queue_index.index_stage import IndexStage, a_run, ranges_of
from tests.queue_index.plain_model import Held, Model, Queue, copied, recovered
from tests.snapshot.database_stage import DatabaseStage
from warren.base.ids import QueueId
from warren.base.runs import QueuePlace
from warren.queue_index.changes import Changes
from warren.queue_index.cleaning import Cleaning
from warren.queue_index.why import Why
from warren.snapshot.feeds import Mode
from warren.testing.memory_files import CrashModel

PLACES = [QueuePlace(QueueId(5 << 32)), QueuePlace(QueueId(5 << 32), 1), QueuePlace(QueueId(6 << 32))]
CONTENTS = st.lists(st.sampled_from([b"", b"x", b"yy" * 20, b"zzz" * 100]), min_size=1, max_size=5)


class IndexMachine(RuleBasedStateMachine):
    """Queues write counters in every session that dequeues, as queues do."""

    def __init__(self) -> None:
        super().__init__()
        self.real: IndexStage | None = None
        self.durable: Model = {place: Queue() for place in PLACES}
        self.model = deepcopy(self.durable)
        self.changes: Changes | None = None
        self.dequeued: set[QueuePlace] = set()

    @initialize(mode=st.sampled_from([Mode.NOTIFY, Mode.PUSH, Mode.OFF]))
    def begin(self, mode: Mode) -> None:
        disk = DatabaseStage(mode)
        disk.log_settings = replace(disk.log_settings, retention_seconds=0.0, retention_bytes=0)
        self.real = IndexStage(disk)

    # -- what happens in a session -------------------------------------------------------------------------------

    @rule(place=st.sampled_from(PLACES), contents=CONTENTS, skipped=st.sampled_from([0, 0, 0, 1, 20000]))
    def publish(self, place: QueuePlace, contents: list[bytes], skipped: int) -> None:
        """Some sequence ids were of transient messages."""
        queue = self.model[place]
        run = a_run(queue.next + skipped, contents)
        self._changes().publish(place, run, contents)
        queue.runs[run.first] = Held(run, contents)
        queue.next = run.end

    @rule(place=st.sampled_from(PLACES), which=st.integers(0, 99), bits=st.integers(1, 31) | st.just(31))
    def dequeue(self, place: QueuePlace, which: int, bits: int) -> None:
        queue = self.model[place]
        if not queue.runs:
            return
        held = sorted(queue.runs.items())[which % len(queue.runs)][1]
        newly = bits & (1 << held.run.count) - 1 & ~held.gone
        if not newly:
            return
        held.gone |= newly
        why = list(Why)[which % len(Why)]
        self._changes().dequeue(place, held.run, held.gone, ranges_of(held.run, newly), why)
        if held.gone.bit_count() == held.run.count:
            del queue.runs[held.run.first]
        self.dequeued.add(place)

    @rule(place=st.sampled_from(PLACES), first=st.integers(0, 50), count=st.integers(1, 9))
    def deliver_and_requeue(self, place: QueuePlace, first: int, count: int) -> None:
        self._changes().delivered(place, [(first, first + count)], "ann")
        self._changes().requeued(place, [(first, first + count)])

    @rule(place=st.sampled_from(PLACES), share=st.floats(0, 1), is_clean=st.booleans())
    def count(self, place: QueuePlace, share: float, is_clean: bool) -> None:
        self._count(place, int(self.model[place].next * share), is_clean)

    @rule(queue=st.sampled_from([place.queue for place in PLACES]), chance=st.integers(0, 9))
    def remove_queue(self, queue: QueueId, chance: int) -> None:
        """Seldom; and as its id is never given again, what follows is another session's queue of the same name."""
        if chance:
            return
        self._changes().remove_queue(queue)
        for place in PLACES:
            if place.queue == queue:
                self.model[place] = Queue(next=self.model[place].next)
                self.dequeued.discard(place)
        self.end(waits=True)

    # -- how a session ends --------------------------------------------------------------------------------------

    @rule(waits=st.booleans())
    def end(self, waits: bool) -> None:
        for place in sorted(self.dequeued, key=lambda place: (place.queue, place.level)):
            self._count(place, 0, is_clean=False)
        epoch = self._changes().end()
        self.real_one.newest = max(self.real_one.newest, epoch)
        if waits:
            self.real_one.database.log.wait(self.real_one.newest)
        self._forget_session()
        self.durable = copied(self.model)

    @rule()
    def abort(self) -> None:
        self._changes().abort()
        self._forget_session()
        self.model = copied(self.durable)

    # -- what happens to the disk --------------------------------------------------------------------------------

    @rule(loses_store=st.booleans())
    def restart(self, loses_store: bool) -> None:
        if self.real_one.database.log.manifest.state.horizon:
            loses_store = False  # what left the log is in the store only
        self._stop(lambda stage: stage.database.close())
        if loses_store:
            self.real_one.stage.store = None
        self.real_one.open()

    @rule(model=st.sampled_from(CrashModel), seed=st.integers(0, 99))
    def cut_the_power(self, model: CrashModel, seed: int) -> None:
        self.real_one.database.make_durable()

        def cut(stage: IndexStage) -> None:
            stage.database.abandon()
            stage.stage.crash(model, seed)

        self._stop(cut)
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
        Cleaning(stage.database, stage.stream, lambda: queues, stage.index.writing).run()
        stage.database.log.purge()

    # -- what must be so -----------------------------------------------------------------------------------------

    @invariant()
    def every_queue_is_as_it_should_be(self) -> None:
        if self.real is None or self.changes is not None:
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
        assert found == [first for first, held in sorted(queue.runs.items()) if held.run.end > middle]
        pieces = [
            (held.run, at, at + 1) for held in queue.runs.values() if not held.gone >> (at := held.run.count - 1) & 1
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

    def _changes(self) -> Changes:
        if self.changes is None:
            self.changes = self.real_one.index.begin()
        return self.changes

    def _count(self, place: QueuePlace, delivered_to: int, is_clean: bool) -> None:
        queue = self.model[place]
        queue.written = queue.counters(delivered_to, is_clean)
        self._changes().counters(place, queue.written)

    def _forget_session(self) -> None:
        self.changes = None
        self.dequeued = set()

    def _stop(self, stop: Callable[[IndexStage], None]) -> None:
        """What was not ended was never there."""
        self._forget_session()
        self.model = copied(self.durable)
        stop(self.real_one)


def test_whatever_happens_to_queues_the_index_tells_it_as_it_was() -> None:
    few = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(IndexMachine, settings=few)


@pytest.mark.torture
def test_whatever_happens_to_queues_for_long_the_index_tells_it_as_it_was() -> None:
    many = settings(max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(IndexMachine, settings=many)
