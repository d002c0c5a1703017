"""The lives of a sealed file: who needs it, how long history keeps it, who holds it — and in which order it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.log.upkeep_stage import Stage, life_of, put, sealed
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId
from warren.durability.timeline import Timeline
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.manifest import ManifestState, StreamRecord
from warren.log.retention import FileLifecycle, Pin, disk_bytes, is_needed, lifecycle_states, reach

KV = StreamRecord(StreamId(0), "kv", ChannelId(0), is_records=False)
HOUR_NS = 3600 * 10**9


CONTAINER_BYTES = 10  # so small that a file takes as much of the disk as it has bytes


def log_file(number: int, epoch: int, sealed_ns: int = 0, streams: Mapping[int, int] | None = None) -> FileRecord:
    """A rotated file of 1000 bytes whose epochs end with `epoch`; `streams` says the last LSN of each in it."""
    ends = tuple(sorted((streams if streams is not None else {0: number << 32}).items()))
    return FileRecord(
        FileNumber(number), ChannelId(0), TimelineId(1), Incarnation(number), FileKind.LOG, FileState.SEALED, "name",
        end=1000, entries=1, first_epoch=Epoch(epoch), last_epoch=Epoch(epoch), sealed_epoch=Epoch(epoch),
        sealed_digest=f"d{epoch}", sealed_ns=sealed_ns, stream_ends=ends,
    )  # fmt: skip


def compacted(number: int, epoch: int, sources: tuple[int, ...], sealed_ns: int = 0) -> FileRecord:
    created = log_file(number, epoch, sealed_ns)
    return replace(created, purpose=FileKind.COMPACTED, sources=tuple(FileNumber(n) for n in sources))


def manifest(*records: FileRecord, in_force: int = 0, streams: tuple[StreamRecord, ...] = (KV,)) -> ManifestState:
    return ManifestState(
        Timeline(TimelineId(1)),
        CONTAINER_BYTES,
        1,
        compacted=(FileNumber(in_force),) if in_force else (),
        files={record.number: record for record in records},
        streams={stream.id: stream for stream in streams},
    )


def lives_of(state: ManifestState, *pins: Pin, now_ns: int = 0, seconds: float = 0, size: int = 1 << 40) -> list[str]:
    """The life of each file, by number."""
    found = lifecycle_states(state, pins, now_ns, seconds, size)
    return [str(found[number]) for number in sorted(found)]


def pin(from_epoch: int | None = None, *files: int) -> Pin:
    epoch = None if from_epoch is None else Epoch(from_epoch)
    return Pin("0" * 16, "reader", TimelineId(1), epoch, tuple(FileNumber(n) for n in files), 1 << 62, 0)


# -- needed ------------------------------------------------------------------------------------------------------------


def test_a_log_file_is_needed_until_it_is_compacted() -> None:
    """What is in no durable sorted file yet is not free, whatever retention says."""
    assert lives_of(manifest(log_file(1, 5))) == ["needed"]
    base = compacted(2, 5, (1,))
    assert lives_of(manifest(log_file(1, 5), base)) == ["needed", "free"], (
        "a file that no edit put in force frees nothing"
    )
    assert lives_of(manifest(log_file(1, 5), base, in_force=2)) == ["free", "needed"]


def test_a_file_of_records_is_needed_until_every_stream_in_it_has_moved_its_base_past_it() -> None:
    """One that does not move keeps the file for all."""
    moving, resting = StreamRecord(StreamId(1), "moving", ChannelId(1)), StreamRecord(StreamId(2), "rest", ChannelId(1))
    record = log_file(1, 5, streams={1: (1 << 32) + 64, 2: (1 << 32) + 90})
    for moved, rested, needed in ((64, 90, True), (65, 90, True), (64, 91, True), (65, 91, False)):
        bases = (replace(moving, base=Lsn((1 << 32) + moved)), replace(resting, base=Lsn((1 << 32) + rested)))
        assert is_needed(manifest(record, streams=(KV, *bases)), record) == needed


def test_a_mixed_file_is_needed_for_its_key_values_and_for_its_records_apart() -> None:
    record = log_file(1, 5, streams={0: 1 << 32, 1: (1 << 32) + 64})
    stream = StreamRecord(StreamId(1), "messages", ChannelId(0))
    passed = replace(stream, base=Lsn((1 << 32) + 65))
    base = compacted(2, 5, (1,))
    assert is_needed(manifest(record, base, in_force=2, streams=(KV, stream)), record)
    assert is_needed(manifest(record, streams=(KV, passed)), record)
    assert not is_needed(manifest(record, base, in_force=2, streams=(KV, passed)), record)


def test_a_file_with_nothing_in_it_is_not_needed() -> None:
    assert not is_needed(manifest(), log_file(1, 5, streams={}))


# -- retained ----------------------------------------------------------------------------------------------------------


def stretches(count: int, sealed_ns: list[int] | None = None) -> ManifestState:
    """`count` times a log file of one epoch and its compaction: files 2n - 1 and 2n; the last compaction is in force.
    So stretch n is log file 2n - 1 and the compacted file 2n - 2 before it (none before the first)."""
    times = sealed_ns or [0] * count
    records: list[FileRecord] = []
    for n in range(1, count + 1):
        records.append(log_file(2 * n - 1, n, times[n - 1]))
        records.append(compacted(2 * n, n, tuple(range(1, 2 * n, 2)), times[n - 1]))
    return manifest(*records, in_force=2 * count)


def test_history_is_kept_for_so_many_seconds() -> None:
    state = stretches(2, [0, HOUR_NS])
    assert lives_of(state, now_ns=2 * HOUR_NS, seconds=3600.5) == ["free", "retained", "retained", "needed"]
    assert lives_of(state, now_ns=2 * HOUR_NS, seconds=3600.0) == ["free", "free", "free", "needed"]
    assert lives_of(state, now_ns=2 * HOUR_NS, seconds=7201.0) == ["retained", "retained", "retained", "needed"]


def test_history_is_kept_up_to_so_many_bytes() -> None:
    state = stretches(3)
    for size, remaining in ((0, 0), (1999, 0), (2000, 2), (3999, 2), (4000, 4), (4999, 4), (5000, 5)):
        assert lives_of(state, seconds=1, size=size) == ["free"] * (5 - remaining) + ["retained"] * remaining + [
            "needed"
        ]


def test_either_limit_ends_history_and_zero_means_none() -> None:
    state = stretches(1)
    assert lives_of(state, now_ns=1, seconds=0, size=1 << 40) == ["free", "needed"]
    assert lives_of(state, now_ns=1, seconds=1e9, size=0) == ["free", "needed"]


def test_a_stretch_stays_or_goes_as_a_whole() -> None:
    """Without its first file none of its moments can be built; it is old when its newest file is."""
    logs = [log_file(n, n, n * HOUR_NS) for n in (1, 2, 3)]
    state = manifest(*logs, compacted(4, 3, (1, 2, 3)), in_force=4)
    assert lives_of(state, now_ns=4 * HOUR_NS, seconds=3600.5) == ["retained"] * 3 + ["needed"]
    assert lives_of(state, now_ns=4 * HOUR_NS, seconds=3600.0) == ["free"] * 3 + ["needed"]
    assert lives_of(state, now_ns=4 * HOUR_NS, seconds=1e9, size=2999) == ["free"] * 3 + ["needed"]


def test_files_of_streams_are_history_one_by_one() -> None:
    stream = StreamRecord(StreamId(1), "messages", ChannelId(1), base=Lsn(1 << 60))
    logs = [log_file(n, n, streams={1: n << 32}) for n in (1, 2, 3)]
    assert lives_of(manifest(*logs, streams=(KV, stream)), seconds=1, size=2000) == ["free", "retained", "retained"]


def test_a_channel_that_seldom_writes_is_not_taken_for_the_oldest_by_its_low_number() -> None:
    """Its file was made first and sealed last: by numbers the newest history would go first."""
    stream = StreamRecord(StreamId(1), "messages", ChannelId(1), base=Lsn(1 << 60))
    seldom, often = log_file(1, 9, streams={1: 1 << 32}), [log_file(n, n, streams={1: n << 32}) for n in (2, 3, 4)]
    state = manifest(seldom, *often, streams=(KV, stream))
    assert lives_of(state, seconds=1, size=2000) == ["retained", "free", "free", "retained"]


def test_a_clock_that_was_set_back_makes_no_hole_in_history() -> None:
    """The older stretch bears the later time: it goes all the same, since what follows it has gone."""
    state = stretches(3, [5 * HOUR_NS, HOUR_NS, 5 * HOUR_NS])
    found = lives_of(state, now_ns=6 * HOUR_NS, seconds=3600.0)
    assert found == ["free"] * 5 + ["needed"]
    state = stretches(4, [5 * HOUR_NS, 1, 1, 5 * HOUR_NS])
    found = lives_of(state, now_ns=6 * HOUR_NS, seconds=3600.5)
    assert found == ["free"] * 5 + ["retained"] * 2 + ["needed"]


def any_file(kind: str, number: int, epoch: int, sealed_ns: int) -> FileRecord:
    if kind == "base":
        return compacted(number, epoch, (), sealed_ns)
    return log_file(number, epoch, sealed_ns, {1: number << 32} if kind == "stream" else None)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["log", "base", "stream"])), max_size=8),
    st.integers(0, 9),
    st.floats(0, 9),
    st.integers(0, 9000),
)
def test_whatever_the_times_history_has_one_edge(
    files: list[tuple[int, int, str]], now: int, seconds: float, size: int
) -> None:
    """Everything that goes lies before everything that stays: no hole, and nothing that is kept in vain."""
    records = [any_file(kind, n, epoch, ns * 10**9) for n, (epoch, ns, kind) in enumerate(files, 1)]
    stream = StreamRecord(StreamId(1), "messages", ChannelId(1), base=Lsn(1 << 60))
    last = compacted(99, 10, tuple(range(1, 99)))
    state = manifest(*records, last, in_force=99, streams=(KV, stream))
    found = lifecycle_states(state, (), now * 10**9, seconds, size)
    free = [reach(state, record)[0] for record in records if found[record.number] is FileLifecycle.FREE]
    remaining = [reach(state, record)[0] for record in records if found[record.number] is FileLifecycle.RETAINED]
    assert not free or not remaining or max(free) < min(remaining)


def test_the_log_behind_a_compacted_file_that_goes_is_not_kept_in_vain() -> None:
    """Without the file it stood on, no moment before the next compacted file can be built: the horizon lies there."""
    old, new = compacted(2, 5, (1,)), compacted(4, 20, (1, 3))
    state = manifest(log_file(1, 5), old, log_file(3, 20), new, in_force=4)
    assert lives_of(state, seconds=1, size=2000) == ["free", "retained", "retained", "needed"]
    assert lives_of(state, seconds=1, size=1999) == ["free", "free", "free", "needed"]


def test_a_start_up_snapshot_is_derived_and_no_history() -> None:
    snapshot = replace(log_file(2, 5), purpose=FileKind.SNAPSHOT)
    state = manifest(log_file(1, 5), snapshot)
    assert lives_of(state, seconds=1e9) == ["needed", "free"]
    assert lives_of(replace(state, snapshot=FileNumber(2)), seconds=1e9) == ["needed", "needed"]


# -- pinned ------------------------------------------------------------------------------------------------------------


def test_a_pin_holds_the_files_it_names_and_only_those_that_would_go() -> None:
    state = stretches(2)
    assert lives_of(state, pin(None, 1, 3)) == ["pinned", "free", "pinned", "needed"]
    assert lives_of(state, pin(None, 1, 4), seconds=1) == ["retained", "retained", "retained", "needed"]


def test_a_pin_holds_everything_from_its_epoch_on() -> None:
    """And what the first of these epochs stands on."""
    assert lives_of(stretches(3), pin(2)) == ["free", "pinned", "pinned", "pinned", "pinned", "needed"]
    assert lives_of(stretches(3), pin(3)) == ["free", "free", "free", "pinned", "pinned", "needed"]
    assert lives_of(stretches(3), pin(4)) == ["free"] * 5 + ["needed"]


def test_a_stretch_that_is_gone_already_takes_no_more_with_it() -> None:
    """A file that a stream kept for long, when the moments around it had gone: it does not move the horizon again."""
    state = replace(stretches(3), horizon=Epoch(2))
    late = state.files[FileNumber(1)]
    assert reach(state, late) == (1, "d1")
    assert reach(replace(state, horizon=Epoch(0)), late) == (1, "d1")
    assert reach(state, state.files[FileNumber(4)]) == (3, "d3")


def test_a_pin_holds_a_file_whose_going_would_move_the_horizon_past_it() -> None:
    """The file ends with epoch 3, but was sealed at 6: the horizon would stand at 6, and the reader at 5."""
    record = replace(log_file(1, 3), sealed_epoch=Epoch(6))
    state = manifest(record, compacted(2, 6, (1,)), in_force=2)
    assert lives_of(state, pin(5)) == ["pinned", "needed"]
    assert lives_of(state, pin(7)) == ["free", "needed"]


def test_a_pin_holds_the_replaced_compacted_file_its_past_stands_on() -> None:
    old, new = compacted(2, 5, (1,)), compacted(4, 20, (1, 3))
    state = manifest(log_file(1, 5), old, log_file(3, 20), new, in_force=4)
    assert reach(state, old) == (20, "d20")
    assert lives_of(state, pin(10)) == ["free", "pinned", "pinned", "needed"]
    assert lives_of(state, pin(21)) == ["free", "free", "free", "needed"]


def test_a_doomed_file_is_free_or_pinned_and_nothing_else() -> None:
    doomed = replace(log_file(1, 5), state=FileState.DOOMED)
    assert lives_of(manifest(doomed), seconds=1e9) == ["free"]
    assert lives_of(manifest(doomed), pin(None, 1), seconds=1e9) == ["pinned"]


# -- in a store --------------------------------------------------------------------------------------------------------


def test_a_file_lives_through_active_needed_retained_pinned_and_free() -> None:
    stage = Stage(retention_seconds=60.0, retention_bytes=1 << 30)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        active = store.manifest.state.files[store.channels[0].participant.number]
        assert life_of(store, active) is FileLifecycle.ACTIVE
        store.rotate()
        [record] = sealed(store)
        assert life_of(store, record) is FileLifecycle.NEEDED
        store.compact()
        assert life_of(store, record) is FileLifecycle.RETAINED
        pinned, _ = store.pins.take("reader", 3600.0, numbers=[record.number])
        stage.advance(61)
        assert life_of(store, record) is FileLifecycle.PINNED
        store.pins.release(pinned)
        assert life_of(store, record) is FileLifecycle.FREE


def test_a_file_that_was_sealed_with_little_in_it_counts_with_its_bytes_and_not_with_whole_containers() -> None:
    """500 rotations of nearly empty files used to displace a history of 1 GiB."""
    stage = Stage(retention_seconds=60.0, retention_bytes=2000)
    with stage.store() as store:
        for number in range(3):
            put(store, {b"%d" % number: b""})
            store.rotate()
        records = sealed(store)
        assert sum(record.end for record in records) < 2000 < store.manifest.state.container_bytes
        store.compact()
        assert {life_of(store, record) for record in records} == {FileLifecycle.RETAINED}


# -- when the disk is short of space -----------------------------------------------------------------------------------


def released(state: ManifestState, size: int, *pins: Pin) -> list[str]:
    found = lifecycle_states(state, pins, 0, 1e9, 1 << 40, size)
    return [str(found[number]) for number in sorted(found)]


def test_history_yields_its_oldest_stretches_until_so_many_bytes_are_free() -> None:
    state = stretches(3)
    for size, gone in ((0, 0), (1, 1), (1000, 1), (1001, 3), (3000, 3), (3001, 5), (1 << 40, 5)):
        assert released(state, size) == ["free"] * gone + ["retained"] * (5 - gone) + ["needed"]


def test_pinned_history_does_not_yield_and_what_no_pin_holds_yields_in_its_place() -> None:
    state = stretches(3)
    assert released(state, 1000, pin(None, 1)) == ["pinned", "free", "free", "retained", "retained", "needed"]
    assert released(state, 1 << 40, pin(1)) == ["pinned"] * 5 + ["needed"]


def test_the_removal_of_a_log_file_frees_whole_containers() -> None:
    state = replace(manifest(), container_bytes=1000, initial_containers=2)
    sizes = [disk_bytes(state, replace(log_file(1, 1), end=end)) for end in (1, 2000, 2001, 3500)]
    assert sizes == [2000, 2000, 3000, 4000]
    assert disk_bytes(state, replace(compacted(1, 1, ()), end=7)) == 7
