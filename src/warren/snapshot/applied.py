"""How far the safe snapshot store has come: the mark that goes with every batch it takes.

    timeline    the past that it belongs to: a store of another one is not ours
    epoch       every entry of the log up to this epoch is in it
    version     and so is every later one whose write version is not above this one, as far as the log was read; nothing
                above it is

`epoch` says from where a start-up goes on reading the log. An entry whose version is still to come (its writer gave it
one) waits in the version buffer and holds the epoch back. `version` is the safe snapshot version, above which nothing
is visible. Always true: epoch <= the durable one when the mark is written.
"""

from __future__ import annotations

from typing import NamedTuple

from warren.base.ids import UINT64_MAX, Epoch, TimelineId

Version = tuple[int, int]  # major, minor
NO_VERSION: Version = (0, 0)
MINOR_MAX = UINT64_MAX


class Applied(NamedTuple):
    timeline: TimelineId
    epoch: Epoch
    version: Version
