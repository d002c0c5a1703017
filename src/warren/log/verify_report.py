"""What `verify` says, finding by finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from warren.base.ids import Epoch
from warren.log.scan_verdict import FileScan
from warren.log.verify_chain import Chain


class Severity(IntEnum):
    NOTE = 0  # what a power cut or a running writer leaves, and what repairs have voided
    WARNING = 1  # wrong, but it costs nothing by itself
    DAMAGE = 2  # something durable is not what was written

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    path: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.severity.word}: {self.path} at byte {self.offset}: {self.what}"


@dataclass(slots=True)
class VerifyReport:
    directory: str
    durable: Epoch = Epoch(0)
    files: list[FileScan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    chain: Chain | None = None  # None: it never came to that

    @property
    def is_good(self) -> bool:
        return self.first_damage is None

    @property
    def first_damage(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.severity is Severity.DAMAGE), None)

    def note(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.NOTE, path, offset, what))

    def warn(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.WARNING, path, offset, what))

    def damage(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.DAMAGE, path, offset, what))
