"""Compaction from the command line, of a stopped directory and of a running store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stage import make_store, put, run
from tests.server.broker_process import BrokerProcess
from warren.embedded.database import open_embedded
from warren.log.compaction.control import RESULT, START


def test_a_stopped_directory_is_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True)
    put(store, b"a", b"a")
    store.close()
    dry = run(capsys, "log", "compact", "--dry-run", "--json", tmp_path).json
    assert (dry["entries"], len(dry["files"])) == (5, 2)
    assert "would compact 2 files, 5 entries" in run(capsys, "log", "compact", "--dry-run", tmp_path).out
    assert not list(tmp_path.glob("*.compacted.*"))
    done = run(capsys, "log", "compact", "--json", "--thread-num", 1, tmp_path)
    assert done.code == 0
    assert (done.json["status"], done.json["entries_in"], done.json["entries"]) == ("ok", 5, 3)
    assert list(tmp_path.glob("*.compacted.*"))
    assert "nothing to compact" in run(capsys, "log", "compact", tmp_path).out
    assert run(capsys, "log", "verify", tmp_path).code == 0


def test_tg_09_a_command_makes_the_start_file_and_prints_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path, is_open=True)
    result = run(capsys, "compact", "--data-dir", tmp_path, "--timeout", 60)
    assert result.code == 0
    assert "compacted 2 files into pwal_0000.compacted." in result.out
    put(store, b"d")
    found = run(capsys, "compact", "--data-dir", tmp_path, "--json").json
    store.close()
    assert (found["status"], found["entries"]) == ("ok", 4)
    assert found == json.loads((tmp_path / "ctrl" / RESULT).read_text())
    assert not (tmp_path / "ctrl" / START).exists()


def test_without_a_running_store_an_error_is_printed_and_the_request_withdrawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    ended = run(capsys, "compact", "--data-dir", tmp_path, "--timeout", 0.1)
    assert ended.code == 64
    assert "is one running there?" in ended.err
    assert not (tmp_path / "ctrl" / START).exists()
    assert run(capsys, "compact", "--data-dir", tmp_path / "nowhere").code == 64


def test_a_compaction_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True)
    sealed = tmp_path / "pwal_0000.0000000001"
    raw = bytearray(sealed.read_bytes())
    raw[200] ^= 1
    sealed.write_bytes(bytes(raw))
    ended = run(capsys, "compact", "--data-dir", tmp_path, "--timeout", 60)
    store.abandon()
    assert ended.code == 16
    assert "the compaction failed" in ended.err and "hint" in ended.err


def test_a_broker_is_compacted_by_its_data_directory_or_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reflection is brought to now and its log is rotated; nothing is merged."""
    with BrokerProcess(tmp_path / "data") as broker:
        for place in (tmp_path / "data", tmp_path / "data" / "log"):
            ended = run(capsys, "compact", "--data-dir", place, "--timeout", 60)
            assert (ended.code, ended.err) == (0, ""), ended
            assert "nothing to compact" in ended.out
        status = run(capsys, "reflection", "status", "--json", tmp_path / "data" / "log").json
        assert status["flushed"]["epoch"] > 0
        rotated = list((tmp_path / "data" / "log").glob("pwal_*.0*"))
        assert rotated or status["flushed"]["epoch"] == status["durable"]
        assert broker.stop() == 0


def test_the_log_of_a_stopped_database_is_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_embedded(str(tmp_path / "data")) as database:
        database.kv("names")[b"key"] = b"value"
    for place in (tmp_path / "data", tmp_path / "data" / "log"):
        ended = run(capsys, "log", "compact", place)
        assert ended.code == 64
        assert "is a database" in ended.err and f"warren compact --data-dir {tmp_path / 'data'}" in ended.err
    with open_embedded(str(tmp_path / "data")) as database:
        assert database.kv("names")[b"key"] == b"value"


@pytest.mark.parametrize(
    "verb", [("log", "verify"), ("log", "inspect"), ("log", "dump"), ("log", "repair", "--dry-run")]
)
def test_every_verb_on_a_log_takes_the_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    with open_embedded(str(tmp_path / "data")) as database:
        database.kv("names")[b"key"] = b"value"
    by_data, by_log = (run(capsys, *verb, tmp_path / "data" / part) for part in ("", "log"))
    assert by_data.code == 0 and by_data == by_log
