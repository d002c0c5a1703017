"""Error families, by what the reader of the error must do.

Every error states what happened and where, and ends in a hint. `Misuse` is for the caller to fix; `Refused` is an
answer; `Damage` means bytes differ from what was written; `OutOfRoom` passes when space is freed; `DiskFailure` and
`SyncFailed` end the writer: a failed sync is never retried and trusted; `InternalError` is a defect of Warren.
"""

from __future__ import annotations


class WarrenError(Exception):
    """`what`: what happened, and where; `hint`: what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}\n  hint: {hint}" if hint else what)
        self.what = what
        self.hint = hint


class Misuse(WarrenError):
    """The caller broke the contract: fix the caller."""


class ForkedProcess(Misuse):
    """A forked child used a store of its parent: open one after the fork."""


class Refused(WarrenError):
    """Not found, locked, not permitted, of another format: an answer for the requester."""


class NotFound(Refused):
    """There is no file of this name."""


class Locked(Refused):
    """Another process, or another opener in this one, holds the directory."""


class Gone(Refused):
    """The requested data lies before the horizon; the text names the horizon."""


class OutOfRoom(WarrenError):
    """No space left on the disk: writers wait, readers continue."""


class DiskFailure(WarrenError):
    """The operating system reported an input/output error."""


class SyncFailed(DiskFailure):
    """A sync failed: nothing written since the last good sync may be trusted. Fatal for its writer."""


class InternalError(WarrenError):
    """An exception that nothing in Warren raises on purpose: a defect to report."""


class Damage(WarrenError):
    """Bytes differ from what was written. Names file and offset; nothing of it is served."""

    def __init__(self, what: str, path: str = "", offset: int = 0, hint: str = "") -> None:
        where = f" ({path} at byte {offset})" if path else ""
        super().__init__(what + where, hint or "run `warren log verify DIR`, then `warren log repair DIR`")
        self.bare = what  # without path and offset
        self.path = path
        self.offset = offset
