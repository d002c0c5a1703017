"""The state machine over the variable queue, with tiny limits: small runs page, split and come back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.queues.queue_machine import QueueMachine
from tests.queues.variable_stage import SECOND_NS, TINY, VariableStage
from warren.base.ids import Epoch


class PlainStage(VariableStage):
    """Over plain stores, where an epoch is durable when the machine says so."""

    def __init__(self, lags: bool = False) -> None:
        super().__init__(TINY, is_prompt=False, lags=lags)

    def durable_epoch(self) -> Epoch:
        return self.index.durable_epoch

    def settle(self) -> None:
        self.index.settle()

    def pass_time(self) -> None:
        self.clock.advance_ns(SECOND_NS)

    def close(self) -> None:
        """Nothing is open."""


class PlainMachine(QueueMachine):
    stage_of = PlainStage


class LaggingStage(PlainStage):
    """Scans see what is durable when time passes, as behind a reflection with a lag."""

    def __init__(self) -> None:
        super().__init__(lags=True)

    def pass_time(self) -> None:
        super().pass_time()
        self.index.apply()


class LaggingMachine(QueueMachine):
    stage_of = LaggingStage


def test_a_queue_keeps_its_order_over_an_index_that_is_behind_the_log() -> None:
    """Positions stay in memory until a scan sees them, and removals stay known until a scan has them."""
    many = settings(max_examples=200, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(LaggingMachine, settings=many)


def test_vq_14_nothing_that_happens_to_a_queue_breaks_its_order() -> None:
    """VQ-14: publish, fetch, ack, requeue, page, drop, purge, stop, crash in any order, against the plain queue."""
    run_state_machine_as_test(PlainMachine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))


@pytest.mark.torture
def test_nothing_that_happens_for_long_breaks_it_either() -> None:
    many = settings(max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(PlainMachine, settings=many)


def test_what_is_put_back_together_is_not_read_from_delta_as_well() -> None:
    """Found by the machine: of two that came back at once the newer one was not durable, and reading delta up to it
    brought the older one a second time."""
    environment = PlainMachine()
    environment.all_in_one_session(count=0, is_persistent=False, picks=[], sizes=[8, 8])
    environment.all_in_one_session(count=6, is_persistent=True, picks=[0], sizes=[8, 8])
    environment.settle()
    environment.ack(picks=[0, 1])
    environment.all_in_one_session(count=3, is_persistent=True, picks=[], sizes=[8])
    environment.requeue_around_paging(quotas=(1, 1), steps=3)
    environment.is_as_it_should_be()
    environment.teardown()
