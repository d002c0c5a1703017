"""Reads as of now, where the store cannot take what is durable: reflection off, paused, broken down, or elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.snapshot.database_stage import DatabaseStage, State, put, rows, safe_rows
from warren.base.errors import Damage, DiskFailure
from warren.base.ids import Epoch
from warren.log.read.tail import LogTail, TailBlock
from warren.snapshot.database import Database
from warren.snapshot.latest_view import LogOverlay
from warren.snapshot.reflection import Mode, Reflection, ReflectionSettings
from warren.snapshot.store import ReadView

A, B, C = ({(1, key): b"1"} for key in (b"a", b"b", b"c"))


def reflection_of(database: Database) -> Reflection:
    assert isinstance(database.reflection, Reflection)
    return database.reflection


def overlay_of(database: Database) -> LogOverlay:
    return database._latest._overlay


def keys_of(view: ReadView) -> list[bytes]:
    return [row.key for row in view.range(1)]


@pytest.fixture
def blocks_read(monkeypatch: pytest.MonkeyPatch) -> list[TailBlock]:
    """Every block that is read from the log's files."""
    read: list[TailBlock] = []
    original = LogTail.read

    def watched(self: LogTail, up_to: Epoch) -> Iterator[TailBlock]:
        for block in original(self, up_to):
            read.append(block)
            yield block

    monkeypatch.setattr(LogTail, "read", watched)
    return read


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SPARK])
def test_entries_that_this_process_does_not_apply_are_visible(mode: Mode) -> None:
    """Puts, removes and clears; and the store stands where it stood."""
    stage = DatabaseStage(mode, overlay_bytes=1 << 20)
    with stage.open() as database:
        put(database, {b"a": b"1", b"b": b"1"})
        if database.reflection is not None:
            database.catch_up()
        applied = database.store.applied
        put(database, {b"b": b"2", b"c": b"1"}, channel=1)
        assert rows(database) == {(1, b"a"): b"1", (1, b"b"): b"2", (1, b"c"): b"1"}
        session = database.begin()
        session.remove(1, b"a")
        session.commit()
        assert rows(database) == {(1, b"b"): b"2", (1, b"c"): b"1"}
        session = database.begin()
        session.clear_storage(1)
        session.put(1, b"d", b"4")
        session.commit()
        assert rows(database) == {(1, b"d"): b"4"}
        assert database.store.applied == applied
        assert keys_of(database.view()) == ([b"a", b"b"] if applied.epoch else [])


def test_a_pause_is_kept_and_reads_go_on() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        put(database, {b"a": b"1"})
        assert rows(database) == A
        reflection_of(database).pause()
        applied = database.store.applied
        put(database, {b"b": b"1"})
        assert rows(database) == A | B
        assert database.store.applied == applied
        reflection_of(database).resume()
        assert rows(database) == A | B
        assert database.store.applied.epoch == database.log.durable


def test_a_store_that_takes_nothing_more_is_still_read() -> None:
    """Latest reads, and what is decided by them (`put_if`), continue; there is an alarm."""
    stage = DatabaseStage(retry_seconds=0.01)
    database = stage.open()
    put(database, {b"a": b"1"})
    assert rows(database) == A
    assert stage.store is not None

    def never() -> None:
        raise DiskFailure("it is still broken")

    stage.store.resume = never  # type: ignore[method-assign]
    stage.store.break_down("no space left")
    for number in range(5):
        put(database, {b"b": b"%d" % number})
        assert rows(database) == A | {(1, b"b"): b"%d" % number}
        database.make_durable()
    with pytest.raises(DiskFailure):
        database.settle()
    assert database.store.applied.epoch < database.log.durable
    database.abandon()


def test_a_store_that_went_back_is_overlaid_from_there() -> None:
    """What it had shown and then forgot is in the log still."""
    stage = DatabaseStage()
    database = stage.open()
    reflection = reflection_of(database)
    put(database, {b"a": b"1"})
    assert rows(database) == A
    reflection.flush()
    put(database, {b"b": b"1"})
    assert rows(database) == A | B
    reflection.pause()
    put(database, {b"c": b"1"})
    assert rows(database) == A | B | C
    assert stage.store is not None
    stage.store.break_down("no space left")
    with reflection.apply_lock():
        reflection._resume_store()
    assert keys_of(database.view()) == [b"a"]
    assert rows(database) == A | B | C
    database.abandon()


