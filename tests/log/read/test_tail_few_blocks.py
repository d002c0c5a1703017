"""Small blocks combined give the same entries as block by block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.snapshot.database_stage import DatabaseStage
from warren.base.ids import Epoch
from warren.log.pointers import is_pointer
from warren.log.read import tail as few_blocks
from warren.log.read.tail import LogTail
from warren.records.columns import EntryColumns
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode

Entry = tuple[int, int, int, int, int, bytes, bytes]


@pytest.fixture
def database() -> Iterator[Database]:
    """Many small sessions, of key-values and of a stream that is referred to; one large one between them."""
    database = DatabaseStage(Mode.OFF).open()
    stream = database.log.stream("messages", is_referring=True)
    for number in range(60):
        session = stream.begin()
        session.put(7, b"run %d" % number, b"m" * (number * 37 % 900))
        session.record(b"history of %d" % number)
        session.remove(7, b"run %d" % (number - 3))
        session.end()
        plain = database.begin()
        for row in range(200 if number == 30 else number % 5 + 1):
            plain.put(1, b"key %d %d" % (number, row), b"value")
        database.log.wait(plain.end())
    yield database
    database.abandon()


def entries(database: Database) -> tuple[list[Entry], int]:
    """All of them, and in how many pieces they came."""
    log = database.log
    reader = LogTail(log.environment.files, log.directory, lambda: log.manifest.state, Epoch(0))
    blocks = list(reader.read(log.durable))
    return [entry for block in blocks for entry in spread(block.columns)], len(blocks)


def spread(columns: EntryColumns) -> Iterator[Entry]:
    epochs = columns.epochs
    assert epochs is not None
    for row in range(columns.count):
        numbers = [each.at(row) for each in (columns.kinds, columns.storages, columns.majors, columns.minors, epochs)]
        kind, storage, major, minor, epoch = numbers
        yield kind, storage, major, minor, epoch, bytes(columns.keys.at(row)), bytes(columns.values.at(row))


def test_joined_blocks_have_the_same_entries_in_fewer_pieces(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, pieces = entries(database)
    monkeypatch.setattr(few_blocks, "ENTRIES_MAX", 0)
    alone, many = entries(database)
    assert sorted(joined) == sorted(alone)
    assert pieces * 4 < many
    assert any(is_pointer(value) for *_, value in joined) and not any(b"history" in value for *_, value in joined)


def test_a_full_batch_is_passed_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    few, pieces = entries(database)
    monkeypatch.setattr(few_blocks, "ROWS_MAX", 10)
    many, more = entries(database)
    assert more > pieces and sorted(many) == sorted(few)
