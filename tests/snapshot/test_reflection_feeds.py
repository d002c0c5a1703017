"""How the feeds differ: which thread adds to the buffer, when, and whether a file is read for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.snapshot.database_stage import DatabaseStage, put
from tests.snapshot.test_database import until
from warren.base.ids import Epoch
from warren.log.read.tail import LogTail, TailBlock
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Epoch]:
    """Up to which epochs the log's files were read."""
    seen: list[Epoch] = []
    read = LogTail.read

    def noted(self: LogTail, up_to: Epoch) -> Iterator[TailBlock]:
        seen.append(up_to)
        return read(self, up_to)

    monkeypatch.setattr(LogTail, "read", noted)
    return seen


def written(mode: Mode, paused: bool) -> Database:
    """Three epochs, without any request."""
    database = DatabaseStage(mode, buffer_bytes=1 << 20).open()
    assert database.reflection is not None
    if paused:
        database.reflection.pause()
    for number in range(3):
        put(database, {b"%d" % number: b"value", b"again": b"%d" % number})
    return database


def check_arrives(database: Database) -> None:
    """Without a request: what is durable is in the store, and nothing is left in the buffer."""
    until(lambda: database.store.applied.epoch == database.log.durable)
    assert [row.key for row in database.view().range(1)] == [b"0", b"1", b"2", b"again"]
    assert database._buffer.entries == 0
    database.abandon()


def test_rf_09_a_commit_rings_and_the_files_are_read(reads: list[Epoch]) -> None:
    """RF-09: only the wake-up is passed on; the puller reads what was appended."""
    database = written(Mode.NOTIFY, paused=True)
    assert database._buffer.entries == 0
    assert database.reflection is not None
    database.reflection.resume()
    check_arrives(database)
    assert reads
    check_arrives(written(Mode.NOTIFY, paused=False))


def test_rf_13_rf_15_a_serial_push_has_added_from_memory_when_the_commit_returns(reads: list[Epoch]) -> None:
    database = written(Mode.PUSH, paused=True)
    assert database._buffer.entries == 6, "the push added before the commit returned"
    assert database.reflection is not None
    database.reflection.resume()
    check_arrives(database)
    check_arrives(written(Mode.PUSH, paused=False))
    assert reads == [], "no file was read for it"


def test_rf_13_rf_16_a_threaded_push_leaves_a_copy_and_the_thread_adds_it(reads: list[Epoch]) -> None:
    database = written(Mode.PUSH_THREADED, paused=True)
    assert database._buffer.entries == 0, "the commit does not add"
    assert database.reflection is not None
    database.reflection.resume()
    check_arrives(database)
    check_arrives(written(Mode.PUSH_THREADED, paused=False))
    assert reads == [], "no file was read for it"


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.PUSH_THREADED])
def test_more_than_there_is_room_for_is_not_pushed_but_pulled_and_then_pushed_again(
    mode: Mode, reads: list[Epoch]
) -> None:
    """RF-13: a writer who is faster than the store fills neither buffer nor queue; all of it comes from the files."""
    database = DatabaseStage(mode, buffer_bytes=1 << 20, bulk_bytes=2000).open()
    reflection = database.reflection
    assert reflection is not None
    reflection.pause()
    for number in range(40):
        put(database, {b"%02d" % number: b"x" * 200})
    assert database._buffer.entries < 10
    reflection.resume()
    until(lambda: database.store.applied.epoch == database.log.durable)
    assert len(list(database.view().range(1))) == 40
    while len(reads) > 0:  # until the pull has come to the newest, and pushes are relied upon again
        reads.clear()
        put(database, {b"later": b"value"})
        database.catch_up()
    assert database.view().get(1, b"later") is not None
    database.abandon()
