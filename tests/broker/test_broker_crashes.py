"""AMQP clients at work, and the power cut at any step: the broker keeps what it has answered and confirmed.

    founder, producers, workers, clerk, operator ─▶ power cut ─▶ restart ─▶ an inspector compares it with their ledger

Bytes in, bytes out: only the sockets, the disk, the clock and the threads are the simulator's (`testing/broker_*`). A
state that fails prints itself, `broker:seed/step/model/chance`, and is run again by
`python -m tools.simulator.campaign --repro SPEC`; it joins KNOWN below. `make simulate` runs any number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tools.simulator.broker.environment import BrokerEnvironment
from tools.simulator.broker.expected_messages import Certainty, Outcome
from tools.simulator.broker.simulator import BROKER, BrokerSimulator, broker_steps
from tools.simulator.broker.workload import BrokerWorkload
from tools.simulator.campaign import NEVER, group_at
from tools.simulator.observations import Violation
from tools.simulator.simulator import Spec

DURABLE = Certainty.DURABLE
SEEDS = 2, 6, 7, 9  # together they do everything that clients can
STEPS_PER_SEED = 9

KNOWN = (
    # A queue with reject-publish dropped requeued messages, though confirmed (broker/queue.py, is_over).
    "broker:4/1000000/synced/149756",
)


def test_lives_without_a_cut_have_everything_in_them_that_is_to_be_cut_short() -> None:
    done, outcomes, operations = Counter[str](), Counter[object](), set()
    for seed in SEEDS:
        workload = BrokerWorkload(seed)
        operations |= {step.operation for step in BrokerEnvironment().play(seed, workload.body)}
        done += workload.done
        for sent in workload.expected.messages.values():
            outcomes[sent.outcome] += 1
            for copy in sent.copies.values():
                outcomes.update({"settled": copy.settled is DURABLE, "moved": copy.moved is DURABLE})
    assert operations >= {"write", "sync", "flush", "apply", "commit", "rename", "remove"}
    worker = ("consume", "settle", "get", "mark", "cancel", "recover", "close", "hang_up")
    assert set(done) == {
        *("producer: publish", "producer: wait", "producer: publish_unroutable", "operator"),
        *(f"workerclient: {doing}" for doing in worker),
        *(f"declaringclient: {doing}" for doing in ("declare", "join", "leave", "publish", "settle", "delete")),
    }
    assert set(outcomes) == {*Outcome, "settled", "moved"} and min(outcomes.values()) > 5, outcomes


def test_one_seed_is_one_run() -> None:
    assert broker_steps(SEEDS[0]) == tuple(BrokerEnvironment().play(SEEDS[0], BrokerWorkload(SEEDS[0]).body))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_loses_nothing_that_was_confirmed_and_brings_nothing_back_that_was_settled(seed: int) -> None:
    """QP-06, X-07: ready or unacked, in all its queues, once, in order, flagged if it was delivered; topology
    that was answered is there, and what was deleted is not."""
    steps = len(broker_steps(seed))
    wrong = [
        problems
        for step in range(seed, steps, steps // STEPS_PER_SEED)
        for problems in violations(group_at(BROKER, seed, step))
    ]
    wrong += violations(group_at(BROKER, seed, NEVER))  # the end
    assert not wrong, "\n".join(wrong)


def violations(specs: Iterable[Spec]) -> list[str]:
    simulator, problems = BrokerSimulator(), []
    for spec in specs:
        try:
            simulator.run_state(spec)
        except Violation as violation:
            problems.append(str(violation))
    return problems


@pytest.mark.parametrize("spec", KNOWN)
def test_what_has_failed_once_does_not_fail_again(spec: str) -> None:
    assert violations([Spec.parse(spec)]) == []
