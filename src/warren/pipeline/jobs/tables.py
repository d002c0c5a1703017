"""What snapshots and exports say about the tables they make: words that both formats and both jobs share.

    Position    how far a table has come: a timeline, and the last epoch of it that the table shows
    Part        one Parquet file of it, as the task that wrote it told
    Batch       what one commit adds: parts, the epochs they cover, the past they were read from

Nothing here touches a file or knows Arrow, so that the command line can name a format without loading either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, TimelineId
from warren.durability.timeline import Timeline
from warren.files.protocol import Files

MANIFEST = "_MANIFEST.json"  # Spark and Delta pass over names that begin with an underscore
LOCK = "_lock"
STAGING = "_staging"
DELTA_LOG = "_delta_log"


class TableFormat(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Position:
    timeline: TimelineId
    epoch: Epoch

    def to_json(self) -> dict[str, Any]:
        return {"timeline": f"{self.timeline:016x}", "epoch": self.epoch}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Position:
        return cls(TimelineId(int(raw["timeline"], 16)), Epoch(int(raw["epoch"])))

    def is_of(self, timeline: Timeline) -> bool:
        """Does the store with this timeline come from the same beginning?"""
        return self.timeline in (timeline.id, *(ancestor.timeline for ancestor in timeline.ancestry))


@dataclass(frozen=True, slots=True)
class TablePart:
    name: str
    rows: int
    size_bytes: int
    first_epoch: Epoch | None = None  # None: it has no rows
    last_epoch: Epoch | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TablePart:
        return cls(raw["name"], raw["rows"], raw["bytes"], raw["first_epoch"], raw["last_epoch"])


@dataclass(frozen=True, slots=True)
class TableBatch:
    timeline: TimelineId
    first: Epoch
    last: Epoch
    parts: tuple[TablePart, ...] = ()

    @property
    def position(self) -> Position:
        return Position(self.timeline, self.last)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def check_paths(directory: str, target: str) -> None:
    """Before anything is done: can every node mean the same by these two names?"""
    for path in (directory, target):
        if not os.path.isabs(path):
            raise Misuse(f"'{path}' is no absolute path", "every node must find it under the same name")
    if os.path.commonpath([os.path.normpath(directory), os.path.normpath(target)]) == os.path.normpath(directory):
        raise Misuse(f"{target} lies in the log directory", "choose a target outside of it")


def names_in(files: Files, target: str) -> list[str]:
    """What stands in a directory that may not be there yet."""
    if not files.exists(target):
        return []
    if not files.stat(target).is_directory:
        raise Refused(f"{target} is a file", "name a directory, or a path where nothing is yet")
    return files.list(target)


def not_ours(target: str, names: Sequence[str], what: str) -> Refused:
    return Refused(f"{target} is no {what} of warren: it has {names[0]}", "name an empty directory, or a new one")
