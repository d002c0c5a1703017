"""Streams: independent sequences of records, each with a base that moves up, and a log that does not grow behind it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import DIRECTORY, QUIET, Stage, of_storage, put, rows, sealed
from tools.simulator.corruption import flip_bit
from warren.base.errors import Damage, Gone, Misuse, Refused
from warren.base.ids import Lsn, file_of_lsn
from warren.files.protocol import join
from warren.log.manifest import read_manifest
from warren.log.retention import FileLifecycle, lifecycle_states
from warren.log.store import LogStore
from warren.log.streams import STREAMS_MAX, Stream
from warren.testing.memory_files import ALL, SYNCED, CrashModel


def record(stream: Stream, *values: bytes) -> list[Lsn]:
    """One durable session; the LSN of each record."""
    session = stream.begin()
    for value in values:
        session.record(value)
    session.commit()
    assert session.first_lsn is not None
    return [Lsn(session.first_lsn + index) for index in range(len(values))]


def contents(stream: Stream, start: Lsn = Lsn(0)) -> list[tuple[Lsn, bytes]]:
    return [
        (Lsn(first + index), value)
        for first, block in stream.read(start)
        for index, value in enumerate(block.values.to_list())
    ]


def values(stream: Stream, start: Lsn = Lsn(0)) -> list[bytes]:
    return [value for _, value in contents(stream, start)]


def log_bytes(store: LogStore) -> int:
    """Bytes of the log that must not be removed now."""
    state, now = store.manifest.state, store.environment.clock.wall_ns()
    found = lifecycle_states(state, [], now, 0.0, 0)
    return sum(record.end for record in state.files.values() if found[record.number] is FileLifecycle.NEEDED)


# -- streams and channels --------------------------------------------------------------------------------------------


def test_a_stream_is_dedicated_or_shares_a_channel_with_others_and_is_independent_either_way() -> None:
    """CL-01: the records of one are never among those of another, and each keeps its own order."""
    stage = Stage()
    with stage.store() as store:
        own = store.stream("own")
        shared = [store.stream(name, channel=0) for name in ("first", "second")]
        assert own.record.channel not in {stream.record.channel for stream in shared}
        assert {stream.record.channel for stream in shared} == {0}
        for number in range(5):
            for stream in (own, *shared):
                record(stream, stream.record.name.encode() + b" %d" % number)
            put(store, {b"key": b"%d" % number})
            store.rotate()
        for stream in (own, *shared):
            assert values(stream) == [stream.record.name.encode() + b" %d" % number for number in range(5)]
        assert {record.channel for record in sealed(store) if dict(record.stream_ends).keys() == {own.id}} == {
            own.record.channel
        }
        assert rows(store.refresh()) == of_storage({b"key": b"4"})


def test_a_log_has_a_hundred_streams_and_not_one_more() -> None:
    """CL-04: dedicated ones, each with files of its own; the key-values are the first of the hundred."""
    stage = Stage()
    with stage.store() as store:
        streams = [store.stream(f"stream {number}") for number in range(1, STREAMS_MAX)]
        assert len(store.streams.names()) == STREAMS_MAX == 100
        with pytest.raises(Refused, match="the log has 100 streams") as caught:
            store.stream("one too many")
        assert caught.value.hint
        session_epochs = []
        for stream in streams:
            session = stream.begin()
            session.record(stream.record.name.encode())
            session_epochs.append(session.end())
        store.wait(max(session_epochs))
        assert store.stream("stream 7").id == streams[6].id, "a known name is no new stream"
    with stage.store() as store:
        assert len(store.channels) == 100
        assert [values(store.stream(f"stream {number}")) for number in (1, 50, 99)] == [
            [b"stream 1"], [b"stream 50"], [b"stream 99"]
        ]  # fmt: skip


def test_stream_names_are_recorded_by_the_application_in_the_manifest() -> None:
    """CL-11: a stream that has written nothing cannot be found by any scan of the log, and is there after a restart."""
    stage = Stage()
    with stage.store() as store:
        first, second = store.stream("messages"), store.stream("transactions", channel=0)
        assert store.streams.names() == ["kv", "messages", "transactions"]
        wanted = {first.id: "messages", second.id: "transactions"}
        store.abandon()
    stage.disk = stage.disk.crash(SYNCED, stage.rng)
    reported = read_manifest(stage.disk, DIRECTORY).streams
    assert {identity: stream.name for identity, stream in reported.items() if stream.is_records} == wanted
    with stage.store() as store:
        assert store.streams.names() == ["kv", "messages", "transactions"]
        assert store.stream("messages").record == first_record(reported, "messages")


def first_record(streams: object, name: str) -> object:
    return next(stream for stream in streams.values() if stream.name == name)  # type: ignore[attr-defined]


def test_a_channel_that_does_not_exist_is_refused_and_nothing_is_recorded() -> None:
    with Stage(channel_count=2).store() as store:
        with pytest.raises(Refused, match="there is no channel 2") as caught:
            store.stream("messages", channel=2)
        assert caught.value.hint == "channels are 0 … 1"
        assert store.streams.names() == ["kv"]


def test_the_key_values_are_not_a_stream_of_records() -> None:
    """One record among them would keep every merge, and so the store, from opening."""
    with Stage().store() as store:
        with pytest.raises(Refused, match="stream kv holds the key-values"):
            store.stream("kv")
        with pytest.raises(Refused, match="stream kv holds the key-values"):
            store.stream("kv", channel=0)


def test_a_record_among_the_key_values_is_refused_before_it_is_written() -> None:
    with Stage().store() as store:
        session = store.begin()
        with pytest.raises(Misuse):
            session.record(b"not a key-value")
        session.abort()


def test_a_key_value_among_records_is_refused_before_it_is_written() -> None:
    with Stage().store() as store:
        session = store.stream("messages").begin()
        with pytest.raises(Misuse):
            session.put(1, b"key", b"value")
        session.abort()


def test_streams_made_at_the_same_time_are_different_streams() -> None:
    def body(store: LogStore) -> list[int]:
        found: list[int] = []
        threads = store.environment.threads
        running = [threads.start(name, lambda name=name: found.append(store.stream(name).id)) for name in "abc"]  # type: ignore[misc]
        for one in running:
            one.join()
        assert sorted(store.streams.names()) == ["a", "b", "c", "kv"]
        return found

    for seed in range(20):
        assert len(set(Stage().play(seed, body))) == 3


# -- reading ---------------------------------------------------------------------------------------------------------


def test_lsns_rise_in_the_order_of_writing_and_a_record_is_found_by_its_own() -> None:
    with Stage(rotate_bytes=1000).store() as store:
        stream = store.stream("messages")
        lsns = [lsn for number in range(12) for lsn in record(stream, b"a%d" % number, b"b%d" % number)]
        assert all(earlier < later for earlier, later in pairwise(lsns))
        assert len({file_of_lsn(lsn) for lsn in lsns}) > 1
        found = contents(stream)
        assert [lsn for lsn, _ in found] == lsns
        for index in (0, 1, 7, 22, 23):
            assert contents(stream, lsns[index]) == found[index:]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["one", "two", "shared", "rotate", "reopen", "crash", "compact", "kv"]),
                  st.lists(st.binary(max_size=20), min_size=1, max_size=4)),
        max_size=14,
    ),
)  # fmt: skip
def test_the_records_of_a_stream_survive_whatever_happens_to_its_files(steps: list[tuple[str, list[bytes]]]) -> None:
    """In order, whole, with the LSNs they were given: in a file being written, rotated, reopened, beside others."""
    stage = Stage(rotate_bytes=1200)
    store = stage.open()
    written: dict[str, list[tuple[Lsn, bytes]]] = {"one": [], "two": [], "shared": []}
    for verb, data in steps:
        if verb in written:
            stream = store.stream(verb, channel=0 if verb == "shared" else None)
            written[verb] += zip(record(stream, *data), data, strict=True)
        elif verb == "kv":
            put(store, {b"key": data[0]})
        elif verb in ("reopen", "crash"):
            store.close() if verb == "reopen" else store.abandon()
            stage.disk = stage.disk.crash(SYNCED, stage.rng)
            store = stage.open()
        else:
            getattr(store, verb)()
    for name, records in written.items():
        if records:
            assert contents(store.stream(name)) == records
    store.close()


@pytest.mark.parametrize("seed", range(25))
def test_a_reader_beside_rotations_sees_every_record_that_was_durable_when_it_began(seed: int) -> None:
    """A file is renamed, and its name given to the next one, between the reader's look and its opening."""

    def body(store: LogStore) -> None:
        stream = store.stream("messages")
        threads = store.environment.threads
        written: list[bytes] = []

        def write() -> None:
            for number in range(8):
                record(stream, b"%d" % number)
                written.append(b"%d" % number)
                if number % 2:
                    store.rotate()

        def read() -> None:
            for _ in range(4):
                certain = list(written)
                found = values(stream)
                assert found[: len(certain)] == certain
                assert found == [b"%d" % number for number in range(len(found))]

        for one in [threads.start("writer", write), threads.start("reader", read)]:
            one.join()

    Stage().play(seed, body)


