"""docs/checklist.md is true: every id once, and every test it names exists, names the id and asserts something."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.checklist_page import LINE, PAGE, NamedTest, every_test_under, ids_named_by, known_ids, page
from tests.house.source_tree import ROOT, Function, plant

ASSERTING_HELPERS = ("check", "assert_", "_check", "_assert_")
ASSERTING_BY_NATURE = ("raises", "run_state_machine_as_test")


def untrue_lines(text: str, ids: list[str], tests: list[NamedTest]) -> list[str]:
    lines = [match.groups() for line in text.splitlines() if (match := LINE.match(line))]
    listed = [id_ for id_, _, _ in lines]
    found = [f"{id_} has {listed.count(id_)} lines" for id_ in ids if listed.count(id_) != 1]
    found += [f"{id_} is no id of the checklist" for id_ in listed if id_ not in ids]
    return found + [
        f"{id_}: {offence}"
        for id_, name, file in lines
        if (name, file) not in (("open", None), ("typo", None)) and (offence := _offence(id_, name, file, ids, tests))
    ]


def _offence(id_: str, name: str, file: str | None, ids: list[str], tests: list[NamedTest]) -> str:
    nodes = [test.node for test in tests if (test.name, test.file) == (name, file)]
    if not nodes:
        return f"{file} has no test {name}"
    if not any(id_ in ids_named_by(node, ids) for node in nodes):
        return f"{name} names it neither in its name nor in its docstring"
    if not all(asserts_something(node) for node in nodes):
        return f"{name} asserts nothing"
    return ""


def asserts_something(test: Function) -> bool:
    """An assert, pytest.raises, a state machine that is run, or a helper whose name begins with check or assert_."""
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _is_judge(node)) for node in ast.walk(test)
    )


def _is_judge(call: ast.Call) -> bool:
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    return name in ASSERTING_BY_NATURE or name.startswith(ASSERTING_HELPERS)


def test_the_page_is_what_the_tests_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(known_ids(), list(every_test_under(ROOT))), "run `make checklist` and read the diff"


def test_every_line_of_the_page_is_true() -> None:
    assert not untrue_lines(PAGE.read_text(encoding="utf-8"), known_ids(), list(every_test_under(ROOT)))


def test_the_checklist_has_every_id_once() -> None:
    ids = known_ids()
    assert len(ids) == len(set(ids)) == 390


IDS = ["RO-01", "RO-02", "C-25", "L6-01"]
TEST = '''
def test_rotation_is_queued():
    """RO-01: waits for the switch."""
    assert rotate()
'''


def _page_over(root: Path, source: str) -> tuple[str, list[NamedTest]]:
    tests = list(every_test_under(plant(root, {"tests/log/test_rotation.py": source})))
    return page(IDS, tests), tests


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (TEST, ["RO-01"]),
        (TEST.replace("RO-01", "RO-01…RO-02 and C-25, not XC-25"), ["RO-01", "RO-02", "C-25"]),
        (TEST.replace("RO-01", "RO-011, C-255, AC-25, RO-01b"), []),
        ("def test_l6_01_and_c_25():\n    assert x", ["C-25", "L6-01"]),
        ("def test_c_255_of_l6_011():\n    assert x", []),
        ("class TestRotation:\n    async def test_RO_02(self):\n        assert x", ["RO-02"]),
        ('"""RO-01 in the essay of a module is not a test."""\n\ndef test_x():\n    assert x', []),
        ("def helper_for_ro_01():\n    assert x", []),
    ],
)
def test_ids_are_found_in_names_and_docstrings(tmp_path: Path, source: str, found: list[str]) -> None:
    text, tests = _page_over(tmp_path, source)
    assert [
        match[1] for line in text.splitlines() if (match := LINE.match(line)) and match[2] not in ("open", "typo")
    ] == found
    assert not untrue_lines(text, IDS, tests)


def test_the_first_test_by_file_and_line_stands_for_an_id(tmp_path: Path) -> None:
    plant(tmp_path, {"tests/a/test_z.py": "def test_b_ro_01():\n    assert x\ndef test_a_ro_01():\n    assert x\n"})
    text, _ = _page_over(tmp_path, TEST)
    assert "RO-01 | test_b_ro_01 | tests/a/test_z.py\nRO-02 | open |\n" in text


@pytest.mark.parametrize(
    "judge",
    [
        "assert x",
        "with pytest.raises(E): f()",
        "with raises(E): f()",
        "check(q)",
        "run_state_machine_as_test(QueueMachine)",
        "invariants.check_all(q)",
        "assert_same(a, b)",
    ],
)
def test_a_judgement_is_recognised(judge: str) -> None:
    node = ast.parse(f"def test_x():\n    {judge}").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert asserts_something(node)


def test_lines_that_are_not_true_are_found(tmp_path: Path) -> None:
    text, tests = _page_over(tmp_path, TEST.replace("assert rotate()", "rotate()"))
    assert untrue_lines(text, IDS, tests) == ["RO-01: test_rotation_is_queued asserts nothing"]
    text, tests = _page_over(tmp_path, TEST)
    line = "RO-01 | test_rotation_is_queued | tests/log/test_rotation.py\n"
    assert untrue_lines(text.replace(line, ""), IDS, tests) == ["RO-01 has 0 lines"]
    assert untrue_lines(text + line, IDS, tests) == ["RO-01 has 2 lines"]
    assert untrue_lines(text + "XX-01 | open |\n", IDS, tests) == ["XX-01 is no id of the checklist"]
    assert untrue_lines(text.replace("is_queued", "is_lost"), IDS, tests) == [
        "RO-01: tests/log/test_rotation.py has no test test_rotation_is_lost"
    ]
    assert untrue_lines(text.replace("RO-02 | open |", line.strip().replace("RO-01", "RO-02")), IDS, tests) == [
        "RO-02: test_rotation_is_queued names it neither in its name nor in its docstring"
    ]
