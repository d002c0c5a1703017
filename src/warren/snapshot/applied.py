"""How far the safe snapshot store has come: the mark that goes with every batch it takes.

    timeline    the past that it belongs to: a store of another one is not ours
    epoch       every entry of the log up to this epoch was offered to it
    version     and every one of them whose write version is not above this one is in it, and nothing newer

`epoch` says from where a start-up goes on reading the log; `version` is the safe snapshot version, above which nothing
is visible. Always true: epoch <= the durable one when the mark is written.
"""

from __future__ import annotations

from typing import NamedTuple

from warren.base.ids import Epoch, TimelineId

Version = tuple[int, int]  # major, minor
NO_VERSION: Version = (0, 0)


class Applied(NamedTuple):
    timeline: TimelineId
    epoch: Epoch
    version: Version