def test_nothing_that_is_not_durable_is_read() -> None:
    with Stage().store() as store:
        stream = store.stream("messages")
        record(stream, b"durable")
        session = stream.begin()
        session.record(b"ended, not durable")
        session.end()
        assert values(stream) == [b"durable"]


def test_damage_in_a_sealed_file_is_reported_and_not_taken_for_the_end_of_the_stream() -> None:
    stage = Stage()
    with stage.store() as store:
        stream = store.stream("messages")
        record(stream, b"first")
        record(stream, b"second")
        store.rotate()
        [sealed_file] = sealed(store)
        path = join(DIRECTORY, sealed_file.name)
        flip_bit(stage.disk, path, 8 * stage.disk.contents(path).rindex(b"second"))
        with pytest.raises(Damage, match="sealed file is damaged") as caught:
            values(stream)
        assert caught.value.path == path
        assert 0 < caught.value.offset < sealed_file.end


# -- the base --------------------------------------------------------------------------------------------------------


def test_the_base_is_the_first_valid_lsn() -> None:
    """CL-06: what lies before it is not read any more; it is kept by the manifest."""
    stage = Stage()
    with stage.store() as store:
        stream = store.stream("messages")
        lsns = record(stream, b"a", b"b", b"c")
        assert stream.base == 0
        stream.move_base(lsns[1])
        assert stream.base == lsns[1]
        assert contents(stream) == [(lsns[1], b"b"), (lsns[2], b"c")]
        assert contents(stream, lsns[0]) == contents(stream), "not even on request"
        store.abandon()
    stage.disk = stage.disk.crash(SYNCED, stage.rng)
    with stage.store() as store:
        stream = store.stream("messages")
        assert stream.base == lsns[1]
        assert values(stream) == [b"b", b"c"]


