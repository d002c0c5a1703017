"""Who may read a store: its owner. Password hashes are in the log, in RocksDB and in SQLite."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import warren
from tests.server.broker_process import BrokerProcess
from warren.catalog.settings import CatalogSettings

OF_OTHERS = 0o077


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(top: Path) -> list[str]:
    """Files below a directory which others may reach: each directory above grants entry, and the file grants more."""
    found, waiting = [], [top]
    while waiting:
        for path in waiting.pop().iterdir():
            if stat.S_IMODE(path.lstat().st_mode) & OF_OTHERS:
                found.append(str(path.relative_to(top)))
                if path.is_dir():
                    waiting.append(path)
    return found


def fill(directory: Path) -> None:
    with warren.open(directory) as db:
        db.kv("users")[b"ada"] = b"countess"
        db.queue("jobs").put(b"job")
        db.queue("table", backing="sql").put(b"job")
        db.database.settle()
        assert readable_by_others(directory) == []


def test_nothing_in_a_directory_that_others_may_enter_is_readable_by_them(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    directory.mkdir(0o755)
    fill(directory)
    assert readable_by_others(directory) == []
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755, "the directory itself is the user's"


def test_a_store_with_wider_modes_is_restricted_when_it_is_opened(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    directory.mkdir(0o755)
    fill(directory)
    for path in directory.iterdir():
        if path.is_dir():
            path.chmod(0o755)
    assert readable_by_others(directory) != []
    with warren.open(directory) as db:
        assert db.kv("users")[b"ada"] == b"countess"
        assert readable_by_others(directory) == []


def test_a_catalog_in_a_file_elsewhere_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    elsewhere = tmp_path / "sql"
    elsewhere.mkdir(0o755)
    settings = CatalogSettings(connect=f"sqlite:///{elsewhere}/catalog.db")
    for _ in range(2):
        with warren.open(tmp_path / "db", catalog_settings=settings) as db:
            db.queue("jobs").put(b"job")
            assert readable_by_others(elsewhere) == []
        (elsewhere / "catalog.db").chmod(0o644)


@pytest.mark.slow
def test_a_broker_shows_no_hash_to_others_nor_in_a_dump(tmp_path: Path) -> None:
    """In a data directory that was there before, with mode 0755."""
    directory = tmp_path / "data"
    directory.mkdir(0o755)
    with BrokerProcess(directory):
        assert readable_by_others(directory) == []
    dump = [sys.executable, "-m", "warren.cli.main", "log", "dump", str(directory / "log"), "--json"]
    dumped = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    users = [line for line in dumped.splitlines() if b'"password_hash"'.hex() in line]
    assert users and all(b'"password_hash":""'.hex() in line for line in users)
    dumped = subprocess.run([*dump, "--credentials"], capture_output=True, text=True, check=True).stdout
    assert b'"password_hash":""'.hex() not in dumped
