"""Time in queues: messages that expire, and queues that nobody uses (checklist QP-07; DESIGN rule 11).

    a message   its own time (`expires_ms`), or the queue's `x-message-ttl` since it was published: the earlier one
    a queue     `x-expires` without a get, a waiting getter, a consumer or a declaration

A message is judged when it stands at the head, and only there; what is let go of says why in the log, so that replay
asks no clock. A run has one time for all its messages: one look judges a thousand.

Two clocks: messages carry wall time, which outlives a restart; everything else is measured on the one that never jumps.
"""

from __future__ import annotations

from warren.base.clock import Clock
from warren.base.runs import Run
from warren.broker.arguments import QueueArguments

STEP_MESSAGES = 10_000  # so many are let go of in one session …
STEP_BYTES = 8 << 20  # … or about so many bytes, if they move on to another queue; then others get a turn


def wall_ms(clock: Clock) -> int:
    return clock.wall_ns() // 1_000_000


def monotonic_ms(clock: Clock) -> int:
    return clock.monotonic_ns() // 1_000_000


def due_ms(run: Run, arguments: QueueArguments) -> int | None:
    """Wall time from which on messages of this run are expired; None: never."""
    by_queue = None if arguments.message_ttl_ms is None else run.published_ms + arguments.message_ttl_ms
    if not run.expires_ms:
        return by_queue
    return run.expires_ms if by_queue is None else min(by_queue, run.expires_ms)


class QueueUse:
    """When a queue was used last."""

    __slots__ = ("_clock", "_expires_ms", "_used_ms")

    def __init__(self, clock: Clock, arguments: QueueArguments) -> None:
        self._clock = clock
        self._expires_ms = arguments.expires_ms
        self._used_ms = monotonic_ms(clock)

    def note(self) -> None:
        if self._expires_ms is not None:
            self._used_ms = monotonic_ms(self._clock)

    def due_ms(self) -> int | None:
        """Monotonic time from which on it is unused for too long; None: it may rest for ever."""
        return None if self._expires_ms is None else self._used_ms + self._expires_ms
