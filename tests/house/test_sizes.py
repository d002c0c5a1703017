"""Functions fit a screen, nothing is left for later in a comment, and a test that does not run says why.

A module is as large as its idea: there is no limit on its lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, TESTS, functions_of, modules_under, plant

FUNCTION_LINES_MAX = 60
PUT_OFF = re.compile(r"#.*\b(" + "TO" + r"DO|FIX" + r"ME)\b")
NEEDS_REASON = ("skip", "skipif", "xfail")


def functions_too_long(src: Path) -> list[str]:
    return [
        f"{module.place}:{function.lineno} {function.name} has {lines} lines"
        for module in modules_under(src)
        for function in functions_of(module.tree)
        if (lines := (function.end_lineno or function.lineno) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]


def put_off(*trees: Path) -> list[str]:
    return [
        f"{module.name}:{number} {line.strip()}"
        for tree in trees
        for module in modules_under(tree)
        for number, line in enumerate(module.text.splitlines(), 1)
        if PUT_OFF.search(line)
    ]


def unexplained_skips(tests: Path) -> list[str]:
    return [f"{m.name}:{line} {what}" for m in modules_under(tests) for line, what in sorted(_unexplained(m.tree))]


def _unexplained(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`pytest.mark.skip` and its kin, and `pytest.skip()`, without a reason. skipif's first argument is a condition."""
    explained = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _has_reason(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in explained:
            name = ast.unparse(node)
            if name in (f"pytest.mark.{mark}" for mark in NEEDS_REASON) or name in ("pytest.skip", "pytest.xfail"):
                yield node.lineno, name


def _has_reason(call: ast.Call) -> bool:
    says_it_first = ast.unparse(call.func) in ("pytest.skip", "pytest.xfail", "pytest.mark.skip")
    return any(keyword.arg == "reason" for keyword in call.keywords) or (says_it_first and bool(call.args))


def test_no_function_of_warren_is_too_long() -> None:
    assert not functions_too_long(SRC)


def test_nothing_is_put_off_in_a_comment() -> None:
    assert not put_off(SRC, TESTS)


def test_a_test_that_does_not_run_says_why() -> None:
    assert not unexplained_skips(TESTS)


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    body = "    x = 1\n" * FUNCTION_LINES_MAX
    plant(tmp_path, {"warren/log/a.py": f"class A:\n  def f(self):\n{body}"})
    assert functions_too_long(tmp_path) == ["log/a.py:2 f has 61 lines"]


def test_what_is_just_long_enough_is_not_blamed(tmp_path: Path) -> None:
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    plant(tmp_path, {"warren/log/a.py": f"def f():\n{body}"})
    assert not functions_too_long(tmp_path)


def test_a_comment_that_puts_work_off_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {"warren/a.py": "x = 1  # TO" + "DO: later\ntodo = 'a TO" + "DO list'\n"})
    assert len(put_off(tmp_path)) == 1


@pytest.mark.parametrize(
    ("line", "is_blamed"),
    [
        ("@pytest.mark.skip", True),
        ("@pytest.mark.skip()", True),
        ("@pytest.mark.skip('no disk')", False),
        ("@pytest.mark.skipif(x)", True),
        ("@pytest.mark.skipif(x, reason='no disk')", False),
        ("@pytest.mark.xfail(strict=True)", True),
        ("@pytest.mark.xfail(reason='peer')", False),
        ("@pytest.mark.slow", False),
    ],
)
def test_a_mark_without_a_reason_is_found(tmp_path: Path, line: str, is_blamed: bool) -> None:
    plant(tmp_path, {"test_x.py": f"import pytest\n{line}\ndef test_x(): ...\n"})
    assert bool(unexplained_skips(tmp_path)) == is_blamed


def test_a_skip_from_inside_without_a_reason_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {"test_x.py": "def test_x():\n    pytest.skip()\n    pytest.skip('no disk')\n"})
    assert unexplained_skips(tmp_path) == ["test_x:2 pytest.skip"]
