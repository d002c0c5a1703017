"""Queue arguments: what a declaration may request with RabbitMQ's names, and the rules for lengths and times.

    x-message-ttl  x-expires  x-max-length  x-max-length-bytes  x-overflow  x-max-priority
    x-dead-letter-exchange, x-dead-letter-routing-key     target of messages that leave without an ack: see dead_letters
    x-queue-type, x-delivery-limit                        quorum: a durable queue that may count deliveries
    x-single-active-consumer                              one consumer at a time
    x-consumer-timeout                                    time limit for acknowledgements, in place of the server's
    x-queue-mode, x-queue-version, x-dead-letter-strategy …                        validated, otherwise ignored
    x-backing                                             another kind of backing queue (BQ-02), Warren's own

`QueueArguments(dead_letter="name")` in a program means the queue of that name: the default exchange with the name as
routing key. A declaration is refused if an argument has an invalid value, or if RabbitMQ does not support the argument
for this type of queue; unknown arguments are ignored. `BadArgument.reason` has RabbitMQ's text, since clients show it
to users who search for it; `type_of` has its names of AMQP types for the same reason.

Lengths (checklist QP-08) count ready messages, as in RabbitMQ:

    drop-head         the publish is accepted, then the oldest messages are dropped or dead-lettered until it fits
    reject-publish    what does not fit is refused: all of a put; of messages from AMQP or from other queues only those
                      that do not fit, as if they came one by one. With -dlx the refused ones become dead letters

Times (checklist QP-07; DESIGN rule 11):

    a message   its own time (`expires_ms`), or the queue's `x-message-ttl` since it was published: the earlier one
    a queue     `x-expires` without a get, a waiting getter, a consumer or a declaration

Only the message at the head is checked for expiry. The log records the reason of each removal, so replay needs no
clock. A run has one time for all its messages: one check covers a thousand. Messages carry wall time, which survives a
restart; everything else is measured on the monotonic clock.

Invariant: `from_table` reads what `to_table` writes as the same arguments. `to_table` has only the arguments of a
program that have an effect: the table of an AMQP client is in the catalog unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np

from warren.amqp.types import Byte, Float, Long, RawString, Short, Timestamp, UnsignedByte, UnsignedInt, UnsignedShort
from warren.base.environment import Clock, monotonic_ms
from warren.base.errors import Refused
from warren.base.messages import Run, Slice

_INT32: Final = range(-(1 << 31), 1 << 31)

# The first match counts: subclasses stand before their base classes.
_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (type(None), "void"),
    (bool, "bool"),
    (Byte, "byte"),
    (UnsignedByte, "unsignedbyte"),
    (Short, "short"),
    (UnsignedShort, "unsignedshort"),
    (UnsignedInt, "unsignedint"),
    (Long, "long"),
    (Timestamp, "timestamp"),
    (int, "signedint"),
    (Float, "float"),
    (float, "double"),
    (Decimal, "decimal"),
    (str, "longstr"),
    (RawString, "longstr"),
    (bytes, "binary"),
    (list, "array"),
    (tuple, "array"),
    (Mapping, "table"),
)


def type_of(value: object) -> str:
    """The AMQP type of a value, as RabbitMQ names it in errors."""
    if type(value) is int and value not in _INT32:
        return "long"
    return next((name for kind, name in _TYPES if isinstance(value, kind)), type(value).__name__)


def is_integer(value: object) -> bool:
    """Of any width; timestamps and booleans are no integers."""
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


PRIORITY_MAX = 255
TIME_MS_MAX = (1 << 32) * 1000 - 1  # 136 years; sums of it fit into 64 bits
NUMBER_MAX = 1 << 62
TTL = "x-message-ttl"
EXPIRES = "x-expires"
LENGTH = "x-max-length"
LENGTH_BYTES = "x-max-length-bytes"
PRIORITY = "x-max-priority"
OVERFLOW = "x-overflow"
EXCHANGE = "x-dead-letter-exchange"
KEY = "x-dead-letter-routing-key"
LIMIT = "x-delivery-limit"
CONSUMER_TIMEOUT = "x-consumer-timeout"
TYPE = "x-queue-type"
SINGLE = "x-single-active-consumer"
BACKING = "x-backing"
QUORUM = "quorum"
STREAM_ADVICE = ": declare a quorum queue for each reader and bind them to one fanout exchange"
_STRATEGY, _MODE, _VERSION = "x-dead-letter-strategy", "x-queue-mode", "x-queue-version"
_OF_OTHERS = {  # arguments that RabbitMQ has for other types of queue only
    "classic": {LIMIT, _STRATEGY, "x-max-in-memory-length", "x-max-in-memory-bytes"},
    "quorum": {PRIORITY, _MODE, _VERSION, "x-queue-master-locator"},
}
_OF_STREAMS = {"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-queue-leader-locator"}


class BadArgument(Refused):
    """An argument with an invalid value (AMQP: 406)."""

    def __init__(self, name: str, value: object, reason: str, hint: str) -> None:
        super().__init__(f"{name} cannot be {value!r}", hint)
        self.name = name
        self.value = value
        self.reason = reason  # RabbitMQ's text; empty: this type of queue does not have the argument


class Overflow(StrEnum):
    DROP_HEAD = "drop-head"  # the oldest messages are removed
    REJECT_PUBLISH = "reject-publish"  # new messages are refused
    REJECT_PUBLISH_DLX = "reject-publish-dlx"  # … and dead-lettered


class Address(NamedTuple):
    """Exchange and routing key of dead letters."""

    exchange: str
    routing_key: str | None  # None: each message keeps its own


@dataclass(frozen=True, slots=True)
class QueueArguments:
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    dead_letter: str | None = None  # name of a queue
    max_priority: int | None = None
    backing: str | None = None
    is_single_active: bool = False  # deliveries go to one consumer at a time
    dead_letter_exchange: str | None = None  # any exchange; `dead_letter` names a queue
    dead_letter_key: str | None = None
    delivery_limit: int | None = None  # how often a message may be requeued
    queue_type: str | None = None
    consumer_timeout_ms: int | None = None  # of unacked deliveries; None: the server's

    def __post_init__(self) -> None:
        _check_number(TTL, self.message_ttl_ms, 0, TIME_MS_MAX)
        _check_number(EXPIRES, self.expires_ms, 1, TIME_MS_MAX)
        _check_number(LENGTH, self.max_length, 0)
        _check_number(LENGTH_BYTES, self.max_length_bytes, 0)
        _check_number(PRIORITY, self.max_priority, 0, PRIORITY_MAX)
        _check_number(LIMIT, self.delivery_limit, 0)
        if self.dead_letter == "":
            raise BadArgument(KEY, "", "no queue has this name", "set dead_letter to the name of a queue")
        for name, value in ((EXCHANGE, self.dead_letter_exchange), (KEY, self.dead_letter or self.dead_letter_key)):
            _check_text(name, value)
        if self.dead_letter_key is not None and self.dead_letter_exchange is None:
            raise BadArgument(KEY, self.dead_letter_key, "routing_key_but_no_dlx_defined", f"set {EXCHANGE}, too")

    @property
    def is_bounded(self) -> bool:
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def counts_deliveries(self) -> bool:
        """Whether requeues of a message are counted; the count is a header of its next delivery."""
        return self.delivery_limit is not None or self.queue_type == QUORUM

    @property
    def dead_letters_to(self) -> Address | None:
        """Target of messages that leave without an acknowledgement; None: they are dropped."""
        if self.dead_letter is not None:
            return Address("", self.dead_letter)
        return None if self.dead_letter_exchange is None else Address(self.dead_letter_exchange, self.dead_letter_key)

    def to_table(self) -> dict[str, Any]:
        table: dict[str, Any] = {
            TTL: self.message_ttl_ms,
            EXPIRES: self.expires_ms,
            LENGTH: self.max_length,
            LENGTH_BYTES: self.max_length_bytes,
            PRIORITY: self.max_priority,
            BACKING: self.backing,
            LIMIT: self.delivery_limit,
            TYPE: self.queue_type,
            CONSUMER_TIMEOUT: self.consumer_timeout_ms,
            SINGLE: True if self.is_single_active else None,
            OVERFLOW: None if self.overflow is Overflow.DROP_HEAD else str(self.overflow),
        }
        if (address := self.dead_letters_to) is not None:
            table |= {EXCHANGE: address.exchange, KEY: address.routing_key}
        return {name: value for name, value in table.items() if value is not None}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> QueueArguments:
        queue_type = _check_type(table)
        overflow = _check_text(OVERFLOW, table.get(OVERFLOW, str(Overflow.DROP_HEAD)))
        if overflow not in tuple(Overflow):
            raise BadArgument(OVERFLOW, overflow, "invalid_overflow", f"use {' or '.join(Overflow)}")
        _check_silent(table)
        exchange, key = table.get(EXCHANGE), table.get(KEY)
        is_queue = exchange == "" and isinstance(key, str) and bool(key)
        return cls(
            table.get(TTL),
            table.get(EXPIRES),
            table.get(LENGTH),
            table.get(LENGTH_BYTES),
            Overflow(overflow),
            key if is_queue else None,
            table.get(PRIORITY),
            table.get(BACKING),
            _check_flag(SINGLE, table.get(SINGLE, False)),
            None if is_queue else exchange,
            None if is_queue else key,
            table.get(LIMIT),
            queue_type,
            _timeout(table.get(CONSUMER_TIMEOUT)),
        )


def _check_type(table: Mapping[str, Any]) -> str | None:
    """The requested type of queue, if any; refuses arguments that this type does not have."""
    queue_type = _check_text(TYPE, table.get(TYPE))
    if queue_type not in (None, *_OF_OTHERS):
        advice = STREAM_ADVICE if queue_type == "stream" else ""
        reason = f"\"unsupported queue type '{queue_type}'{advice}\""
        raise BadArgument(TYPE, queue_type, reason, f"use {' or '.join(_OF_OTHERS)}")
    for name in table:
        if name in _OF_OTHERS[queue_type or "classic"] or name in _OF_STREAMS:
            raise BadArgument(
                name, table[name], "", f"a {queue_type or 'classic'} queue does not have this argument: remove it"
            )
    return queue_type


def _check_silent(table: Mapping[str, Any]) -> None:
    """Validate arguments that have no effect."""
    if (mode := table.get(_MODE)) not in (None, "default", "lazy"):
        raise BadArgument(_MODE, mode, f"\"unsupported queue mode '{mode}'\"", "use default or lazy")
    if (version := table.get(_VERSION)) not in (None, 1, 2):
        raise BadArgument(_VERSION, version, f"\"unsupported queue version '{version}'\"", "use 1 or 2")
    if (strategy := table.get(_STRATEGY)) not in (None, "at-most-once", "at-least-once"):
        raise BadArgument(_STRATEGY, strategy, "invalid_dlx_strategy", "use at-most-once or at-least-once")


def _timeout(value: Any) -> int | None:
    """Old directories have queues with any value here."""
    return value if is_integer(value) and 0 <= value <= TIME_MS_MAX else None


def check_new(table: Mapping[str, Any]) -> None:
    """Checks of new declarations only: old directories have queues with a version of 1.0 or true."""
    _check_number(CONSUMER_TIMEOUT, table.get(CONSUMER_TIMEOUT), 0, TIME_MS_MAX)
    if (version := table.get(_VERSION)) is not None:
        _check_integer(_VERSION, version, "use 1 or 2")


def _check_number(name: str, value: object, least: int, most: int = NUMBER_MAX) -> None:
    if value is None:
        return
    hint = f"a whole number, at least {least}"
    _check_integer(name, value, hint)
    assert isinstance(value, int), "checked above"
    if value < least:
        raise BadArgument(name, value, f"{{value_{'zero' if value == 0 else 'negative'},{value}}}", hint)
    if value > most:
        word = "max_value_exceeded" if name == PRIORITY else "value_too_large"
        raise BadArgument(name, value, f"{{{word},{value}}}", f"{most} at most")


def _check_integer(name: str, value: object, hint: str) -> None:
    if not is_integer(value):
        raise BadArgument(name, value, f'"expected integer, got {type_of(value)}"', hint)


def _check_text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadArgument(name, value, f"{{unacceptable_type,{type_of(value)}}}", "text")
    return value


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadArgument(name, value, f"{{unacceptable_type,{type_of(value)}}}", "true or false")
    return value


def is_refusing(arguments: QueueArguments) -> bool:
    """Whether the queue refuses publishes over its limit."""
    return arguments.is_bounded and arguments.overflow is not Overflow.DROP_HEAD


def is_over(arguments: QueueArguments, count: int, size_bytes: int) -> bool:
    """Whether ready messages of this number and size exceed the limit."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    return (most is not None and count > most) or (most_bytes is not None and size_bytes > most_bytes)


