"""What Spark needs from the machine: a Java that fits, and one clear sentence where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warren.base.errors import Damage, DiskFailure, Gone, OutOfRoom, Refused, WarrenError
from warren.pipeline import session
from warren.pipeline import session as java


def fake_java(home: Path, version: str) -> Path:
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True)
    target.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    target.chmod(0o755)
    return home


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25), ("21-ea", 21)])
def test_the_version_of_a_java_is_read(tmp_path: Path, version: str, major: int) -> None:
    assert java.version_of(str(fake_java(tmp_path, version) / "bin" / "java")) == major


def test_the_first_java_that_fits_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(new))
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert java.java_home() == str(new)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}/bin:/usr/bin")
    assert java.java_home() == str(new)


def test_without_a_java_the_wrapped_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = java.java_home()
    assert home.startswith(str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    assert java.is_fitting(os.path.join(home, "bin", "java"))


def test_the_wrapper_drops_one_flag_and_passes_the_rest(tmp_path: Path) -> None:
    home = java.write_wrapper(tmp_path / "it's", "/bin/echo")
    result = subprocess.run(
        [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-modules=x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "-Xmx1g a b --add-modules=x\n"


def test_without_pyspark_the_command_that_installs_it_is_named() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyarrow'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('pyspark', 'pyarrow') else found(name, *a)\n"
        "from warren.pipeline import read\n"
        "from warren.base.errors import WarrenError\n"
        "try: read('x')\n"
        "except WarrenError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "needs pyspark" in result and "make setup-spark" in result and "warren[spark]" in result


def test_importing_the_pipeline_imports_no_spark() -> None:
    script = "import sys, warren.pipeline; print('pyspark' in sys.modules, 'pyarrow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert result == "False False\n"


@pytest.mark.parametrize(
    "error",
    [
        Refused("x is no log directory", "name one"),
        Gone("epoch 3 is gone, horizon is 7", "begin at epoch 8 or later"),
        Damage("a block's checksum does not hold, bytes 8 … 16", "log/pwal_0000", 96),
        OutOfRoom("cannot write x: no space left", "free some space"),
        DiskFailure("cannot read x: input/output error", "look at dmesg"),
        WarrenError("plain"),
    ],
)
def test_our_own_error_is_taken_out_of_sparks_trace(error: WarrenError) -> None:
    family = type(error)
    trace = (
        f"[PYTHON_ERROR] Traceback:\n  File x\n{family.__module__}.{family.__name__}: {error}\n SQLSTATE: 38000\n\tat y"
    )
    with pytest.raises(family) as raised, session.clear_errors():
        raise RuntimeError(trace)
    assert str(raised.value) == str(error) and type(raised.value) is family
    if isinstance(error, Damage) and isinstance(raised.value, Damage):
        assert (raised.value.path, raised.value.offset) == (error.path, error.offset)


def test_a_foreign_error_is_not_changed() -> None:
    with pytest.raises(ZeroDivisionError), session.clear_errors():
        raise ZeroDivisionError("by zero")
