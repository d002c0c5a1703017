"""Names in a log directory. A file is known by the number and life in its own first block; its name is for people.

lock  manifest  epoch  epoch.<epoch>  ballast pwal_<channel>                     the file being written
ctrl/  pins/  staging/  quarantine/           pwal_<channel>.<number>            rotated
recycle/  snapshot/                           pwal_0000.compacted.<number>       compacted
"""

from __future__ import annotations

import re

from warren.base.ids import ChannelId, Epoch, FileNumber
from warren.files.protocol import join

LOCK = "lock"
MANIFEST = "manifest"
EPOCH = "epoch"
BALLAST = "ballast"
CTRL = "ctrl"
PINS = "pins"
STAGING = "staging"
QUARANTINE = "quarantine"
RECYCLE = "recycle"
SNAPSHOT = "snapshot"
DIRECTORIES = (CTRL, PINS, STAGING, QUARANTINE, SNAPSHOT)

_WAL = re.compile(r"pwal_\d{4}(\.(compacted\.)?\d{10})?")
_DETACHED = re.compile(r"pwal_\d{4}\.\d{10}")
_ROTATED_EPOCH = re.compile(r"epoch\.(\d{20})")


def active_name(channel: ChannelId) -> str:
    return f"pwal_{channel:04d}"


def rotated_name(channel: ChannelId, number: FileNumber) -> str:
    return f"pwal_{channel:04d}.{number:010d}"


def compacted_name(number: FileNumber) -> str:
    return f"pwal_0000.compacted.{number:010d}"


def snapshot_name(number: FileNumber) -> str:
    return join(SNAPSHOT, f"snapshot.{number:010d}")


def rotated_epoch_name(epoch: Epoch) -> str:
    return f"epoch.{epoch:020d}"


def epoch_of_name(name: str) -> Epoch | None:
    found = _ROTATED_EPOCH.fullmatch(name)
    return Epoch(int(found[1])) if found else None


def is_wal(name: str) -> bool:
    """Is this the name of a log file? Everything else in the directory is passed over."""
    return _WAL.fullmatch(name) is not None


def is_detached_wal(name: str) -> bool:
    """Is this the name of a rotated log file?"""
    return _DETACHED.fullmatch(name) is not None