def test_a_late_entry_that_a_store_forgot_is_brought_again_though_the_mark_is_the_same() -> None:
    """X-04: the mark is held back by a version to come, and the safe version was moved far ahead: it does not move with
    a late entry, so that it does not show whether the store has fallen back behind one."""
    stage = DatabaseStage()
    database = stage.open()
    reflection = reflection_of(database)
    reflection.advance((1000, 5))
    session = database.begin()
    session.put(1, b"to come", b"1", version=(1000, 9))
    session.commit()
    assert safe_rows(database) == {}
    reflection.flush()
    mark = database.store.applied
    reflection.pause()
    session = database.begin()
    session.put(1, b"a", b"1", version=(1000, 3))
    session.commit()
    assert safe_rows(database) == A
    assert database.store.applied == mark and stage.store is not None
    stage.store.break_down("no space left")
    with reflection.apply_lock():
        reflection._resume_store()
    assert keys_of(database.view()) == []
    assert rows(database) == A | {(1, b"to come"): b"1"}
    assert safe_rows(database) == A
    database.abandon()


def test_reading_after_each_write_reads_each_block_once(blocks_read: list[TailBlock]) -> None:
    stage = DatabaseStage(Mode.OFF)
    with stage.open() as database:
        model: State = {}
        for number in range(120):
            key = b"%d" % (number * 7 % 50)
            put(database, {key: b"%d" % number}, channel=number % 2)
            model[1, key] = b"%d" % number
            if number % 40 == 17:
                database.log.rotate()
            view = database.view_now()
            assert view.get(1, key) is not None
            assert len(keys_of(view)) == len(model)
            view.close()
        assert rows(database) == model
        assert len(blocks_read) == 120


def test_of_what_is_behind_the_mark_only_what_the_store_does_not_have_is_kept(blocks_read: list[TailBlock]) -> None:
    """VO-03: one version that is still to come holds back the mark's epoch, for long; what comes behind it is in the
    store, and not in memory once more."""
    stage = DatabaseStage()
    with stage.open() as database:
        session = database.begin()
        session.put(1, b"to come", b"1", version=(1000, 1))
        session.commit()
        wanted: State = {(1, b"to come"): b"1"}
        for number in range(60):
            put(database, {b"%d" % number: b"x"})
            wanted[1, b"%d" % number] = b"x"
            if number == 30:
                session = database.begin(1)
                session.remove(1, b"3", version=(1000, 2))
                session.commit()
                del wanted[1, b"3"]
            assert rows(database) == wanted
        assert database.store.applied.epoch == 0
        assert sum(run.count for run in overlay_of(database).runs) == 2
        reflection_of(database).advance((1000, 2))
        assert rows(database) == safe_rows(database) == wanted
        assert database.store.applied.epoch == database.log.durable


def test_what_the_store_has_taken_leaves_the_overlay() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        reflection = reflection_of(database)
        reflection.pause()
        for number in range(40):
            put(database, {b"%d" % number: b"x"})
        assert len(rows(database)) == 40
        assert sum(run.count for run in overlay_of(database).runs) == 40
        reflection.catch_up()
        put(database, {b"new": b"x"})
        assert len(rows(database)) == 41
        assert sum(run.count for run in overlay_of(database).runs) == 1


def test_a_view_is_held_still_whatever_is_written_applied_and_purged() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        reflection = reflection_of(database)
        put(database, {b"a": b"1", b"gone": b"1"})
        reflection.catch_up()
        reflection.pause()
        put(database, {b"b": b"1"})
        view = database.view_now()
        session = database.begin()
        session.remove(1, b"gone")
        session.put(1, b"a", b"2")
        session.put(1, b"c", b"2")
        session.commit()
        later = database.view_now()
        reflection.catch_up()
        reflection.flush()
        database.log.rotate()
        database.log.purge()
        assert keys_of(view) == [b"a", b"b", b"gone"]
        assert keys_of(later) == keys_of(database.view_now()) == [b"a", b"b", b"c"]
        old, new = view.get(1, b"a"), later.get(1, b"a")
        assert old is not None and new is not None
        assert (old.value, new.value) == (b"1", b"2")
        view.close()
        later.close()


@pytest.mark.parametrize("is_before", [True, False])
def test_files_purged_while_they_are_read_lose_no_entries(monkeypatch: pytest.MonkeyPatch, is_before: bool) -> None:
    """X-03: the store is flushed and the log purged between the view of the store and the reading behind its mark: a
    file is gone, or is not even known any more. Then it is all done again, with a newer view."""
    stage = DatabaseStage()
    with stage.open() as database:
        reflection = reflection_of(database)
        reflection.pause()
        wanted: State = {}
        for number in range(6):
            put(database, {b"%d" % number: b"x"})
            wanted[1, b"%d" % number] = b"x"
            database.log.rotate()
        original, purged = LogTail._records, list[int]()

        def watched(self: LogTail) -> Any:
            found = None if is_before else original(self)
            if self is database._latest._tail and not purged:
                reflection.catch_up()
                reflection.flush()
                purged.append(len(database.log.purge().files))
                put(database, {b"last": b"x"})
            return original(self) if found is None else found

        monkeypatch.setattr(LogTail, "_records", watched)
        assert rows(database) == wanted | {(1, b"last"): b"x"}
        assert purged == [6]


