"""Acknowledging in any order costs the same among n deliveries and among 4n; a message that is requeued again and again
takes no memory for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.queues.kinds.mirror_queue import TagMap
from warren.queues.pending_acks import PendingAcks, TagRanges
from warren.server.unacked import Unacked

FEW, MANY = 10_000, 40_000


class Moved(list[Any]):
    """A list that counts the references it moves when something in the middle comes or goes."""

    moved = 0

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice) and len(range(*at.indices(len(self)))) != len(value):
            Moved.moved += len(self) - at.indices(len(self))[1]
        super().__setitem__(at, value)

    def __delitem__(self, at: Any) -> None:
        Moved.moved += len(self) - (at.indices(len(self))[1] if isinstance(at, slice) else at)
        super().__delitem__(at)

    def insert(self, at: Any, value: Any) -> None:
        Moved.moved += len(self) - at
        super().insert(at, value)

    def pop(self, at: Any = -1) -> Any:
        Moved.moved += len(self) - at if at != -1 else 0
        return super().pop(at)


def counted(value: Any) -> Any:
    """The same with lists that count, at any depth."""
    if isinstance(value, tuple):
        return tuple(map(counted, value))
    if isinstance(value, list):
        return Moved(value)
    return {key: counted(each) for key, each in value.items()} if isinstance(value, dict) else value


def of_a_channel(deliveries: int) -> Callable[[int], object]:
    unacked: Unacked[str] = Unacked()
    for number in range(deliveries):
        unacked.add(number, 1, number, "a queue")
    count_moves(unacked)
    return lambda tag: unacked.take([tag], [])


def of_a_queue(deliveries: int) -> Callable[[int], object]:
    pending = PendingAcks()
    pending.add(Slice(Run(SequenceId(0), deliveries, 4), 0, deliveries, None))
    count_moves(pending)
    return lambda tag: pending.take([(tag, tag + 1)])


def of_a_proxy(deliveries: int) -> Callable[[int], object]:
    """Priority queues and those in SQL. Every other tag was taken before, so there are very many ranges."""
    ranges = TagRanges()
    for tag in range(deliveries):
        ranges.add(2 * tag, 2 * tag + 1)
    count_moves(ranges)
    return lambda tag: ranges.take([(2 * tag, 2 * tag + 1)])


def of_a_mirror(deliveries: int) -> Callable[[int], object]:
    tags = TagMap()
    for tag in range(deliveries):
        tags.add(2 * tag, 2 * tag + 1, 3 * tag)
    count_moves(tags)
    return lambda tag: tags.take([(2 * tag, 2 * tag + 1)])


def count_moves(owner: Any) -> None:
    for name in type(owner).__slots__:
        setattr(owner, name, counted(getattr(owner, name)))


def moved_by_acks(deliveries: int, kind: Callable[[int], Callable[[int], object]]) -> int:
    acknowledge = kind(deliveries)
    Moved.moved = 0
    for tag in random.Random(1).sample(range(deliveries), 1000):
        acknowledge(tag)
    return Moved.moved


@pytest.mark.parametrize("kind", [of_a_channel, of_a_queue, of_a_proxy, of_a_mirror])
def test_an_ack_anywhere_among_four_times_the_deliveries_moves_no_more(
    kind: Callable[[int], Callable[[int], object]],
) -> None:
    """Issue 12, number 21."""
    few, many = moved_by_acks(FEW, kind), moved_by_acks(MANY, kind)
    assert many <= 1.2 * few


def requeued(times: int, is_held: bool) -> PendingAcks:
    """One message is fetched and requeued; `is_held`: another one stays unacknowledged, and the queue moves on."""
    pending = PendingAcks()
    if is_held:
        pending.add(Slice(Run(SequenceId(0), 1, 4), 0, 1, None))
    for time in range(times):
        first = 5000 + (time << 12 if is_held else 0)
        pending.add(Slice(Run(SequenceId(first), 1, 4), 0, 1, None))
        pending.take([(first, first + 1)])
    return pending


@pytest.mark.parametrize("is_held", [False, True], ids=["requeued", "passed"])
def test_what_is_not_pending_any_more_takes_no_memory(is_held: bool) -> None:
    """Issue 12, number 21: eight bytes for each requeue stayed."""
    assert len(requeued(4000, is_held)._numbers) == len(requeued(1000, is_held)._numbers) < 10
