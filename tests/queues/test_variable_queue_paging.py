"""When a queue pages, and how much: quotas from the memory in use against a target."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.queues.backing_stage import contents_of, numbered
from tests.queues.variable_stage import SECOND_NS, TINY, VariableStage
from warren.queues.invariants import check
from warren.queues.settings import VariableQueueSettings
from warren.queues.subqueues import SubQueues


def busy(settings: VariableQueueSettings = TINY, count: int = 20) -> VariableStage:
    """A queue of so many messages that came at ten in a second, or thereabouts."""
    stage = VariableStage(replace(settings, rate_half_life_ms=1))
    for number in range(1, count + 1):
        stage.backing.put(*numbered(number, number + 1))
    stage.clock.advance_ns(count * SECOND_NS // 10)
    assert stage.queue.rates.ingress == pytest.approx(10)
    return stage


def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Which moves are made, with which quotas."""
    calls: list[tuple[str, tuple[int, ...]]] = []
    alphas, betas = SubQueues.push_alphas_to_betas, SubQueues.push_betas_to_deltas

    def push_alphas(subqueues: SubQueues, quota_q1: int, quota_q4: int) -> int:
        calls.append(("alphas", (quota_q1, quota_q4)))
        return alphas(subqueues, quota_q1, quota_q4)

    def push_betas(subqueues: SubQueues, quota: int) -> int:
        calls.append(("betas", (quota,)))
        return betas(subqueues, quota)

    monkeypatch.setattr(SubQueues, "push_alphas_to_betas", push_alphas)
    monkeypatch.setattr(SubQueues, "push_betas_to_deltas", push_betas)
    return calls


def test_vq_27_paging_begins_with_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """VQ-27: `reduce_memory_use` pushes alphas to betas first, and positions only if that was not enough."""
    stage = busy(replace(TINY, beta_messages_max=0))
    calls = reported(monkeypatch)
    stage.queue.paging.reduce_memory_use(7)
    assert calls == [("alphas", (7, 0)), ("alphas", (0, 7))]


def test_vq_31_what_is_delivered_last_is_paged_first() -> None:
    """VQ-31: q1 before q4."""
    stage = busy(count=6)
    stage.queue.subqueues.push_alphas_to_betas(0, 1)
    stage.backing.put(*numbered(7, 10))
    assert stage.subqueues() == {"q4": [1, 2, 3, 4, 5], "q3": [6], "q1": [7, 8, 9]}
    stage.queue.paging.reduce_memory_use(3)
    assert stage.subqueues() == {"q4": [1, 2, 3, 4, 5], "q3": [6, 7, 8, 9]}
    stage.queue.paging.reduce_memory_use(2)
    assert stage.subqueues() == {"q4": [1, 2, 3], "q3": [4, 5, 6, 7, 8, 9]}


def test_vq_34_the_quota_is_what_is_in_memory_over_the_target() -> None:
    """VQ-34: so many seconds at the present rates may stay; no more is moved."""
    stage = busy(replace(TINY, page_messages_max=100, beta_messages_max=100))
    stage.queue.set_ram_duration_target(0.5)
    assert (stage.queue.paging.target_count, stage.queue.paging.quota) == (5, 15)
    assert stage.queue.page() is False
    assert (stage.queue.subqueues.q4.count, stage.queue.subqueues.q3.count) == (5, 15)
    assert stage.queue.paging.quota == 0


def test_vq_35_the_remaining_quota_goes_to_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """VQ-35: contents alone are not enough, so positions follow."""
    stage = busy(replace(TINY, page_messages_max=100, beta_messages_max=4))
    calls = reported(monkeypatch)
    stage.queue.set_ram_duration_target(0.0)
    while stage.queue.page():
        check(stage.queue)
    assert calls[:2] == [("alphas", (20, 0)), ("alphas", (0, 20))]
    assert calls[-1] == ("betas", (16,))
    assert stage.subqueues() == {"q3": [1, 2, 3, 4], "delta": list(range(5, 21))}


