"""Sessions: what goes in comes out whole, in its epoch, with versions, numbers and links; or it never was."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.stage import (
    QUIET,
    STORAGE,
    Row,
    headers_of,
    log_records,
    opened,
    put,
    quiet,
    rows_of,
    state_of,
    stepped,
)
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Misuse, Refused
from warren.base.ids import UINT64_MAX, Epoch, Lsn, StorageId, file_of_lsn, lsn_of
from warren.files.environment import Environment
from warren.log.session import SMALL_BYTES_MAX, SMALL_ROWS_MAX, Session
from warren.log.settings import EntryKind
from warren.log.store import LogStore
from warren.records.columns import NumberColumn, Texts
from warren.records.format import BLOCK_ROWS_MAX, ENTRY_BYTES_MAX
from warren.testing.memory_files import MemoryFiles

OTHER = StorageId(8)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def store(files: MemoryFiles) -> Iterator[LogStore]:
    with opened(files) as store:
        yield store


def plain(rows: list[Row]) -> list[tuple[int, int, bytes, bytes]]:
    return [(row.kind, row.storage, row.key, row.value) for row in rows]


def test_every_kind_of_entry_is_written_in_the_order_it_was_added(store: LogStore, files: MemoryFiles) -> None:
    with store.begin() as session:
        session.add_storage(STORAGE)
        session.put(STORAGE, b"a", b"1")
        session.remove(STORAGE, b"b")
        session.clear_storage(OTHER)
        session.remove_storage(OTHER)
        session.put_many(STORAGE, [b"c", b"d"], [b"3", b"4"])
        session.remove_many(STORAGE, [b"e"])
        session.put(StorageId(UINT64_MAX), b"", b"")
    assert plain(rows_of(files)) == [
        (EntryKind.ADD_STORAGE, 7, b"", b""),
        (EntryKind.PUT, 7, b"a", b"1"),
        (EntryKind.REMOVE, 7, b"b", b""),
        (EntryKind.CLEAR_STORAGE, 8, b"", b""),
        (EntryKind.REMOVE_STORAGE, 8, b"", b""),
        (EntryKind.PUT, 7, b"c", b"3"),
        (EntryKind.PUT, 7, b"d", b"4"),
        (EntryKind.REMOVE, 7, b"e", b""),
        (EntryKind.PUT, UINT64_MAX, b"", b""),
    ]


def test_a_session_is_durable_when_commit_returns_and_there_after_reopening(files: MemoryFiles) -> None:
    with opened(files) as store:
        epoch = put(store, b"key", b"value")
        assert store.durable >= epoch
    with opened(files, 2) as store:
        assert store.durable == epoch
        assert store.snapshot().get(STORAGE, b"key") == b"value"


def test_nothing_of_a_session_is_written_before_its_end(store: LogStore, files: MemoryFiles) -> None:
    session = store.begin()
    session.put(STORAGE, b"early", b"1")
    session.put_many(STORAGE, [b"many"] * 3, [bytes(100_000)] * 3)
    put(store, b"other")
    assert [row.key for row in rows_of(files)] == [b"other"]
    session.commit()
    assert [row.key for row in rows_of(files)] == [b"other", b"early", b"many", b"many", b"many"]


def test_a_session_is_written_whole_into_the_epoch_of_its_end(store: LogStore, files: MemoryFiles) -> None:
    """C-39: it belongs to the epoch in which it ends, whatever became durable since it began."""
    session = store.begin()
    session.put(STORAGE, b"begun", b"")
    for number in range(3):
        put(store, b"%d" % number)
    session.put_many(STORAGE, [b"many"] * 5000, [bytes(1000)] * 5000)
    epoch = session.commit()
    epochs = {row.epoch for row in rows_of(files) if row.key in (b"begun", b"many")}
    assert epochs == {epoch} == {4}


def test_an_aborted_session_never_was(store: LogStore, files: MemoryFiles) -> None:
    session = store.begin()
    session.put(STORAGE, b"never", b"")
    session.abort()
    put(store, b"ever")
    with pytest.raises(Misuse, match="has ended"):
        session.end()
    assert [row.key for row in rows_of(files)] == [b"ever"]


def test_a_session_is_aborted_by_an_error_that_passes_by(store: LogStore, files: MemoryFiles) -> None:
    def fail() -> None:
        with store.begin() as session:
            session.put(STORAGE, b"never", b"")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert rows_of(files) == []
    assert not store.writer.open_sessions


def test_an_empty_session_is_as_durable_as_what_is_durable(store: LogStore, files: MemoryFiles) -> None:
    assert store.begin().commit() == 0
    epoch = put(store, b"key")
    with store.begin() as session:
        pass
    assert session.epoch == epoch
    assert store.commit.epochs_committed == 1, "no epoch was used up for it"


@pytest.mark.parametrize(
    "act",
    [
        lambda session: session.put(STORAGE, b"", b""),
        lambda session: session.remove(STORAGE, b""),
        lambda session: session.record(b""),
        lambda session: session.put_many(STORAGE, [b""], [b""]),
        lambda session: session.end(),
        lambda session: session.abort(),
    ],
)
def test_an_ended_session_takes_nothing(store: LogStore, act: Callable[[Session], None]) -> None:
    session = store.begin()
    session.end()
    with pytest.raises(Misuse, match="has ended") as misuse:
        act(session)
    assert "begin another" in misuse.value.hint


# -- versions --------------------------------------------------------------------------------------------------------


def test_entries_without_a_version_are_numbered_within_their_epoch(store: LogStore, files: MemoryFiles) -> None:
    first, second, third = store.begin(), store.begin(), store.begin()
    first.put(STORAGE, b"a", b"")
    second.put_many(STORAGE, [b"b", b"c"], [b"", b""])
    third.put(STORAGE, b"d", b"")
    for session in (third, second, first):
        epoch = session.end()
    store.wait(epoch)
    assert {row.key: row.version for row in rows_of(files)} == {b"d": (1, 0), b"b": (1, 1), b"c": (1, 2), b"a": (1, 3)}
    put(store, b"next")
    assert rows_of(files)[-1].version == (2, 0)


def test_versions_that_were_given_are_kept_beside_those_that_were_not(store: LogStore, files: MemoryFiles) -> None:
    keys = [b"list 1", b"list 2"]
    with store.begin() as session:
        session.put(STORAGE, b"plain", b"")
        session.put(STORAGE, b"given", b"", (9, UINT64_MAX))
        session.put_many(STORAGE, keys, [b"", b""], [(5, 6), (UINT64_MAX, 0)])
        session.remove(STORAGE, b"plain again")
        majors, minors = NumberColumn.sequence(2, 3), NumberColumn.of_array(np.array([8, 1 << 63], dtype=np.uint64))
        session.put_columns(STORAGE, Texts.of_list([b"col 1", b"col 2"]), Texts.empty(2), majors, minors)
    assert [(row.key, row.version) for row in rows_of(files)] == [
        (b"plain", (1, 0)),
        (b"given", (9, UINT64_MAX)),
        (b"list 1", (5, 6)),
        (b"list 2", (UINT64_MAX, 0)),
        (b"plain again", (1, 4)),
        (b"col 1", (3, 8)),
        (b"col 2", (4, 1 << 63)),
    ]


@pytest.mark.parametrize("version", [(-1, 0), (0, -1), (1 << 64, 0), (0, 1 << 64)])
def test_a_version_beyond_64_bits_is_refused_at_once(store: LogStore, version: tuple[int, int]) -> None:
    session = store.begin()
    with pytest.raises(Misuse, match="64 bits"):
        session.put(STORAGE, b"key", b"", version)
    session.put(STORAGE, b"continues", b"")
    session.commit()


@pytest.mark.parametrize("storage", [-1, 1 << 64])
def test_a_storage_beyond_64_bits_is_refused_at_once(store: LogStore, storage: int) -> None:
    session = store.begin()
    with pytest.raises(Misuse, match="64 bits"):
        session.put(StorageId(storage), b"key", b"")
    with pytest.raises(Misuse, match="64 bits"):
        session.put_many(StorageId(storage), [b"key"], [b""])
    session.commit()


@pytest.mark.parametrize("link", [-1, 1 << 64])
def test_a_link_beyond_64_bits_is_refused_at_once(store: LogStore, link: int) -> None:
    with store.begin() as session:
        with pytest.raises(Misuse, match="64 bits"):
            session.record(b"", undo_prev=Lsn(link))
        with pytest.raises(Misuse, match="64 bits"):
            session.record(b"", undo_next=Lsn(link))


@pytest.mark.parametrize("wrong", ["text", None, 7, bytearray(b"may change"), memoryview(b"too")])
def test_what_is_not_bytes_is_refused_before_it_spoils_a_block_that_others_share(
    store: LogStore, files: MemoryFiles, wrong: Any
) -> None:
    """The block is encoded when its epoch closes, and holds the entries of other sessions too."""
    with store.begin() as session:
        session.put(STORAGE, b"good", b"")
        for refused in (
            partial(session.put, STORAGE, wrong, b""),
            partial(session.put, STORAGE, b"", wrong),
            partial(session.remove, STORAGE, wrong),
            partial(session.record, wrong),
        ):
            with pytest.raises(Misuse, match="are bytes") as misuse:
                refused()
            assert "encode" in misuse.value.hint
    assert [row.key for row in rows_of(files)] == [b"good"]


def test_lists_of_what_is_not_bytes_are_refused(store: LogStore) -> None:
    wrong: Any = ["text"]
    with store.begin() as session, pytest.raises(Misuse, match="are bytes"):
        session.put_many(STORAGE, wrong, [b""])
    with store.begin() as session, pytest.raises(Misuse, match="are bytes"):
        session.remove_many(STORAGE, wrong)


# -- limits ----------------------------------------------------------------------------------------------------------


def test_an_entry_of_the_limit_is_taken_and_one_above_it_is_refused(store: LogStore, files: MemoryFiles) -> None:
    """LC-01: an entry is at most 1 MiB; above it the error says so, and the session continues without it."""
    session = store.begin()
    session.put(STORAGE, b"k" * 24, bytes(ENTRY_BYTES_MAX - 24))
    session.put_many(STORAGE, [b"k" * 24] * 2, [bytes(ENTRY_BYTES_MAX - 24)] * 2)
    for refused in (
        partial(session.put, STORAGE, b"k" * 25, bytes(ENTRY_BYTES_MAX - 24)),
        partial(session.record, bytes(ENTRY_BYTES_MAX + 1)),
        partial(session.put_many, STORAGE, [b"a", b"k" * 25], [b"", bytes(ENTRY_BYTES_MAX - 24)]),
    ):
        with pytest.raises(Misuse, match=f"{ENTRY_BYTES_MAX + 1} bytes is over the limit") as misuse:
            refused()
        assert "chunks" in misuse.value.hint
    session.commit()
    assert [len(row.key) + len(row.value) for row in rows_of(files)] == [ENTRY_BYTES_MAX] * 3


def test_a_session_over_its_limit_refuses_the_entry_and_can_be_ended_with_what_it_has(files: MemoryFiles) -> None:
    with opened(files, settings=quiet(session_bytes_max=1000)) as store:
        session = store.begin()
        session.put(STORAGE, b"a", bytes(900))
        with pytest.raises(Misuse, match="more than 1000 bytes") as misuse:
            session.put(STORAGE, b"b", bytes(100))
        assert "session_bytes_max" in misuse.value.hint
        with pytest.raises(Misuse, match="more than 1000 bytes"):
            session.put_many(STORAGE, [b"c"], [bytes(100)])
        session.put(STORAGE, b"d", bytes(98))
        session.commit()
        assert [row.key for row in rows_of(files)] == [b"a", b"d"]


def test_lists_that_differ_in_length_are_refused(store: LogStore) -> None:
    session = store.begin()
    with pytest.raises(Misuse, match="lists differ"):
        session.put_many(STORAGE, [b"a", b"b"], [b"1"])
    with pytest.raises(Misuse, match="lists differ"):
        session.put_many(STORAGE, [b"a"], [b"1"], [(1, 1), (2, 2)])
    with pytest.raises(Misuse, match="columns differ"):
        session.put_columns(STORAGE, Texts.of_list([b"a"]), Texts.empty(2))
    with pytest.raises(Misuse, match="two parts"):
        session.put_columns(STORAGE, Texts.of_list([b"a"]), Texts.empty(1), majors=NumberColumn(1, 1))
    session.abort()


def numbers(*values: int) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


@pytest.mark.parametrize(
    "offsets", [numbers(0, 2, 9), numbers(0, 3, 1), NumberColumn.sequence(3, 0, 5), NumberColumn.sequence(3, 4, -1)]
)
def test_columns_whose_offsets_lie_are_refused_before_they_spoil_a_block(
    store: LogStore, offsets: NumberColumn
) -> None:
    """Written, they would pass every checksum, and the block could not be read again."""
    session = store.begin()
    lying = Texts(np.zeros(4, dtype=np.uint8), offsets)
    for keys, values in ((lying, Texts.empty(2)), (Texts.empty(2), lying)):
        with pytest.raises(Misuse, match="offsets"):
            session.put_columns(STORAGE, keys, values)
    session.abort()


def test_a_million_of_the_smallest_entries_with_the_widest_versions_can_be_read_again(files: MemoryFiles) -> None:
    count = 4 * BLOCK_ROWS_MAX
    wide = numbers(*(np.random.default_rng(1).integers(0, 1 << 63, count, dtype=np.uint64).tolist()))
    with opened(files, settings=quiet(block_bytes=1 << 30)) as store, store.begin() as session:
        session.put_columns(STORAGE, Texts.of_list([b"k"] * count), Texts.empty(count), wide, wide)
    with opened(files, 2) as store:
        assert sum(record.entries for record in log_records(files)) == count


def test_there_is_no_session_on_a_channel_that_is_not_there(store: LogStore) -> None:
    for channel in (-1, 1):
        with pytest.raises(Refused, match=f"no channel {channel}"):
            store.begin(channel)


def test_a_session_that_could_not_be_ended_holds_up_no_rotation(store: LogStore) -> None:
    session = store.begin()
    session.put(STORAGE, b"key", b"", (1, 1))
    session._versions = [(-1, -1)]  # what no caller can do, to make the end fail
    with pytest.raises(struct.error):
        session.end()
    assert not store.writer.open_sessions
    assert store.rotate().is_complete


# -- many ways, one result -------------------------------------------------------------------------------------------

items = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60)), max_size=30)


def one_by_one(session: Session, pairs: list[tuple[bytes, bytes]]) -> None:
    for key, value in pairs:
        session.put(STORAGE, key, value)


def by_lists(session: Session, pairs: list[tuple[bytes, bytes]]) -> None:
    session.put_many(STORAGE, [key for key, _ in pairs], [value for _, value in pairs])


def by_columns(session: Session, pairs: list[tuple[bytes, bytes]]) -> None:
    session.put_columns(STORAGE, Texts.of_list([key for key, _ in pairs]), Texts.of_list([value for _, value in pairs]))


@settings(deadline=None, max_examples=30)
@given(items)
def test_entries_lists_and_columns_make_the_same_entries(pairs: list[tuple[bytes, bytes]]) -> None:
    found = []
    for way in (one_by_one, by_lists, by_columns):
        files = MemoryFiles()
        with opened(files) as store, store.begin() as session:
            way(session, pairs)
        found.append([(row.kind, row.storage, row.key, row.value, row.version, row.epoch) for row in rows_of(files)])
    assert found[0] == found[1] == found[2]
    assert [(row[2], row[3]) for row in found[0]] == pairs


@pytest.mark.parametrize(
    ("count", "size"), [(SMALL_ROWS_MAX, 1), (SMALL_ROWS_MAX + 1, 1), (2, SMALL_BYTES_MAX // 2), (9, SMALL_BYTES_MAX)]
)
def test_small_and_large_sessions_are_equally_whole(files: MemoryFiles, count: int, size: int) -> None:
    keys = [b"%08d" % number for number in range(count)]
    with opened(files) as store:
        for _ in range(3):
            with store.begin() as session:
                for key in keys:
                    session.put(STORAGE, key, bytes(size))
        rows = rows_of(files)
        assert [row.key for row in rows] == keys * 3
        assert [row.version for row in rows] == [(epoch, n) for epoch in (1, 2, 3) for n in range(count)]


def test_a_later_session_wins_over_an_earlier_one_of_the_same_epoch(store: LogStore, files: MemoryFiles) -> None:
    first, second = store.begin(), store.begin()
    second.put(STORAGE, b"key", b"second began, ended first")
    first.put(STORAGE, b"key", b"ended last")
    second.end()
    store.wait(first.end())
    assert state_of(rows_of(files)) == {(STORAGE, b"key"): b"ended last"}
    assert store.refresh().get(STORAGE, b"key") == b"ended last"


# -- log sequence numbers --------------------------------------------------------------------------------------------


def test_log_sequence_numbers_always_increase_and_fit_64_bits(files: MemoryFiles) -> None:
    """CL-05: in every stream of records and every channel, across sizes, epochs, rotations and restarts."""
    firsts: list[Lsn] = []
    for run in range(3):
        with opened(files, run) as store:
            for number in range(12):
                session = store.begin()
                if number % 3 == 0:
                    session.put_many(STORAGE, [b"%d" % i for i in range(2000)], [b"v"] * 2000)
                else:
                    for _ in range(number):
                        session.put(STORAGE, b"key", b"")
                session.end()
                assert session.first_lsn is not None
                firsts.append(session.first_lsn)
                if number % 4 == 0:
                    store.flush()
                if number % 5 == 4:
                    store.rotate()
    assert all(a < b for a, b in pairwise(firsts))
    lsns = [row.lsn for row in rows_of(files)]
    assert all(a < b for a, b in pairwise(lsns)), "no two entries have the same, and later ones have greater ones"
    assert set(firsts) <= set(lsns), "what `end` said is where the entry stands"
    assert max(lsns) < 1 << 64
    assert len({file_of_lsn(lsn) for lsn in lsns}) > 3


def test_a_session_knows_the_block_and_the_place_in_it_of_each_of_its_entries(files: MemoryFiles) -> None:
    """Small sessions share a block, a large one has several: a reader of one entry must find its block."""
    sizes = [1, 3, 2, 3000]
    with opened(files, settings=quiet(block_bytes=40_000)) as store:
        sessions = [store.begin() for _ in sizes]
        for number, (session, size) in enumerate(zip(sessions, sizes, strict=True)):
            for index in range(size):
                session.put(STORAGE, b"%d/%d" % (number, index), bytes(60))
            session.end()
    assert [len(session.placed) for session in sessions[:3]] == [1, 1, 1]
    assert [session.placed[0].entry for session in sessions[:3]] == [0, 1, 4], "one block for the small ones"
    assert len(sessions[3].placed) > 4, "a block of 40,000 bytes each for the large one"
    rows = {row.key: row.lsn for row in rows_of(files)}
    blocks = {lsn_of(r.number, header.offset) for r in log_records(files) for header in headers_of(files, r)}
    for number, (session, size) in enumerate(zip(sessions, sizes, strict=True)):
        lsns = [placed.lsn + index for placed in session.placed for index in range(placed.entries)]
        assert lsns == [rows[b"%d/%d" % (number, index)] for index in range(size)]
        assert {placed.block for placed in session.placed} <= blocks
        assert session.first_lsn == session.placed[0].lsn


@pytest.mark.parametrize("seed", range(10))
def test_what_end_says_is_where_the_entry_stands_beside_other_writers(seed: int) -> None:
    """CL-05 with sessions that end at the same time: each number is given out once, and leads to its entry."""
    files = MemoryFiles()

    def body(threads: SteppedThreads, environment: Environment) -> dict[bytes, Lsn]:
        store = LogStore.open("/data/log", QUIET, environment)
        reported: dict[bytes, Lsn] = {}

        def write(name: int) -> None:
            for number in range(4):
                session = store.begin()
                key = b"%d/%d" % (name, number)
                session.put(STORAGE, key, b"")
                if number % 2:
                    session.put_many(STORAGE, [b"more"], [b""])
                epoch = session.end()
                assert session.first_lsn is not None
                reported[key] = session.first_lsn
                if name % 2:
                    store.wait(epoch)

        running = [threads.start(f"writer {name}", partial(write, name)) for name in range(4)]
        for writer in running:
            writer.join()
        store.close()
        return reported

    reported = stepped(seed, body, files)
    places = {row.key: row.lsn for row in rows_of(files) if row.key != b"more"}
    assert places == reported
    assert len(places) == 16


def test_the_log_itself_keeps_the_forward_order_of_a_stream(store: LogStore, files: MemoryFiles) -> None:
    """CL-09: the next chain. Records of two streams that share a channel are each read back in the order they ended."""
    audit, story = store.stream("audit", channel=0), store.stream("story", channel=0)
    for number in range(30):
        stream = audit if number % 3 else story
        with stream.begin() as session:
            session.record(b"%d" % number)
            session.record(b"%d again" % number)
        if number % 7 == 6:
            store.rotate()
    for stream, wanted in ((audit, [n for n in range(30) if n % 3]), (story, range(0, 30, 3))):
        found = [value for _, entries in stream.read() for value in entries.values.to_list()]
        assert found == [text for n in wanted for text in (b"%d" % n, b"%d again" % n)]
    lsns = [lsn + i for lsn, entries in audit.read() for i in range(entries.count)]
    assert all(a < b for a, b in pairwise(lsns))
    middle = Lsn(lsns[17])
    assert sum(entries.count for _, entries in audit.read(middle)) == len(lsns) - 17


def test_undo_links_lead_back_to_earlier_records_also_after_rotation_and_restart(files: MemoryFiles) -> None:
    """CL-10: undo-prev and undo-next are kept as they were given, and the places they name do not move."""
    with opened(files) as store:
        chain = store.stream("chain")
        last = Lsn(0)
        for number in range(6):
            with chain.begin() as session:
                session.record(b"%d" % number, undo_prev=last, undo_next=Lsn(UINT64_MAX - number))
            assert session.first_lsn is not None
            last = session.first_lsn
            if number == 2:
                store.rotate()
    with opened(files, 2) as store:
        by_lsn = {row.lsn: row for row in rows_of(files)}
        reported = []
        while last:
            reported.append(by_lsn[last].value)
            assert by_lsn[last].undo[1] == UINT64_MAX - (6 - len(reported))
            last = Lsn(by_lsn[last].undo[0])
        assert reported == [b"5", b"4", b"3", b"2", b"1", b"0"]
        read = [entries.undo_prev.array().tolist() for _, entries in store.stream("chain").read()]
        assert [lsn for lsns in read for lsn in lsns] == [0, *sorted(by_lsn)[:-1]]


def test_each_session_of_a_hundred_that_share_a_block_knows_its_own_epoch_and_place(store: LogStore) -> None:
    sessions = [store.begin() for _ in range(100)]
    for session in sessions:
        session.put(STORAGE, b"one", b"")
        session.put(STORAGE, b"two", b"")
    epochs = {session.end() for session in sessions}
    lsns = [session.first_lsn or 0 for session in sessions]
    assert epochs == {Epoch(1)}
    assert [b - a for a, b in pairwise(lsns)] == [2] * 99
