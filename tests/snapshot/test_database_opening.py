"""Opening a database: nothing leaves the log before its store was judged, and an opening that fails holds nothing."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import warren
from tests.snapshot.database_stage import DatabaseStage, put, rows
from warren.base.errors import Damage, Locked, OutOfRoom
from warren.base.ids import TimelineId
from warren.embedded.database import Warren
from warren.log.file_record import FileKind
from warren.snapshot.database import Database
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import SnapshotStore

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
        assert "is rebuilt" in database.problems[0]
        assert database.reflection is not None
        database.log.rotate()
        database.reflection.flush()
        deadline = time.monotonic() + 30
        while len(kept_logs(database)) > len(database.log.channels):
            assert time.monotonic() < deadline, "behind the new store's flush the thread purges again"
            time.sleep(POLL_SECONDS)


def kept_logs(database: Database) -> list[int]:
    files = database.log.manifest.state.files
    return [number for number, record in files.items() if record.purpose is FileKind.LOG]


def test_a_store_that_is_locked_is_left_where_it_is(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        fill(db)
        timeline = db.database.log.manifest.state.timeline.id
    holder = RocksDbStore.open(str(tmp_path / "store"), timeline)
    with pytest.raises(Locked, match="open the snapshot store"):
        warren.open(str(tmp_path))
    assert list((tmp_path / "set-aside").iterdir()) == []
    holder.close()
    check_filled(tmp_path)


def test_an_opening_that_failed_releases_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room on the disk, the next opening finds everything, and nothing set aside."""
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
        with pytest.raises(OutOfRoom) as raised:  # and its traceback, which knows the database
            warren.open(str(tmp_path))
    check_filled(tmp_path)
    assert raised.value.hint == "make some"


def fill(db: Warren) -> None:
    db.kv("users").put_many({b"ada": b"countess", b"alan": b"baker"})


def check_filled(directory: Path) -> None:
    with warren.open(str(directory)) as db:
        assert dict(db.kv("users")) == {b"ada": b"countess", b"alan": b"baker"}
        assert not db.alarms()


# -- damage inside the store -------------------------------------------------------------------------------------------


def damaged_in_the_middle(directory: Path) -> Path:
    """A database of many rows, closed, with a flipped bit in the store's largest file."""
    with warren.open(str(directory)) as db:
        for part in range(8):
            with db.database.begin() as session:
                for number in range(1000):
                    session.put(5, b"%d-%06d" % (part, number), hashlib.sha256(b"%d %d" % (part, number)).digest())
    table = max((directory / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2] ^= 1
    table.write_bytes(raw)
    return table


def read_all(db: Warren) -> int:
    with closing(db.database.view_now()) as view:
        return sum(1 for _ in view.range(5))


def test_damage_found_by_a_read_is_an_alarm_and_repaired_by_the_next_opening(tmp_path: Path) -> None:
    table = damaged_in_the_middle(tmp_path)
    with warren.open(str(tmp_path)) as db:
        with pytest.raises(Damage, match="checksum mismatch"):
            read_all(db)
        [alarm] = db.database.alarms()
        assert str(table) in alarm and "is rebuilt from the log at the next start" in alarm
        assert db.database._noting is not None and db.database.reflection is not None
        db.database._noting.join()
        db.database.log.rotate()
        db.database.reflection.flush()
        assert db.database.log.manifest.state.reflected == 0, "the log keeps what the store is built from"
    with warren.open(str(tmp_path)) as db:
        assert "is rebuilt" in db.database.problems[0]
        assert read_all(db) == 8000
    assert len(list((tmp_path / "set-aside").iterdir())) == 1, "the damaged one is kept"
    with warren.open(str(tmp_path)) as db:
        assert not db.database.problems


def test_if_the_log_lacks_something_a_damaged_store_stays_in_use_with_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be read is served; what cannot is an error that names file and offset."""
    table = damaged_in_the_middle(tmp_path)
    monkeypatch.setattr(Database, "_is_covered", False)
    for _ in range(2):
        with warren.open(str(tmp_path)) as db:
            with pytest.raises(Damage, match="checksum mismatch"):
                read_all(db)
            assert str(table) in db.database.alarms()[0] and "restore a backup" in db.database.alarms()[0]
            with closing(db.database.view_now()) as view:
                assert view.get(5, b"0-000000") is not None
    assert list((tmp_path / "set-aside").iterdir()) == []
