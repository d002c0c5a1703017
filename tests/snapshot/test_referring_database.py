"""Streams that are referred to: the store holds pointers, the log the values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.snapshot.database_stage import DIRECTORY, DatabaseStage
from warren.base.errors import Damage, Gone, Misuse, Refused
from warren.base.ids import Epoch, FileNumber
from warren.files.protocol import join
from warren.log.file_record import FileState
from warren.log.pointers import VALUE_BYTES_MAX, Pointer, is_pointer
from warren.log.streams import Stream
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

STORAGE = 77
LARGE = b"large" * 200
SMALL = b"small"


def messages(database: Database) -> Stream:
    return database.log.stream("messages", is_referring=True)


def write(database: Database, **values: bytes) -> Epoch:
    with messages(database).begin() as session:
        for key, value in values.items():
            session.put(STORAGE, key.encode(), value)
        session.record(b"history of it")
    assert session.epoch is not None
    return session.epoch


def raw(database: Database, epoch: Epoch) -> dict[bytes, bytes]:
    view = database.view_at(epoch)
    try:
        return {row.key: row.value for row in view.range(STORAGE)}
    finally:
        view.close()


def resolved(database: Database, epoch: Epoch) -> dict[bytes, bytes]:
    return {key: bytes(database.resolve(value)) for key, value in raw(database, epoch).items()}


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED, Mode.OFF])
@pytest.mark.parametrize("bulk_bytes", [0, 1])
def test_the_store_gets_a_pointer_for_a_large_value_and_the_value_of_a_small_one(mode: Mode, bulk_bytes: int) -> None:
    with DatabaseStage(mode, bulk_bytes=bulk_bytes).open() as database:
        write(database, a=LARGE, b=SMALL)
        edge, over = b"e" * VALUE_BYTES_MAX, b"o" * (VALUE_BYTES_MAX + 1)
        epoch = write(database, c=edge, d=over)
        found = raw(database, epoch)
        assert {key: is_pointer(value) for key, value in found.items()} == {
            b"a": True,
            b"b": False,
            b"c": False,
            b"d": True,
        }
        assert resolved(database, epoch) == {b"a": LARGE, b"b": SMALL, b"c": edge, b"d": over}


def test_what_is_removed_is_gone_and_what_is_put_again_points_to_the_new_value() -> None:
    with DatabaseStage().open() as database:
        write(database, a=LARGE, b=LARGE)
        with messages(database).begin() as session:
            session.remove(STORAGE, b"a")
            session.put(STORAGE, b"b", LARGE + b"2")
        assert session.epoch is not None
        assert resolved(database, session.epoch) == {b"b": LARGE + b"2"}


@pytest.mark.parametrize("model", list(CrashModel))
def test_pointers_lead_to_the_same_values_after_a_power_cut(model: CrashModel) -> None:
    stage = DatabaseStage()
    database = stage.open()
    epoch = write(database, a=LARGE, b=SMALL)
    database.abandon()
    stage.crash(model, 1)
    with stage.open() as database:
        assert resolved(database, epoch) == {b"a": LARGE, b"b": SMALL}


def test_a_store_that_is_lost_gets_its_pointers_again_from_the_log() -> None:
    """X-07"""
    stage = DatabaseStage()
    with stage.open() as database:
        epoch = write(database, a=LARGE, b=SMALL)
    stage.store = None
    with stage.open() as database:
        assert any("rebuilt" in problem for problem in database.problems)
        assert resolved(database, epoch) == {b"a": LARGE, b"b": SMALL}


def sealed(database: Database) -> list[FileNumber]:
    """Seal what is written; the files of the stream, oldest first."""
    database.settle()
    database.log.rotate()
    assert database.reflection is not None
    database.reflection.flush()
    files, stream = database.log.manifest.state.files, messages(database)
    return [n for n, r in sorted(files.items()) if r.state is FileState.SEALED and stream.id in dict(r.stream_ends)]


def test_a_file_that_rows_point_into_stays_until_it_is_released() -> None:
    """And the base moves up only when the file that goes is the earliest (MR-09, MR-10, TS-02)."""
    stage = DatabaseStage()
    stage.log_settings = replace(stage.log_settings, retention_seconds=0.0, retention_bytes=0)
    with stage.open() as database:
        for key in ("a", "b", "c"):
            epoch = write(database, **{key: LARGE + key.encode()})
            sealed(database)
        first, second, third = sealed(database)
        database.log.purge()
        assert len(resolved(database, epoch)) == 3

        stream = messages(database)
        pointer = Pointer.decode(raw(database, epoch)[b"b"])
        assert pointer.file == second
        database.log.streams.release(stream, [second])
        assert stream.base == first << 32
        database.log.purge()
        assert second not in database.log.manifest.state.files
        database.pointed.forget([second])
        with pytest.raises(Gone, match=f"log file {second} is gone"):
            database.resolve(pointer.encode())
        assert bytes(database.resolve(raw(database, epoch)[b"a"])) == LARGE + b"a"

        database.log.streams.release(stream, [first])
        assert stream.base == third << 32
        database.log.purge()
        assert first not in database.log.manifest.state.files
        assert bytes(database.resolve(raw(database, epoch)[b"c"])) == LARGE + b"c"


def test_a_damaged_block_is_reported_by_file_and_offset_and_the_others_are_served() -> None:
    stage = DatabaseStage()
    with stage.open() as database:
        write(database, a=LARGE)
        epoch = write(database, b=LARGE)
        database.catch_up()  # else the stop meets the damage: it reflects what is not reflected yet
        found = raw(database, epoch)
        pointer = Pointer.decode(found[b"a"])
        record = database.log.manifest.state.files[pointer.file]
        path = join(DIRECTORY, "log", record.name)
        handle = stage.disk.open(path, writable=True)
        handle.write_at(pointer.offset + 200, [b"?"])
        handle.close()
        with pytest.raises(Damage, match=f"at byte {pointer.offset}"):
            database.resolve(found[b"a"])
        assert bytes(database.resolve(found[b"b"])) == LARGE


def test_values_that_stand_in_one_block_are_read_once() -> None:
    with DatabaseStage().open() as database:
        epoch = write(database, **{f"k{n}": LARGE for n in range(20)})
        resolved(database, epoch)
        assert database.pointed.reads == 1


def test_a_pointer_to_nothing_is_damage() -> None:
    with DatabaseStage().open() as database:
        epoch = write(database, a=LARGE)
        pointer = Pointer.decode(raw(database, epoch)[b"a"])
        for wrong in (
            pointer._replace(entry=9),
            pointer._replace(size_bytes=3),
            pointer._replace(block_bytes=1 << 30),
        ):
            database.pointed.forget([pointer.file])
            with pytest.raises(Damage):
                database.resolve(wrong.encode())
        with pytest.raises(Damage, match="no pointer"):
            database.resolve(b"\xffshort")


def test_a_value_that_resembles_a_pointer_is_refused() -> None:
    with DatabaseStage().open() as database:
        session = messages(database).begin()
        with pytest.raises(Misuse, match="cannot begin with ff"):
            session.put(STORAGE, b"a", b"\xff")
        session.abort()


def test_a_stream_is_referred_to_or_not_for_good() -> None:
    with DatabaseStage().open() as database:
        messages(database)
        with pytest.raises(Refused, match="referred to"):
            database.log.stream("messages")
        database.log.stream("bodies")
        with pytest.raises(Refused, match="records only"):
            database.log.stream("bodies", is_referring=True)


def test_blocks_of_other_streams_are_hopped_over_without_being_read() -> None:
    """A damaged body is an error of its reader only: reflection continues."""
    stage = DatabaseStage()
    with stage.open() as database:
        bodies = database.log.stream("bodies")
        with bodies.begin() as session:
            session.record(LARGE)
        assert session.first_lsn is not None
        number = FileNumber(session.first_lsn >> 32)
        record = database.log.manifest.state.files[number]
        handle = stage.disk.open(join(DIRECTORY, "log", record.name), writable=True)
        handle.write_at((session.first_lsn & 0xFFFFFFFF) + 200, [b"?"])
        handle.close()
        epoch = write(database, a=LARGE)
        assert resolved(database, epoch) == {b"a": LARGE}
        assert database.alarms() == []
