"""`warren log inspect` and `warren log dump`: what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stage import make_store, run
from warren.base.ids import Epoch
from warren.log.file_record import FILE_HEADER_BYTES
from warren.log.store import LogStore


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
    result = run(capsys, "log", "inspect", tmp_path)
    assert result.code == 0
    for word in ("durable up to epoch 3", "pwal_0000.0000000001", "needed", "witness: epoch 3", found["timeline"]):
        assert word in result.out


def test_inspect_counts_what_is_durable_in_active_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the owner, and of a file that a kill has left active."""
    with LogStore.open(str(tmp_path)) as store:
        for number in range(3):
            with store.begin() as session:
                session.put_many(1, [b"a", b"b"], [b"1", b"%d" % number])
        store.witness()
        [active] = [file for file in run(capsys, "log", "inspect", "--json", tmp_path).json["files"] if file["entries"]]
        assert (active["state"], active["entries"]) == ("active", 6)
        assert (active["first_epoch"], active["last_epoch"]) == (1, 3)
        assert FILE_HEADER_BYTES < active["bytes"] < 4096
        assert " 6  " in run(capsys, "log", "inspect", tmp_path).out


def test_inspect_reports_an_active_file_that_it_cannot_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LogStore.open(str(tmp_path)) as store:
        with store.begin() as session:
            session.put(1, b"a", b"x" * 300)
        store.witness()
        path = tmp_path / "pwal_0000"
        data = bytearray(path.read_bytes())
        data[data.index(b"x" * 300)] ^= 1
        path.write_bytes(data)
        found = run(capsys, "log", "inspect", "--json", tmp_path)
        assert found.code == 0
        assert any("pwal_0000: its entries cannot be counted" in problem for problem in found.json["problems"])
        data[data.index(b"x" * 299) - 1] ^= 1
        path.write_bytes(data)


def test_inspect_lists_pins_ancestry_and_voided_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True)
    store.pins.take("a backup", 100.0, from_epoch=Epoch(2))
    store.close()
    assert run(capsys, "log", "repair", "--epoch", 2, tmp_path).code == 0
    found = run(capsys, "log", "inspect", "--json", tmp_path).json
    assert [pin["reader"] for pin in found["pins"]] == ["a backup"]
    assert [item["fork_epoch"] for item in found["ancestry"]] == [2]
    assert [v["reason"] for file in found["files"] for v in file["voided"]] == ["cut back to epoch 2"]
    result = run(capsys, "log", "inspect", tmp_path).out
    for word in ("a backup", "at epoch 2", "cut back to epoch 2", "in quarantine"):
        assert word in result


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
