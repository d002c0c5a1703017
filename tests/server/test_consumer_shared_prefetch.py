"""Which consumer of a channel gets credits of the channel-wide prefetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from warren.server.consumer import ServerConsumer, SharedPrefetch


class Stage:
    """Consumers are names; each may have ready messages."""

    def __init__(self, limit: int, **ready: int) -> None:
        self.ready = ready
        self.delivered: list[str] = []
        self.scheduled: list[str] = []
        self.called: list[Callable[[], None]] = []
        self.prefetch = SharedPrefetch(cast(Any, self.scheduled.append), self.called.append)
        self.prefetch.set_limit(limit)

    def serve(self, name: str) -> None:
        """As the queue does: while there are messages and room."""
        consumer = cast(ServerConsumer, name)
        while self.ready[name] and (room := self.prefetch.room(consumer)):
            count = min(room, self.ready[name])
            self.ready[name] -= count
            self.delivered += [name] * count
            self.prefetch.delivered(consumer, count)

    def ack(self, count: int) -> None:
        """And run batches until no queue is scheduled. The queue whose message was acked is served first."""
        self.prefetch.settled(count)
        self.prefetch.grant()
        while self.scheduled or self.called:
            scheduled, self.scheduled[:] = [self.delivered[-1], *self.scheduled], []
            for name in scheduled:
                self.serve(name)
            called, self.called[:] = list(self.called), []
            for call in called:
                call()


def test_credits_go_round_among_queues_with_messages() -> None:
    stage = Stage(1, a=10, b=10, c=10)
    for name in "abc":
        stage.serve(name)
    for _ in range(6):
        stage.ack(1)
    assert "".join(stage.delivered) == "aabcabc"


def test_credits_that_come_together_are_shared() -> None:
    stage = Stage(6, a=100, b=100, c=100)
    for name in "abc":
        stage.serve(name)
    stage.ack(6)
    assert "".join(stage.delivered) == "aaaaaa" + "aabbcc"


def test_a_grant_that_is_not_used_goes_to_the_next() -> None:
    stage = Stage(4, a=100, b=100, c=100)
    for name in "abc":
        stage.serve(name)
    stage.ready["a"] = stage.ready["b"] = 0  # others have taken them
    stage.ack(4)
    assert "".join(stage.delivered) == "aaaa" + "cccc"


def test_the_credits_of_a_consumer_that_is_removed_go_to_the_next() -> None:
    stage = Stage(1, a=10, b=10, c=10)
    for name in "abc":
        stage.serve(name)
    stage.ready["a"] = 1
    stage.prefetch.remove(cast(ServerConsumer, "b"))
    stage.ack(1)
    stage.ack(1)
    assert "".join(stage.delivered) == "aac"


def test_an_ack_schedules_no_more_queues_than_it_has_credits_for() -> None:
    """The cost of an ack does not grow with the consumers of its channel."""
    names = {f"q{number}": 10 for number in range(100)}
    stage = Stage(1, **names)
    for name in names:
        stage.serve(name)
    stage.prefetch.settled(1)
    stage.prefetch.grant()
    assert stage.scheduled == ["q0"]
