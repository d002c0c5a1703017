"""The seam to chance: where timelines and incarnations get their 64 random bits. Seeded in the simulator."""

from __future__ import annotations

import secrets
from typing import Protocol


class Random(Protocol):
    def id64(self) -> int:
        """A random integer, 1 … 2**63 - 1 (so that it also fits a signed column)."""
        ...


class SystemRandom:
    def id64(self) -> int:
        return secrets.randbelow((1 << 63) - 1) + 1
