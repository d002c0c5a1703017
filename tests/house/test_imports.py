"""Imports point one way.

    cli → bench → app → management | pipeline → server → broker → queues | amqp
        → message_store | queue_index | catalog → snapshot → log → durability → records → files → base

A room imports itself and rooms further right; rooms joined by | do not know each other. `testing` stands beside the
house: it may use everything from management down, and only the commands (cli, bench) may use it. The root package
imports no room when it is imported, so that using one room never drags in another; `warren.open` reaches for app when
it is called. Imports for types count like all others.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, Module, modules_under, plant

ORDER: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("bench",),
    ("app",),
    ("management", "pipeline"),
    ("server",),
    ("broker",),
    ("queues", "amqp"),
    ("message_store", "queue_index", "catalog"),
    ("snapshot",),
    ("log",),
    ("durability",),
    ("records",),
    ("files",),
    ("base",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MAY_USE_TESTING = ("cli", "bench", "testing")
TESTING_SEES_FROM = LEVEL["management"]


def wrong_way_imports(src: Path) -> list[str]:
    return [
        f"{module.place}:{line} imports {target}: {reason}"
        for module in modules_under(src)
        for line, target in _warren_imports(module)
        if (reason := _objection(_standing(module), target.split(".")[1]))
    ]


def _standing(module: Module) -> str:
    beside = {"warren.__main__": "cli", "pyspark_warren": "pipeline"}  # modules of a room that stand outside of it
    return beside.get(module.name, module.room)


def _objection(importer: str, imported: str) -> str:
    """Why a module of one room may not import from another; empty if it may."""
    if importer == imported:
        return ""
    if not importer:
        return "" if imported == "app" else "the root package imports no room"
    if strangers := [room for room in (importer, imported) if room not in LEVEL and room != "testing"]:
        return f"{strangers[0]} has no place in the order"
    if imported == "testing":
        return "" if importer in MAY_USE_TESTING else "the product does not use its own test tools"
    if importer == "testing":
        return "" if LEVEL[imported] >= TESTING_SEES_FROM else "testing lies below app"
    if LEVEL[imported] == LEVEL[importer]:
        return f"{importer} and {imported} are siblings"
    return "" if LEVEL[imported] > LEVEL[importer] else f"{imported} stands above {importer}"


def _warren_imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name, at least two parts long, of whatever it imports from Warren's own rooms."""
    for node in ast.walk(module.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, module)
            names = [f"{origin}.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        for name in names:
            if name.startswith("warren."):
                assert isinstance(node, ast.stmt)
                yield node.lineno, name


def _origin(node: ast.ImportFrom, module: Module) -> str:
    """The module that a `from … import` names, relative dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*package, node.module] if node.module else package)


def test_imports_of_warren_point_one_way() -> None:
    assert not wrong_way_imports(SRC)


def test_every_room_of_the_order_is_there_and_every_room_is_in_the_order() -> None:
    rooms = {module.room for module in modules_under(SRC) if module.name.startswith("warren.")} - {"", "__main__"}
    assert rooms == LEVEL.keys() | {"testing"}
    drawn = re.search(r"```\n(cli →.*?)```", (SRC.parent / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.DOTALL)
    assert drawn is not None
    levels = " ".join(drawn[1].split()).split(" → ")
    assert [tuple(level.split(" | ")) for level in levels] == list(ORDER)


def test_importing_a_room_does_not_import_the_app() -> None:
    code = "import sys, warren.records.block; sys.exit(any(name.startswith('warren.app') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("place", "line", "reason"),
    [
        ("log/scan.py", "from warren.cli import main", "cli stands above log"),
        ("log/scan.py", "from warren.snapshot.cut import cut", "snapshot stands above log"),
        ("files/local.py", "import warren.records.format", "records stands above files"),
        ("files/local.py", "from ..records import format", "records stands above files"),
        ("files/__init__.py", "from ..records import format", "records stands above files"),
        ("files/local.py", "from warren import records", "records stands above files"),
        ("queues/variable.py", "import warren.amqp.frames", "queues and amqp are siblings"),
        ("log/scan.py", "def f():\n    from warren.testing import model", "does not use its own test tools"),
        ("testing/model.py", "import warren.app.assembly", "testing lies below app"),
        ("testing/model.py", "import warren.cli.main", "testing lies below app"),
        ("bench/log.py", "import warren.cli.main", "cli stands above bench"),
        ("shed/spade.py", "import warren.base.ids", "shed has no place in the order"),
        ("log/scan.py", "import warren.shed.spade", "shed has no place in the order"),
        ("__init__.py", "from warren.log import store", "the root package imports no room"),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path: Path, place: str, line: str, reason: str) -> None:
    [offence] = wrong_way_imports(plant(tmp_path, {f"warren/{place}": line}))
    assert offence.startswith(place)
    assert reason in offence


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("log/scan.py", "import numpy\nfrom warren.records import format\nfrom . import seal\nfrom ..base import ids"),
        ("log/scan.py", "from warren import __version__"),
        ("testing/model.py", "from warren.log.store import Store\nfrom warren.testing import memory_files"),
        ("cli/torture.py", "from warren.testing import campaign\nfrom warren.bench import log"),
        ("__main__.py", "from warren.cli.main import main"),
    ],
)
def test_an_import_along_the_order_is_not_blamed(tmp_path: Path, place: str, line: str) -> None:
    assert not wrong_way_imports(plant(tmp_path, {f"warren/{place}": line}))