def test_moving_the_base_frees_the_files_before_it() -> None:
    """TS-02, C-34: a stream in files of its own, with its own base, under the one clock of the log."""
    stage = Stage()
    with stage.store() as store:
        messages, transactions = store.stream("messages"), store.stream("transactions")
        lsns = []
        for number in range(5):
            lsns += record(messages, b"message %d" % number)
            record(transactions, b"transaction %d" % number)
            store.rotate()
        before = log_bytes(store)
        for number in range(1, 5):
            messages.move_base(lsns[number])
            purged = store.purge().files
            assert len(purged) == 1, "one file of one stream, and none of the other"
            assert values(messages) == [b"message %d" % later for later in range(number, 5)]
            assert len(values(transactions)) == 5
        assert log_bytes(store) < before
        messages.move_base(messages.end)
        store.purge()
        assert values(messages) == []
        assert len(values(transactions)) == 5


def test_a_base_inside_a_file_keeps_the_whole_file() -> None:
    """MR-10's ground: only the first valid record counts."""
    with Stage().store() as store:
        stream = store.stream("messages")
        lsns = record(stream, b"a", b"b")
        store.rotate()
        stream.move_base(lsns[1])
        assert store.purge().files == ()
        stream.move_base(Lsn(lsns[1] + 1))
        assert len(store.purge().files) == 1


