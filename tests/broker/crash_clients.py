"""Clients of a broker whose power will be cut: each has queues of its own, and a model of their contents.

    Shopkeeper   orders, timed (expires to dead), short (four at most, to dead), free (not durable), dead
    Clerk        jobs (deleted and declared again now and then), ranks (priorities)

Each operation is applied to plain queues first (`plain_queues`): they define its result, and what a restart finds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import pytest

from tests.broker.plain_queues import Plain, PlainQueue, PlainQueues, Standing, States, short
from tests.broker.queue_crash_stage import Broker, found_of, ranges_of
from warren.base.environment import wall_ms
from warren.base.ids import Epoch
from warren.base.messages import Publication
from warren.broker.errors import QueueDown
from warren.broker.queue_api import SettleCall
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.broker.unit_of_work import UnitOfWork
from warren.testing.fakes import ManualClock

LONG_MS = 10**10  # no wait of a thread is so long
SMALL, LARGE = (5, 40, 90), (120, 300, 1300)  # the large ones go to the message store


class Unacked(NamedTuple):
    """An unacknowledged message of a client."""

    message: Plain
    tag: int


class Client:
    queues: ClassVar[dict[str, PlainQueue]]
    has_time = False  # whether its messages may expire: only such a client moves the clock

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self._seed = seed
        self.rng = random.Random(f"{type(self).__name__} {seed}")
        self.clock = clock
        self.model = PlainQueues({name: queue.afresh() for name, queue in self.queues.items()})
        self.states = States(self.model.standing())
        self.sure: set[str] = set()  # durable queues that must be there
        self.done: Counter[str] = Counter()
        self._newest = Epoch(0)
        self._made: dict[tuple[str, bytes], Plain] = {}
        self._count = 0

    # -- a life --------------------------------------------------------------------------------------------------

    def begin(self, broker: Broker) -> None:
        """Declare the queues, those that are there and those that are not."""
        self.broker = broker
        self.handles: dict[str, QueueHandle] = {}
        self.hands: dict[str, list[Unacked]] = {name: [] for name in self.queues}
        self._newest = Epoch(0)
        for name, queue in self.model.by_name.items():
            for level in range(1, queue.max_priority + 1):
                queue.levels_begun = level
                self.coming()
            self.model.begun(name)
            self.coming()
            self._declare(name)
            self.note_durable()

    def work(self, times: int) -> None:
        for _ in range(times):
            self.rng.choice(self.doings())()
            self.note_durable()

    def stopping(self, name: str) -> None:
        """The broker is about to stop this queue."""
        self.model.stopped(name)
        self.coming()

    def stopped(self) -> None:
        """The records of the stop are durable."""
        self.states.note_durable(Epoch(0), Epoch(0))

    def doings(self) -> list[Callable[[], None]]:
        return [*[self.put] * 4, *[self.get] * 4, *[self.settle] * 5, self.page, self.sync]

    # -- what it does --------------------------------------------------------------------------------------------

    def put(self) -> None:
        rng, names = self.rng, self._targets()
        sizes = rng.choice([SMALL, SMALL, LARGE, SMALL + LARGE])
        bodies = [self._body(rng.choice(sizes)) for _ in range(rng.randrange(1, 6))]
        persistent, priority = rng.random() < 0.8, rng.randrange(4)
        ttl_ms = LONG_MS if self.has_time and rng.random() < 0.2 else None
        now_ms = wall_ms(self.clock)
        self.model.put(names, bodies, now_ms, persistent, ttl_ms, priority)
        for name in names:
            self._made |= {(name, each.body): each for each in self.model[name].messages}
        self.coming()
        expires_ms = 0 if ttl_ms is None else now_ms + ttl_ms
        publication = Publication(bodies, persistent, expires_ms, now_ms, priority, fan_out=len(names))
        self.broker.queue_api.put(publication, [self.handles[name] for name in names])
        self._note("put, large" if max(map(len, bodies)) >= 100 and persistent else "put")
        if len(names) > 1:
            self._note("fan-out")

    def get(self) -> None:
        with_some = [name for name in self.queues if self.model[name].ready()]
        name, count = self.rng.choice(with_some or list(self.queues)), self.rng.randrange(1, 6)
        taken = self.model.get(name, count, wall_ms(self.clock))
        self.coming()
        delivery = self.broker.queue_api.get(self.handles[name], count)
        fetched = [] if delivery is None else delivery.fetched
        wanted = [(each.body, each.was_delivered) for each in taken]
        assert list(found_of(fetched)) == wanted, f"{name}: got {short(found_of(fetched))}, not {short(wanted)}"
        tags = [tag for each in fetched for tag in range(*each.tags)]
        self.model.handed(taken)
        self.hands[name] += [Unacked(message, tag) for message, tag in zip(taken, tags, strict=True)]
        self._note("get")

    def settle(self) -> None:
        """Settle some of the unacknowledged messages, in any order."""
        names = [name for name, unacked in self.hands.items() if unacked]
        if not names:
            return
        name = self.rng.choice(names)
        unacked = self.hands[name]
        going = sorted(self.rng.sample(unacked, self.rng.randrange(1, len(unacked) + 1)), key=lambda each: each.tag)
        self.hands[name] = [each for each in unacked if each not in going]
        settlement = self.rng.choice(["ack", "ack", "requeue", "reject", "reject"])
        messages = [each.message for each in going]
        if settlement == "ack":
            self.model.ack(name, messages)
        elif settlement == "requeue":
            self.model.requeue(messages)
        else:
            self.model.reject(name, messages, wall_ms(self.clock))
        self.coming()
        handle = self.handles[name]
        settling = SettleCall(handle.serving().incarnation, ranges_of([each.tag for each in going]))
        assert getattr(self.broker.queue_api, settlement)(handle, settling) == len(going)
        self._note(f"{settlement}, moved" if settlement == "reject" and self.queues[name].dead_letter else settlement)

    def page(self) -> None:
        self.broker.page(self.handles[self.rng.choice(list(self.queues))])
        self._note("page")

    def sync(self) -> None:
        self.broker.storage.log.wait(self._newest)
        self.states.note_durable(Epoch(0), Epoch(0))  # regardless of the log
        self._note("sync")

    def purge(self, name: str) -> None:
        if self.rng.random() < 0.5:
            return
        count = self.model.purge(name)
        self.coming()
        assert self.broker.queue_api.purge(self.handles[name])[0] == count
        self._note("purge")

    def fail(self, name: str) -> None:
        """A queue fails; it is restarted from what it wrote."""

        def act(work: UnitOfWork) -> None:
            work.touch(handle.serving())
            raise RuntimeError("as it was to be")

        if self.rng.random() < 0.5:
            return
        handle = self.handles[name]
        self.model.failed(name)
        self.hands[name] = []
        self.coming()
        with pytest.raises(QueueDown):
            self.broker.vhost.execute([handle], act)
        self.broker.vhost.problems.clear()
        self._note("fail")

    # -- what must be so -----------------------------------------------------------------------------------------

    def coming(self) -> None:
        self.states.coming(self.model.standing())

    def note_durable(self) -> None:
        """The call has returned."""
        self._newest = max(self._newest, *(handle.epoch for handle in self.handles.values()))
        self.states.note_durable(self._newest, self.broker.database.log.durable)

    def judge(self, found: Standing, was_begun: bool) -> None:
        missing = self.sure - set(found)
        assert not missing, f"queues that are not there any more: {missing}"
        self.states.judge(found, was_begun)

    def copied(self, clock: ManualClock, found: Standing) -> Client:
        """The client after a restart: what is there now is acknowledged, and has been checked."""
        other = type(self)(self._seed + len(self.states), clock)
        other._count, other._made = self._count, dict(self._made)
        for name, queue in other.model.by_name.items():
            queue.messages = [self._again(name, body) for body, _ in found.get(name, ())]
        return other

    # -- helpers -------------------------------------------------------------------------------------------------

    def _again(self, name: str, body: bytes) -> Plain:
        known = self._made.get((name, body), Plain(body))
        return Plain(body, due_ms=known.due_ms, priority=known.priority, was_delivered=True)

    def _declare(self, name: str) -> None:
        declared = self.queues[name]
        arguments = QueueArguments(
            declared.ttl_ms,
            None,
            declared.max_length,
            dead_letter=declared.dead_letter,
            max_priority=declared.max_priority or None,
        )
        self.handles[name] = self.broker.declare(name, declared.durable, arguments)
        if declared.durable:
            self.sure.add(name)

    def _targets(self) -> list[str]:
        names = list(self.queues)
        return self.rng.sample(names, self.rng.choice([1, 1, 2, len(names)]))

    def _body(self, size: int) -> bytes:
        self._count += 1
        return b"%c%d|" % (ord(type(self).__name__[0]), self._count) + b"." * size

    def _note(self, what: str) -> None:
        self.done[what] += 1


class Shopkeeper(Client):
    has_time = True
    queues: ClassVar = {
        "orders": PlainQueue(),
        "timed": PlainQueue(ttl_ms=LONG_MS, dead_letter="dead"),
        "short": PlainQueue(max_length=4, dead_letter="dead"),
        "free": PlainQueue(durable=False),
        "dead": PlainQueue(),
    }

    def doings(self) -> list[Callable[[], None]]:
        return [*super().doings(), self.pass_time, partial(self.fail, self.rng.choice(["orders", "timed"]))]

    def pass_time(self) -> None:
        """The clock advances a lot, and one queue is checked. No other client has queues with a TTL."""
        name = self.rng.choice(["timed", "timed", "orders"])
        self.clock.advance_ns(2 * LONG_MS * 1_000_000)
        self.model.expire(name, wall_ms(self.clock))
        self.coming()
        self.broker.vhost.check_queue(self.handles[name].id)
        self._note("expire")


class Clerk(Client):
    queues: ClassVar = {"jobs": PlainQueue(), "ranks": PlainQueue(max_priority=2)}

    def doings(self) -> list[Callable[[], None]]:
        return [*super().doings(), self.delete, partial(self.purge, self.rng.choice(list(self.queues)))]

    def delete(self) -> None:
        """And declare it again: that is another queue."""
        if self.rng.random() < 0.5:
            return
        self.sure.discard("jobs")
        self.model["jobs"].messages, self.hands["jobs"] = [], []
        self.coming()
        self.broker.vhost.delete_queue(self.handles["jobs"])
        self._declare("jobs")
        self._note("delete")
