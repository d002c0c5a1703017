"""Data exchanged between the parts of the simulator: writes, recovered entries, the observed state of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warren.log.settings import EntryKind

State = dict[tuple[int, bytes], bytes]  # (storage, key) → value
UNIQUE = (EntryKind.PUT, EntryKind.RECORD)  # entries whose values identify the session that wrote them


class Violation(AssertionError):
    """The store broke a promise."""


@dataclass(frozen=True, slots=True)
class Write:
    kind: EntryKind
    storage: int
    key: bytes = b""
    value: bytes = b""

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.storage} {self.key!r} {short(self.value)}"


@dataclass(frozen=True, slots=True)
class RecoveredEntry:
    """An entry that was read back from the valid part of a log file."""

    epoch: int
    write: Write


@dataclass(frozen=True, slots=True)
class ReopenedState:
    """Observed state of a reopened store."""

    durable: int
    first_epoch: int  # the next new one
    highest_on_disk: int  # of any block that was there before it was opened
    state: State
    entries: tuple[RecoveredEntry, ...]
    contents: Mapping[tuple[int, int], bytes]  # (timeline, epoch) → digest of its closing block
    records: Mapping[str, list[bytes]] = field(default_factory=dict)  # of each stream, from its base on


def apply(state: State, write: Write) -> None:
    if write.kind is EntryKind.PUT:
        state[write.storage, write.key] = write.value
    elif write.kind is EntryKind.REMOVE:
        state.pop((write.storage, write.key), None)
    elif write.kind is EntryKind.CLEAR_STORAGE:
        for place in [place for place in state if place[0] == write.storage]:
            del state[place]


def short(value: bytes | None) -> str:
    return "absent" if value is None else repr(value[:12])