def test_a_base_never_moves_back_nor_beyond_the_end() -> None:
    with Stage().store() as store:
        stream = store.stream("messages")
        lsns = record(stream, b"a", b"b")
        stream.move_base(lsns[1])
        with pytest.raises(Misuse, match="cannot move back"):
            stream.move_base(lsns[0])
        with pytest.raises(Misuse, match="cannot move on"):
            stream.move_base(Lsn(1 << 60))
        with pytest.raises(Misuse, match="cannot move on"):
            stream.move_base(Lsn(stream.end + 1))
        stream.move_base(stream.end)
        store.rotate()
        [lsn] = record(stream, b"c")
        assert lsn >= stream.base
        store.rotate()
        store.purge()
        assert values(stream) == [b"c"]


def test_a_stream_may_end_in_a_block_that_is_still_open() -> None:
    """Small sessions share a block which has a place and no size yet."""
    with Stage().store() as store:
        stream = store.stream("messages")
        first = stream.begin()
        first.record(b"a")
        first.record(b"b")
        first.end()
        assert first.first_lsn is not None and stream.end == first.first_lsn + 2
        stream.move_base(stream.end)
        second = stream.begin()
        second.record(b"c")
        second.commit()
        assert second.first_lsn is not None and second.first_lsn >= stream.base
        assert values(stream) == [b"c"]


def test_a_reader_behind_a_base_that_moved_gets_an_error_and_never_a_gap() -> None:
    with Stage().store() as store:
        stream = store.stream("messages")
        for number in range(3):
            record(stream, b"%d" % number)
            store.rotate()
        slow = stream.read()
        assert next(slow)[1].values.to_list() == [b"0"]
        stream.move_base(stream.end)
        store.purge()
        with pytest.raises(Gone, match="is gone, the base is"):
            next(slow)


@pytest.mark.parametrize("model", [ALL, SYNCED])
def test_a_base_that_was_moved_is_durable_before_anything_goes(model: CrashModel) -> None:
    """TS-02: the power may go as soon as move_base has returned."""
    stage = Stage()
    store = stage.open()
    stream = store.stream("messages")
    record(stream, b"a")
    store.rotate()
    [lsn] = record(stream, b"b")
    stream.move_base(lsn)
    store.abandon()
    after = stage.crashed(model)
    with after.store() as store:
        assert store.stream("messages").base == lsn
        store.purge()
        assert values(store.stream("messages")) == [b"b"]


# -- growth ----------------------------------------------------------------------------------------------------------


ROUND_BYTES = 20_000


