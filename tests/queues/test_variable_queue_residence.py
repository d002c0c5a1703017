"""Alpha, beta, gamma, delta."""

from __future__ import annotations

import pytest

from tests.queues.variable_stage import VariableStage
from warren.base.ids import SequenceId
from warren.queues.variable_queue import MessageStatus, Residence


def status(stage: VariableStage, number: int = 1) -> MessageStatus:
    found = stage.queue.status(SequenceId(number))
    assert found is not None
    return found


@pytest.fixture
def stage() -> VariableStage:
    stage = VariableStage()
    stage.backing.put(b"first", b"second")
    stage.backing.put(b"third", is_persistent=False)
    return stage


def test_vq_28_an_alpha_is_in_memory_whole(stage: VariableStage) -> None:
    """VQ-28, VQ-41: contents and position; nothing is read to fetch it."""
    assert (status(stage).residence, status(stage).msg) == (Residence.ALPHA, b"second")
    stage.queue.fetch(3)
    assert stage.index.reads == 0


def test_vq_29_a_beta_has_its_position_in_memory_and_its_contents_on_disk(stage: VariableStage) -> None:
    """VQ-29, VQ-42, C-05: a persistent one is a gamma, its position is on disk as well; a transient one is a beta."""
    stage.queue.subqueues.push_alphas_to_betas(0, 2)
    gamma, beta = status(stage, 1), status(stage, 2)
    assert (gamma.residence, gamma.msg, gamma.index_on_disk) == (Residence.GAMMA, None, True)
    assert (beta.residence, beta.msg, beta.index_on_disk) == (Residence.BETA, None, False)
    assert [slice_.contents for slice_ in stage.queue.subqueues.q3] == [None, None]


def test_vq_30_a_delta_is_on_disk_only(stage: VariableStage) -> None:
    """VQ-30, VQ-43: no slice in memory holds it; it is found by reading the disk."""
    stage.queue.subqueues.push_alphas_to_betas(0, 3)
    stage.queue.subqueues.push_betas_to_deltas(2)
    assert not any(slice_.end > 1 for slice_ in stage.queue.subqueues)
    assert [status(stage, number).residence for number in (0, 1, 2)] == [
        Residence.GAMMA,
        Residence.DELTA,
        Residence.DELTA,
    ]
    assert stage.index.scans > 0


def test_a_pending_message_can_be_queried_and_an_unknown_one_can_not(stage: VariableStage) -> None:
    stage.queue.fetch(1)
    assert status(stage, 0).is_delivered
    assert stage.queue.status(SequenceId(77)) is None
