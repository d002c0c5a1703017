"""`warren pipeline snapshot` and `export`: what they print, how they end, and what they say when they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import make_store, run, run_process

LOCAL = ("--master", "local[2]")


@pytest.mark.spark
def test_a_snapshot_is_made_and_reported(tmp_path: Path) -> None:
    make_store(tmp_path / "log")
    result = run_process("pipeline", "snapshot", tmp_path / "log", tmp_path / "state", "--as-of", 2, "--json", *LOCAL)
    assert result.code == 0, result.err
    assert (result.json["epoch"], result.json["rows"], result.json["files"], result.json["format"]) == (
        2,
        2,
        1,
        "parquet",
    )
    assert result.json["target"] == str(tmp_path / "state") and (tmp_path / "state" / "_MANIFEST.json").exists()
    again = run_process("pipeline", "snapshot", tmp_path / "log", tmp_path / "state", *LOCAL)
    assert again.code == 64 and "has the snapshot of epoch 2 already" in again.err and "--overwrite" in again.err
    assert "Traceback" not in result.err + again.err
    replaced = run_process("pipeline", "snapshot", tmp_path / "log", tmp_path / "state", "--overwrite", *LOCAL)
    assert (replaced.code, replaced.out.startswith(f"{tmp_path}/state: 3 keys as of epoch 3")) == (0, True), (
        replaced.err
    )


@pytest.mark.spark
def test_an_export_is_made_and_continued(tmp_path: Path) -> None:
    make_store(tmp_path / "log")
    words = ("pipeline", "export", tmp_path / "log", tmp_path / "entries", *LOCAL)
    result = run_process(*words, "--batch-epochs", 2, "--from-epoch", 1, "--json")
    assert result.code == 0, result.err
    assert (result.json["epoch"], result.json["batches"], result.json["rows"]) == (3, 2, 3)
    again = run_process(*words)
    assert (again.code, again.out) == (0, f"{tmp_path}/entries is at epoch 3: 0 entries in 0 batches, 0 B\n")
    refused = run_process(*words, "--format", "parquet")
    assert refused.code == 64 and "hint: " in refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ("snapshot", "a"),
        ("snapshot", "a", "b", "--format", "csv"),
        ("snapshot", "a", "b", "--buckets", "-1"),
        ("export", "a", "b", "--from-epoch", "0"),
        ("export", "a", "b", "--interval", "soon"),
    ],
)
def test_wrong_usage_ends_with_64(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, "pipeline", *words)
    assert result.code == 64 and "Traceback" not in result.err


@pytest.mark.parametrize("command", ["snapshot", "export"])
def test_without_spark_it_says_how_to_get_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.session.find_spec", lambda name: None)
    result = run(capsys, "pipeline", command, tmp_path, tmp_path / "table")
    assert result.code == 64
    assert "pyspark" in result.err and "make setup-spark" in result.err
