"""A Spark session that knows Warren's format, or one clear sentence why there is none.

    spark_session()                              this machine, all cores
    spark_session(master="spark://host:7077")    a cluster; the wheel is installed on every node
    spark_session(remote="sc://host")            Spark Connect; the wheel is installed on the server

Nothing else in Warren imports PySpark: without it everything but the pipeline works.

Spark shows what a Python source raised inside a trace of two languages. `clear_errors` takes our own sentence out of it
again and raises that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from warren.base.errors import Damage, DiskFailure, Gone, Misuse, NotFound, OutOfRoom, Refused, WarrenError
from warren.pipeline.java import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
