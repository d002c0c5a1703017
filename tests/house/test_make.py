"""The Makefile and the mutants find what they are about.

A compiled module without a test, a folded constant in a subfolder and a mutant without a target are reported by name.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
from collections import namedtuple
from contextlib import ExitStack
from pathlib import Path
from struct import Struct

import pytest

from tests.house.shape import identifiers_of
from tests.house.source_tree import ROOT, SRC, TESTS, Module, imports_of, modules_under, plant
from tests.mutants import run as mutants
from tests.mutants.faults import Fault, Patch, without_target

MARK = "# mypyc: compile"
MUTANTS = TESTS / "mutants"
LIBRARY_TYPES = (ExitStack, Struct, namedtuple("AnyTuple", ()))
PRINT_FOLDED = "--eval=print-folded: ; @echo $(FOLDED)"


def make(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


# -- compiled modules ---------------------------------------------------------------------------------------------


def test_every_compiled_module_has_a_test_that_mirrors_it() -> None:
    result = make(ROOT, "marked-tested")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("goal", ["marked-tested", "test-pure"])
def test_a_compiled_module_without_a_test_is_named(tmp_path: Path, goal: str) -> None:
    marked = {f"src/warren/{name}.py": f"{MARK}\n" for name in ("records/lists", "log/read/blocks", "amqp/kernels")}
    plant(tmp_path, {**marked, "tests/records/test_lists_of_numbers.py": "", "tests/log/test_blocks.py": ""})
    result = make(tmp_path, goal)
    assert result.returncode != 0
    assert "src/warren/log/read/blocks.py" in result.stdout
    assert "src/warren/amqp/kernels.py" in result.stdout
    assert "lists" not in result.stdout
    assert not (tmp_path / ".venv").exists(), "before anything is built"


def test_compiled_modules_with_tests_are_fine(tmp_path: Path) -> None:
    files = {"src/warren/log/read/blocks.py": f"{MARK}\n", "tests/log/read/test_blocks.py": ""}
    assert make(plant(tmp_path, files), "marked-tested").returncode == 0


def folded(directory: Path) -> list[str]:
    return make(directory, PRINT_FOLDED, "print-folded").stdout.split()


def test_folded_constants_are_found_in_subfolders(tmp_path: Path) -> None:
    found = ["src/warren/base/ids.py", "src/warren/log/read/block_format.py", "src/warren/records/format.py"]
    plant(tmp_path, dict.fromkeys([*found, "src/warren/log/reformat.py", "src/warren/log/ids_of.py"], ""))
    assert folded(tmp_path) == found


def unfolded_constants(src: Path, known: list[str]) -> list[str]:
    """Constants that a compiled module imports from a source whose change does not compile it again."""
    modules = {module.name: module for module in modules_under(src)}
    marked = [module for module in modules.values() if MARK in module.text.splitlines()]
    places = {f"src/{module.name.replace('.', '/')}.py": module.name for module in modules.values()}
    fresh = {places[place] for place in known if place in places} | {module.name for module in marked}
    return [
        f"{module.name}:{line} {name}"
        for module in marked
        for line, name in imports_of(module)
        if name.rpartition(".")[0] in modules
        and name.rpartition(".")[2].isupper()
        and name.rpartition(".")[0] not in fresh
    ]


def test_every_constant_of_a_compiled_module_is_folded_from_a_known_source() -> None:
    assert not unfolded_constants(SRC, folded(ROOT))


def test_a_constant_from_another_source_is_found(tmp_path: Path) -> None:
    files = {
        "warren/records/small_blocks.py": f"{MARK}\n"
        "from warren.records.format import A\nfrom warren.log.sizes import B, c\n",
        "warren/records/format.py": "A = 1\n",
        "warren/log/sizes.py": "B = 1\nc = 2\n",
    }
    known = ["src/warren/records/format.py"]
    assert unfolded_constants(plant(tmp_path, files), known) == ["warren.records.small_blocks:3 warren.log.sizes.B"]


# -- mutants ------------------------------------------------------------------------------------------------------

NO_MODULE = "warren.no_such.module:run"
NO_CLASS = "warren.base.errors:NoSuchError.what"
NO_METHOD = "warren.base.errors:WarrenError.no_such_method"
THERE = "warren.base.errors:WarrenError.__init__"


def fault(name: str, *targets: str) -> Fault:
    return Fault(name, "", (), tuple(Patch(target, lambda real: real) for target in targets))


def test_every_mutant_has_its_targets() -> None:
    uncompiled = [line for line in without_target(mutants.EVERY_FAULT) if "is compiled" not in line]
    assert not uncompiled


@pytest.mark.parametrize("target", [NO_MODULE, NO_CLASS, NO_METHOD])
def test_a_mutant_without_its_target_is_named(target: str) -> None:
    assert without_target([fault("good", THERE), fault("bad", THERE, target)]) == [
        f"bad: there is no {target} to be patched"
    ]


def test_a_mutant_without_its_target_ends_the_run_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Fault] = []
    monkeypatch.setattr(mutants, "EVERY_FAULT", (fault("good", THERE), fault("bad", NO_METHOD)))
    monkeypatch.setattr(mutants, "run_apart", started.append)
    assert mutants.main([]) != 0
    assert f"bad: there is no {NO_METHOD}" in capsys.readouterr().err
    assert not started


def test_a_mutant_of_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["no-such-mutant"]) != 0
    assert "no-such-mutant" in capsys.readouterr().err


def unknown_attributes(mutants_: list[Module], sources: list[Module]) -> list[str]:
    """Attributes that the body of a mutant uses and nothing defines any more: it would fail on its own, and count
    as caught."""
    defined = {each.text for module in (*sources, *mutants_) for each in identifiers_of(module)}
    defined |= {name for kind in (*vars(builtins).values(), *LIBRARY_TYPES) for name in dir(kind)}
    return [
        f"{module.name}:{node.lineno} .{node.attr}"
        for module in mutants_
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr not in defined
        and not _is_of_library(node, module)
    ]


def _is_of_library(node: ast.Attribute, module: Module) -> bool:
    """Whether the expression begins with a name that is imported from elsewhere."""
    first = re.match(r"\w+", ast.unparse(node))
    imported = {name.rpartition(".")[2] for _, name in imports_of(module) if not name.startswith(("warren", "tests"))}
    return first is not None and first[0] in imported


def test_mutants_use_only_attributes_that_something_defines() -> None:
    wrongs = [module for module in modules_under(MUTANTS) if "wrongs" in module.name or "faults" in module.name]
    assert wrongs
    assert not unknown_attributes(wrongs, [*modules_under(SRC), *modules_under(ROOT / "tools")])


def test_an_attribute_that_nothing_defines_is_found(tmp_path: Path) -> None:
    plant(tmp_path / "src", {"warren/a.py": "class A:\n    def sync(self): ...\n"})
    body = "import zlib\ndef wrong(real):\n    real.sync()\n    real.parts.append(zlib.crc32(b''))\n"
    plant(tmp_path / "mutants", {"wrongs.py": body})
    found = unknown_attributes(modules_under(tmp_path / "mutants"), modules_under(tmp_path / "src"))
    assert found == ["wrongs:4 .parts"]
