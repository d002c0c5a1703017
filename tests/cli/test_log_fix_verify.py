"""`warren log verify`: the verdict, the place, the chain, the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import make_store, run, spoil

SEALED = "pwal_0000.0000000001"


def test_a_good_store_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    result = run(capsys, "log", "verify", tmp_path)
    assert result.code == 0
    assert "chain: complete, 3 epochs linked from 0 to 3" in result.out
    assert "good: everything up to epoch 3" in result.out
    found = run(capsys, "log", "verify", "--json", "--thread-num", 3, tmp_path).json
    assert found["is_good"] and found["first_damage"] is None
    assert found["chain"] == {"anchor": 0, "last": 3, "linked": 3, "lost": [], "is_complete": True}
    assert {file["verdict"] for file in found["files"]} == {"ok"}


def test_damage_is_named_with_file_byte_and_what_it_hits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    spoil(tmp_path / SEALED, 200)
    result = run(capsys, "log", "verify", tmp_path)
    assert result.code == 16
    assert f"damaged: {tmp_path}/{SEALED} at byte 96" in result.out
    assert "hits entries block of epoch 1" in result.out
    assert "warren log repair --dry-run" in result.out
    found = run(capsys, "log", "verify", "--json", tmp_path)
    assert found.code == 16
    assert (found.json["first_damage"]["path"], found.json["first_damage"]["offset"]) == (f"{tmp_path}/{SEALED}", 96)
    assert [file["verdict"] for file in found.json["files"] if file["name"] == SEALED] == ["unexpected"]


def test_a_damaged_manifest_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    spoil(tmp_path / "manifest", 100)
    result = run(capsys, "log", "verify", "--json", tmp_path)
    assert result.code == 16
    assert result.json["first_damage"]["path"] == f"{tmp_path}/manifest"


def test_it_works_beside_a_running_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True)
    assert run(capsys, "log", "verify", tmp_path).code == 0
    store.close()
