"""The power is cut at every step of a scenario of the queue side, and what was promised is there.

    two clients put, get, settle, page, purge, expire, delete ∥ rotate, reflect, clean, collect, purge ─▶ stop ─▶ again

It is played once to count its steps, then once for each step at which the power goes. What is left is judged four
times: all, synced, reordered, and killed (only the process is dead; then the power goes as well). Every message whose
put was durable and that was not settled is there once, in order, with its content; nothing that was durably settled
comes back; a moved message is in one of both queues; what is found after a crash is flagged as redelivered, and after a
clean stop only what was delivered. A state that fails prints itself: `check_state(seed, step)` plays it again.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from tests.broker.crash_clients import Clerk, Client, Shopkeeper
from tests.broker.plain_queues import Standing
from tests.broker.queue_crash_stage import Broker, QueueCrashStage
from tests.broker.stage import BrokerStage, bodies
from tests.snapshot.crash_stage import Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.broker.errors import QueueDown
from warren.broker.queue_handle import QueueHandle
from warren.broker.unit_of_work import UnitOfWork
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import SYNCED, CrashModel

DOINGS = 16  # of each client in each life
SEEDS = 28, 38  # together they do everything that clients and upkeep can
STRIDE = 37


class Lives:
    """Two lives of one broker, the first ended by a stop."""

    def __init__(self, seed: int, stage: QueueCrashStage) -> None:
        self._rng = random.Random(seed)
        self._stage = stage
        self.clients: list[Client] = [Shopkeeper(seed, stage.clock), Clerk(seed, stage.clock)]
        self.done: Counter[str] = Counter()
        self.stopped_at = -1  # the step with which the stop began

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        for incarnation in range(2):
            broker = self._stage.up(open_database, threads)
            for client in self.clients:
                client.begin(broker)
            others = [threads.start(type(client).__name__, partial(client.work, DOINGS)) for client in self.clients]
            for _ in range(7):
                self._rng.choice([broker.seal, broker.clean, broker.collect, broker.reflect, broker.pause])()
            for other in others:
                other.join()
            broker.tidy()
            broker.check()
            self.done.update(broker.done)
            if incarnation == 0:
                assert self._stage._files is not None
                self.stopped_at = len(self._stage._files.steps)
                stop(broker, self.clients)


def stop(broker: Broker, clients: list[Client]) -> None:
    """Queue by queue, as the vhost does it."""
    for handle in broker.vhost._by_id.values():
        for client in clients:
            if handle.name in client.queues:
                client.stopping(handle.name)
    broker.close()
    for client in clients:
        client.stopped()


def check_state(seed: int, step: int | None) -> list[str]:
    """Cut the power before one step, or half way through it; whatever is wrong in any model."""
    stage = QueueCrashStage()
    lives = Lives(seed, stage)
    stage.play(seed, lives.body, cut_at=step, fraction=0.5 if step and step % 2 else None)
    step, wrong = step or 0, []
    for index, model in enumerate([*CrashModel, None]):
        try:
            after = stage if model is None else stage.crashed(model, 4 * step + index)
            was_begun = model is not None and (step + index) % 5 == 0  # the start may be cut short, too
            if model is None:
                stage.kill()
            elif was_begun:
                after.play(step, lambda open_database, threads: begin_only(after, open_database, threads), step % 43)  # noqa: B023
                after = after.crashed(model, step)
            found = check_restart(after, lives.clients, was_begun, continues=(step + index) % 3 == 0)
            if model is None and found is not None:
                check_the_same(after.crashed(SYNCED, step), found)
        except Exception as error:
            name = "killed" if model is None else model.value
            wrong.append(f"seed {seed}, step {step}, {name}: {type(error).__name__}: {error}")
    return wrong


def begin_only(stage: QueueCrashStage, open_database: Open, threads: SteppedThreads) -> None:
    """Open, start every queue, and no more."""
    broker = stage.up(open_database, threads)
    for name in broker.vhost.queue_names():
        broker.vhost.find_queue(name)
    broker.database.abandon()


def check_restart(stage: QueueCrashStage, clients: list[Client], was_begun: bool, continues: bool) -> Standing | None:
    """Open on what is left, and judge it. Then, perhaps, do more, collect everything, stop, and check again."""
    reported: list[Standing] = []

    def body(open_database: Open, threads: SteppedThreads) -> None:
        broker = stage.up(open_database, threads)
        found = broker.found()
        for client in clients:
            client.judge(found, was_begun)
        broker.check()
        if not continues:
            reported.append(found)
            return
        own = [client.copied(stage.clock, found) for client in clients]
        for client in own:
            client.begin(broker)
            client.work(4)
        broker.tidy()
        stop(broker, own)
        broker = stage.up(open_database, threads)
        assert broker.found() == {
            name: state for client in own for name, state in client.states.last.items() if client.queues[name].durable
        }
        broker.check()

    stage.play(len(clients[0].states), body)
    return reported[0] if reported else None


def check_the_same(stage: QueueCrashStage, before: Standing) -> None:
    """What the killed process's successor has found is durable: the power can go."""

    def body(open_database: Open, threads: SteppedThreads) -> None:
        found = stage.up(open_database, threads).found()
        assert {name: [body for body, _ in state] for name, state in found.items()} == {
            name: [body for body, _ in state] for name, state in before.items()
        }

    stage.play(1, body)


