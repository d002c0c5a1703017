"""Delivery counts of requeued messages, against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.queue import DeliveryCounts

RANGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=3).map(
    lambda pairs: [(first, first + count) for first, count in pairs]
)


@given(st.integers(0, 3), st.lists(st.tuples(st.booleans(), RANGES), max_size=12))
def test_a_message_may_be_requeued_up_to_the_limit(limit: int, steps: list[tuple[bool, list[tuple[int, int]]]]) -> None:
    counts, plain = DeliveryCounts(limit), dict[int, int]()
    for is_back, ranges in steps:
        tags = list(dict.fromkeys(tag for first, stop in ranges for tag in range(first, stop)))
        own = [(tag, tag + 1) for tag in tags]
        if not is_back:
            counts.forget(own)
            plain = {tag: count for tag, count in plain.items() if tag not in tags}
            continue
        over, back = counts.split(own)
        assert [tag for first, stop in over for tag in range(first, stop)] == [
            t for t in tags if plain.get(t, 0) >= limit
        ]
        assert [tag for first, stop in back for tag in range(first, stop)] == [
            t for t in tags if plain.get(t, 0) < limit
        ]
        counts.note(back, over)
        plain = {tag: count for tag, count in plain.items() if tag not in tags or count < limit}
        plain |= {tag: plain.get(tag, 0) + 1 for first, stop in back for tag in range(first, stop)}
    assert len(counts) == len(plain)


def test_without_a_limit_nothing_is_counted() -> None:
    counts = DeliveryCounts(None)
    assert counts.split([(1, 5)]) == ([], [(1, 5)])
    counts.note([(1, 5)], [])
    assert len(counts) == 0