def count_over(arguments: QueueArguments, count: int, size_bytes: int, head: Slice) -> int:
    """How many messages of the slice at the head must leave to meet the limit: all of them if that does not suffice."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    over = 0 if most is None else max(count - most, 0)
    if most_bytes is not None and size_bytes > most_bytes:
        over = max(over, _reaching(head, size_bytes - most_bytes))
    return min(over, len(head))


def count_fitting(arguments: QueueArguments, count: int, size_bytes: int, coming: Slice) -> int:
    """How many of the incoming messages, from the first on, fit in addition to the ready ones."""
    most, most_bytes = arguments.max_length, arguments.max_length_bytes
    fits = len(coming) if most is None else max(min(len(coming), most - count), 0)
    if most_bytes is None or size_bytes + coming.size_bytes <= most_bytes:
        return fits
    room = most_bytes - size_bytes
    return min(fits, _reaching(coming, room + 1) - 1) if room >= 0 else 0


def count_within(head: Slice, bytes_max: int) -> int:
    """How many messages from the head have at most `bytes_max` in total; at least one."""
    return len(head) if head.size_bytes <= bytes_max else max(_reaching(head, bytes_max + 1) - 1, 1)


def _reaching(head: Slice, wanted_bytes: int) -> int:
    """How many messages from the head reach this total size."""
    sizes = head.run.sizes
    if isinstance(sizes, int):
        return -(-wanted_bytes // sizes) if sizes else len(head)
    sums = np.cumsum(sizes[head.start : head.stop], dtype=np.int64)
    return int(np.searchsorted(sums, wanted_bytes)) + 1


STEP_MESSAGES = 10_000  # removed in one session …
STEP_BYTES = 8 << 20  # … or about this size if they move to another queue; then other requests are served


def due_ms(run: Run, arguments: QueueArguments) -> int | None:
    """Wall time at which messages of this run expire; None: never."""
    by_queue = None if arguments.message_ttl_ms is None else run.published_ms + arguments.message_ttl_ms
    if not run.expires_ms:
        return by_queue
    return run.expires_ms if by_queue is None else min(by_queue, run.expires_ms)


class QueueUse:
    """Time of the last use of a queue, for `x-expires`."""

    __slots__ = ("_clock", "_expires_ms", "_used_ms")

    def __init__(self, clock: Clock, arguments: QueueArguments) -> None:
        self._clock = clock
        self._expires_ms = arguments.expires_ms
        self._used_ms = monotonic_ms(clock)

    def set_arguments(self, arguments: QueueArguments) -> None:
        """Another expiry counts from now."""
        if arguments.expires_ms != self._expires_ms:
            self._expires_ms = arguments.expires_ms
            self.note()

    def note(self) -> None:
        if self._expires_ms is not None:
            self._used_ms = monotonic_ms(self._clock)

    def due_ms(self) -> int | None:
        """Monotonic time at which the queue expires if it stays unused; None: never."""
        return None if self._expires_ms is None else self._used_ms + self._expires_ms
