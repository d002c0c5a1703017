"""The build: ordinary setuptools, and mypyc for the modules that ask for it.

A module asks by a line `# mypyc: compile` among its first lines. Its .py ships beside the .so, so one source serves
both modes, and `warren.base.compiled.mode()` says which one is running.

    (nothing set)            compile what is marked; if that fails, say so and build without
    WARREN_REQUIRE_EXT=1     compile what is marked or fail (CI, images)
    WARREN_PURE=1            compile nothing

It is all or nothing: modules compiled together share one library, and half of them would not import.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
MARK = "# mypyc: compile"
MARK_WITHIN_LINES = 5
PURE = os.environ.get("WARREN_PURE") == "1"
REQUIRED = os.environ.get("WARREN_REQUIRE_EXT") == "1"


def is_marked(path: Path) -> bool:
    return MARK in path.read_text(encoding="utf-8").splitlines()[:MARK_WITHIN_LINES]


def marked_modules() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "src").rglob("*.py")) if is_marked(path)]


def extensions() -> list[Extension]:
    modules = [] if PURE or sys.implementation.name != "cpython" else marked_modules()
    if not modules:
        return []
    try:
        from mypyc.build import mypycify

        made: list[Extension] = mypycify(modules, opt_level="3", debug_level="1")
    except (ImportError, SystemExit) as reason:  # mypyc is missing, or has printed what it does not accept
        go_on_without(reason)
        return []
    return made


class BuildAllOrNothing(build_ext):
    def run(self) -> None:
        try:
            super().run()
        except Exception as reason:  # no compiler, or one that fails: each platform has its own error for it
            go_on_without(reason)
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.extensions = []


def go_on_without(reason: BaseException) -> None:
    if REQUIRED:
        raise reason
    sys.stderr.write(f"warren: the marked modules are not compiled ({reason!r}); the pure ones will be used\n")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNothing})
