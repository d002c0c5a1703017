"""The age of the oldest unacked delivery is never overestimated, and underestimated by little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.server.unacked import OldestDelivery

STEP = 10
ROUND = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 15))  # delivered, acked, time passes


@given(st.lists(ROUND, max_size=60))
def test_the_oldest_delivery_waits_at_most_as_long_as_it_says(rounds: list[tuple[int, int, int]]) -> None:
    ages, now, delivered_at, oldest = OldestDelivery(), 0, [0], 1  # tags count from 1
    for delivered, acked, passed in rounds:
        delivered_at += [now] * delivered
        oldest = min(oldest + acked, len(delivered_at))
        now += passed
        if oldest == len(delivered_at):
            ages.clear()
            continue
        real, waited = now - delivered_at[oldest], ages.waited_ns(oldest, len(delivered_at), now, STEP)
        assert real - STEP - 2 * 15 <= waited <= real
