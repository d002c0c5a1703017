"""Timelines: which readers may continue, and which get the epoch of the fork."""

from __future__ import annotations

import pytest

from warren.base.errors import Refused
from warren.base.ids import Epoch, TimelineId
from warren.durability.timeline import Ancestor, Timeline

FIRST, SECOND, THIRD, FOREIGN = (TimelineId(n) for n in (0xA1, 0xB2, 0xC3, 0xD4))
FORKED = Timeline(FIRST).fork(SECOND, Epoch(10)).fork(THIRD, Epoch(25))


def test_a_fork_remembers_where_each_timeline_was_left() -> None:
    assert FORKED.ancestry == (Ancestor(FIRST, Epoch(10)), Ancestor(SECOND, Epoch(25)))


@pytest.mark.parametrize(
    ("timeline", "epoch"), [(THIRD, 1), (THIRD, 1 << 60), (FIRST, 1), (FIRST, 10), (SECOND, 25), (SECOND, 11)]
)
def test_a_reader_on_this_history_may_continue(timeline: TimelineId, epoch: int) -> None:
    FORKED.admit(timeline, Epoch(epoch))
    assert FORKED.id == THIRD


@pytest.mark.parametrize(("timeline", "epoch", "fork"), [(FIRST, 11, 10), (SECOND, 26, 25)])
def test_a_reader_on_an_abandoned_branch_gets_the_epoch_of_the_fork(
    timeline: TimelineId, epoch: int, fork: int
) -> None:
    with pytest.raises(Refused, match=f"epoch {epoch} of timeline {timeline:016x} was abandoned") as refusal:
        FORKED.admit(timeline, Epoch(epoch))
    assert f"at epoch {fork}" in refusal.value.what
    assert f"epoch {fork} of timeline {THIRD:016x}" in refusal.value.hint


def test_a_foreign_timeline_is_refused() -> None:
    with pytest.raises(Refused, match="not part of this store's past") as refusal:
        FORKED.admit(FOREIGN, Epoch(1))
    assert "another store" in refusal.value.hint
