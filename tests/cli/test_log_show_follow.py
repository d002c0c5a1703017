"""`warren log follow`: another process sees entries as they become durable, each once, whatever the owner does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from tests.cli.stage import make_store, put, run
from warren.base.errors import Gone
from warren.base.ids import Epoch
from warren.files.local import LocalFiles
from warren.log.read.tail import Follower

OUTPUT_SECONDS = 60


class following:
    """The command in a process of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "warren.cli.main", "log", "follow", "--json", str(directory), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> following:
        return self

    def lines(self, count: int) -> list[Any]:
        try:
            return [json.loads(self._lines.get(timeout=OUTPUT_SECONDS)) for _ in range(count)]
        except Empty:
            raise AssertionError(f"no output within {OUTPUT_SECONDS} s") from None

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=OUTPUT_SECONDS)
        return self.process.returncode, self._lines.get(timeout=OUTPUT_SECONDS)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put("")

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_rf_07_a_changed_directory_is_noticed_and_read_by_another_process(tmp_path: Path) -> None:
    """RF-05, RF-06, RF-07: watched by inotify, files opened anew under the name they have; rotation and compaction
    between two entries lose and repeat nothing."""
    store = make_store(tmp_path, is_open=True)
    with following(tmp_path, "--from-epoch", "2") as follower:
        assert [bytes.fromhex(line["key"]) for line in follower.lines(2)] == [b"b", b"c"]
        for number in range(6):
            put(store, b"key %d" % number)
            [line] = follower.lines(1)
            assert (bytes.fromhex(line["key"]), line["epoch"]) == (b"key %d" % number, store.durable)
            if number % 2:
                store.rotate()
            if number == 3:
                store.compact()
        assert follower.end() == (0, "")
    store.close()


def test_a_follower_that_is_too_slow_is_shown_the_horizon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, is_open=True, retention_seconds=0.0, retention_bytes=0)
    follower = Follower(LocalFiles(), str(tmp_path), Epoch(0))
    store.compact()
    store.purge()
    put(store, b"later")
    store.witness()
    with pytest.raises(Gone, match="horizon is"):
        list(follower.read())
    store.close()
    ended = run(capsys, "log", "follow", tmp_path, "--from-epoch", "1")
    assert (ended.code, "horizon is" in ended.err) == (64, True)
    assert run(capsys, "log", "follow", tmp_path / "nowhere").code == 64


def test_nothing_is_shown_before_it_is_witnessed(tmp_path: Path) -> None:
    """RF-06: what is durable and not yet witnessed waits: another process cannot know."""
    store = make_store(tmp_path, is_open=True)
    store.witness()
    follower = Follower(LocalFiles(), str(tmp_path))
    assert list(follower.read()) == []
    put(store, b"new")
    store.witness()
    assert [block.columns.keys.to_list() for block in follower.read()] == [[b"new"]]
    assert list(follower.read()) == []
    assert follower.after == store.durable
    store.close()
