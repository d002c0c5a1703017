"""Opening a database: nothing leaves the log before its store was judged, and an opening that fails holds nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

import warren
from tests.snapshot.database_stage import DatabaseStage, put, rows
from warren.app.embedded import Warren
from warren.base.errors import Locked, OutOfRoom
from warren.base.ids import TimelineId
from warren.log.file_header import Purpose
from warren.snapshot.database import Database
from warren.snapshot.rocksdb_store import RocksDbStore
from warren.snapshot.snapshot_store import SnapshotStore

POLL_SECONDS = 0.005


class SlowToOpen(DatabaseStage):
    """The store takes so long to open that the log's own thread has looked for files to purge many times."""

    def _open_store(self, path: str, timeline: TimelineId) -> SnapshotStore:
        if self.store is None:
            time.sleep(40 * POLL_SECONDS)
        return super()._open_store(path, timeline)


def test_the_log_is_not_purged_before_the_store_was_judged() -> None:
    """X-03: the mark in the manifest is that of a store that is gone; what lies before it is in the log only, and free
    to go by that mark, now that it is no history any more."""
    stage = SlowToOpen()
    stage.log_settings = replace(stage.log_settings, retention_seconds=60.0, retention_bytes=1 << 40)
    with stage.open() as database:
        put(database, {b"a": b"1"})
        database.log.rotate()
        wanted = rows(database)
    stage.store = None
    stage.clock.advance_ns(61 * 10**9)
    stage.log_settings = replace(stage.log_settings, compaction_poll_seconds=POLL_SECONDS)
    with stage.open() as database:
        assert rows(database) == wanted
        assert "is built again" in database.problems[0]
        assert database.reflection is not None
        database.log.rotate()
        database.reflection.flush()
        deadline = time.monotonic() + 30
        while len(kept_logs(database)) > len(database.log.channels):
            assert time.monotonic() < deadline, "behind the new store's flush the thread purges again"
            time.sleep(POLL_SECONDS)


def kept_logs(database: Database) -> list[int]:
    files = database.log.manifest.state.files
    return [number for number, record in files.items() if record.purpose is Purpose.LOG]


def test_a_store_that_somebody_holds_is_left_where_it_is(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        fill(db)
        timeline = db.database.log.manifest.state.timeline.id
    holder = RocksDbStore.open(str(tmp_path / "store"), timeline)
    with pytest.raises(Locked, match="open the snapshot store"):
        warren.open(str(tmp_path))
    assert list((tmp_path / "set-aside").iterdir()) == []
    holder.close()
    check_filled(tmp_path)


def test_an_opening_that_failed_lets_go_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes room and opens once more finds everything, and nothing set aside."""
    db = warren.open(str(tmp_path))
    fill(db)
    assert db._control is not None
    db._control.close()
    db.database.abandon()
    db.database.store.close()

    def full(self: Database, progress: object) -> None:
        raise OutOfRoom("no room", "make some")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_replay", full)
        with pytest.raises(OutOfRoom) as kept:  # and its traceback, which knows the database
            warren.open(str(tmp_path))
    check_filled(tmp_path)
    assert kept.value.hint == "make some"


def fill(db: Warren) -> None:
    db.kv("users").put_many({b"ada": b"countess", b"alan": b"baker"})


def check_filled(directory: Path) -> None:
    with warren.open(str(directory)) as db:
        assert dict(db.kv("users")) == {b"ada": b"countess", b"alan": b"baker"}
        assert not db.alarms()
