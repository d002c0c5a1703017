"""Few families of errors, told apart by what the reader must *do*.

Every error says what happened, where, and ends in a hint. `Misuse` is the caller's to fix; `Refused` is an answer;
`Damage` means bytes are not what we wrote; `OutOfRoom` passes when room is made; `DiskFailure` and `SyncFailed` end
the writer: a sync that failed once is never retried and believed; `InternalError` is a defect of Warren itself.
"""

from __future__ import annotations


class WarrenError(Exception):
    """What happened, and a hint about what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}\n  hint: {hint}" if hint else what)
        self.what = what
        self.hint = hint


class Misuse(WarrenError):
    """The caller broke the contract: fix the caller."""


class ForkedProcess(Misuse):
    """A forked child used a store of its parent: open one after the fork."""


class Refused(WarrenError):
    """Not found, locked, not permitted, of another format: tell whoever asked."""


class NotFound(Refused):
    """There is no file of this name."""


class Locked(Refused):
    """Another process, or another opener in this one, holds the directory."""


class Gone(Refused):
    """What was asked for lies before the horizon; it names the horizon."""


class OutOfRoom(WarrenError):
    """No space left on the disk: writers wait, readers go on."""


class DiskFailure(WarrenError):
    """The operating system reported an input/output error."""


class SyncFailed(DiskFailure):
    """A sync failed: nothing written since the last good one may be believed. Fatal for its writer."""


class InternalError(WarrenError):
    """An exception that nothing in Warren raises on purpose: a defect to report."""


class Damage(WarrenError):
    """Bytes are not what we wrote. Names file and offset; nothing of it is served."""

    def __init__(self, what: str, path: str = "", offset: int = 0, hint: str = "") -> None:
        where = f" ({path} at byte {offset})" if path else ""
        super().__init__(what + where, hint or "run `warren log verify DIR`, then `warren log repair DIR`")
        self.bare = what  # without the place
        self.path = path
        self.offset = offset
