"""Which consumer receives ready messages (checklist QP-06)."""

from __future__ import annotations

from collections import deque

import pytest

from warren.base.errors import WarrenError
from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.broker.consumers import FEW, PIECE_MAX, Consumers, InUse
from warren.queues.backing_queue import Fetched


class Taker:
    """A consumer with credit for so many. Is a `Consumer`."""

    def __init__(self, room: int, priority: int = 0, is_exclusive: bool = False) -> None:
        self.left = room
        self.priority = priority
        self.is_exclusive = is_exclusive
        self.is_auto_ack = False
        self.took: list[int] = []
        self.pieces: list[int] = []
        self.reason: WarrenError | None = None

    def room(self) -> int:
        return self.left

    def room_bytes(self) -> int:
        return 1 << 20

    def take(self, incarnation: int, fetched: list[Fetched]) -> None:
        taken = [each.tag + at for each in fetched for at in range(len(each.slice))]
        self.left -= len(taken)
        self.took += taken
        self.pieces.append(len(taken))

    def cancelled(self, reason: WarrenError) -> None:
        self.reason = reason


class Ready:
    """Messages 0 … n-1, handed out from the front."""

    def __init__(self, count: int) -> None:
        self.left = deque(range(count))

    def hand(self, count: int, bytes_max: int, is_auto_ack: bool) -> list[Fetched]:
        some = [self.left.popleft() for _ in range(min(count, len(self.left)))]
        run = Run(SequenceId(0), max(len(some), 1), 1)
        return [Fetched(some[0], Slice(run, 0, len(some), [b""] * len(some)), False)] if some else []

    def to(self, consumers: Consumers) -> None:
        consumers.serve(1, len(self.left), self.hand)


def among(*takers: Taker) -> Consumers:
    consumers = Consumers()
    for taker in takers:
        consumers.add(taker)
    return consumers


def test_one_consumer_takes_all_it_has_room_for_in_one_piece() -> None:
    taker, ready = Taker(700), Ready(1000)
    ready.to(among(taker))
    assert (taker.pieces, len(ready.left)) == ([700], 300)


def test_two_consumers_alternate_message_by_message() -> None:
    """QP-06: fair round robin."""
    one, other = Taker(100), Taker(100)
    Ready(6).to(among(one, other))
    assert (one.took, other.took) == ([0, 2, 4], [1, 3, 5])


def test_round_robin_continues_where_it_was() -> None:
    one, other = Taker(100), Taker(100)
    consumers = among(one, other)
    for _ in range(4):
        Ready(1).to(consumers)
    assert (len(one.took), len(other.took)) == (2, 2)


def test_of_very_many_each_gets_pieces_and_about_as_many_as_the_other() -> None:
    one, other = Taker(10**6), Taker(10**6)
    Ready(20_000).to(among(one, other))
    assert sorted(one.took + other.took) == list(range(20_000))
    assert abs(len(one.took) - len(other.took)) <= PIECE_MAX
    assert max(one.pieces) == PIECE_MAX > FEW


def test_a_consumer_without_credit_is_skipped() -> None:
    full, free = Taker(1), Taker(10)
    Ready(5).to(among(full, free))
    assert (full.took, free.took) == ([0], [1, 2, 3, 4])


def test_a_higher_priority_gets_everything_as_long_as_it_has_room() -> None:
    low, high = Taker(10, priority=1), Taker(3, priority=5)
    Ready(5).to(among(low, high))
    assert (high.took, low.took) == ([0, 1, 2], [3, 4])


def test_an_exclusive_consumer_is_alone() -> None:
    consumers = among(Taker(1, is_exclusive=True))
    with pytest.raises(InUse):
        consumers.add(Taker(1))
    others = among(Taker(1))
    with pytest.raises(InUse):
        others.add(Taker(1, is_exclusive=True))


def test_a_single_active_consumer_gets_everything_until_it_leaves() -> None:
    first, second = Taker(2), Taker(10, priority=9)
    consumers = among(first)
    consumers.is_single_active = True
    consumers.add(second)
    ready = Ready(5)
    ready.to(consumers)
    assert (first.took, second.took) == ([0, 1], [])
    assert consumers.remove(first)
    ready.to(consumers)
    assert second.took == [2, 3, 4]


def test_all_consumers_are_cancelled_when_the_queue_ends() -> None:
    one, other = Taker(1), Taker(1)
    consumers = among(one, other)
    reason = WarrenError("gone")
    consumers.cancel(reason)
    assert (one.reason, other.reason, len(consumers)) == (reason, reason, 0)


def test_there_is_room_only_if_a_consumer_has_room() -> None:
    taker = Taker(0)
    consumers = among(taker)
    assert not consumers.has_room()
    taker.left = 1
    assert consumers.has_room()
