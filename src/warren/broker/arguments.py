"""What a queue was asked to do, as the catalog keeps it: RabbitMQ's names, so that a server finds what it expects.

    x-message-ttl  x-expires  x-max-length  x-max-length-bytes  x-overflow  x-max-priority
    x-dead-letter-exchange = "", x-dead-letter-routing-key = name     to the queue of this name, by the default exchange
    x-backing                                                         another kind of backing queue (BQ-02)

Always true: what was read from a table gives the same table again. An argument that is not known here stays in the
catalog and does nothing; one with a senseless value is refused when the queue is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from warren.base.errors import Refused

PRIORITY_MAX = 255


class Overflow(StrEnum):
    DROP_HEAD = "drop-head"  # the oldest ones go
    REJECT_PUBLISH = "reject-publish"  # the new ones are refused


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
    is_single_active: bool = False  # only one consumer at a time gets anything

    def __post_init__(self) -> None:
        _check("x-message-ttl", self.message_ttl_ms, 0)
        _check("x-expires", self.expires_ms, 1)
        _check("x-max-length", self.max_length, 0)
        _check("x-max-length-bytes", self.max_length_bytes, 0)
        _check("x-max-priority", self.max_priority, 0, PRIORITY_MAX)
        target: object = self.dead_letter
        if target is not None and not (isinstance(target, str) and target):
            raise Refused(f"a dead-letter target is the name of a queue, not {target!r}")

    @property
    def is_bounded(self) -> bool:
        return self.max_length is not None or self.max_length_bytes is not None

    def to_table(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "x-message-ttl": self.message_ttl_ms,
            "x-expires": self.expires_ms,
            "x-max-length": self.max_length,
            "x-max-length-bytes": self.max_length_bytes,
            "x-max-priority": self.max_priority,
            "x-backing": self.backing,
        }
        if self.is_single_active:
            told["x-single-active-consumer"] = True
        if self.overflow is not Overflow.DROP_HEAD:
            told["x-overflow"] = str(self.overflow)
        if self.dead_letter is not None:
            told |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead_letter}
        return {name: value for name, value in told.items() if value is not None}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> QueueArguments:
        overflow = table.get("x-overflow", str(Overflow.DROP_HEAD))
        if overflow not in tuple(Overflow):
            raise Refused(f"x-overflow cannot be {overflow!r}", f"it is {' or '.join(Overflow)}")
        by_default_exchange = table.get("x-dead-letter-exchange") == ""
        return cls(
            table.get("x-message-ttl"),
            table.get("x-expires"),
            table.get("x-max-length"),
            table.get("x-max-length-bytes"),
            Overflow(overflow),
            table.get("x-dead-letter-routing-key") if by_default_exchange else None,
            table.get("x-max-priority"),
            table.get("x-backing"),
            table.get("x-single-active-consumer") is True,
        )


def _check(name: str, value: object, least: int, most: int = 1 << 62) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and least <= int(str(value)) <= most):
        raise Refused(f"{name} cannot be {value!r}", f"a whole number, at least {least}")
