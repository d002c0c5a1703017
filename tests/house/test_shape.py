"""The shape of the code, by rules whose exceptions may only become fewer (tests/house/allowed.json).

    no two classes share a name                     no folder has more than 20 modules
    no module with a single importer is short       no identifier carries a word of STYLE's left column
    no attribute of another object is assigned      (tests/house/words.json)

src, tools and examples are covered. An entry of the allow-list that is not needed any more is an offence too:
`python -m tests.house.shrink_allowed` removes it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.shape import (
    FOLDER_MODULES_MAX,
    LINES_MIN,
    RULES,
    Findings,
    Words,
    all_findings,
    beyond_allowed,
    foreign_assignments,
    full_folders,
    identifiers_of,
    not_needed,
    read_allowed,
    renamed,
    shared_class_names,
    shrunk,
    split,
    torn_modules,
    worded_names,
    write_allowed,
)
from tests.house.shrink_allowed import main as shrink_allowed
from tests.house.source_tree import ROOT, Module, plant


@pytest.fixture(scope="module")
def found() -> dict[str, Findings]:
    return all_findings(ROOT)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_new_breaks_a_rule(found: dict[str, Findings], rule: str) -> None:
    assert not beyond_allowed({rule: found[rule]}, read_allowed())


@pytest.mark.parametrize("rule", RULES)
def test_every_exception_is_needed(found: dict[str, Findings], rule: str) -> None:
    unneeded = not_needed({rule: found[rule]}, {rule: read_allowed().get(rule, {})})
    assert not unneeded, "run `python -m tests.house.shrink_allowed`"


def test_every_exception_is_of_a_rule() -> None:
    assert read_allowed().keys() == RULES.keys()


# -- each rule on a planted tree ----------------------------------------------------------------------------------


def test_two_classes_with_one_name_are_found(tmp_path: Path) -> None:
    files = {
        "src/warren/a.py": "class Part: ...\nclass Whole: ...\n",
        "src/warren/b/c.py": "def f():\n    class Part: ...\n",
        "tools/d.py": "class Whole: ...\n",
        "examples/e.py": "class Only: ...\n",
    }
    assert shared_class_names(plant(tmp_path, files)) == {
        "Part": ["warren.a:1", "warren.b.c:2"],
        "Whole": ["warren.a:2", "tools.d:1"],
    }


def test_a_short_module_with_one_importer_is_found(tmp_path: Path) -> None:
    files = {
        "src/warren/log/store.py": "from warren.log import few\nfrom warren.log.many import f\nfrom . import long\n",
        "src/warren/log/other.py": "import warren.log.many\n",
        "src/warren/log/few.py": "x = 1\n",
        "src/warren/log/many.py": "def f(): ...\n",
        "src/warren/log/long.py": "x = 1\n" * LINES_MIN,
        "tools/bench/run.py": "from tools.bench.rows import row\nimport warren.log.other\n",
        "tools/bench/rows.py": "row = 1\n",
    }
    assert torn_modules(plant(tmp_path, files)) == {
        "warren.log.few": ["1 lines, imported by warren.log.store"],
        "tools.bench.rows": ["1 lines, imported by tools.bench.run"],
    }


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("log/__init__.py", "x = 1\n"),
        ("log/__main__.py", "x = 1\n"),
        ("log/workers.py", "x = 1\nif __name__ == '__main__':\n    x = 2\n"),
        ("log/started.py", "x = 1\n"),
        ("cli/verb.py", "x = 1\n"),
    ],
)
def test_packages_and_entry_points_may_be_short(tmp_path: Path, place: str, text: str) -> None:
    name = "warren." + place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    user = f"import {name}\nCOMMAND = ['python', '-m', 'warren.log.started']\n"
    assert not torn_modules(plant(tmp_path, {f"src/warren/{place}": text, "src/warren/user.py": user}))


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("x.y = 1", "x.y"),
        ("x.y += 1", "x.y"),
        ("x.y: int = 1", "x.y"),
        ("a, x.y = 1, 2", "x.y"),
        ("for x.y in (): ...", "x.y"),
        ("self.part.y = 1", "self.part.y"),
        ("setattr(x, 'y', 1)", "setattr(x)"),
    ],
)
@pytest.mark.parametrize("tree", ["src/warren", "tools", "examples"])
def test_an_assigned_attribute_of_another_object_is_found(tmp_path: Path, tree: str, line: str, target: str) -> None:
    plant(tmp_path, {f"{tree}/a.py": f"class A:\n    def f(self, x):\n        {line}\n"})
    assert list(foreign_assignments(tmp_path)) == [target]


def test_an_assigned_attribute_is_found_in_a_function_of_a_module(tmp_path: Path) -> None:
    plant(tmp_path, {"src/warren/a.py": "def wire(server):\n    server.on_failure = print\n"})
    assert foreign_assignments(tmp_path) == {"server.on_failure": ["warren.a:2"]}


@pytest.mark.parametrize(
    "body",
    [
        "def f(self): self.y = 1",
        "def f(self):\n        def g(): self.y = 1",
        "@classmethod\n    def f(cls): cls.y = 1",
        "@classmethod\n    def f(cls):\n        made = cls.__new__(cls)\n        made.y = 1",
        "@classmethod\n    def f(cls):\n        made = A(1)\n        made.y = 1",
        "def f(self, other: A): other.y = 1",
        "def f(self, x): z = x.y",
        "def f(self, error): error.__cause__ = None",
    ],
)
def test_an_attribute_of_the_own_class_may_be_assigned(tmp_path: Path, body: str) -> None:
    assert not foreign_assignments(plant(tmp_path, {"src/warren/a.py": f"class A:\n    {body}\n"}))


def test_a_full_folder_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {f"src/warren/log/m{number}.py": "" for number in range(FOLDER_MODULES_MAX)})
    plant(tmp_path, {"src/warren/log/__init__.py": "", "src/warren/log/read/scan.py": ""})
    assert not full_folders(tmp_path)
    plant(tmp_path, {"src/warren/log/one_more.py": ""})
    plant(tmp_path, {f"tools/bench/m{number}.py": "" for number in range(FOLDER_MODULES_MAX + 1)})
    sizes = {folder: len(modules) for folder, modules in full_folders(tmp_path).items()}
    assert sizes == {"warren/log": FOLDER_MODULES_MAX + 1, "tools/bench": FOLDER_MODULES_MAX + 1}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("def look_soon(): ...", "look_soon"),
        ("def f(told): ...", "told"),
        ("def f(*, is_told=False): ...", "is_told"),
        ("f = lambda told: 1", "told"),
        ("class A:\n    heard_ns: int", "heard_ns"),
        ("class A:\n    LEFT_AT = 1", "LEFT_AT"),
        ("class A:\n    def f(self): self.is_let_go = 1", "is_let_go"),
        ("class Got: ...", "Got"),
        ("class _Found: ...", "_Found"),
        ("class ServedRealm: ...", "ServedRealm"),
        ("class NobodyListens: ...", "NobodyListens"),
        ("def giveUp(): ...", "giveUp"),
        ("def f(left): ...", "left"),
    ],
)
@pytest.mark.parametrize("tree", ["src/warren", "tools", "examples"])
def test_a_word_of_the_left_column_is_found(tmp_path: Path, tree: str, line: str, name: str) -> None:
    assert list(worded_names(plant(tmp_path, {f"{tree}/a.py": f"{line}\n"}))) == [name]


def test_a_module_named_by_such_a_word_is_found(tmp_path: Path) -> None:
    assert worded_names(plant(tmp_path, {"src/warren/log/ballast.py": ""})) == {
        "ballast": ["warren.log.ballast:1 module"]
    }


@pytest.mark.parametrize(
    "line",
    [
        "def call_later(): ...",
        "def lookup(): ...",
        "def f(task, mask, threshold, found, on_done): ...",
        "def f(left, right): ...",
        "def f():\n    told = 1",
        "class DeadLetters: ...",
        "class IndexBatch: ...",
    ],
)
def test_words_of_the_field_are_accepted(tmp_path: Path, line: str) -> None:
    assert not worded_names(plant(tmp_path, {"src/warren/a.py": f"{line}\n"}))


def test_every_listed_word_is_rejected() -> None:
    words = Words.read()

    def is_rejected(line: str) -> bool:
        module = Module("warren.a", "a.py", False, line, ast.parse(line))
        return any(map(words.reject, identifiers_of(module)))

    assert not [word for word in words.words if not is_rejected(f"def f(is_{word}): ...")]
    assert not [phrase for phrase in words.phrases if not is_rejected(f"def {phrase}_now(): ...")]
    assert not [name for name in words.class_names if not is_rejected(f"class {name.title()}: ...")]
    assert not [phrase for phrase in words.accepted_phrases if is_rejected(f"def {phrase}(): ...")]


@pytest.mark.parametrize("name", ["let_go", "LetGo", "LET_GO", "_letGo", "__let_go__"])
def test_a_name_is_split_at_underscores_and_capitals(name: str) -> None:
    assert split(name) == ["let", "go"]


# -- the allow-list -----------------------------------------------------------------------------------------------

FOUND: Mapping[str, Findings] = {"rule": {"a": ["m:1", "m:2"], "b": ["m:3"]}}


def test_more_than_is_allowed_is_named_with_its_places() -> None:
    assert beyond_allowed(FOUND, {"rule": {"a": 1, "b": 1}}) == ["rule: a (2, allowed 1): m:1, m:2"]
    assert beyond_allowed(FOUND, {"rule": {"a": 2}}) == ["rule: b (1, allowed 0): m:3"]
    assert not beyond_allowed(FOUND, {"rule": {"a": 2, "b": 1}})


def test_an_exception_that_is_not_needed_is_named() -> None:
    assert not_needed(FOUND, {"rule": {"a": 3, "b": 1, "c": 1}}) == [
        "rule: a is allowed 3 times and found 2 times",
        "rule: c is allowed 1 times and found 0 times",
    ]


def test_shrinking_never_adds() -> None:
    assert shrunk(FOUND, {"rule": {"a": 1, "c": 4}}) == {"rule": {"a": 1}}
    assert shrunk(FOUND, {"rule": {"a": 5, "b": 1}}) == {"rule": {"a": 2, "b": 1}}


def test_after_a_rename_the_entries_are_those_of_today_unless_there_are_more() -> None:
    assert renamed(FOUND, {"rule": {"old": 2, "b": 1}}) == {"rule": {"a": 2, "b": 1}}
    with pytest.raises(ValueError, match="3 places, 2 are allowed"):
        renamed(FOUND, {"rule": {"old": 1, "b": 1}})


def test_the_command_shrinks_and_refuses_to_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path, {"src/warren/a.py": "class Part: ...\ndef tell(): ...\n", "src/warren/b.py": "class Part: ...\n"})
    path = tmp_path / "allowed.json"
    rules: dict[str, dict[str, int]] = {rule: {} for rule in RULES}
    words = "word of the left column of STYLE"
    shared = "two classes share a name"
    write_allowed({**rules, shared: {"Part": 5}, words: {"tell": 1, "told": 1, "Part": 2}}, path)
    assert shrink_allowed([], tmp_path, path) == 0
    assert read_allowed(path) == {**rules, shared: {"Part": 2}, words: {"tell": 1, "Part": 2}}
    plant(tmp_path, {"src/warren/c.py": "def f(told): ...\n"})
    assert shrink_allowed([], tmp_path, path) == 1
    assert "told (1, allowed 0): warren.c:1 parameter" in capsys.readouterr().err
    before = path.read_text(encoding="utf-8")
    assert shrink_allowed(["--renamed"], tmp_path, path) == 1
    assert path.read_text(encoding="utf-8") == before
    assert json.loads(before)[shared] == {"Part": 2}
