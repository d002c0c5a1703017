"""Reading contents back: from their location, some ahead, and never more than the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queues.backing_stage import contents_of, numbered
from tests.queues.variable_stage import TINY, VariableStage
from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice


def on_disk(ahead_bytes: int, count: int, is_together: bool, is_persistent: bool = True) -> VariableStage:
    stage = VariableStage(replace(TINY, read_ahead_bytes_max=ahead_bytes, run_messages_max=100))
    contents = numbered(0, count)
    for each in [contents] if is_together else [[content] for content in contents]:
        stage.backing.put(*each, is_persistent=is_persistent)
    stage.queue.subqueues.push_alphas_to_betas(0, count)
    return stage


@pytest.mark.parametrize("is_together", [True, False])
def test_messages_fetched_one_by_one_are_read_some_at_a_time(is_together: bool) -> None:
    stage = on_disk(40, 40, is_together)
    found = [content for _ in range(40) for content in contents_of(stage.backing.get(1))]
    assert (found, stage.index.reads) == (numbered(0, 40), 4)


@pytest.mark.parametrize("is_together", [True, False])
def test_what_is_fetched_at_once_is_read_at_once(is_together: bool) -> None:
    stage = on_disk(0, 40, is_together)
    assert contents_of(stage.backing.get(40)) == numbered(0, 40)
    assert stage.index.reads == 1


def test_what_was_read_ahead_is_still_right_after_something_came_back() -> None:
    stage = on_disk(40, 20, is_together=True)
    fetched = stage.backing.get(3)
    stage.backing.requeue(*(each.tags for each in fetched))
    assert contents_of(stage.backing.get(20)) == numbered(0, 20)


@given(
    st.one_of(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=6, max_size=6)),
    st.integers(0, 8),
    st.integers(0, 60),
)
def test_how_many_fit(sizes: int | list[int], count: int, room: int) -> None:
    columns = sizes if isinstance(sizes, int) else np.array(sizes, np.uint32)
    slice_ = Slice(Run(SequenceId(0), 6, columns), 1, 6, None)
    fits = slice_.fitting(count, room)
    assert fits == max(n for n in range(min(count, 5) + 1) if slice_.run.size_of(1, 1 + n) <= room)
