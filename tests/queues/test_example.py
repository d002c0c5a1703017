"""The worked example of seed 000, state by state, through the variable queue itself (C-03, C-04).

Quotas are given in pairs for q1 and q4, as the example needs them. Where it shows a queue in the midst of a fetch, the
fetch is done in its own steps: take, load delta, join q2, move q1. Each state is reached with persistent and with
transient messages, published one by one and together.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queues.backing_stage import numbered
from tests.queues.variable_stage import VariableStage
from warren.queues.invariants import check


class Example:
    """Messages are named by their number: number n has the sequence id n - 1."""

    def __init__(self, is_persistent: bool, is_together: bool) -> None:
        self.stage = VariableStage()
        self.queue = self.stage.queue
        self._is_persistent = is_persistent
        self._is_together = is_together
        self.delivered: list[bytes] = []

    def publish(self, first: int, last: int) -> None:
        contents = numbered(first, last + 1)
        for each in [contents] if self._is_together else [[content] for content in contents]:
            self.stage.backing.put(*each, is_persistent=self._is_persistent)

    def fetch(self, count: int) -> None:
        for fetched in self.queue.fetch(count):
            self.delivered += fetched.slice.contents or []

    def take(self, count: int) -> None:
        """A fetch that has not come to its end."""
        while count:
            fetched = self.queue.take(count)
            assert fetched is not None
            self.delivered += fetched.slice.contents or []
            count -= len(fetched.slice)

    def push_alphas_to_betas(self, quota_q1: int, quota_q4: int) -> None:
        assert self.queue.subqueues.push_alphas_to_betas(quota_q1, quota_q4) == quota_q1 + quota_q4

    def push_betas_to_deltas(self, quota: int) -> None:
        assert self.queue.subqueues.push_betas_to_deltas(quota) == quota


STEPS: list[Callable[[Example], None]] = [
    lambda example: example.publish(1, 9),
    lambda example: example.publish(10, 10),
    lambda example: example.push_alphas_to_betas(0, 3),
    lambda example: example.publish(11, 15),
    lambda example: example.push_alphas_to_betas(3, 3),
    lambda example: example.push_betas_to_deltas(4),
    lambda example: example.publish(16, 20),
    lambda example: example.push_alphas_to_betas(4, 3),
    lambda example: example.fetch(3),
    lambda example: example.fetch(5),
    lambda example: example.take(1),
    lambda example: example.queue.subqueues.load_delta(),
    lambda example: example.queue.subqueues.join_q2(),
    lambda example: example.publish(21, 25),
    lambda example: example.take(8),
    lambda example: example.queue.subqueues.move_q1_to_q4(),
    lambda example: example.fetch(1),
]
IN_THE_MIDST = (11, 12, 15)  # of a fetch: what holds between two calls need not hold here


@pytest.fixture(params=[(True, True), (True, False), (False, True), (False, False)])
def example(request: pytest.FixtureRequest) -> Example:
    return Example(*request.param)


def check_state(example: Example, step: int, **subqueues: list[int]) -> None:
    """After so many steps these subqueues contain these messages, and the others nothing."""
    for done in STEPS[:step]:
        done(example)
    assert example.stage.subqueues() == subqueues
    assert example.delivered == numbered(1, 1 + len(example.delivered))
    if step not in IN_THE_MIDST:
        check(example.queue, is_deep=True)


def ids(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def test_ex_01_nine_are_published(example: Example) -> None:
    check_state(example, 1, q4=ids(1, 9))


def test_ex_02_another_one_follows(example: Example) -> None:
    check_state(example, 2, q4=ids(1, 10))


def test_ex_03_three_alphas_of_q4_become_betas(example: Example) -> None:
    """C-07: q1 … q4 and `push_alphas_to_betas` as in the seed, which later versions of RabbitMQ replaced."""
    check_state(example, 3, q4=ids(1, 7), q3=ids(8, 10))


def test_ex_04_what_comes_now_goes_to_q1(example: Example) -> None:
    check_state(example, 4, q4=ids(1, 7), q3=ids(8, 10), q1=ids(11, 15))


def test_ex_05_alphas_of_q1_and_q4_become_betas(example: Example) -> None:
    check_state(example, 5, q4=ids(1, 4), q3=ids(5, 13), q1=[14, 15])


def test_ex_06_betas_become_deltas(example: Example) -> None:
    check_state(example, 6, q4=ids(1, 4), q3=ids(5, 9), delta=ids(10, 13), q1=[14, 15])


def test_ex_07_more_come(example: Example) -> None:
    check_state(example, 7, q4=ids(1, 4), q3=ids(5, 9), delta=ids(10, 13), q1=ids(14, 20))


def test_ex_08_alphas_of_q1_go_to_q2_now(example: Example) -> None:
    check_state(example, 8, q4=[1], q3=ids(2, 9), delta=ids(10, 13), q2=ids(14, 17), q1=ids(18, 20))


def test_ex_09_three_are_fetched(example: Example) -> None:
    check_state(example, 9, q3=ids(4, 9), delta=ids(10, 13), q2=ids(14, 17), q1=ids(18, 20))


def test_ex_10_five_are_fetched(example: Example) -> None:
    check_state(example, 10, q3=[9], delta=ids(10, 13), q2=ids(14, 17), q1=ids(18, 20))


def test_ex_11_the_last_one_of_q3_is_fetched(example: Example) -> None:
    check_state(example, 11, delta=ids(10, 13), q2=ids(14, 17), q1=ids(18, 20))


def test_ex_12_delta_is_read_into_q3(example: Example) -> None:
    check_state(example, 12, q3=ids(10, 13), q2=ids(14, 17), q1=ids(18, 20))


def test_ex_13_q2_joins_q3(example: Example) -> None:
    check_state(example, 13, q3=ids(10, 17), q1=ids(18, 20))


def test_ex_14_more_come_behind(example: Example) -> None:
    check_state(example, 14, q3=ids(10, 17), q1=ids(18, 25))


def test_ex_15_all_of_q3_is_fetched(example: Example) -> None:
    check_state(example, 15, q1=ids(18, 25))


def test_ex_16_q1_becomes_q4(example: Example) -> None:
    check_state(example, 16, q4=ids(18, 25))


def test_ex_17_one_is_fetched_from_it(example: Example) -> None:
    check_state(example, 17, q4=ids(19, 25))
    example.fetch(7)
    assert example.delivered == numbered(1, 26)


def test_c_04_a_fetch_does_these_steps(example: Example) -> None:
    """C-04: what the example shows in the midst of a fetch is gone when the fetch is done."""
    for done in STEPS[:10]:
        done(example)
    example.fetch(1)
    assert example.stage.subqueues() == {"q3": ids(10, 17), "q1": ids(18, 20)}
    example.publish(21, 25)
    example.fetch(8)
    assert example.stage.subqueues() == {"q4": ids(18, 25)}


def test_c_03_one_shared_quota_is_spent_on_q1_first(example: Example) -> None:
    """C-03: the policy has one quota for both; with six at step five all of q1 goes, and one of q4."""
    for done in STEPS[:4]:
        done(example)
    assert example.queue.paging.reduce_memory_use(6) == 6
    assert example.stage.subqueues() == {"q4": ids(1, 6), "q3": ids(7, 15)}
