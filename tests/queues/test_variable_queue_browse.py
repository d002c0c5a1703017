"""Browsing: in order, with contents, from wherever they are, and nothing moves."""

from __future__ import annotations

from tests.queues.backing_stage import numbered
from tests.queues.variable_stage import TINY, VariableStage
from warren.queues.variable_queue import MESSAGES_MAX


def test_browsing_reads_every_subqueue_and_moves_nothing() -> None:
    stage = VariableStage(TINY)
    for number in range(12):
        stage.backing.put(*numbered(number, number + 1), is_persistent=number % 4 != 1)
        if number == 7:
            stage.queue.subqueues.push_alphas_to_betas(0, 6)
            stage.queue.subqueues.push_betas_to_deltas(4)
    stage.queue.subqueues.push_alphas_to_betas(2, 0)
    before = stage.subqueues()
    assert set(before) == {"q4", "q3", "delta", "q2", "q1"}
    assert stage.backing.browsed() == numbered(0, 12)
    assert stage.subqueues() == before


def test_contents_are_read_when_they_are_reached() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(0, 3 * MESSAGES_MAX))
    stage.queue.subqueues.push_alphas_to_betas(0, 3 * MESSAGES_MAX)
    browsing = stage.queue.browse()
    assert next(browsing).contents == numbered(0, MESSAGES_MAX)
    assert stage.index.reads == 1
    assert [slice_.contents for slice_ in browsing][-1] == numbered(2 * MESSAGES_MAX, 3 * MESSAGES_MAX)