def growth(store: LogStore, moving: Stream, resting: Stream) -> list[int]:
    """How much of the log is needed after each of many rounds, in which one stream moves its base and one does not."""
    needed = []
    for _ in range(15):
        [*_, last] = record(moving, *(bytes(1000) for _ in range(ROUND_BYTES // 1000)))
        record(resting, b"x")
        store.rotate()
        moving.move_base(last)
        store.purge()
        needed.append(log_bytes(store))
    return needed


def test_a_stream_that_rests_makes_a_shared_channel_grow_and_not_one_of_its_own() -> None:
    """CL-08: in a multiplexed log the one that does not move its tail blocks reclaim; the layout does not mix them."""
    with Stage().store() as store:
        mixed = growth(store, store.stream("moving", channel=0), store.stream("resting", channel=0))
    with Stage().store() as store:
        dedicated = growth(store, store.stream("moving"), store.stream("resting"))
    assert mixed[-1] > 15 * ROUND_BYTES, "every round is kept for the sake of one byte"
    assert dedicated[-1] < 2 * ROUND_BYTES


def test_the_log_does_not_grow_without_bound() -> None:
    """TS-03: a base that follows, key-values that are overwritten, and upkeep: what is on the disk stays the same."""
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        stream = store.stream("messages")
        used = []
        for number in range(40):
            [*_, last] = record(stream, *(bytes(200) for _ in range(10)))
            put(store, {b"key %d" % (number % 3): bytes(500)})
            store.rotate()
            stream.move_base(last)
            if number % 4 == 3:
                store.compact()
                store.purge()
                used.append(stage.disk.used_bytes - stage.disk.stat(f"{DIRECTORY}/manifest").size_bytes)
        assert max(used[1:]) <= 1.2 * used[0]
        assert max(used[1:]) < 100_000


def test_a_durable_load_extends_files_moves_the_tail_and_stays_within_bounds() -> None:
    """TS-04: like `perftest --durable yes`: many small durable messages, most of them soon done with, some stay for a
    while. Run it when extension or tail maintenance change."""
    stage = Stage(rotate_bytes=64 << 10, max_write_buffers=4)
    rng = random.Random(7)
    alive: dict[Lsn, bytes] = {}
    with stage.store() as store:
        stream = store.stream("messages")
        extended = most = 0
        for number in range(1500):
            session = stream.begin()
            sent = [rng.randbytes(rng.randrange(20, 300)) for _ in range(rng.randrange(1, 6))]
            for value in sent:
                session.record(value)
            session.end()
            assert session.first_lsn is not None
            alive |= {Lsn(session.first_lsn + index): value for index, value in enumerate(sent)}
            while len(alive) > 200:
                del alive[next(iter(alive)) if rng.random() < 0.9 else rng.choice(list(alive))]
            if number % 50 == 49:
                store.wait(session.epoch or store.durable)
                stream.move_base(next(iter(alive)))
                store.purge()
                most = max(most, stage.disk.used_bytes)
                participant = store.channels[stream.record.channel].participant
                extended += participant.allocated > 2 * 4096
        assert extended > 5, "files were extended by containers"
        assert len(sealed(store)) < 6, "and the tail was moved"
        assert most < 1_000_000
        assert {lsn: value for lsn, value in contents(stream) if lsn in alive} == alive
        store.abandon()
    with stage.store() as store:
        assert {lsn: value for lsn, value in contents(store.stream("messages")) if lsn in alive} == alive


def test_records_that_were_read_stay_what_they_are_when_their_file_is_recycled(tmp_path: Path) -> None:
    """CL-07: what a reader was given is its own."""
    settings = replace(QUIET, recycle_files=True)
    with LogStore.open(str(tmp_path), settings) as store:
        stream = store.stream("messages")
        record(stream, b"old" * 100)
        store.rotate()
        [(_, block)] = list(stream.read())
        stream.move_base(stream.end)
        assert len(store.purge().files) == 1
        record(stream, b"x")
        store.rotate()  # the freed file is the next one
        record(stream, b"new" * 100)
        assert block.values.to_list() == [b"old" * 100]


def test_a_reader_inside_a_file_that_is_recycled_gets_an_error_and_no_other_bytes(tmp_path: Path) -> None:
    """CL-07."""
    settings = replace(QUIET, recycle_files=True)
    with LogStore.open(str(tmp_path), settings) as store:
        stream = store.stream("messages")
        record(stream, b"old 1" * 100)
        record(stream, b"old 2" * 100)
        store.rotate()
        slow = stream.read()
        assert next(slow)[1].values.to_list() == [b"old 1" * 100]
        stream.move_base(stream.end)
        store.purge()
        record(stream, b"x")
        store.rotate()
        for _ in range(2):
            record(stream, b"new 9" * 100)
        with pytest.raises(Gone):
            next(slow)
