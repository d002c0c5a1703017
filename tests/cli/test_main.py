"""How every command ends: 0, 1, 16 or 64, with a sentence and a hint, and never with a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.stage import STORAGE, make_store, run, run_process
from warren import __version__
from warren.base.errors import Damage, DiskFailure, Gone, Misuse, OutOfRoom, Refused, WarrenError
from warren.cli.main import exit_code
from warren.config.options import OPTIONS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Damage("x"), 16),
        (Refused("x"), 64),
        (Gone("x"), 64),
        (Misuse("x"), 64),
        (DiskFailure("x"), 1),
        (OutOfRoom("x"), 1),
    ],
)
def test_each_family_of_errors_has_its_exit_code(error: WarrenError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-such-option",),
        ("no-such-command",),
        ("log", "verify"),
        ("log", "verify", "--thread-num", "many", "."),
        ("log", "verify", "--thread-num", "0", "."),
        ("log", "dump", "--epoch", "-1", "."),
        ("compact",),
        (),
    ],
)
def test_wrong_usage_ends_with_64(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    ended = run(capsys, *arguments)
    assert ended.code == 64
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("arguments", [("--help",), ("log", "--help"), ("log", "verify", "--help"), ("demo", "--help")])
def test_help_is_good(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    ended = run(capsys, *arguments)
    assert ended.code == 0
    assert "Usage" in ended.out


@pytest.mark.parametrize("command", ["inspect", "verify", "repair", "compact", "dump"])
def test_a_directory_that_is_no_store_is_refused_and_left_alone(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("not a log")
    for place in (tmp_path, tmp_path / "nothing here", tmp_path / "notes.txt"):
        ended = run(capsys, "log", command, place)
        assert ended.code == 64
        assert ended.err.startswith("warren: ") and "hint: " in ended.err
        assert "Traceback" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("command", ["repair", "compact"])
def test_a_store_in_use_is_refused_and_its_holder_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path, is_open=True)
    ended = run(capsys, "log", command, tmp_path)
    store.close()
    assert ended.code == 64
    assert "locked by" in ended.err


def test_the_command_runs_as_a_process(tmp_path: Path) -> None:
    make_store(tmp_path)
    good = run_process("log", "verify", "--json", tmp_path)
    assert (good.code, good.err, good.json["is_good"]) == (0, "", True)
    bad = run_process("log", "verify", "--nope", tmp_path)
    assert bad.code == 64 and "No such option" in bad.err
    refused = run_process("log", "verify", tmp_path / "ctrl")
    assert refused.code == 64 and "Traceback" not in refused.err


def test_a_reader_that_has_enough_sees_no_traceback(tmp_path: Path) -> None:
    store = make_store(tmp_path, is_open=True)
    with store.begin() as session:
        session.put_many(STORAGE, [b"%d" % number for number in range(30000)], [b"v"] * 30000)
    store.close()
    dump = f"{sys.executable} -m warren.cli.main log dump {tmp_path} | head -n 1"
    done = subprocess.run(["bash", "-c", dump], capture_output=True, text=True, timeout=60, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_neither_the_commands_nor_the_broker_load_what_only_spark_needs() -> None:
    """`pip install warren` without extras has none of it, and pyarrow alone takes 80 MB."""
    program = "import sys, warren.cli.main, warren.app.lifecycle, warren.app.broker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {"pyarrow", "pandas", "pyspark", "deltalake", "matplotlib"} & set(loaded)


def test_the_version_names_the_build_mode_also_as_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    ended = run(capsys, "--version")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(rf"warren {re.escape(__version__)} \((pure|compiled), Python \S+\)\n", ended.out)
    line = [sys.executable, "-m", "warren", "--version"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ended.out)


def test_help_has_examples_that_parse_and_the_variable_of_each_option() -> None:
    line = [sys.executable, "-m", "warren", "serve", "--help"]
    env = {**os.environ, "COLUMNS": "400", "NO_COLOR": "1"}
    text = subprocess.run(line, capture_output=True, text=True, env=env, check=True).stdout
    examples = re.findall(r"^ +(?:\w+=\w+ )*warren serve( .*)?$", text, re.MULTILINE)
    assert len(examples) >= 4
    flags = {flag for example in examples for flag in re.findall(r"--[a-z-]+", example)}
    assert flags and flags <= {option.flag for option in OPTIONS.values()}
    missing = [
        variable
        for option in OPTIONS.values()
        if option.has_flag
        for variable in option.all_variables
        if variable not in text
    ]
    assert not missing
