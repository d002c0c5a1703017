"""Compiled modules are known, fresh and tested in both modes.

The marks in the sources, the list in `base/build.py` and the tests that `make test-pure` runs again must agree, and
machine code older than its source must not be what the tests of today are passing with.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, TESTS, Module, modules_under, plant
from warren.base import build

MARK = "# mypyc: compile"
MARK_WITHIN_LINES = 5  # as in setup.py
ROOT = SRC.parent


def marked(src: Path) -> list[Module]:
    return [module for module in modules_under(src) if MARK in module.text.splitlines()]


def hidden_marks(src: Path) -> list[str]:
    return [module.place for module in marked(src) if MARK not in module.text.splitlines()[:MARK_WITHIN_LINES]]


def test_the_list_of_compiled_modules_equals_the_marks_in_the_sources() -> None:
    assert sorted(build.MARKED_MODULES) == sorted(module.name for module in marked(SRC))


def test_a_mark_stands_among_the_first_lines() -> None:
    assert not hidden_marks(SRC)


def test_a_mark_further_down_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {"warren/a.py": f"{MARK}\n", "warren/b.py": "\n" * 9 + f"{MARK}\n", "warren/c.py": f"x = '{MARK}'"})
    assert [module.place for module in marked(tmp_path)] == ["a.py", "b.py"]
    assert hidden_marks(tmp_path) == ["b.py"]


def test_every_marked_module_has_tests_that_mirror_it() -> None:
    assert not [
        module.place
        for module in marked(SRC)
        if not list((TESTS / module.place).parent.glob(f"test_{Path(module.place).stem}*.py"))
    ]


def test_machine_code_is_as_new_as_its_source() -> None:
    stale = [
        name
        for name in build.MARKED_MODULES
        if build.is_compiled(name)
        and _built_at(name) < (SRC / name.replace(".", "/")).with_suffix(".py").stat().st_mtime
    ]
    assert not stale, "run `make setup`"


def _built_at(name: str) -> float:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).stat().st_mtime


def test_the_mode_is_compiled_only_if_every_marked_module_is() -> None:
    each = [build.is_compiled(name) for name in build.MARKED_MODULES]
    assert build.mode() == ("compiled" if each and all(each) else "pure")


def test_an_extension_module_counts_as_compiled_and_a_source_does_not() -> None:
    assert build.is_compiled("numpy._core._multiarray_umath")
    assert not build.is_compiled("warren.base.ids")
    assert not build.is_compiled("warren.base.no_such_module")


def libraries_seen_by_mypyc(src: Path) -> set[str]:
    """Libraries imported by the marked modules and by every module of ours that these import, also for types only."""
    modules = {module.name: module for module in modules_under(src)}
    waiting, seen, found = {module.name for module in marked(src)}, set(), set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for target in _imported(modules[name]):
            top, *rest = target.split(".")
            if top == "warren":
                above = {".".join([top, *rest[:length]]) for length in range(len(rest) + 1)}
                waiting |= (above & modules.keys()) - seen
            elif top not in sys.stdlib_module_names:
                found.add(top)
    return found


def _imported(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_build_requires_every_library_whose_types_mypyc_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = set(project["build-system"]["requires"])
    needed = {
        packages_distributions()[library][0].lower().replace("-", "_") for library in libraries_seen_by_mypyc(SRC)
    }
    listed = {each for each in project["project"]["dependencies"] if _distribution(each) in needed}
    assert {_distribution(each) for each in listed} == needed, "each is a dependency"
    assert listed <= required, "with the same versions"


def _distribution(requirement: str) -> str:
    return requirement.partition(">")[0].strip().lower().replace("-", "_")


def test_a_library_that_is_imported_for_types_only_is_seen(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "warren/hot.py": f"{MARK}\nimport numpy\nfrom warren.base import ids",
            "warren/__init__.py": "if TYPE_CHECKING:\n    from warren.embedded.database import Warren",
            "warren/embedded/database.py": "def f():\n    import sqlalchemy",
            "warren/base/ids.py": "import os",
            "warren/other.py": "import pandas",
        },
    )
    assert libraries_seen_by_mypyc(tmp_path) == {"numpy", "sqlalchemy"}


@pytest.mark.slow
@pytest.mark.parametrize("is_required", [False, True])
def test_a_build_that_cannot_compile_prints_the_cause(tmp_path: Path, is_required: bool) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    plant(tmp_path / "src", {"warren/hot.py": f"{MARK}\nimport no_such_library\n"})
    environment = {name: value for name, value in os.environ.items() if name != "WARREN_REQUIRE_EXT"}
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={**environment, **({"WARREN_REQUIRE_EXT": "1"} if is_required else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == is_required
    assert f"{'ERROR' if is_required else 'WARNING'}: warren is built without compiled modules" in done.stderr
    assert 'module named "no_such_library"' in done.stderr
