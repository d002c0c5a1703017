"""Every move between the subqueues, one at a time. Messages are named by their number, from one, as in the seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.queues.backing_stage import contents_of, numbered, one, tags_of
from tests.queues.variable_stage import TINY, VariableStage
from warren.base.ids import SequenceId
from warren.queues.invariants import check

BOTH = pytest.mark.parametrize("is_persistent", [True, False])


def staged(*, is_persistent: bool = True, is_prompt: bool = True, delta_read_messages: int = 100) -> VariableStage:
    settings = replace(TINY, run_messages_max=100, delta_read_messages=delta_read_messages)
    stage = VariableStage(settings, is_prompt=is_prompt)
    stage.is_persistent = is_persistent
    return stage


def put(stage: VariableStage, first: int, last: int) -> None:
    """Messages of these numbers, each published alone."""
    for number in range(first, last + 1):
        stage.backing.put(*numbered(number, number + 1), is_persistent=stage.is_persistent)


def five_subqueues(is_persistent: bool = True, delta_read_messages: int = 100) -> VariableStage:
    stage = staged(is_persistent=is_persistent, delta_read_messages=delta_read_messages)
    put(stage, 1, 8)
    stage.queue.subqueues.push_alphas_to_betas(0, 6)
    stage.queue.subqueues.push_betas_to_deltas(4)
    put(stage, 9, 12)
    stage.queue.subqueues.push_alphas_to_betas(2, 0)
    assert stage.subqueues() == {"q4": [1, 2], "q3": [3, 4], "delta": [5, 6, 7, 8], "q2": [9, 10], "q1": [11, 12]}
    return stage


def get(stage: VariableStage, count: int) -> list[bytes]:
    return contents_of(stage.backing.get(count))


# -- coming ----------------------------------------------------------------------------------------------------------


@BOTH
def test_vq_07_there_are_four_sub_queues_and_delta(is_persistent: bool) -> None:
    """VQ-07, VQ-24, VQ-40: all five hold messages at once, and they come out q4, q3, delta, q2, q1."""
    stage = five_subqueues(is_persistent)
    assert [
        len(subqueue) for subqueue in (stage.queue.subqueues.q4, stage.queue.subqueues.q3, stage.queue.subqueues.q2)
    ] == [
        2,
        2,
        2,
    ]
    assert get(stage, 12) == numbered(1, 13)


def test_vq_09_q4_holds_the_oldest() -> None:
    """VQ-09: the front of the queue is in q4, and is delivered first."""
    stage = five_subqueues()
    assert get(stage, 1) == numbered(1, 2)
    assert stage.subqueues()["q4"] == [2]


def test_vq_10_q3_is_empty_until_something_is_paged() -> None:
    """VQ-10: however many come, go and come back, q3 fills by paging only (or by a start: see VQ-15)."""
    stage = staged()
    put(stage, 1, 50)
    tags = tags_of(stage.backing.get(20))
    stage.backing.requeue((tags[3], tags[9] + 1))
    put(stage, 51, 60)
    assert set(stage.subqueues()) == {"q4"}
    stage.queue.subqueues.push_alphas_to_betas(0, 1)
    assert stage.subqueues()["q3"] == [60]


@BOTH
def test_vq_11_a_message_in_q3_is_known_there_and_its_contents_are_on_disk(is_persistent: bool) -> None:
    """VQ-11: q4 → q3 keeps the reference and drops the contents, which are read when it is fetched."""
    stage = staged(is_persistent=is_persistent)
    put(stage, 1, 3)
    stage.queue.subqueues.push_alphas_to_betas(0, 2)
    assert [slice_.contents for slice_ in stage.queue.subqueues.q3] == [None, None]
    assert [slice_.first for slice_ in stage.queue.subqueues.q3] == [1, 2]
    assert get(stage, 3) == numbered(1, 4)
    assert (stage.index.reads > 0) == is_persistent


def test_vq_12_with_q3_empty_a_message_goes_to_the_rear_of_q4() -> None:
    stage = staged()
    put(stage, 1, 2)
    put(stage, 3, 3)
    assert stage.subqueues() == {"q4": [1, 2, 3]}


def test_vq_13_with_something_in_q3_a_message_goes_to_q1() -> None:
    """VQ-13, C-01: never to q4, where it would be delivered too early."""
    stage = staged()
    put(stage, 1, 2)
    stage.queue.subqueues.push_alphas_to_betas(0, 1)
    put(stage, 3, 4)
    assert stage.subqueues() == {"q4": [1], "q3": [2], "q1": [3, 4]}


def test_vq_44_in_a_short_queue_messages_skip_states() -> None:
    """VQ-44: a transient message that is fetched soon touches nothing but q4, and no disk at all."""
    stage = staged(is_persistent=False)
    epoch = stage.index.epoch
    for number in range(1, 6):
        put(stage, number, number)
        assert set(stage.subqueues()) == {"q4"}
        stage.backing.ack(*(fetched.tags for fetched in stage.backing.get(1)))
    assert (stage.transient.written, stage.index.epoch, stage.index.scans, stage.index.reads) == (0, epoch, 0, 0)


# -- going -----------------------------------------------------------------------------------------------------------


def test_vq_16_a_fetch_takes_from_q4_then_from_q3() -> None:
    """VQ-16, C-02: q1 is never read directly."""
    stage = five_subqueues()
    assert get(stage, 3) == numbered(1, 4)
    assert stage.subqueues() == {"q3": [4], "delta": [5, 6, 7, 8], "q2": [9, 10], "q1": [11, 12]}


def test_vq_17_with_q4_and_q3_empty_the_queue_is() -> None:
    """VQ-17: after every fetch; whatever is left has come to the front."""
    stage = five_subqueues(delta_read_messages=1)
    for left in reversed(range(12)):
        get(stage, 1)
        subqueues = stage.queue.subqueues
        assert (subqueues.q4.count + subqueues.q3.count > 0) == (left > 0) == (len(stage.queue) > 0)


def test_vq_18_the_last_of_q3_brings_q1_to_q4_if_delta_is_empty() -> None:
    stage = staged()
    put(stage, 1, 2)
    stage.queue.subqueues.push_alphas_to_betas(0, 2)
    put(stage, 3, 5)
    get(stage, 1)
    assert stage.subqueues() == {"q3": [2], "q1": [3, 4, 5]}
    get(stage, 1)
    assert stage.subqueues() == {"q4": [3, 4, 5]}


def test_vq_19_the_last_of_q3_brings_delta_to_q3_if_there_is_some() -> None:
    """VQ-19, VQ-26: what is needed for delivery is loaded; q1 stays where it is."""
    stage = five_subqueues()
    get(stage, 4)
    assert stage.subqueues() == {"q3": [5, 6, 7, 8, 9, 10], "q1": [11, 12]}


@BOTH
def test_vq_20_delta_is_appended_to_the_rear_of_q3(is_persistent: bool) -> None:
    """VQ-20: `maybe_deltas_to_betas` reads positions, not contents, and puts them behind what is there."""
    stage = five_subqueues(is_persistent, delta_read_messages=2)
    scans, reads = stage.index.scans, stage.index.reads
    stage.queue.subqueues.maybe_deltas_to_betas()
    assert (stage.index.scans, stage.index.reads) == (scans + 1, reads)
    subqueues = stage.subqueues()
    assert subqueues["q3"][:3] == [3, 4, 5]
    assert all(slice_.contents is None for slice_ in stage.queue.subqueues.q3)


def test_vq_21_q2_follows_when_delta_is_empty() -> None:
    stage = five_subqueues()
    stage.queue.subqueues.maybe_deltas_to_betas()
    assert stage.subqueues() == {"q4": [1, 2], "q3": [3, 4, 5, 6, 7, 8, 9, 10], "q1": [11, 12]}


def test_vq_22_q2_stays_while_delta_has_something() -> None:
    stage = five_subqueues(delta_read_messages=1)
    stage.queue.subqueues.maybe_deltas_to_betas()
    assert stage.subqueues() == {"q4": [1, 2], "q3": [3, 4, 5], "delta": [6, 7, 8], "q2": [9, 10], "q1": [11, 12]}


def test_vq_23_q2_fills_only_from_q1_and_behind_delta() -> None:
    """VQ-23: without delta, q1 is paged to q3; with it, to q2."""
    stage = staged()
    put(stage, 1, 4)
    stage.queue.subqueues.push_alphas_to_betas(0, 3)
    put(stage, 5, 8)
    stage.queue.subqueues.push_alphas_to_betas(2, 0)
    assert "q2" not in stage.subqueues()
    stage.queue.subqueues.push_betas_to_deltas(1)
    stage.queue.subqueues.push_alphas_to_betas(1, 0)
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3, 4, 5], "delta": [6], "q2": [7], "q1": [8]}


def test_vq_25_what_a_start_finds_is_read_in_order_at_any_length() -> None:
    """VQ-25: `maybe_deltas_to_betas` runs while a queue is opened, once, and not for all of it."""
    stage = staged(delta_read_messages=5)
    put(stage, 1, 40)
    stage.stop_and_open()
    assert stage.queue.subqueues.q3.count == 5
    assert get(stage, 40) == numbered(1, 41)


# -- to disk ---------------------------------------------------------------------------------------------------------


def test_vq_32_q1_goes_to_q3_or_behind_delta_to_q2() -> None:
    """VQ-32: from the front of q1 to the rear of the other."""
    stage = staged()
    put(stage, 1, 2)
    stage.queue.subqueues.push_alphas_to_betas(0, 1)
    put(stage, 3, 5)
    stage.queue.subqueues.push_alphas_to_betas(2, 0)
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3, 4], "q1": [5]}
    stage.queue.subqueues.push_betas_to_deltas(1)
    stage.queue.subqueues.push_alphas_to_betas(1, 0)
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3], "delta": [4], "q2": [5]}


def test_vq_33_q4_goes_from_its_rear_to_the_front_of_q3() -> None:
    stage = staged()
    put(stage, 1, 6)
    stage.queue.subqueues.push_alphas_to_betas(0, 2)
    stage.queue.subqueues.push_alphas_to_betas(0, 3)
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3, 4, 5, 6]}
    assert get(stage, 6) == numbered(1, 7)


@BOTH
def test_vq_36_betas_of_q3_go_first_and_then_those_of_q2(is_persistent: bool) -> None:
    """VQ-36: one stays in q3; from q2 the front goes, which is next to delta."""
    stage = five_subqueues(is_persistent)
    assert stage.queue.subqueues.push_betas_to_deltas(2) == 2
    assert stage.subqueues() == {"q4": [1, 2], "q3": [3], "delta": [4, 5, 6, 7, 8, 9], "q2": [10], "q1": [11, 12]}
    assert stage.queue.subqueues.push_betas_to_deltas(100) == 1
    check(stage.queue, is_deep=True)
    assert get(stage, 12) == numbered(1, 13)


def test_vq_37_q3_is_paged_from_its_rear() -> None:
    stage = staged()
    put(stage, 1, 6)
    stage.queue.subqueues.push_alphas_to_betas(0, 5)
    assert stage.queue.subqueues.push_betas_to_deltas(2) == 2
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3, 4], "delta": [5, 6]}


def test_quotas_split_slices() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(1, 11))
    assert stage.queue.subqueues.push_alphas_to_betas(0, 4) == 4
    assert stage.queue.subqueues.push_betas_to_deltas(3) == 3
    assert stage.subqueues() == {"q4": [1, 2, 3, 4, 5, 6], "q3": [7], "delta": [8, 9, 10]}
    assert get(stage, 10) == numbered(1, 11)


def test_persistent_messages_leave_memory_without_a_write() -> None:
    """alpha → beta → delta: the log has it all."""
    stage = staged()
    put(stage, 1, 9)
    epoch = stage.index.epoch
    stage.queue.subqueues.push_alphas_to_betas(0, 9)
    stage.queue.subqueues.push_betas_to_deltas(8)
    assert (stage.index.epoch, stage.transient.written, stage.large.units) == (epoch, 0, {})


# -- not durable yet -------------------------------------------------------------------------------------------------


def test_a_message_that_is_not_durable_stays_in_memory() -> None:
    stage = staged(is_prompt=False)
    put(stage, 1, 3)
    assert stage.queue.subqueues.push_alphas_to_betas(9, 9) == 0
    stage.index.settle()
    assert stage.queue.subqueues.push_alphas_to_betas(9, 9) == 3


def test_messages_that_are_not_durable_do_not_keep_older_ones_in_memory() -> None:
    """The rear of q4 is too new: it goes to q1, behind what is paged."""
    stage = staged(is_prompt=False)
    put(stage, 1, 4)
    stage.index.settle()
    put(stage, 5, 6)
    assert stage.queue.subqueues.push_alphas_to_betas(0, 3) == 3
    assert stage.subqueues() == {"q4": [1], "q3": [2, 3, 4], "q1": [5, 6]}
    check(stage.queue)
    assert get(stage, 6) == numbered(1, 7)


def test_transient_messages_wait_for_nothing() -> None:
    stage = staged(is_persistent=False, is_prompt=False)
    put(stage, 1, 4)
    assert stage.queue.subqueues.push_alphas_to_betas(0, 4) == 4
    assert stage.queue.subqueues.push_betas_to_deltas(3) == 3


# -- back ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_requeued_message_returns_to_its_subqueue(is_persistent: bool, is_in_memory: bool) -> None:
    """To q4, q3 or delta, by its sequence id, whether its contents are in memory or not."""
    stage = staged(is_persistent=is_persistent)
    put(stage, 1, 12)
    tags = tags_of(stage.backing.get(12))
    stage.backing.requeue(*(one(tag) for tag in tags[1::3]))  # 2 5 8 11
    stage.queue.subqueues.push_alphas_to_betas(0, 3)
    stage.queue.subqueues.push_betas_to_deltas(2)
    put(stage, 13, 14)
    assert stage.subqueues() == {"q4": [2], "q3": [5], "delta": [8, 11], "q1": [13, 14]}
    if not is_in_memory:
        stage.queue.pending.release(100, lambda run: True, stage.queue.subqueues.without_contents)
    stage.backing.requeue(*(one(tag) for tag in tags[0::3]))  # 1 4 7 10
    stage.backing.requeue(*(one(tag) for tag in tags[2::3]))  # 3 6 9 12
    check(stage.queue, is_deep=True)
    subqueues = stage.subqueues()
    assert subqueues["delta"] == [8, 9, 10, 11, 12] and subqueues["q1"] == [13, 14]
    assert subqueues.get("q4", []) == ([1, 2, 3, 4] if is_in_memory else [])
    assert get(stage, 14) == numbered(1, 15)


def test_a_fresh_message_that_belongs_into_delta_brings_it_to_memory() -> None:
    """It is on no disk yet, so it cannot be in delta: what stands in front of it is read into q3."""
    stage = staged(is_prompt=False, delta_read_messages=1)
    put(stage, 1, 4)
    stage.index.settle()
    put(stage, 5, 5)
    tags = tags_of(stage.backing.get(5))
    put(stage, 6, 6)
    stage.backing.requeue((tags[0], tags[3] + 1))
    stage.queue.subqueues.push_alphas_to_betas(0, 4)
    stage.queue.subqueues.push_betas_to_deltas(3)
    assert stage.queue.subqueues.delta.count == 3
    stage.index.is_prompt = False
    stage.backing.requeue(one(tags[4]))
    assert [slice_.first for slice_ in stage.queue.subqueues.q3] == [0, 1, 2, 3, 4]
    assert [slice_.contents for slice_ in stage.queue.subqueues.q3][-1] == [b"0005"]
    check(stage.queue)
    stage.index.settle()
    stage.queue.paging.reduce_memory_use(1)
    assert stage.queue.subqueues.q3.ram_count == 0
    assert get(stage, 6) == numbered(1, 7)


def test_fresh_messages_that_were_delivered_before_do_not_go_to_q1() -> None:
    """A requeued message is never searched in q1: another message in between would lose its place."""
    stage = staged(is_prompt=False)
    put(stage, 1, 2)
    stage.index.settle()
    put(stage, 3, 6)
    tags = tags_of(stage.backing.get(4))
    stage.backing.requeue(one(tags[0]), one(tags[2]))
    assert stage.queue.subqueues.push_alphas_to_betas(8, 8) == 0
    stage.backing.requeue(one(tags[1]), one(tags[3]))
    check(stage.queue)
    assert get(stage, 6) == numbered(1, 7)


def test_status_reports_each_subqueue() -> None:
    """VQ-41, VQ-42, VQ-43: q1 and q4 hold alphas, q2 and q3 betas and gammas, delta what is on disk only."""
    for is_persistent, beta in ((True, "gamma"), (False, "beta")):
        stage = five_subqueues(is_persistent)
        reported = [stage.queue.status(SequenceId(number)) for number in range(12)]
        assert [status.residence.value for status in reported if status is not None] == [
            *["alpha"] * 2,
            *[beta] * 2,
            *["delta"] * 4,
            *[beta] * 2,
            *["alpha"] * 2,
        ]
