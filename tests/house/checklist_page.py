"""The checklist page: which test keeps which promise.

    checklist_ids.txt     every id of the checklist, once, in its order
    tests/**              a test names an id in its name (test_ro_04_…) or in its docstring (RO-04)
    docs/checklist.md     id | test | file, or id | open |, or id | typo | for a slip of the documents

The page is computed, never edited: `make checklist` (`python -m tests.house.checklist_page`) rewrites it, and a house
test compares. If several tests name an id, the first one by file and line stands for it. A range (RO-01…RO-05) names
its two ends only: a promise has to be named to be kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.source_tree import DOCS, ROOT, Function, functions_of

IDS = Path(__file__).with_name("checklist_ids.txt")
PAGE = DOCS / "checklist.md"
LINE = re.compile(r"^([A-Z][A-Z0-9]*-\d+) \| (\w+) \|(?: (\S+))?$")
ID_IN_TEXT = re.compile(r"(?<![\w-])[A-Z][A-Z0-9]*-\d+(?!\w)")

TYPOS = ("C-06", "C-10", "C-13", "C-27", "C-29", "C-31")  # only words, spelling or a broken-off line: nothing to test

HEAD = """# Checklist

One line per promise: the test that keeps it, `open`, or `typo` for an id that only corrects words of the documents.
Written by `make checklist` from the ids that tests name in their names or docstrings; a house test compares, and sees
that each test named here asserts something. {kept} of {all} are kept, {typos} are typos.

id | test | file
---|---|---
"""


@dataclass(frozen=True, slots=True)
class NamedTest:
    name: str
    file: str  # seen from the root of the repository
    node: Function


def known_ids() -> list[str]:
    return IDS.read_text(encoding="utf-8").split()


def page(ids: list[str], tests: list[NamedTest]) -> str:
    """The whole page, from the ids and all tests in order."""
    keeper: dict[str, NamedTest] = {}
    for test in tests:
        for id_ in ids_named_by(test.node, ids):
            keeper.setdefault(id_, test)
    without = {id_: "typo" if id_ in TYPOS else "open" for id_ in ids}
    lines = [
        f"{id_} | {keeper[id_].name} | {keeper[id_].file}" if id_ in keeper else f"{id_} | {without[id_]} |"
        for id_ in ids
    ]
    typos = list(without.values()).count("typo")
    return HEAD.format(kept=len(keeper), all=len(ids), typos=typos) + "\n".join(lines) + "\n"


def ids_named_by(node: Function, ids: list[str]) -> set[str]:
    in_docstring = set(ID_IN_TEXT.findall(ast.get_docstring(node) or ""))
    in_name = {id_ for id_ in ids if f"_{id_.lower().replace('-', '_')}_" in f"_{node.name.lower()}_"}
    return in_name | (in_docstring & set(ids))


def every_test_under(root: Path) -> Iterator[NamedTest]:
    """Every test function of tests/**/test_*.py, by file and line."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = path.relative_to(root).as_posix()
        functions = functions_of(ast.parse(path.read_text(encoding="utf-8"), filename=file))
        for node in sorted(functions, key=lambda node: node.lineno):
            if node.name.startswith("test_"):
                yield NamedTest(node.name, file, node)


if __name__ == "__main__":
    PAGE.write_text(page(known_ids(), list(every_test_under(ROOT))), encoding="utf-8")
