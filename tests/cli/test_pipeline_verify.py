"""`warren pipeline verify`: the words, the object and the exit codes of `warren log verify`, from Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import make_store, run, run_process, spoil

SEALED = "pwal_0000.0000000001"


@pytest.mark.spark
def test_good_and_damaged_stores_are_reported_as_by_log_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    good = run_process("pipeline", "verify", "--master", "local[2]", tmp_path)
    assert (good.code, good.out) == (0, run(capsys, "log", "verify", tmp_path).out), good.err
    spoil(tmp_path / SEALED, 200)
    bad = run_process("pipeline", "verify", "--master", "local[2]", "--json", tmp_path)
    assert (bad.code, bad.json) == (16, run(capsys, "log", "verify", "--json", tmp_path).json), bad.err
    assert "Traceback" not in good.err + bad.err


def test_without_spark_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.session.find_spec", lambda name: None)
    result = run(capsys, "pipeline", "verify", tmp_path)
    assert result.code == 64
    assert "pyspark" in result.err and "make setup-spark" in result.err
