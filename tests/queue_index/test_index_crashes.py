"""The power is cut at every step while queues are written, moved, acknowledged, carried on and cleaned.

    publish, move to another queue, acknowledge, count ─▶ session by session, each waited for
    rotate, flush, clean, purge                        ─▶ in between

What is found afterwards is what stood behind the last session that was acknowledged, or behind the one under way:
whole, so that no message is in two queues, or in none. A state that fails prints itself: `check_state(seed, step)`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.queue_index.index_stage import a_run, alive_in, ranges_of
from tests.queue_index.plain_model import Model, Queue, RunState, copied, recovered
from tests.snapshot.crash_stage import CrashStage, Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.ids import QueueId
from warren.base.messages import QueuePlace
from warren.queue_index.batch import IndexBatch
from warren.queue_index.cleaner import Cleaner
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.index import MESSAGES, QueueIndex
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

HERE, THERE = QueuePlace(QueueId(5 << 32)), QueuePlace(QueueId(6 << 32), 3)
SESSIONS = 9
SEED = 5


class Client:
    """A writer, and the expected states: `states[n]` behind the n-th session."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.states: list[Model] = [{HERE: Queue(), THERE: Queue()}]
        self.acknowledged = 0

    def body(self, open_database: Open, _: SteppedThreads) -> None:
        database = open_database()
        index = QueueIndex.of(database)
        for number in range(SESSIONS):
            self.write(database, index)
            if number % 3 == 2:
                maintain(database, index)
        database.close()

    def write(self, database: Database, index: QueueIndex) -> None:
        """One session, to its acknowledgement."""
        model = copied(self.states[-1])
        batch = index.begin()
        for _ in range(self._rng.randrange(1, 4)):
            self._rng.choice([publish, publish, move, acknowledge])(batch, model, self._rng)
        for place, queue in model.items():
            queue.written = queue.counters(0, is_clean=False)
            batch.counters(place, queue.written)
        self.states.append(model)
        database.log.wait(batch.end())
        self.acknowledged += 1

    def judge(self, database: Database) -> None:
        index, newest = QueueIndex.of(database), database.log.durable
        found = {place: (alive_in(index, place, newest), index.recover(place, newest)) for place in (HERE, THERE)}
        allowed = [
            {place: (queue.messages(), recovered(queue)) for place, queue in state.items()}
            for state in self.states[self.acknowledged :]
        ]
        assert found in allowed, f"{self.acknowledged} acknowledged: {found} is none of {allowed}"


def publish(batch: IndexBatch, model: Model, rng: random.Random) -> None:
    contents = [rng.randbytes(rng.choice([3, 90, 150])) for _ in range(rng.randrange(1, 4))]
    put(batch, model[HERE], HERE, contents)


def put(batch: IndexBatch, queue: Queue, place: QueuePlace, contents: Sequence[bytes]) -> None:
    run = a_run(queue.next, contents)
    batch.publish(place, run, contents)
    queue.runs[run.first], queue.next = RunState(run, list(contents)), run.end


def move(batch: IndexBatch, model: Model, rng: random.Random) -> None:
    """Messages of one run go to another queue, in the same session."""
    contents = take(batch, model[HERE], HERE, rng, DequeueReason.MOVED)
    if contents:
        put(batch, model[THERE], THERE, contents)


def acknowledge(batch: IndexBatch, model: Model, rng: random.Random) -> None:
    place = rng.choice([HERE, THERE])
    take(batch, model[place], place, rng, DequeueReason.ACKED)


def take(batch: IndexBatch, queue: Queue, place: QueuePlace, rng: random.Random, reason: DequeueReason) -> list[bytes]:
    if not queue.runs:
        return []
    run_state = queue.runs[rng.choice(sorted(queue.runs))]
    newly = rng.choice([0b001, 0b010, 0b111]) & (1 << run_state.run.count) - 1 & ~run_state.gone
    if not newly:
        return []
    run_state.gone |= newly
    batch.dequeue(place, run_state.run, run_state.gone, ranges_of(run_state.run, newly), reason)
    if run_state.gone.bit_count() == run_state.run.count:
        del queue.runs[run_state.run.first]
    return [content for at, content in enumerate(run_state.contents) if newly >> at & 1]


def maintain(database: Database, index: QueueIndex) -> None:
    assert database.reflection is not None
    database.log.rotate()
    database.catch_up()
    database.reflection.flush()
    stream = database.log.stream(MESSAGES, is_referring=True)
    Cleaner(database, stream, lambda: [HERE.queue, THERE.queue], index.stream_lock).run()
    database.log.purge()


def check_state(seed: int, step: int) -> list[str]:
    """Cut the power before one step, or half way through it; whatever is wrong in any model."""
    client, stage = Client(seed), CrashStage(Mode.NOTIFY)
    stage.play(seed, client.body, cut_at=step, fraction=0.5 if step % 2 else None)
    wrong = []
    for model in CrashModel:
        try:
            stage.crashed(model, step).play(step, lambda open_database, _: check_found(open_database(), client))
        except Exception as error:
            wrong.append(f"seed {seed}, step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def check_found(database: Database, client: Client) -> None:
    client.judge(database)
    database.close()


def count_steps(seed: int) -> int:
    """Play it once, uncut, and see that there is something to be cut short."""
    client, stage = Client(seed), CrashStage(Mode.NOTIFY)
    steps = stage.play(seed, client.body)
    assert client.acknowledged == SESSIONS
    assert {step.operation for step in steps} >= {"write", "sync", "flush", "remove"}
    assert all(any(state[place].messages() for state in client.states) for place in (HERE, THERE))
    return len(steps)


def test_a_power_cut_at_some_steps_leaves_every_queue_as_it_was_behind_a_session() -> None:
    """A move is in one queue or in the other; what was acknowledged stays away, what was not stays there."""
    wrong = [reported for step in range(0, count_steps(SEED), 9) for reported in check_state(SEED, step)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_a_power_cut_at_any_step_leaves_every_queue_as_it_was_behind_a_session(seed: int) -> None:
    wrong = [reported for step in range(count_steps(seed)) for reported in check_state(seed, step)]
    assert not wrong, "\n".join(wrong)
