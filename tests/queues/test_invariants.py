"""The check finds what it is for: each case breaks one thing in a queue that was right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queues.backing_stage import numbered
from tests.queues.variable_stage import TINY, VariableStage
from warren.base.ids import SequenceId
from warren.queues.invariants import check
from warren.queues.variable_queue import VariableQueue


def queue_of_five_subqueues() -> VariableQueue:
    stage = VariableStage(TINY)
    for number in range(13):
        stage.backing.put(*numbered(number, number + 1))
        if number == 8:
            stage.backing.get(1)
            stage.queue.subqueues.push_alphas_to_betas(0, 6)
            stage.queue.subqueues.push_betas_to_deltas(4)
    stage.queue.subqueues.push_alphas_to_betas(2, 0)
    check(stage.queue, is_deep=True)
    return stage.queue


def test_a_queue_that_is_right_passes() -> None:
    assert len(queue_of_five_subqueues()) == 12


def _empty_q3(queue: VariableQueue) -> None:
    queue.subqueues.q3.take_all()


def _empty_delta(queue: VariableQueue) -> None:
    queue.subqueues.delta.clear()


def _miscount(queue: VariableQueue) -> None:
    queue.subqueues.q4.count += 1


def _misweigh(queue: VariableQueue) -> None:
    queue.subqueues.q1.ram_bytes += 1


def _swap(queue: VariableQueue) -> None:
    queue.subqueues.q4.slices.reverse()


def _mix_up(queue: VariableQueue) -> None:
    queue.subqueues.q2, queue.subqueues.q3 = queue.subqueues.q3, queue.subqueues.q2


def _forget_contents(queue: VariableQueue) -> None:
    slice_ = queue.subqueues.q4.take_first(1)
    slice_.contents = None
    queue.subqueues.q4.appendleft(slice_)


def _lose_one_of_delta(queue: VariableQueue) -> None:
    queue.subqueues.delta.start = SequenceId(queue.subqueues.delta.start + 1)


def _ready_and_pending(queue: VariableQueue) -> None:
    queue.pending.add(queue.subqueues.q4.first)


def _deliver_without_a_consumer(queue: VariableQueue) -> None:
    queue.index_counters.delivered_to = SequenceId(0)


def _miss(queue: VariableQueue) -> None:
    queue.subqueues.delta.missing = 1


def _misjudge_the_disk(queue: VariableQueue) -> None:
    queue.index_counters.count += 5


@pytest.mark.parametrize(
    "broken",
    [
        _empty_q3,
        _empty_delta,
        _miscount,
        _misweigh,
        _swap,
        _mix_up,
        _forget_contents,
        _lose_one_of_delta,
        _ready_and_pending,
        _deliver_without_a_consumer,
        _miss,
        _misjudge_the_disk,
    ],
)
def test_a_queue_that_is_wrong_is_found(broken: Callable[[VariableQueue], None]) -> None:
    queue = queue_of_five_subqueues()
    broken(queue)
    with pytest.raises(AssertionError):
        check(queue, is_deep=True)
