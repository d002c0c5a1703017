"""The build: ordinary setuptools, and mypyc for the modules that ask for it.

A module asks by a line `# mypyc: compile` among its first lines. Its .py ships beside the .so, so one source serves
both modes, and `warren.base.build.mode()` says which one is running.

    (nothing set)            compile what is marked; if that fails, print a warning with the cause and build without
    WARREN_REQUIRE_EXT=1     compile what is marked or fail (CI, images)
    WARREN_PURE=1            compile nothing

It is all or nothing: modules compiled together share one library, and half of them would not import.

pip shows what a build prints only with -v. So a machine that cannot compile (no mypyc, no C compiler, no Python.h) gets
the version 0.1.0+pure, which pip does print: "Successfully installed warren-0.1.0+pure". That is found out before the
build, since the version is asked for before. A build runs this file three times; only the last time compiles.
"""

from __future__ import annotations

import io
import os
import sys
import sysconfig
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
MARK = "# mypyc: compile"
MARK_WITHIN_LINES = 5
PURE = os.environ.get("WARREN_PURE") == "1"
REQUIRED = os.environ.get("WARREN_REQUIRE_EXT") == "1"
ONLY_METADATA = {"egg_info", "dist_info"}.intersection(sys.argv)


def is_marked(path: Path) -> bool:
    return MARK in path.read_text(encoding="utf-8").splitlines()[:MARK_WITHIN_LINES]


def marked_modules() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "src").rglob("*.py")) if is_marked(path)]


def why_not_compiled() -> str:
    """Why this machine cannot compile; empty if it probably can."""
    try:
        import mypyc.build  # noqa: F401
    except ImportError as reason:
        return f"mypyc cannot be imported: {reason}"
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    with TemporaryDirectory() as directory:
        source = Path(directory, "probe.c")
        source.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        try:
            customize_compiler(compiler)
            compiler.compile([str(source)], output_dir=directory, include_dirs=[sysconfig.get_path("include")])
        except Exception as reason:  # each platform has its own error for it
            return f"the C compiler failed: {reason}"
    return ""


def extensions(modules: list[str]) -> list[Extension]:
    if not modules or ONLY_METADATA:
        return []
    from mypyc.build import mypycify

    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            made: list[Extension] = mypycify(modules, opt_level="3", debug_level="1")
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


marked = [] if PURE or sys.implementation.name != "cpython" else marked_modules()
impossible = why_not_compiled() if marked else ""
if impossible and not ONLY_METADATA:
    build_without(impossible, RuntimeError(impossible))
setup(
    ext_modules=extensions([] if impossible else marked),
    cmdclass={"build_ext": BuildAllOrNothing},
    options={"egg_info": {"tag_build": "+pure"}} if impossible else {},
)
