"""Rules on the shape of the code: what each of them finds in a tree.

A rule returns its findings by a key that survives the move of a module wherever possible (the name of a class, of an
attribute, of an identifier), each with the places where it was found. `allowed.json` has the number of places that a
key may have, by rule; that number may only fall (tests/house/test_shape.py, tests/house/shrink_allowed.py).
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tests.house.source_tree import Function, Module, imports_of, modules_of_repository

HOUSE = Path(__file__).parent
ALLOWED = HOUSE / "allowed.json"
WORDS = HOUSE / "words.json"
LINES_MIN = 150  # of a module that only one other module imports
FOLDER_MODULES_MAX = 20
COMMANDS = "warren.cli."  # one command per module, imported by the table of commands: each is an entry point

Findings = dict[str, list[str]]  # key → places
Allowed = dict[str, dict[str, int]]  # rule → key → number of places


def shared_class_names(root: Path) -> Findings:
    """Classes by name, of names that two classes or more have."""
    classes = _findings(
        (node.name, f"{module.name}:{node.lineno}")
        for module in modules_of_repository(root)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    )
    return {name: places for name, places in classes.items() if len(places) > 1}


def torn_modules(root: Path) -> Findings:
    """Modules below 150 lines that exactly one other module of the same tree imports."""
    modules = {module.name: module for module in modules_of_repository(root)}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for _, name in imports_of(module):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module.name and _tree_of(target) == _tree_of(module.name):
                importers[target].add(module.name)
    started = {name for module in modules.values() for name in _started_by(module)}
    return {
        name: [f"{len(module.text.splitlines())} lines, imported by {importer}"]
        for name, module in modules.items()
        if len(module.text.splitlines()) < LINES_MIN
        and not (module.is_package or name in started or name.startswith(COMMANDS) or _is_entry_point(module))
        and len(importers[name]) == 1
        for importer in importers[name]
    }


def _tree_of(name: str) -> str:
    """src has more than one top-level package; tools and examples are their own."""
    top = name.partition(".")[0]
    return top if top in ("tools", "examples") else "src"


def _is_entry_point(module: Module) -> bool:
    return module.name.endswith("__main__") or re.search(r"^if __name__ ==", module.text, re.MULTILINE) is not None


def _started_by(module: Module) -> Iterator[str]:
    """Modules that this one starts as a process: ["-m", "warren.workers.tasks", …]."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.List | ast.Tuple):
            texts = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            yield from (str(name) for flag, name in pairwise(texts) if flag == "-m")


def foreign_assignments(root: Path) -> Findings:
    """`x.y = …` where x is neither self nor cls, nor an instance that a method of the class itself makes or takes."""
    return _findings(
        (target, f"{module.name}:{line}")
        for module in modules_of_repository(root)
        for target, line in sorted(_foreign(module.tree))
    )


def _foreign(tree: ast.AST, owner: str = "", own: frozenset[str] = frozenset()) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _foreign(node, node.name, frozenset({"self", "cls"}))
        elif isinstance(node, Function):
            yield from _foreign(node, owner, own | _instances(node, owner) if owner else own)
        else:
            yield from _assigned_by(node, own)
            yield from _foreign(node, owner, own)


def _assigned_by(node: ast.AST, own: frozenset[str]) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        is_protocol = node.attr.startswith("__") and node.attr.endswith("__")  # __cause__ of an error
        if not is_protocol and not _is_own(node.value, own):
            yield ast.unparse(node), node.lineno
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and not _is_own(node.args[0], own):
        yield f"setattr({ast.unparse(node.args[0])})", node.lineno


def _is_own(value: ast.expr, own: frozenset[str]) -> bool:
    return isinstance(value, ast.Name) and value.id in own


def _instances(function: Function, owner: str) -> frozenset[str]:
    """Names of a method that are instances of its own class: made by it, or parameters of that type."""
    constructor = rf"(cls|{owner})(\.__new__)?\(.*|object\.__new__\((cls|{owner})\)|super\(\)\.__new__\(.*"
    names = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and re.fullmatch(constructor, ast.unparse(node.value), re.DOTALL)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    typed = {
        each.arg
        for each in _arguments(function.args)
        if each.annotation is not None and owner in re.findall(r"\w+", ast.unparse(each.annotation))
    }
    return frozenset(names | typed)


def full_folders(root: Path) -> Findings:
    """Folders with more than twenty modules, each with as many places as it has modules."""
    folders = _findings(
        (module.name.rpartition(".")[0].replace(".", "/"), module.name)
        for module in modules_of_repository(root)
        if not module.is_package
    )
    return {folder: modules for folder, modules in folders.items() if len(modules) > FOLDER_MODULES_MAX}


def worded_names(root: Path) -> Findings:
    """Identifiers that carry a word of STYLE's left column."""
    words = Words.read()
    return _findings(
        (each.text, f"{module.name}:{each.line} {each.kind}")
        for module in modules_of_repository(root)
        for each in identifiers_of(module)
        if words.reject(each)
    )


