"""Queues of `warren.open` against plain lists, whatever a program, time, memory and the power do to them.

    real     the embedded API on a memory disk: runs of four, contents from 100 bytes on in the message store, files of
             4 KiB, two positions in memory when paged
    model    each queue a list (tests/broker/plain_queues)

A program puts, publishes to several, gets, acknowledges out of order, requeues, rejects, purges, deletes; queues page,
expire, drop, move to the dead-letter queue; files are cleaned and collected; the database stops, or its power goes.
After each step every queue is as long as the model says, whatever is got is what the model gives, flags included, and
what a restart finds is what it must.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.app.embedded_queues_stage import EmbeddedQueuesStage
from tests.broker.plain_queues import Plain, PlainQueue, PlainQueues, Standing, States
from warren.base.environment import wall_ms
from warren.broker.errors import QueueFull
from warren.embedded.messages import DeliveryTag
from warren.embedded.queues import Queue
from warren.testing.memory_files import CrashModel

TTL_MS = 10_000
QUEUES = {
    "orders": PlainQueue(),
    "timed": PlainQueue(ttl_ms=TTL_MS, dead_letter="dead"),
    "short": PlainQueue(max_length=3, dead_letter="dead"),
    "full": PlainQueue(max_length=3, rejects=True),
    "ranks": PlainQueue(max_priority=2),
    "free": PlainQueue(durable=False),
    "dead": PlainQueue(),
}
NAME = st.sampled_from(list(QUEUES))
SIZES = st.lists(st.sampled_from([5, 30, 90, 120, 400]), min_size=1, max_size=6)
SOME = st.integers(0, 2**12 - 1)  # bits: which of those in hand


class QueuesMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.stage = EmbeddedQueuesStage()
        self.model = PlainQueues({name: queue.afresh() for name, queue in QUEUES.items()})
        self.states = States(self.model.standing())
        self.count = 0
        self.put_messages: dict[tuple[str, bytes], Plain] = {}
        self._open()

    # -- putting -------------------------------------------------------------------------------------------------

    @rule(name=NAME, sizes=SIZES, persistent=st.sampled_from([True, True, True, False]), priority=st.integers(0, 3))
    def put(self, name: str, sizes: list[int], persistent: bool, priority: int) -> None:
        """Durable when it returns. Of more than a session takes, the first pieces may be there alone."""
        bodies = self._bodies(sizes[:4])
        if self.model.is_refused([name], len(bodies)):
            with pytest.raises(QueueFull):
                self.queues[name].put_many(bodies)
            return
        self._put([name], bodies, persistent, priority)
        self.queues[name].put_many(bodies, persistent=persistent, priority=priority)
        self._record_durable(is_durable=persistent and QUEUES[name].durable)

    @rule(name=NAME, size=st.sampled_from([5, 400]), is_waited_for=st.booleans())
    def put_later(self, name: str, size: int, is_waited_for: bool) -> None:
        bodies = self._bodies([size])
        if self.model.is_refused([name], 1):
            return
        self._put([name], bodies)
        future = self.queues[name].put_later(bodies[0])
        if is_waited_for:
            future.result(60)
        self._record_durable()

    @rule(size=st.sampled_from([5, 400]), is_orders=st.booleans())
    def put_with_time(self, size: int, is_orders: bool) -> None:
        name = "orders" if is_orders else "timed"
        [body] = self._bodies([size])
        self._put([name], [body], ttl_ms=TTL_MS // 2)
        self.queues[name].put(body, ttl=TTL_MS / 2000)
        self._record_durable(is_durable=True)

    @rule(names=st.lists(NAME, min_size=2, max_size=4, unique=True), sizes=SIZES)
    def publish(self, names: list[str], sizes: list[int]) -> None:
        bodies = self._bodies(sizes[:4])
        if self.model.is_refused(names, len(bodies)):
            with pytest.raises(QueueFull):
                self.stage.db.publish(bodies, names)
            return
        self._put(names, bodies)
        self.stage.db.publish(bodies, names)
        self._record_durable(is_durable=True)

    # -- getting and settling ------------------------------------------------------------------------------------

    @rule(name=NAME, count=st.integers(1, 7))
    def get(self, name: str, count: int) -> None:
        wanted = self.model.get(name, count, wall_ms(self.stage.clock))
        self._coming()
        batch = self.queues[name].get_many(count)
        assert [*zip(batch.bodies, batch.redelivered, strict=True)] == [(w.body, w.was_delivered) for w in wanted]
        self.model.handed(wanted)
        self.hands[name] += zip(batch.tags, wanted, strict=True)
        self._record_durable()

    @rule(name=NAME, which=SOME, is_synced=st.booleans())
    def ack(self, name: str, which: int, is_synced: bool) -> None:
        for tag, message in self._chosen(name, which)[::-1]:  # the newest first
            self.model.ack(name, [message])
            self._coming()
            self.queues[name].ack(tag)
        if is_synced:
            self.queues[name].sync()
        self._record_durable()

    @rule(name=NAME, which=SOME)
    def requeue(self, name: str, which: int) -> None:
        self._settled(name, which, lambda tag, message: self.model.requeue([message]), requeue=True)

    @rule(name=st.sampled_from(["timed", "short", "orders"]), which=SOME)
    def reject(self, name: str, which: int) -> None:
        now_ms = wall_ms(self.stage.clock)
        self._settled(name, which, lambda tag, message: self.model.reject(name, [message], now_ms), requeue=False)

    @rule(name=NAME)
    def browse(self, name: str) -> None:
        assert list(self.queues[name].browse()) == [each.body for each in self.model[name].ready()]

    # -- memory, time and upkeep ---------------------------------------------------------------------------------

    @rule(name=NAME, seconds=st.sampled_from([0.0, 0.0, 0.5, 100.0]))
    def page(self, name: str, seconds: float) -> None:
        """Set a target, and page until it is reached."""
        self.stage.page(name, seconds)

    @rule(ms=st.sampled_from([10, TTL_MS // 2, 2 * TTL_MS]))
    def pass_time(self, ms: int) -> None:
        now_ms = wall_ms(self.stage.clock) + ms
        for name in QUEUES:
            self.model.expire(name, now_ms)
        self._coming()
        self.stage.pass_ms(ms)
        self.stage.database.make_durable()
        self._record_durable()

    @rule(name=NAME)
    def purge(self, name: str) -> None:
        count = self.model.purge(name)
        self._coming()
        assert self.queues[name].purge() == count
        self._record_durable(is_durable=True)

    @rule(name=st.sampled_from(["orders", "ranks"]))
    def delete(self, name: str) -> None:
        """And declare it again."""
        count = len(self.model[name].messages)
        self.model[name].messages, self.hands[name] = [], []
        self._coming()
        assert self.queues[name].delete() == count
        self._declare(name)
        self._record_durable(is_durable=True)

    @rule()
    def tidy(self) -> None:
        self.stage.tidy()
        self._record_durable()

    # -- the end, and another beginning --------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        for name in QUEUES:
            self.model.stopped(name)
        self._coming()
        self.stage.down()
        self.states.note_durable(0, 0)
        self._open(self.model.standing())

    @rule(model=st.sampled_from(CrashModel), seed=st.integers(0, 99), is_settled=st.booleans())
    def cut_the_power(self, model: CrashModel, seed: int, is_settled: bool) -> None:
        if is_settled:
            self.stage.database.make_durable()
            self._record_durable()
        self.stage.cut_the_power(model, seed)
        self._open()

    @invariant()
    def every_queue_is_as_long_as_it_should_be(self) -> None:
        if hasattr(self, "queues"):
            assert {name: len(queue) for name, queue in self.queues.items()} == {
                name: len(queue.ready()) for name, queue in self.model.by_name.items()
            }

    def teardown(self) -> None:
        if hasattr(self, "queues"):
            self.stage.down()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _open(self, wanted: Standing | None = None) -> None:
        """Find what is there, which must be this, or one of the states that it may be; and go on from it."""
        self.stage.up()
        found = self.stage.found()
        self.states.judge(found)
        durable = {name: found.get(name, ()) for name in QUEUES if QUEUES[name].durable}
        assert wanted is None or {name: wanted[name] for name in durable} == durable
        self.hands: dict[str, list[tuple[DeliveryTag, Plain]]] = {name: [] for name in QUEUES}
        self.queues: dict[str, Queue] = {}
        for name, queue in self.model.by_name.items():
            queue.messages = [self._again(name, body) for body, _ in durable.get(name, ())]
            queue.is_clean = False
            self._declare(name)
        self.states = States(self.model.standing())

    def _again(self, name: str, body: bytes) -> Plain:
        """A message as found, checked. One that was moved has neither time nor priority."""
        known = self.put_messages.get((name, body), Plain(body))
        return Plain(body, due_ms=known.due_ms, priority=known.priority, was_delivered=True)

    def _declare(self, name: str) -> None:
        spec = QUEUES[name]
        self.queues[name] = self.stage.db.queue(
            name,
            durable=spec.durable,
            message_ttl=None if spec.ttl_ms is None else spec.ttl_ms / 1000,
            max_length=spec.max_length,
            overflow="reject-publish" if spec.rejects else "drop-head",
            dead_letter=spec.dead_letter,
            max_priority=spec.max_priority or None,
        )

    def _bodies(self, sizes: list[int]) -> list[bytes]:
        self.count += len(sizes)
        return [b"%d|" % (self.count - at) + b"." * size for at, size in enumerate(sizes)]

    def _put(
        self,
        names: list[str],
        bodies: list[bytes],
        persistent: bool = True,
        priority: int = 0,
        ttl_ms: int | None = None,
    ) -> None:
        self.model.put(names, bodies, wall_ms(self.stage.clock), persistent, ttl_ms, priority)
        self.put_messages |= {(name, each.body): each for name in names for each in self.model[name].messages}
        self._coming()

    def _chosen(self, name: str, which: int) -> list[tuple[DeliveryTag, Plain]]:
        outstanding = sorted(self.hands[name], key=lambda pair: pair[0].number)
        chosen = [pair for at, pair in enumerate(outstanding) if which >> at & 1]
        self.hands[name] = [pair for pair in outstanding if pair not in chosen]
        return chosen

    def _settled(self, name: str, which: int, settle: Callable[[DeliveryTag, Plain], None], requeue: bool) -> None:
        for tag, message in self._chosen(name, which):
            settle(tag, message)
            self._coming()
            self.queues[name].nack(tag, requeue)
        self._record_durable()

    def _coming(self) -> None:
        self.states.coming(self.model.standing())

    def _record_durable(self, is_durable: bool = False) -> None:
        """What returned when it was durable is; of the rest the log says so."""
        self.states.note_durable(0 if is_durable else self.stage.newest(), self.stage.database.log.durable)


def run_machine(examples: int, steps: int) -> None:
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(QueuesMachine, settings=options)


def test_queues_are_as_plain_lists_whatever_happens_to_them() -> None:
    """Pages, rolls, moves, collects and crashes with a handful of messages."""
    run_machine(examples=12, steps=35)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_queues_are_as_plain_lists_for_as_long_as_one_likes() -> None:
    run_machine(examples=300, steps=60)
