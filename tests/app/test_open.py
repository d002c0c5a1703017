"""`warren.open` as a program meets it: paths, settings by name, closing, and what `import warren` offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warren
from warren.base.errors import Locked, Misuse
from warren.config.options import directory_path, store_directory


def test_a_path_object_is_as_good_as_a_string(tmp_path: Path) -> None:
    with warren.open(tmp_path / "db") as db:
        db.kv("users")[b"ada"] = b"countess"
    with warren.open(str(tmp_path / "db")) as db:
        assert db.kv("users")[b"ada"] == b"countess"


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with warren.open("~/db"):
        assert (tmp_path / "db" / "log").is_dir()
    assert not (tmp_path / "~").exists()
    assert directory_path(Path("~/db")) == str(tmp_path / "db")
    assert directory_path("./~/db") == "./~/db"


def test_the_directories_of_the_broker_are_read_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--data-dir=~/x` and WARREN_DATA_DIR come without the shell's own expansion."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_directory("~/data", None, False) == str(tmp_path / "data")
    assert store_directory(None, "~/store", True) == str(tmp_path / "store")
    with pytest.raises(Misuse, match="empty"):
        store_directory("", None, False)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "empty"), ("~no-such-user/db", "no-such-user"), (b"", "empty"), (7, "int"), (None, "NoneType")],
)
def test_what_is_no_path_is_refused(path: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=reason):
        warren.open(path)
    assert os.listdir(tmp_path) == []


def test_an_unknown_setting_is_refused_by_name_before_anything_is_made(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"log_setings": warren.LogSettings()}
    with pytest.raises(Misuse, match="'log_setings'") as refused:
        warren.open(tmp_path / "db", **settings)
    assert "did you mean log_settings?" in refused.value.hint
    assert "queue_settings" in refused.value.hint
    assert not (tmp_path / "db").exists()


def test_a_setting_of_another_class_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"reflection": "off"}
    with pytest.raises(Misuse, match="ReflectionSettings"):
        warren.open(tmp_path / "db", **settings)
    settings = {"queue_settings": warren.LogSettings()}
    with pytest.raises(Misuse, match="QueueSettings"):
        warren.open(tmp_path / "db", **settings)


def test_closing_twice_is_fine_and_an_open_directory_is_locked(tmp_path: Path) -> None:
    with warren.open(tmp_path / "db") as db:
        db.queue("jobs").put(b"job")
        with pytest.raises(Locked):
            warren.open(tmp_path / "db")
        db.close()
        db.close()
    db.close()
    moment_of = warren.open(tmp_path / "db")
    moment = moment_of.snapshot()
    moment.close()
    moment.close()
    moment_of.close()


def test_a_closed_store_refuses_to_be_used(tmp_path: Path) -> None:
    db = warren.open(tmp_path / "db")
    users, jobs = db.kv("users"), db.queue("jobs")
    db.close()
    for use in (lambda: users.put(b"a", b"b"), lambda: users.get(b"a"), lambda: db.kv("x"), lambda: jobs.put(b"job")):
        with pytest.raises(Misuse, match="closed"):
            use()


def test_the_copy_of_a_closed_store_is_a_backup_of_it(tmp_path: Path) -> None:
    """As docs/operations.md has it: stop, copy, start."""
    with warren.open(tmp_path / "db") as db:
        db.kv("users")[b"ada"] = b"countess"
        db.queue("jobs").put(b"old")
    shutil.copytree(tmp_path / "db", tmp_path / "backup")
    with warren.open(tmp_path / "db") as db:
        db.kv("users").clear()
        db.queue("jobs").purge()
    shutil.rmtree(tmp_path / "db")
    (tmp_path / "backup").rename(tmp_path / "db")
    with warren.open(tmp_path / "db") as db:
        assert (dict(db.kv("users")), list(db.queue("jobs").browse())) == ({b"ada": b"countess"}, [b"old"])
        assert db.alarms() == []


def test_exceptions_and_settings_are_names_of_the_package() -> None:
    for name in warren.__all__:
        assert getattr(warren, name) is not None
        assert name in dir(warren)
    assert warren.Locked is Locked
    assert {"WarrenError", "ForkedProcess", "QueueFull", "LogSettings", "QueueSettings"} <= set(warren.__all__)
    with pytest.raises(AttributeError, match="LogSetings"):
        getattr(warren, "LogSetings")  # noqa: B009 - mypy knows the names of the package
    with pytest.raises(ImportError):
        exec("from warren import LogSetings")


def test_importing_the_package_imports_none_of_its_rooms() -> None:
    code = "import sys, warren; dir(warren); sys.exit(any(name.startswith('warren.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
