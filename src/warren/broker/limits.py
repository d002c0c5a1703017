"""How much a queue may hold, and what is over that (checklist QP-08). Judged by ready messages, as RabbitMQ does.

drop-head         the put is taken, then the oldest go until it fits: expressed by `drop`, or by a dead-letter move
reject-publish    what would not fit is refused: all of a put; of what comes from AMQP, or from other queues, as much
                  as does not fit, as if it came one by one; with -dlx those become dead letters
"""

from __future__ import annotations

import numpy as np

from warren.base.runs import Slice
from warren.broker.arguments import Overflow, QueueArguments


def is_refusing(arguments: QueueArguments) -> bool:
    """Whether it takes no more than it may hold."""
    return arguments.is_bounded and arguments.overflow is not Overflow.DROP_HEAD


def is_over(arguments: QueueArguments, count: int, size_bytes: int) -> bool:
    """Whether so many ready messages of so many bytes are more than it may hold."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    return (most is not None and count > most) or (most_bytes is not None and size_bytes > most_bytes)


def count_over(arguments: QueueArguments, count: int, size_bytes: int, head: Slice) -> int:
    """How many of the slice at the head must go, by what is ready now: all of it, if that does not suffice."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    over = 0 if most is None else max(count - most, 0)
    if most_bytes is not None and size_bytes > most_bytes:
        over = max(over, _reaching(head, size_bytes - most_bytes))
    return min(over, len(head))


def count_fitting(arguments: QueueArguments, count: int, size_bytes: int, coming: Slice) -> int:
    """How many of the first that come are not over the limit, beside what is ready now."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    fits = len(coming) if most is None else max(min(len(coming), most - count), 0)
    if most_bytes is None or size_bytes + coming.size_bytes <= most_bytes:
        return fits
    room = most_bytes - size_bytes
    return min(fits, _reaching(coming, room + 1) - 1) if room >= 0 else 0


def count_within(head: Slice, bytes_max: int) -> int:
    """How many from its head have no more bytes than that together; one at least."""
    return len(head) if head.size_bytes <= bytes_max else max(_reaching(head, bytes_max + 1) - 1, 1)


def _reaching(head: Slice, wanted_bytes: int) -> int:
    """How many from the head have so many bytes together."""
    sizes = head.run.sizes
    if isinstance(sizes, int):
        return -(-wanted_bytes // sizes) if sizes else len(head)
    sums = np.cumsum(sizes[head.start : head.stop], dtype=np.int64)
    return int(np.searchsorted(sums, wanted_bytes)) + 1
