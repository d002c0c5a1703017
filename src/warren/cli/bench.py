"""`warren bench NAME`: the benchmarks of a source checkout (tools/bench). The wheel does not contain them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

from warren.base.errors import Misuse

_CHECKOUT = Path(__file__).parents[3]  # of an editable install, or of PYTHONPATH=src


def add_bench(app: typer.Typer) -> None:
    """Add the commands of tools/bench, or a command that says where they are."""
    if not (_CHECKOUT / "tools" / "bench" / "commands.py").is_file():
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command("bench", context_settings=settings, hidden=True)(_not_installed)
        return
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))
    app.add_typer(importlib.import_module("tools.bench.commands").bench)


def _not_installed() -> None:
    """Measure Warren against its goals: from a source checkout only."""
    raise Misuse("this installation of warren has no benchmarks", "run `make bench` in a source checkout")