def test_damage_in_the_tail_is_reported_and_not_skipped() -> None:
    stage = DatabaseStage(Mode.OFF)
    with stage.open() as database:
        put(database, {b"a": b"needle"})
        database.log.rotate()
        put(database, {b"b": b"1"})
        record = next(each for each in database.log.manifest.state.files.values() if each.last_epoch == 1)
        path = f"{database.log.directory}/{record.name}"
        whole = stage.disk.contents(path)
        assert b"needle" in whole[: record.end]
        stage.disk.set_contents(path, whole.replace(b"needle", b"noodle"))
        with pytest.raises(Damage):
            database.view_now()


@pytest.mark.parametrize("size", [10, 4000])
def test_of_more_than_fits_the_store_takes_first_what_it_can(size: int) -> None:
    """`overlay_bytes`: reflection is on request only, and is requested."""
    stage = DatabaseStage(Mode.SPARK, overlay_bytes=2000)
    with stage.open() as database:
        put(database, {b"a": b"x" * size})
        assert rows(database) == {(1, b"a"): b"x" * size}
        assert database.store.applied.epoch == (database.log.durable if size > 2000 else 0)
        reflection_of(database).pause()
        put(database, {b"b": b"x" * size})
        assert len(rows(database)) == 2
        assert database.store.applied.epoch < database.log.durable, "a pause is kept, whatever it costs"


def test_many_threads_read_and_write_while_reflection_stops_and_goes() -> None:
    """Each session writes two keys, with versions to come among them: no reader ever sees half of one, or an older one
    than before."""
    stage = DatabaseStage()
    database = stage.open()
    errors: list[str] = []
    is_over = threading.Event()

    def write(writer: int) -> None:
        for number in range(1, 61):
            session = database.begin(writer % 2)
            version = (10**6, number) if writer == 0 else None
            for half in (b"x", b"y"):
                session.put(1, b"%d%s" % (writer, half), b"%d" % number, version and (10**6 + (half == b"y"), number))
            session.commit()

    def read() -> None:
        seen = [0, 0, 0]
        while not is_over.is_set():
            view = database.view_now()
            for writer in range(3):
                x, y = view.get_many(1, [b"%dx" % writer, b"%dy" % writer])
                values = int(x.value) if x else 0, int(y.value) if y else 0
                if values[0] != values[1] or values[0] < seen[writer]:
                    errors.append(f"writer {writer}: {values} after {seen[writer]}")
                seen[writer] = values[0]
            view.close()

    def toggle() -> None:
        reflection = reflection_of(database)
        while not is_over.is_set():
            reflection.pause()
            is_over.wait(0.01)
            reflection.resume()
            reflection.flush()
            database.log.purge()
            is_over.wait(0.005)

    writers = [threading.Thread(target=write, args=[writer]) for writer in range(3)]
    others = [threading.Thread(target=body) for body in (read, read, read, toggle)]
    for thread in [*writers, *others]:
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    for thread in others:
        thread.join()
    assert not errors, errors[:3]
    assert rows(database) == {(1, b"%d%s" % (writer, half)): b"60" for writer in range(3) for half in (b"x", b"y")}
    database.abandon()


def test_key_values_are_whole_with_reflection_off(tmp_path: Path) -> None:
    """With RocksDB: what was there before, what was written since, ranges over both; and all is there after a stop."""
    path, off = str(tmp_path / "db"), ReflectionSettings(reflection=Mode.OFF)
    with warren.open(path) as db:
        db.kv("users").put_many({b"%d" % number: b"old" for number in range(20)})
    with warren.open(path, reflection=off) as db:
        users = db.kv("users")
        users[b"5"] = b"new"
        users[b"50"] = b"new"
        del users[b"6"]
        assert users.put_if(b"7", b"new", expected=b"old") and not users.put_if(b"7", b"newer", expected=b"old")
        assert len(users) == 20
        assert list(users.prefix(b"5")) == [(b"5", b"new"), (b"50", b"new")]
        assert list(users.range(b"5", b"8", reverse=True)) == [(b"7", b"new"), (b"50", b"new"), (b"5", b"new")]
        other = db.kv("made since")
        other.put_many({b"a": b"1"})
        users.clear()
        users[b"last"] = b"1"
        assert dict(users) == {b"last": b"1"} and dict(other) == {b"a": b"1"}
    with warren.open(path) as db:
        assert dict(db.kv("users")) == {b"last": b"1"} and dict(db.kv("made since")) == {b"a": b"1"}
