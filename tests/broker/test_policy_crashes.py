"""The power is cut at every step while policies of a queue with messages change: a policy is whole or not there.

    work ── max-length 2 and dead letters, by a policy ──▶ dead        then another length, then no policy

A life is played once to count its steps, then once for each step. Whatever model of the disk is left: the policy is one
that was set, not older than the one that was answered last; after the start the queue is within its limit; no message
is lost, and none is in both queues.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.policy_changes import clear_policy, set_policy
from tests.broker.queue_crash_stage import Broker, QueueCrashStage
from tests.snapshot.crash_stage import Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.environment import wall_ms
from warren.base.messages import Publication
from warren.broker.policies import POLICY
from warren.broker.queue_arguments import QueueArguments
from warren.catalog import parameters
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import CrashModel

LETTERS = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
CHANGES: list[dict[str, Any] | None] = [{"max-length": 4, **LETTERS}, {"max-length": 2, **LETTERS}, None]
STRIDE = 7


class PolicyLife:
    def __init__(self, stage: QueueCrashStage) -> None:
        self.stage = stage
        self.sure: set[bytes] = set()  # their put was durable
        self.states: list[dict[str, Any] | None] = [None]  # definitions, in their order
        self.answered = 0

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        broker = self.begin(open_database, threads)
        for number, change in enumerate(CHANGES):
            self.put(broker, *(b"%d-%d " % (number, each) * (1 + 40 * (each % 2)) for each in range(4)))
            self.states.append(change)
            if change is None:
                clear_policy(broker.vhost, "p")
            else:
                set_policy(broker.vhost, "p", change, pattern="^work$")
            self.answered += 1
        broker.tidy()
        self.check(broker)

    def begin(self, open_database: Open, threads: SteppedThreads) -> Broker:
        broker = self.stage.up(open_database, threads)
        for name in ("work", "dead"):
            broker.declare(name, True, QueueArguments())
        return broker

    def put(self, broker: Broker, *bodies: bytes) -> None:
        publication = Publication(list(bodies), published_ms=wall_ms(self.stage.clock))
        broker.storage.log.wait(broker.queue_api.put(publication, [broker.vhost.find_queue("work")]))
        self.sure |= set(bodies)

    def check(self, broker: Broker) -> dict[str, Any] | None:
        """Returns the definition that is in effect."""
        while broker.vhost.timers.run_due():
            continue
        with broker.catalog.reading() as connection:
            row = parameters.get(connection, broker.vhost.row.id, POLICY, "p")
        definition = None if row is None else row.value["definition"]
        assert definition in self.states[self.answered :], f"{definition} is none of {self.states[self.answered :]}"
        arguments = broker.vhost.find_queue("work").serving().arguments
        assert arguments.max_length == (None if definition is None else definition["max-length"])
        found = {name: [body for body, _ in held] for name, held in broker.found().items()}
        assert definition is None or len(found["work"]) <= definition["max-length"], "it is within its limit"
        everything = [*found["work"], *found["dead"]]
        assert len(everything) == len(set(everything)), "a message is in one of both"
        assert self.sure <= set(everything), f"lost: {self.sure - set(everything)}"
        return definition


def played(step: int | None = None) -> tuple[list[FaultStep], PolicyLife]:
    stage = QueueCrashStage()
    life = PolicyLife(stage)
    return stage.play(7, life.body, step), life


def check_cut(step: int, seen: list[Any]) -> list[str]:
    """Cut the power before one step; whatever is wrong in any model. `seen`: definitions that were there."""
    _, life = played(step)
    wrong = []
    for number, model in enumerate(CrashModel):
        after = life.stage.crashed(model, 4 * step + number)
        again = PolicyLife(after)
        again.sure, again.states, again.answered = life.sure, life.states, life.answered

        def body(open_database: Open, threads: SteppedThreads) -> None:
            seen.append(again.check(again.begin(open_database, threads)))  # noqa: B023 - called at once

        try:
            after.play(step, body)
        except Exception as error:
            wrong.append(f"step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def test_a_life_without_a_cut_ends_without_a_policy() -> None:
    steps, life = played()
    assert life.answered == len(CHANGES) and len(steps) > 50


def test_a_power_cut_at_some_steps_leaves_a_policy_whole_or_not_there() -> None:
    """The campaign below takes every step."""
    seen: list[Any] = []
    wrong = [problem for step in range(0, len(played()[0]), STRIDE) for problem in check_cut(step, seen)]
    assert not wrong, "\n".join(wrong)
    assert all(change in seen for change in CHANGES), "each of them was found after some cut"


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_power_cut_at_any_step_leaves_a_policy_whole_or_not_there() -> None:
    wrong = [problem for step in range(len(played()[0])) for problem in check_cut(step, [])]
    assert not wrong, "\n".join(wrong)
