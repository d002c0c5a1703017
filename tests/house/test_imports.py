"""Imports point one way.

    cli → app → embedded → config → management | pipeline → server → broker → queues | transactions | amqp
        → message_store | queue_index | catalog → snapshot → log → workers → durability → records → files → base

A package imports itself and packages further right; packages joined by | do not import each other. Packages of
`MAY_BE_MISSING` are about to appear. `testing` is beside the order: it may import everything from management down, and
only the commands (cli) may import it. The product does not import `tools/` or `examples/`. The root package imports no
package when it is imported, so that using one never loads another; `warren.open` imports embedded when it is called.
Imports for types count like all others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source_tree import BESIDE, SRC, Module, imports_of, modules_under, plant

ORDER: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("app",),
    ("embedded",),
    ("config",),
    ("management", "pipeline"),
    ("server",),
    ("broker",),
    ("queues", "transactions", "amqp"),
    ("message_store", "queue_index", "catalog"),
    ("snapshot",),
    ("log",),
    ("workers",),
    ("durability",),
    ("records",),
    ("files",),
    ("base",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MAY_BE_MISSING = {"transactions", "workers"}
BEHIND_OPEN = ("embedded",)  # what `warren.open` may import
MAY_USE_TOOLS: tuple[str, ...] = ()
MAY_USE_TESTING = ("cli", "testing")
TESTING_SEES_FROM = LEVEL["management"]


def wrong_way_imports(src: Path) -> list[str]:
    return [
        f"{module.place}:{line} imports {target}: {reason}"
        for module in modules_under(src)
        for line, target in imports_of(module)
        if (reason := _objection_to(_standing(module), target))
    ]


def _standing(module: Module) -> str:
    beside = {"warren.__main__": "cli", "pyspark_warren": "pipeline"}  # modules of a room that stand outside of it
    return beside.get(module.name, module.room)


def _objection_to(importer: str, target: str) -> str:
    top, _, rest = target.partition(".")
    if top in BESIDE:
        is_fine = top == "tools" and importer in MAY_USE_TOOLS
        return "" if is_fine else f"{top} is not part of the product"
    is_ours = top == "warren" and rest and not rest.startswith("__")
    return _objection(importer, rest.partition(".")[0]) if is_ours else ""


def _objection(importer: str, imported: str) -> str:
    """Why a module of one room may not import from another; empty if it may."""
    if importer == imported:
        return ""
    if not importer:
        return "" if imported in BEHIND_OPEN else "the root package imports no room"
    if strangers := [room for room in (importer, imported) if room not in LEVEL and room != "testing"]:
        return f"{strangers[0]} has no place in the order"
    if imported == "testing":
        return "" if importer in MAY_USE_TESTING else "the product does not use its own test tools"
    if importer == "testing":
        return "" if LEVEL[imported] >= TESTING_SEES_FROM else "testing lies below app"
    if LEVEL[imported] == LEVEL[importer]:
        return f"{importer} and {imported} are siblings"
    return "" if LEVEL[imported] > LEVEL[importer] else f"{imported} stands above {importer}"


def test_imports_of_warren_point_one_way() -> None:
    assert not wrong_way_imports(SRC)


def packages_of(src: Path) -> set[str]:
    return {module.room for module in modules_under(src) if module.name.startswith("warren.")} - {"", "__main__"}


def not_in_the_order(packages: set[str]) -> list[str]:
    """Packages without a place in the order, and places of the order without their package."""
    strangers = sorted(packages - LEVEL.keys() - {"testing"})
    missing = sorted(LEVEL.keys() - packages - MAY_BE_MISSING)
    return [*(f"{name} has no place in the order" for name in strangers), *(f"{name} is missing" for name in missing)]


def order_of(packages: set[str]) -> list[tuple[str, ...]]:
    """The order of the packages that exist."""
    levels = (tuple(name for name in level if name in packages) for level in ORDER)
    return [level for level in levels if level]


def test_every_package_has_a_place_in_the_order() -> None:
    assert not not_in_the_order(packages_of(SRC))


def test_the_order_is_drawn_in_the_architecture() -> None:
    drawn = re.search(r"```\n(cli →.*?)```", (SRC.parent / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.DOTALL)
    assert drawn is not None
    levels = " ".join(drawn[1].split()).split(" → ")
    assert [tuple(level.split(" | ")) for level in levels] == order_of(packages_of(SRC))


def test_a_package_that_is_unknown_or_missing_is_found() -> None:
    there = set(LEVEL) | {"testing"}
    assert not not_in_the_order(there)
    assert not not_in_the_order(there - MAY_BE_MISSING)
    assert not_in_the_order(there - {"log"}) == ["log is missing"]
    assert not_in_the_order(there | {"shed"}) == ["shed has no place in the order"]


def test_packages_that_do_not_exist_are_left_out_of_the_order() -> None:
    assert order_of({"cli", "app", "queues", "amqp", "log"}) == [("cli",), ("app",), ("queues", "amqp"), ("log",)]


def test_importing_a_room_does_not_import_the_app() -> None:
    code = "import sys, warren.records.block; sys.exit(any(name.startswith('warren.app') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("place", "line", "reason"),
    [
        ("log/read/scan.py", "from warren.cli import main", "cli stands above log"),
        ("log/read/scan.py", "from warren.snapshot.cut import cut", "snapshot stands above log"),
        ("files/local.py", "import warren.records.format", "records stands above files"),
        ("files/local.py", "from ..records import format", "records stands above files"),
        ("files/__init__.py", "from ..records import format", "records stands above files"),
        ("files/local.py", "from warren import records", "records stands above files"),
        ("queues/variable_queue.py", "import warren.amqp.frames", "queues and amqp are siblings"),
        ("log/read/scan.py", "def f():\n    from warren.testing import model", "does not use its own test tools"),
        ("testing/memory_files.py", "import warren.app.assembly", "testing lies below app"),
        ("testing/memory_files.py", "import warren.cli.main", "testing lies below app"),
        ("app/log.py", "import warren.cli.main", "cli stands above app"),
        ("shed/spade.py", "import warren.base.ids", "shed has no place in the order"),
        ("log/read/scan.py", "import warren.shed.spade", "shed has no place in the order"),
        ("__init__.py", "from warren.log import store", "the root package imports no room"),
        ("workers/jobs.py", "import warren.log.store", "log stands above workers"),
        ("workers/jobs.py", "import warren.snapshot.database", "snapshot stands above workers"),
        ("server/server.py", "import warren.config.options", "config stands above server"),
        ("config/options.py", "import warren.embedded.database", "embedded stands above config"),
        ("embedded/database.py", "import warren.app.broker", "app stands above embedded"),
        ("queues/variable_queue.py", "import warren.transactions.local", "queues and transactions are siblings"),
        ("log/read/scan.py", "from tools.simulator import model", "tools is not part of the product"),
        ("cli/demo.py", "import examples.sql_queue", "examples is not part of the product"),
        ("cli/bench.py", "def f():\n    from tools.bench import run", "tools is not part of the product"),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path: Path, place: str, line: str, reason: str) -> None:
    [offence] = wrong_way_imports(plant(tmp_path, {f"warren/{place}": line}))
    assert offence.startswith(place)
    assert reason in offence


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (
            "log/read/scan.py",
            "import numpy\nfrom warren.records import format\nfrom . import seal\nfrom ..base import ids",
        ),
        ("log/read/scan.py", "from warren import __version__"),
        ("testing/memory_files.py", "from warren.log.store import Store\nfrom warren.testing import memory_files"),
        ("cli/torture.py", "from warren.testing import memory_files"),
        ("__main__.py", "from warren.cli.main import main"),
        ("__init__.py", "def open():\n    from warren.embedded.database import open_embedded"),
        ("embedded/database.py", "import warren.config.options\nimport warren.workers.process"),
        ("snapshot/puller/process.py", "import warren.workers.jobs"),
        ("log/read/scan.py", "from warren.workers.jobs import lease"),
        ("app/broker.py", "import warren.embedded.database"),
    ],
)
def test_an_import_along_the_order_is_not_blamed(tmp_path: Path, place: str, line: str) -> None:
    assert not wrong_way_imports(plant(tmp_path, {f"warren/{place}": line}))