def played(seed: int) -> tuple[list[FaultStep], Lives]:
    """A life without a cut."""
    stage = QueueCrashStage()
    lives = Lives(seed, stage)
    return stage.play(seed, lives.body), lives


def test_a_life_without_a_cut_has_everything_in_it_that_is_to_be_cut_short() -> None:
    steps, done = [], Counter[str]()
    for seed in SEEDS:
        more, lives = played(seed)
        steps += more
        done += sum((client.done for client in lives.clients), lives.done)
    assert {step.operation for step in steps} >= {"write", "sync", "flush", "apply", "commit", "rename", "remove"}
    assert set(done) == {
        *("put", "put, large", "fan-out", "get", "ack", "requeue", "reject", "reject, moved", "expire", "purge"),
        *("page", "sync", "fail", "delete"),
        *("files cleaned", "runs written again", "files collected", "units moved"),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_some_steps_loses_nothing_and_brings_nothing_back(seed: int) -> None:
    """GC-04, X-07: the campaign below takes every step."""
    count = len(played(seed)[0])
    wrong = [reported for step in range(seed, count, STRIDE) for reported in check_state(seed, step)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [*SEEDS, 14, 17])
def test_a_power_cut_at_any_step_loses_nothing_and_brings_nothing_back(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    count = len(played(seed)[0])
    wrong = [reported for step in range(count) for reported in check_state(seed, step)]
    with capsys.disabled():
        print(f"\n  queues, seed {seed}: {4 * count} states, every step of {count}")
    assert not wrong, "\n".join(wrong)


def test_a_queue_that_is_made_again_has_what_it_wrote_however_far_the_store_is_behind() -> None:
    """QP-05: the last writes of the former incarnation are read, also from the log. Else sequence ids are reused."""
    stage = BrokerStage().up()
    handle = stage.queue("jobs")
    assert stage.database.reflection is not None
    stage.database.reflection.pause()
    stage.put(b"a", b"b", to="jobs")
    fail(stage, handle)
    stage.put(b"c", to="jobs")
    assert stage.get("jobs") == [b"a", b"b", b"c"]
    stage.database.reflection.resume()
    stage.down()


def test_a_clean_stop_is_not_believed_once_more_by_a_queue_that_is_made_again() -> None:
    """QP-05: it was taken back by the life that failed, which has delivered something since."""
    stage = BrokerStage().up()
    stage.queue("jobs")
    stage.put(b"a", b"b", to="jobs")
    stage.down()
    stage.up()
    assert stage.database.reflection is not None
    stage.database.reflection.pause()
    handle = stage.vhost.find_queue("jobs")
    assert [each.is_redelivered for each in stage.take("jobs").fetched] == [False]
    fail(stage, handle)
    again = stage.take("jobs", 2)
    assert (bodies(again), {each.is_redelivered for each in again.fetched}) == ([b"a", b"b"], {True})
    stage.database.reflection.resume()
    stage.down()


def fail(stage: BrokerStage, handle: QueueHandle) -> None:
    def act(work: UnitOfWork) -> None:
        work.touch(handle.serving())
        raise RuntimeError("as it was to be")

    with pytest.raises(QueueDown):
        stage.vhost.execute([handle], act)