@dataclass(frozen=True, slots=True)
class Identifier:
    kind: str  # class, function, parameter, attribute or module
    text: str
    line: int


def identifiers_of(module: Module) -> Iterator[Identifier]:
    """Names that a module defines, local variables aside."""
    yield Identifier("module", module.name.rpartition(".")[2], 1)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield Identifier("class", node.name, node.lineno)
            yield from (Identifier("attribute", name.id, name.lineno) for name in _class_names(node))
        elif isinstance(node, Function):
            yield Identifier("function", node.name, node.lineno)
        elif isinstance(node, ast.arguments):
            yield from (Identifier("parameter", each.arg, each.lineno) for each in _without_sides(_arguments(node)))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield Identifier("attribute", node.attr, node.lineno)


def _without_sides(arguments: list[ast.arg]) -> list[ast.arg]:
    """`left` beside `right` is a side, not a departure."""
    has_both = {"left", "right"} <= {each.arg for each in arguments}
    return [each for each in arguments if not (has_both and each.arg == "left")]


def _class_names(node: ast.ClassDef) -> Iterator[ast.Name]:
    """Fields and members that stand in the class itself."""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        yield from (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    beside = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *beside]


@dataclass(frozen=True)
class Words:
    """`words.json`: words rejected in every identifier, groups of words, names of classes, and accepted groups."""

    words: frozenset[str]
    phrases: tuple[str, ...]
    class_names: frozenset[str]  # of classes and modules, whole
    accepted_phrases: tuple[str, ...]

    @classmethod
    def read(cls) -> Words:
        raw = json.loads(WORDS.read_text(encoding="utf-8"))
        return cls(
            frozenset(raw["words"]),
            tuple(raw["phrases"]),
            frozenset(raw["class_names"]),
            tuple(raw["accepted_phrases"]),
        )

    @cached_property
    def _accepted(self) -> re.Pattern[str]:
        return re.compile("|".join(rf"(?<![a-z]){phrase}(?![a-z])" for phrase in self.accepted_phrases) or "(?!)")

    def reject(self, identifier: Identifier) -> bool:
        parts = "_".join(split(identifier.text))
        if identifier.kind in ("class", "module") and parts in self.class_names:
            return True
        rest = self._accepted.sub("", parts)
        return not self.words.isdisjoint(rest.split("_")) or any(f"_{each}_" in f"_{rest}_" for each in self.phrases)


def split(identifier: str) -> list[str]:
    """The words of a name, lower case: let_go, LetGo, LET_GO and _letGo are all let, go."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def _findings(found: Iterator[tuple[str, str]]) -> Findings:
    findings: Findings = {}
    for key, place in found:
        findings.setdefault(key, []).append(place)
    return findings


RULES: Mapping[str, Callable[[Path], Findings]] = {
    "two classes share a name": shared_class_names,
    "module with a single importer below 150 lines": torn_modules,
    "attribute of another object assigned": foreign_assignments,
    "folder with more than 20 modules": full_folders,
    "word of the left column of STYLE": worded_names,
}


def all_findings(root: Path) -> dict[str, Findings]:
    return {rule: find(root) for rule, find in RULES.items()}


def read_allowed(path: Path = ALLOWED) -> Allowed:
    allowed: Allowed = json.loads(path.read_text(encoding="utf-8"))
    return allowed


def write_allowed(allowed: Allowed, path: Path = ALLOWED) -> None:
    path.write_text(json.dumps(allowed, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def beyond_allowed(found: Mapping[str, Findings], allowed: Allowed) -> list[str]:
    """What is new: a key that has more places than it may have."""
    return [
        f"{rule}: {key} ({len(places)}, allowed {may}): {', '.join(places)}"
        for rule, findings in found.items()
        for key, places in sorted(findings.items())
        if len(places) > (may := allowed.get(rule, {}).get(key, 0))
    ]


def not_needed(found: Mapping[str, Findings], allowed: Allowed) -> list[str]:
    """Entries of the allow-list that allow more than there is."""
    return [
        f"{rule}: {key} is allowed {may} times and found {there} times"
        for rule, keys in allowed.items()
        for key, may in sorted(keys.items())
        if may > (there := len(found.get(rule, {}).get(key, [])))
    ]


def shrunk(found: Mapping[str, Findings], allowed: Allowed) -> Allowed:
    """The allow-list without what is not needed: never with more than before."""
    return {
        rule: {
            key: least
            for key, may in allowed.get(rule, {}).items()
            if (least := min(may, len(findings.get(key, [])))) > 0
        }
        for rule, findings in found.items()
    }


def renamed(found: Mapping[str, Findings], allowed: Allowed) -> Allowed:
    """The allow-list for a tree in which names have changed: today's keys. Raises if a rule has more than before."""
    today = {rule: {key: len(places) for key, places in findings.items()} for rule, findings in found.items()}
    for rule, keys in today.items():
        before, after = sum(allowed.get(rule, {}).values()), sum(keys.values())
        if after > before:
            raise ValueError(f"{rule}: {after} places, {before} are allowed; a rename does not add any")
    return today
