"""Compiled modules are known, fresh and tested in both modes.

The marks in the sources, the list in `base/compiled.py` and the tests that `make test-pure` runs again must agree, and
machine code older than its source must not be what the tests of today are passing with.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.house.source_tree import SRC, TESTS, Module, modules_under, plant
from warren.base import compiled

MARK = "# mypyc: compile"
MARK_WITHIN_LINES = 5  # as in setup.py


def marked(src: Path) -> list[Module]:
    return [module for module in modules_under(src) if MARK in module.text.splitlines()]


def hidden_marks(src: Path) -> list[str]:
    return [module.place for module in marked(src) if MARK not in module.text.splitlines()[:MARK_WITHIN_LINES]]


def test_the_list_of_compiled_modules_equals_the_marks_in_the_sources() -> None:
    assert sorted(compiled.MARKED_MODULES) == sorted(module.name for module in marked(SRC))


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
        for name in compiled.MARKED_MODULES
        if compiled.is_compiled(name)
        and _built_at(name) < (SRC / name.replace(".", "/")).with_suffix(".py").stat().st_mtime
    ]
    assert not stale, "run `make setup`"


def _built_at(name: str) -> float:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).stat().st_mtime


def test_the_mode_is_compiled_only_if_every_marked_module_is() -> None:
    each = [compiled.is_compiled(name) for name in compiled.MARKED_MODULES]
    assert compiled.mode() == ("compiled" if each and all(each) else "pure")


def test_an_extension_module_counts_as_compiled_and_a_source_does_not() -> None:
    assert compiled.is_compiled("numpy._core._multiarray_umath")
    assert not compiled.is_compiled("warren.base.ids")
    assert not compiled.is_compiled("warren.base.no_such_module")
