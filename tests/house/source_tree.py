"""The sources as the house tests see them: every module of a tree, parsed, with its dotted name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
BESIDE = ("tools", "examples")  # development tools and examples: not shipped, same rules

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    name: str  # warren.log.read.scan; a package's __init__ has the name of the package
    place: str  # log/read/scan.py, seen from the package's root: how tables and messages name it
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package directly under the root that it belongs to; empty for the root itself."""
        return self.name.split(".")[1] if "." in self.name else ""


def modules_under(src: Path) -> list[Module]:
    """Every module below `src`, sorted by path."""
    return [_read(path, src, path.stat().st_mtime_ns) for path in sorted(src.rglob("*.py"))]


def modules_of_repository(root: Path) -> list[Module]:
    """Every module below `src`, `tools` and `examples`. The latter two are optional, and part of their dotted names."""
    beside = [path for tree in BESIDE for path in sorted((root / tree).rglob("*.py"))]
    return [*modules_under(root / "src"), *(_read(path, root, path.stat().st_mtime_ns) for path in beside)]


@cache
def _read(path: Path, src: Path, changed_ns: int) -> Module:
    """Parsed once for all rules, as long as it does not change. Rules read a tree and do not change it."""
    relative = path.relative_to(src)
    parts = list(relative.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    text = path.read_text(encoding="utf-8")
    return Module(
        name=".".join(parts[:-1] if is_package else parts),
        place="/".join(relative.parts[1:]),
        is_package=is_package,
        text=text,
        tree=ast.parse(text, filename=str(path)),
    )


def imports_of(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import, relative dots resolved: `from a.b import c` is a.b.c, module or not."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, module)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def _origin(node: ast.ImportFrom, module: Module) -> str:
    """The module that a `from … import` names, relative dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*package, node.module] if node.module else package)


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Functions and methods, nested ones too, in no particular order."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write a small tree of files, for rules to be tried on, and return its root."""
    for place, text in files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
