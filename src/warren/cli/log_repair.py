"""`warren log repair DIR`: see log/repair."""

from __future__ import annotations

from warren.cli.output import Directory


def repair(directory: Directory) -> None:
    """Void what is damaged."""
