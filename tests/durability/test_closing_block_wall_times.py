"""Which epoch was it at that time: marks every 100 ms, a monotone companion, and the look-up."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.ids import Epoch
from warren.durability.closing_block import MARK_INTERVAL_NS, WallMarks, epoch_at
from warren.testing.fakes import START_WALL_NS, ManualClock


def test_the_first_epoch_carries_the_time() -> None:
    assert WallMarks(ManualClock()).next_mark() == (START_WALL_NS, START_WALL_NS)


def test_at_most_one_epoch_in_a_tenth_of_a_second_carries_the_time() -> None:
    clock = ManualClock()
    marks = WallMarks(clock)
    is_marked = []
    for _ in range(100):
        is_marked.append(marks.next_mark() != (0, 0))
        clock.advance_ns(MARK_INTERVAL_NS // 10)
    assert sum(is_marked) == 10
    assert is_marked[0] and is_marked[10] and not is_marked[9]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5 * MARK_INTERVAL_NS), st.integers(0, 1 << 62)), max_size=30))
def test_the_monotone_time_never_goes_back_whatever_is_done_to_the_clock(moves: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    marks = WallMarks(clock)
    last = 0
    for duration_ns, wall_ns in moves:
        clock.advance_ns(duration_ns)
        clock.set_wall_ns(wall_ns)
        wall, monotone = marks.next_mark()
        if monotone:
            assert wall == wall_ns
            assert monotone > last
            assert monotone == wall or wall <= last
            assert monotone == marks.monotone_ns
            last = monotone


def test_the_monotone_time_continues_from_the_previous_process() -> None:
    clock = ManualClock(wall_ns=50)
    assert WallMarks(clock, monotone_ns=1000).next_mark() == (50, 1001)


def test_as_of_a_time_is_the_last_epoch_marked_at_or_before_it() -> None:
    marks = [(100, Epoch(3)), (200, Epoch(7)), (300, Epoch(9))]
    assert [epoch_at(marks, wall) for wall in (99, 100, 199, 200, 299, 300, 10**30)] == [None, 3, 3, 7, 7, 9, 9]
    assert epoch_at([], 5) is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), unique=True), st.integers(0, 60))
def test_as_of_agrees_with_looking_at_every_mark(times: list[int], wall_ns: int) -> None:
    marks = [(time, Epoch(index + 1)) for index, time in enumerate(sorted(times))]
    assert (epoch_at(marks, wall_ns) or 0) == bisect_right(sorted(times), wall_ns)
