"""`warren log inspect` and `warren log dump`: what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stage import make_store, run
from warren.base.ids import Epoch


def test_inspect_lists_files_lives_horizon_timeline_and_witness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path)
    found = run(capsys, "log", "inspect", "--json", tmp_path).json
    assert (found["durable"], found["horizon"]) == (3, 0)
    assert found["timeline"] == f"{store.manifest.state.timeline.id:016x}"
    assert found["witness"]["durable"] == 3
    lives = {file["name"]: file["life"] for file in found["files"]}
    assert lives["pwal_0000.0000000001"] == "needed"
    assert lives["pwal_0000"] == "active"
    told = run(capsys, "log", "inspect", tmp_path)
    assert told.code == 0
    for word in ("durable up to epoch 3", "pwal_0000.0000000001", "needed", "witness: epoch 3", found["timeline"]):
        assert word in told.out


def test_inspect_lists_pins_ancestry_and_voided_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True)
    store.pins.take("a backup", 100.0, from_epoch=Epoch(2))
    store.close()
    assert run(capsys, "log", "repair", "--epoch", 2, tmp_path).code == 0
    found = run(capsys, "log", "inspect", "--json", tmp_path).json
    assert [pin["reader"] for pin in found["pins"]] == ["a backup"]
    assert [item["fork_epoch"] for item in found["ancestry"]] == [2]
    assert [v["reason"] for file in found["files"] for v in file["voided"]] == ["cut back to epoch 2"]
    told = run(capsys, "log", "inspect", tmp_path).out
    for word in ("a backup", "at epoch 2", "cut back to epoch 2", "in quarantine"):
        assert word in told


def test_inspect_shows_how_an_epoch_was_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    found = run(capsys, "log", "inspect", "--json", "--epoch", 2, tmp_path).json["epoch"]
    assert (found["epoch"], found["previous"]) == (2, 1)
    assert [part["file"] for part in found["parts"]] == [1]
    assert "epoch 2 follows 1" in run(capsys, "log", "inspect", "--epoch", 2, tmp_path).out
    missing = run(capsys, "log", "inspect", "--epoch", 9, tmp_path)
    assert missing.code == 64 and "no durable epoch 9" in missing.err


def test_dump_prints_the_durable_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    lines = run(capsys, "log", "dump", tmp_path).out.splitlines()
    assert len(lines) == 3
    assert lines[0] == "pwal_0000.0000000001 epoch 1 put storage 7 @1.0 'a' = 'value of a'"


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [((), ["a", "b", "c"]), (("--epoch", 2), ["b"]), (("--limit", 1), ["a"]), (("--epoch", 7), [])],
)
def test_dump_as_json_is_one_object_per_line(
    arguments: tuple[object, ...], keys: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    ended = run(capsys, "log", "dump", "--json", *arguments, tmp_path)
    entries = [json.loads(line) for line in ended.out.splitlines()]
    assert [bytes.fromhex(entry["key"]).decode() for entry in entries] == keys
    assert all(entry["kind"] == "put" and entry["storage"] == 7 for entry in entries)
