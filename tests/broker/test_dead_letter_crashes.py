"""The power is cut at every step while messages move from one queue to three: each is there, or in all three.

    work ──expired, over the limit, rejected──▶ exchange ──▶ a, b, c        one session (DESIGN rule 24)

A life is played once to count its steps, then once for each step. Small messages are in the log, large ones in the
message store, shared by the three. Whatever model of the disk is left: no message is nowhere, none is in some of the
three only, none is in both places, and none is there twice; each letter says once how it died.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.broker.exchanges.rows import FIRST_EXCHANGE, binding, exchange, queue
from tests.broker.queue_crash_stage import Broker, QueueCrashStage
from tests.broker.routed_stage import wire
from tests.snapshot.crash_stage import Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.amqp.content import body_of, properties_of
from warren.base.environment import wall_ms
from warren.base.messages import WIRE, Origin, Publication
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_api import SettleCall
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import CrashModel

TARGETS = ("a", "b", "c")
LONG_MS = 10**10
WORK = QueueArguments(message_ttl_ms=LONG_MS, max_length=6, dead_letter_exchange="dlx")
DLX = FIRST_EXCHANGE
STRIDE = 11


class Letters:
    """A life in which messages move, and what was promised of them."""

    def __init__(self, stage: QueueCrashStage) -> None:
        self.stage = stage
        self.sure: set[bytes] = set()  # their put was durable
        self.reasons: Counter[str] = Counter()

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        broker = self.begin(open_database, threads)
        work = self.handles["work"]
        self.put(broker, b"one", b"two" * 100, b"three", b"four" * 90, b"five")
        self.put(broker, b"six", b"seven" * 80, b"eight")  # two are over the limit
        delivery = broker.queue_api.get(work, 3)
        assert delivery is not None
        broker.queue_api.reject(work, SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched]))
        broker.database.make_durable()
        self.stage.clock.advance_ns(2 * LONG_MS * 1_000_000)
        self.put(broker, b"nine")
        broker.vhost.check_queue(work.id)  # what was there has expired
        broker.tidy()
        self.check(broker)

    def begin(self, open_database: Open, threads: SteppedThreads) -> Broker:
        routing = Routing()
        self.stage.routing = routing
        broker = self.stage.up(open_database, threads)
        routing.add_exchange(exchange(DLX, "fanout", "dlx"))
        self.handles: dict[str, QueueHandle] = {}
        for number, name in enumerate((*TARGETS, "work"), 1):
            handle = broker.declare(name, True, WORK if name == "work" else QueueArguments())
            self.handles[name] = handle
            routing.add_queue(queue(handle.id, name))
            if name != "work":
                routing.add_binding(replace(binding(number, DLX, 1), queue_id=handle.id))
        return broker

    def put(self, broker: Broker, *bodies: bytes) -> None:
        origin = Origin("in", "key", "guest", WIRE)
        publication = Publication(
            [wire(body, delivery_mode=2) for body in bodies], published_ms=wall_ms(self.stage.clock), origin=origin
        )
        broker.storage.log.wait(broker.queue_api.put(publication, [self.handles["work"]]))
        self.sure |= set(bodies)

    def check(self, broker: Broker) -> None:
        found = {name: [content for content, _ in held] for name, held in broker.found().items()}
        places: dict[bytes, list[str]] = {}
        for name, contents in found.items():
            for content in contents:
                places.setdefault(body_of(content), []).append(name)
                if name in TARGETS:
                    [death] = (properties_of(content).headers or {})["x-death"]
                    assert (death["queue"], death["count"]) == ("work", 1)
                    self.reasons[death["reason"]] += 1
        wrong = {body[:9]: at for body, at in places.items() if sorted(at) not in ([*TARGETS], ["work"])}
        assert not wrong, f"neither here nor there: {wrong}"
        assert self.sure <= set(places), f"lost: {self.sure - set(places)}"
        assert len({tuple(found.get(name, ())) for name in TARGETS}) == 1, "the three got the same, in one order"


def played(step: int | None = None) -> tuple[list[FaultStep], Letters]:
    stage = QueueCrashStage()
    dead_letters = Letters(stage)
    return stage.play(7, dead_letters.body, step), dead_letters


def check_cut(step: int) -> list[str]:
    """Cut the power before one step; whatever is wrong in any model."""
    _, dead_letters = played(step)
    wrong = []
    for number, model in enumerate(CrashModel):
        after = dead_letters.stage.crashed(model, 4 * step + number)
        again = Letters(after)
        again.sure = dead_letters.sure

        def body(open_database: Open, threads: SteppedThreads) -> None:
            again.check(again.begin(open_database, threads))  # noqa: B023 - called at once

        try:
            after.play(step, body)
        except Exception as error:
            wrong.append(f"step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def test_a_life_without_a_cut_moves_messages_for_every_reason() -> None:
    steps, dead_letters = played()
    assert dead_letters.reasons == {"maxlen": 6, "rejected": 9, "expired": 9}
    assert len(steps) > 50


def test_a_power_cut_at_some_steps_leaves_each_message_in_its_queue_or_in_all_three() -> None:
    """DESIGN rule 24: the campaign below takes every step."""
    count = len(played()[0])
    wrong = [problem for step in range(0, count, STRIDE) for problem in check_cut(step)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_power_cut_at_any_step_leaves_each_message_in_its_queue_or_in_all_three() -> None:
    count = len(played()[0])
    wrong = [problem for step in range(count) for problem in check_cut(step)]
    assert not wrong, "\n".join(wrong)
