"""The build: ordinary setuptools, and mypyc for the modules that ask for it.

A module asks by a line `# mypyc: compile` among its first lines. Its .py ships beside the .so, so one source serves
both modes, and `warren.base.build.mode()` says which one is running.

    (nothing set)            compile what is marked; if that fails, print a warning with the cause and build without
    WARREN_REQUIRE_EXT=1     compile what is marked or fail (CI, images)
    WARREN_PURE=1            compile nothing

It is all or nothing: modules compiled together share one library, and half of them would not import.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
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
    printed = io.StringIO()
    try:
        from mypyc.build import mypycify

        with redirect_stdout(printed), redirect_stderr(printed):
            made: list[Extension] = mypycify(modules, opt_level="3", debug_level="1")
    except ImportError as reason:
        build_without(f"mypyc cannot be imported: {reason}", reason)
        return []
    except SystemExit as reason:  # mypyc has printed what it does not accept
        build_without(printed.getvalue().strip() or f"mypyc ended with {reason.code}", reason)
        return []
    sys.stdout.write(printed.getvalue())
    return made


class BuildAllOrNothing(build_ext):
    def run(self) -> None:
        try:
            super().run()
        except Exception as reason:  # no compiler, or one that fails: each platform has its own error for it
            build_without(f"the C compiler failed: {reason}", reason)
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.extensions = []


def build_without(cause: str, reason: BaseException) -> None:
    """Print the cause; pip shows it with -v. Fatal if compiled modules are required."""
    sys.stderr.write(f"{'ERROR' if REQUIRED else 'WARNING'}: warren is built without compiled modules\n{cause}\n")
    if REQUIRED:
        raise reason
    sys.stderr.write(
        "WARNING: warren will run as pure Python, several times slower; WARREN_REQUIRE_EXT=1 makes this an error, "
        "`python -m warren.base.build` prints the mode\n"
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNothing})
