"""`warren log compact DIR`: see log/compact."""

from __future__ import annotations

from warren.cli.output import Directory


def compact(directory: Directory) -> None:
    """Void what is damaged."""
