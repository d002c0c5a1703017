"""Where the store lives, as the command line says it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warren.base.errors import Misuse
from warren.config.options import store_directory
from warren.log.store import LogStore


def test_the_store_lives_in_the_data_directory_unless_it_is_set_otherwise() -> None:
    """OP-03: --store-dir, by default the broker's --data-dir."""
    assert store_directory("/data", None, False) == "/data"
    assert store_directory("/data", "/store", False) == "/store"


def test_without_a_data_directory_the_store_directory_must_be_given() -> None:
    """OP-04: with --no-data-dir, --store-dir is required."""
    assert store_directory(None, "/store", True) == "/store"
    with pytest.raises(Misuse, match="--store-dir"):
        store_directory(None, None, True)


def test_two_directories_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Misuse, match="contradict"):
        store_directory("/data", "/store", True)
    with pytest.raises(Misuse, match="no directory"):
        store_directory(None, None, False)


def test_the_command_line_goes_by_it(tmp_path: Path) -> None:
    """OP-03, OP-04: through `warren compact`, which talks to the store's own directory."""
    warren = [sys.executable, "-m", "warren.cli.main", "compact"]
    with LogStore.open(str(tmp_path / "store")) as store:
        with store.begin() as session:
            session.put(1, b"key", b"value")
        result = [
            *warren,
            "--data-dir",
            str(tmp_path / "data"),
            "--store-dir",
            str(tmp_path / "store"),
            "--timeout",
            "60",
        ]
        done = subprocess.run(result, capture_output=True, text=True, check=False)
        assert (done.returncode, "compacted 1 file" in done.stdout) == (0, True), done
    refused = subprocess.run([*warren, "--no-data-dir"], capture_output=True, text=True, check=False)
    assert refused.returncode == 64
    assert "--store-dir" in refused.stderr
