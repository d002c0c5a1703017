"""`warren log repair`: dry runs change nothing, repairs are reported, the store is good afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import make_store, run, spoil

SEALED = "pwal_0000.0000000001"


def test_a_damaged_store_is_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    spoil(tmp_path / SEALED, 200)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    dry = run(capsys, "log", "repair", "--dry-run", tmp_path)
    assert dry.code == 16
    assert "would be voided" in dry.out and "at most 1 entries" in dry.out and "nothing was changed" in dry.out
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    done = run(capsys, "log", "repair", "--json", "--thread-num", 1, tmp_path)
    assert done.code == 0
    assert done.json["epochs_hit"] == [[1, 1]] and done.json["entries_lost_max"] == 1
    assert done.json["quarantined"]
    assert run(capsys, "log", "verify", tmp_path).code == 0
    assert "'b'" in run(capsys, "log", "dump", tmp_path).out
    assert "'a'" not in run(capsys, "log", "dump", tmp_path).out


def test_a_good_store_needs_no_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    assert run(capsys, "log", "repair", tmp_path) == (0, "nothing to repair\n", "")
    assert run(capsys, "log", "repair", "--dry-run", "--json", tmp_path).json["is_needed"] is False


def test_cut_replaces_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    spoil(tmp_path / SEALED, 200)
    inode = (tmp_path / SEALED).stat().st_ino
    assert run(capsys, "log", "repair", "--cut", tmp_path).code == 0
    assert (tmp_path / SEALED).stat().st_ino != inode
    assert run(capsys, "log", "verify", tmp_path).code == 0


def test_epoch_goes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C-14: what was written later is kept in quarantine, byte for byte, and the output says how far back it goes."""
    make_store(tmp_path)
    before = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("pwal*")))
    done = run(capsys, "log", "repair", "--epoch", 1, tmp_path)
    assert done.code == 0
    assert "timeline" in done.out and "2 by --epoch" in done.out
    assert "durable: epoch 3 before, epoch 1 after" in done.out
    quarantined = [Path(line.removeprefix("kept: ")) for line in done.out.splitlines() if line.startswith("kept: ")]
    assert quarantined and all(path.is_relative_to(tmp_path / "quarantine") for path in quarantined)
    later = [path.read_bytes() for path in quarantined if path.suffix == ".voided"]
    assert len(later) == 2 and all(raw in before for raw in later)
    assert run(capsys, "log", "dump", tmp_path).out.count("\n") == 1
    assert run(capsys, "log", "repair", "--epoch", 99, tmp_path).code == 64


def test_a_damaged_manifest_cannot_be_repaired_and_ends_with_16(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    spoil(tmp_path / "manifest", 100)
    ended = run(capsys, "log", "repair", tmp_path)
    assert ended.code == 16
    assert "manifest" in ended.err and "hint: " in ended.err