def test_vq_38_paging_ends_when_the_quota_is_spent() -> None:
    """VQ-38, VQ-39: what is to be sent soon stays in memory; not everything has to go."""
    stage = busy(replace(TINY, beta_messages_max=100))
    stage.queue.paging.reduce_memory_use(4)
    assert [slice_.contents is not None for slice_ in stage.queue.subqueues.q4] == [True] * 16
    assert stage.subqueues() == {"q4": list(range(1, 17)), "q3": [17, 18, 19, 20]}
    assert contents_of(stage.backing.get(20)) == numbered(1, 21)


def test_vq_45_the_queue_moves_messages_and_others_keep_them() -> None:
    """VQ-45: everything that is paged and read back passes index and stores, for each kind its own."""
    stage = VariableStage(replace(TINY, read_ahead_bytes_max=0))
    stage.backing.put(b"small")
    stage.backing.put(b"l" * 40)
    stage.backing.put(b"light", is_persistent=False)
    stage.queue.subqueues.push_alphas_to_betas(0, 3)
    assert (stage.transient.units, list(stage.large.units.values())) == ({b"transient 1": [b"light"]}, [[b"l" * 40]])
    assert contents_of(stage.backing.get(3)) == [b"small", b"l" * 40, b"light"]
    assert stage.index.reads == 1
    stage.backing.ack((0, 3))
    assert stage.transient.units == {}
    stage.crash_and_open()
    assert len(stage.queue) == 0


def test_a_step_is_bounded() -> None:
    stage = busy(replace(TINY, page_messages_max=6, page_bytes_max=1000, beta_messages_max=100))
    stage.queue.set_ram_duration_target(0.0)
    assert stage.queue.page() is True
    assert stage.queue.subqueues.q3.count == 6
    stage = busy(replace(TINY, page_messages_max=6, page_bytes_max=12, beta_messages_max=100))
    stage.queue.set_ram_duration_target(0.0)
    assert stage.queue.page() is True
    assert stage.queue.subqueues.q3.count == 3


def test_without_a_target_nothing_is_paged() -> None:
    stage = busy()
    assert stage.queue.page() is False
    stage.queue.set_ram_duration_target(0.0)
    stage.queue.page()
    stage.queue.set_ram_duration_target(None)
    assert stage.queue.page() is False
    assert stage.queue.subqueues.q3.count == 5


def test_paging_that_can_do_nothing_returns_so() -> None:
    """Nothing is durable yet: paging must not loop."""
    stage = VariableStage(TINY, is_prompt=False)
    stage.backing.put(*numbered(1, 5))
    stage.queue.set_ram_duration_target(0.0)
    assert stage.queue.page() is False
    stage.index.settle()
    stage.queue.page()
    assert stage.queue.subqueues.ram_count == 0


@pytest.mark.parametrize("is_persistent", [True, False])
def test_contents_of_pending_messages_are_memory_and_are_released(is_persistent: bool) -> None:
    stage = VariableStage(TINY)
    stage.backing.put(*numbered(1, 7), is_persistent=is_persistent)
    stage.backing.get(6)
    assert stage.queue.ram_bytes >= 24
    stage.queue.set_ram_duration_target(0.0)
    while stage.queue.page():
        check(stage.queue)
    assert (stage.queue.ram_bytes, stage.queue.pending_count) == (0, 6)
    assert [content for slice_ in stage.queue.read_pending([(0, 6)]) for content in slice_.contents or []] == numbered(
        1, 7
    )
    stage.backing.requeue((0, 6))
    assert contents_of(stage.backing.get(6)) == numbered(1, 7)


def test_how_long_memory_lasts() -> None:
    stage = VariableStage()
    assert stage.queue.ram_duration() == math.inf
    stage = busy(replace(TINY, beta_messages_max=100))
    assert stage.queue.ram_duration() == pytest.approx(2.0)
    stage.queue.subqueues.push_alphas_to_betas(0, 10)
    assert stage.queue.ram_duration() == pytest.approx(1.0)


def test_what_was_read_ahead_is_released_too() -> None:
    stage = busy(replace(TINY, read_ahead_bytes_max=1000))
    stage.queue.set_ram_duration_target(0.0)
    while stage.queue.page():
        check(stage.queue)
    stage.backing.get(1)
    assert stage.queue.ram_bytes > 4 + 48
    while stage.queue.page():
        check(stage.queue)
    assert stage.queue.ram_bytes == 0
