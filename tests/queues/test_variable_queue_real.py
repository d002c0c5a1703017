"""The same machine over the real index and the real message stores, with their garbage collected in between."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.queues.queue_machine import QueueMachine
from tests.queues.real_stage import RealStage


class RealMachine(QueueMachine):
    stage_of = RealStage
    stage: RealStage

    @rule()
    def seal_and_clean(self) -> None:
        self.stage.seal()
        self.stage.clean()

    @rule()
    def seal_and_collect(self) -> None:
        self.stage.seal()
        self.stage.collect()


def _settings(examples: int, steps: int) -> settings:
    everything = list(HealthCheck)
    return settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=everything)


def test_nothing_that_happens_to_a_queue_on_a_real_log_breaks_its_order() -> None:
    """VQ-14 once more: index, message stores, cleaning and collecting are the real ones."""
    run_state_machine_as_test(RealMachine, settings=_settings(15, 30))


@pytest.mark.torture
def test_nothing_that_happens_for_long_breaks_it_either() -> None:
    run_state_machine_as_test(RealMachine, settings=_settings(400, 60))
