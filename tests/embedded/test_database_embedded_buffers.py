"""The version buffer that is a column family (`buffer = rocksdb`), in a program: it says what a dict says, over stops
and kills, and follows the one in memory, or is followed by it, on one directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import warren
from tests.embedded.test_database_embedded import _CHILD, TINY, AgainstADict
from warren.base.errors import Misuse
from warren.snapshot.reflection import Mode
from warren.snapshot.version_buffer.rocksdb_buffer import RocksdbBuffer

ROCKSDB = replace(TINY, buffer="rocksdb", bulk_bytes=0)  # everything goes through the buffer
CHILD = _CHILD.replace("lag_seconds=0.0", 'lag_seconds=0.0, buffer="rocksdb"').replace(
    "bulk_bytes=bulk_bytes", "bulk_bytes=0"
)


class AgainstADictWithRocksdb(AgainstADict):
    """VB-04: the same rules; what was on its way when the program was killed comes from the log again."""

    def open(self) -> None:
        self.reflection = replace(self.reflection, buffer="rocksdb", bulk_bytes=0)
        super().open()
        assert isinstance(self.db.database._buffer, RocksdbBuffer)

    def kill(self) -> None:
        super().kill()
        self.db.database._buffer.close()


TestAgainstADictWithRocksdb = AgainstADictWithRocksdb.TestCase
TestAgainstADictWithRocksdb.settings = settings(
    max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED])
def test_what_was_acknowledged_survives_a_kill_with_a_buffer_in_rocksdb(tmp_path: Path, mode: Mode) -> None:
    """X-03: the next life is of either kind."""
    assert 'buffer="rocksdb"' in CHILD and "bulk_bytes=0" in CHILD
    acknowledged = 0
    for kill in range(3):
        handle = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), mode, str(acknowledged)], stdout=subprocess.PIPE
        )
        assert handle.stdout is not None
        for _ in range(25):
            acknowledged = int(handle.stdout.readline())
        os.kill(handle.pid, signal.SIGKILL)
        rest = handle.communicate()[0].split(b"\n")[:-1]
        acknowledged = int(rest[-1]) if rest else acknowledged
        with warren.open(str(tmp_path), reflection=ROCKSDB if kill % 2 else TINY) as db:
            stored = {int(key) for key in db.kv("numbers")}
            assert set(range(acknowledged + 1)) <= stored, "everything that was acknowledged is there"
            assert len(stored) <= acknowledged + 3
            acknowledged = max(stored)
            left = "unknown to the manifest"  # a kill in the middle of a rotation leaves the file that was to be next
            assert not [alarm for alarm in db.alarms() if left not in alarm]


def test_a_buffer_begins_empty_whatever_an_earlier_life_left_there(tmp_path: Path) -> None:
    with warren.open(str(tmp_path), reflection=ROCKSDB) as db:
        db.kv("users")[b"ada"] = b"countess"
    assert (tmp_path / "buffer" / "CURRENT").exists()
    for name in ("CURRENT", "buffer-0123456789abcdef"):
        (tmp_path / "buffer" / name).write_bytes(b"torn")
    with warren.open(str(tmp_path), reflection=ROCKSDB) as db:
        assert dict(db.kv("users")) == {b"ada": b"countess"}
        assert not (tmp_path / "buffer" / "buffer-0123456789abcdef").exists()
    with warren.open(str(tmp_path)) as db:
        assert dict(db.kv("users")) == {b"ada": b"countess"}
        assert list((tmp_path / "buffer").iterdir()) == []


def test_an_unknown_kind_of_buffer_is_misuse_and_nothing_stays_locked(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no version buffer called 'paper'") as misuse:
        warren.open(str(tmp_path), reflection=replace(TINY, buffer="paper"))
    assert misuse.value.hint == "it may be memory or rocksdb"
    with warren.open(str(tmp_path)) as db:
        db.kv("users")[b"ada"] = b"countess"
        assert not db.alarms()
