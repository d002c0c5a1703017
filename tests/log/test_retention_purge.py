"""Purge: what is free goes, in an order no power cut can spoil; the horizon says what is gone; space is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import (
    DIRECTORY,
    Stage,
    State,
    life_of,
    names,
    numbers,
    of_storage,
    put,
    rows,
    sealed,
)
from warren.base.errors import DiskFailure, Gone
from warren.base.ids import Epoch, FileNumber
from warren.files.protocol import join
from warren.log.file_record import FileKind, FileRecord, FileState, epoch_of_name
from warren.log.manifest import read_manifest
from warren.log.read.blocks import walk
from warren.log.recovery import set_aside_bytes
from warren.log.retention import FileLifecycle, Pins, reach
from warren.log.store import LogStore
from warren.records.block import Header
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

FOREVER: dict[str, Any] = {"retention_seconds": 1e9, "retention_bytes": 1 << 40}
RECYCLE = f"{DIRECTORY}/recycle"


def rounds(store: LogStore, count: int, digests: dict[int, str] | None = None) -> None:
    """So many sealed files of one epoch each."""
    for number in range(count):
        put(store, {b"key": b"%d" % number, b"%d" % number: bytes(100)})
        if digests is not None:
            digests[store.durable] = store.commit.digest.hex()
        store.rotate()


def all_rounds(count: int) -> State:
    return of_storage({b"key": b"%d" % (count - 1)} | {b"%d" % number: bytes(100) for number in range(count)})


# -- what goes, and when -----------------------------------------------------------------------------------------------


def test_history_goes_when_its_time_is_over() -> None:
    stage = Stage(retention_seconds=60.0, retention_bytes=1 << 30)
    with stage.store() as store:
        rounds(store, 1)
        [first] = sealed(store)
        store.compact()
        [base] = sealed(store, FileKind.COMPACTED)
        stage.advance(30)
        rounds(store, 1)
        second = sealed(store)[-1]
        store.compact()
        assert store.purge().files == ()
        stage.advance(30)
        assert store.purge().files == (first.name,)
        assert store.manifest.state.horizon == first.sealed_epoch
        stage.advance(30)
        assert set(store.purge().files) == {base.name, second.name}
        assert store.manifest.state.horizon == second.sealed_epoch


def test_history_goes_when_there_is_more_of_it_than_wanted() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        for _ in range(4):
            rounds(store, 1)
            store.compact()
        logs, bases = sealed(store), sealed(store, FileKind.COMPACTED)
    remaining, gone = [*logs[2:], *bases[1:3]], [*logs[:2], bases[0]]
    with stage.store(retention_bytes=sum(record.end for record in remaining)) as store:
        purged = store.purge()
        assert set(purged.files) == {record.name for record in gone}
        assert purged.freed_bytes == sum(record.end for record in gone)
        assert sorted(numbers(sealed(store))) == numbers(logs[2:])
        assert numbers(sealed(store, FileKind.COMPACTED)) == numbers(bases[1:])
        assert purged.horizon == logs[1].sealed_epoch
        assert store.purge().files == ()


DAY_NS = 86_400 * 10**9


def test_a_step_of_the_wall_clock_does_not_purge_history() -> None:
    """Neither what was known before the step nor what was sealed right before it; real time does."""
    stage = Stage(retention_seconds=3600.0, retention_bytes=1 << 30)
    with stage.store() as store:
        rounds(store, 1)
        store.purge()
        rounds(store, 1)
        store.compact()
        first, second = sealed(store)
        stage.clock.set_wall_ns(stage.clock.wall_ns() + 2 * DAY_NS)
        assert store.purge().files == ()
        stage.clock.set_wall_ns(stage.clock.wall_ns() - 4 * DAY_NS)
        rounds(store, 1)
        store.compact()
        assert store.purge().files == ()
        stage.advance(3600)
        assert {first.name, second.name} <= set(store.purge().files)


def short_disk(stage: Stage, store: LogStore, missing_bytes: int) -> int:
    """So much is missing of the free space that the store is to keep; what is free."""
    stage.disk.capacity_bytes = stage.disk.used_bytes + store.settings.free_bytes_min - missing_bytes
    return stage.disk.free_bytes(DIRECTORY)


def test_history_yields_oldest_first_when_the_disk_is_short_of_space() -> None:
    stage = Stage(**FOREVER, free_bytes_min=40_000)
    with stage.store() as store:
        rounds(store, 6)
        store.compact()
        for _ in range(2):
            rounds(store, 6)
            store.compact()
        logs = sealed(store)
        assert store.purge().files == (), "the disk has more than enough"
        short_disk(stage, store, 1)
        purged = store.purge()
        assert purged.files and set(purged.files) >= {record.name for record in logs[:6]}, "the oldest"
        assert stage.disk.free_bytes(DIRECTORY) >= 40_000, "there is enough again"
        assert sealed(store), "and history that need not yield is left"
        assert store.purge().files == () and store.alarms() == []


def test_pins_and_quarantine_do_not_yield_and_are_named_as_long_as_the_disk_is_short() -> None:
    stage = Stage(**FOREVER, free_bytes_min=1 << 20)
    with stage.store() as store:
        rounds(store, 2)
        store.compact()
        first, second = sealed(store)
        pin, _ = store.pins.take("nightly export", 3600.0, numbers=[first.number])
        set_aside_bytes(stage.disk, DIRECTORY, "old.voided", bytes(777))
        assert store.purge().files == () and store.alarms() == []
        short_disk(stage, store, 1 << 19)
        assert store.purge().files == (second.name,), "what no pin holds yields"
        pinned, quarantined = store.alarms()
        assert pin.id in pinned and "nightly export" in pinned and str(first.end) in pinned
        assert f"{DIRECTORY}/quarantine keeps 777 bytes" in quarantined
        stage.disk.capacity_bytes = None
        store.purge()
        assert store.alarms() == [], "the shortage is over"


def test_history_is_purged_for_writers_that_wait_for_room() -> None:
    """Without a limit of its own: an embedded store whose disk is full removes history before it stands still."""
    stage = Stage(**FOREVER, compaction_poll_seconds=0.01)
    with stage.store() as store:
        rounds(store, 3)
        store.compact()
        history = sealed(store)
        stage.disk.capacity_bytes = stage.disk.used_bytes + 2000
        put(store, {b"large": bytes(20_000)})
        assert not set(numbers(history)) & set(numbers(sealed(store)))
        stage.disk.capacity_bytes = None


def test_nothing_that_recovery_needs_ever_goes() -> None:
    """X-03: a log file may go only when its entries are in a durable sorted file which an edit has put in force."""
    stage = Stage()
    with stage.store() as store:
        rounds(store, 3)
        assert store.purge().files == ()
        store.compact()
        rounds(store, 2)
        remaining = sealed(store)[-2:]
        assert len(store.purge().files) == 3
        assert numbers(sealed(store)) == numbers(remaining)
        store.abandon()
    with stage.store() as store:
        assert rows(store.snapshot()) == of_storage(
            {b"key": b"1", b"0": bytes(100), b"1": bytes(100), b"2": bytes(100)}
        )


def test_a_replaced_compacted_file_is_history_and_goes_like_it() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        for _ in range(3):
            rounds(store, 1)
            store.compact()
        assert store.purge().files == ()
        bases = sealed(store, FileKind.COMPACTED)
        assert [life_of(store, base) for base in bases] == [
            FileLifecycle.RETAINED,
            FileLifecycle.RETAINED,
            FileLifecycle.NEEDED,
        ]
    with stage.store(retention_seconds=0.0) as store:
        assert {bases[0].name, bases[1].name} <= set(store.purge().files)
        assert numbers(sealed(store, FileKind.COMPACTED)) == [bases[2].number]
        assert store.manifest.state.horizon == bases[2].sealed_epoch


def test_the_horizon_bears_the_digest_of_its_epoch() -> None:
    """The anchor: the chain of what is left hangs on it, also where streams wrote behind the last key-value."""
    stage = Stage()
    digests: dict[int, str] = {0: "00" * 16}
    with stage.store() as store:
        stream = store.stream("messages")
        for _ in range(4):
            rounds(store, 2, digests)
            with stream.begin() as session:
                session.record(b"message")
            digests[store.durable] = store.commit.digest.hex()
            store.compact()
            store.purge()
            state = store.manifest.state
            assert state.horizon > 0
            assert state.horizon_digest == digests[state.horizon]


def test_rotated_epoch_files_go_with_the_history_they_belong_to() -> None:
    stage = Stage()
    with stage.store() as store:
        rounds(store, 3)

        def epochs() -> list[int]:
            return [epoch for name in names(stage.disk) if (epoch := epoch_of_name(name)) is not None]

        assert len(epochs()) == 3
        store.compact()
        rounds(store, 1)
        store.purge()
        assert epochs() == [epoch for epoch in epochs() if epoch > store.manifest.state.horizon]
        assert len(epochs()) == 1


def test_a_snapshot_that_is_no_longer_in_force_goes_and_moves_no_horizon() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        rounds(store, 1)
        store.refresh()
        old = sealed(store, FileKind.SNAPSHOT)[0]
        rounds(store, 1)
        store.refresh()
        store.purge()
        assert old.number not in store.manifest.state.files
        assert store.manifest.state.horizon == 0
        assert rows(store.snapshot()) == of_storage({b"key": b"0", b"0": bytes(100)})


# -- pins --------------------------------------------------------------------------------------------------------------


def test_a_reader_s_bytes_are_never_freed_however_often_the_log_is_compacted() -> None:
    """X-06: a reader that pins an epoch can read every entry from there on, until it releases the pin."""
    stage = Stage()
    with stage.store() as store:
        rounds(store, 3)
        [first, *_] = sealed(store)
        reader = Pins(stage.disk, DIRECTORY, stage.clock, SeededRandom(5))
        pin, _ = reader.take("spark", 1e6, from_epoch=first.first_epoch)
        for _ in range(4):
            store.compact()
            store.purge()
            rounds(store, 1)
        state = read_manifest(stage.disk, DIRECTORY)
        logs = [record for record in state.of_state(FileState.SEALED) if record.purpose is FileKind.LOG]
        epochs = [header.epoch for record in logs for header in whole(stage.disk, record) if header.entries]
        assert epochs == list(range(first.first_epoch, store.durable + 1))
        assert store.purge().pinned_bytes >= sum(record.end for record in logs[:-1])
        reader.release(pin)
        store.compact()
        store.purge()
        assert not sealed(store)


def whole(disk: MemoryFiles, record: FileRecord) -> list[Header]:
    path = join(DIRECTORY, record.name)
    walked = walk(memoryview(disk.contents(path)), record.identity, 0, record.end)
    assert walked.end == record.end
    return walked.headers


def test_a_file_that_was_pinned_behind_its_doom_stays_until_the_pin_goes() -> None:
    stage = Stage()
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        store.compact()
        store.purger._doom([record])
        pin = store.pins.take("late", 60.0)[0]
        path = f"{DIRECTORY}/pins/{pin.id}.json"
        stage.disk.set_contents(
            path, stage.disk.contents(path).replace(b'"files": []', b'"files": [%d]' % record.number)
        )
        reported = store.purge()
        assert reported.files == ()
        assert reported.pinned_bytes == record.end
        assert store.manifest.state.files[record.number].state is FileState.DOOMED
        store.pins.release(pin)
        assert store.purge().files == (record.name,)


# -- no gap ------------------------------------------------------------------------------------------------------------

CHANNEL = st.sampled_from([0, 0, 0, 1, 2])
STEP = st.one_of(
    st.tuples(st.just("write"), CHANNEL),
    st.tuples(st.just("seal"), CHANNEL),
    st.tuples(st.just("seal"), CHANNEL),
    st.tuples(st.just("upkeep"), st.just(0)),
    st.tuples(st.sampled_from(["compact", "reopen", "crash", "release"]), st.just(0)),
    st.tuples(st.sampled_from(["wait", "set back"]), st.integers(1, 40)),
    st.tuples(st.just("pin"), st.integers(0, 3)),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, min_size=4, max_size=16), st.integers(300, 2000), st.integers(5, 60))
def test_a_purge_never_leaves_a_gap(steps: list[tuple[str, int]], size: int, seconds: int) -> None:
    """What is gone lies at or before the horizon, which never passes a live pin; no history is kept in vain."""
    story = Story(Stage(channel_count=3, retention_bytes=size, retention_seconds=float(seconds)))
    for verb, number in [*steps, ("upkeep", 0)]:
        getattr(story, verb.replace(" ", "_"))(number)
        story.check()
    assert len(rows(story.store.refresh())) == story.written
    story.store.close()


class Story:
    """A store to which things happen, and what was ever sealed in it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = stage.open()
        self.seen: dict[FileNumber, FileRecord] = {}
        self.pins: list[tuple[str, Epoch]] = []
        self.written = 0

    def write(self, channel: int) -> None:
        self.written += 1
        put(self.store, {b"%d" % self.written: bytes(50)}, channel=channel)

    def seal(self, channel: int) -> None:
        self.write(channel)
        self.store.rotate()

    def compact(self, _: int) -> None:
        self.store.compact()

    def upkeep(self, _: int) -> None:
        self.store.compact()
        self.note()
        self.store.purge()

    def reopen(self, _: int) -> None:
        self.store.close()
        self.store = self.stage.open()

    def crash(self, number: int) -> None:
        self.store.abandon()
        self.stage.disk = self.stage.disk.crash(SYNCED, SeededRandom(number))
        self.store = self.stage.open()

    def wait(self, seconds: int) -> None:
        self.stage.advance(seconds)

    def set_back(self, seconds: int) -> None:
        self.stage.clock.set_wall_ns(self.stage.clock.wall_ns() - seconds * 10**9)

    def pin(self, back: int) -> None:
        epoch = Epoch(max(1, self.store.durable - back))
        try:
            self.pins.append((self.store.pins.take("reader", 1e6, from_epoch=epoch)[0].id, epoch))
        except Gone:
            assert epoch <= self.store.manifest.state.horizon

    def release(self, _: int) -> None:
        if self.pins:
            self.store.pins.revoke(self.pins.pop(0)[0])

    def note(self) -> None:
        for record in self.store.manifest.state.files.values():
            if record.state is FileState.SEALED and record.purpose is not FileKind.SNAPSHOT:
                self.seen[record.number] = record

    def check(self) -> None:
        self.note()
        state = self.store.manifest.state
        for record in self.seen.values():
            if record.number not in state.files:
                assert record.sealed_epoch <= state.horizon, f"{record} is gone, the horizon says {state.horizon}"
        for record in state.of_state(FileState.SEALED):
            assert self.stage.disk.exists(join(DIRECTORY, record.name)), record
            if life_of(self.store, record) is FileLifecycle.RETAINED:
                assert reach(state, record)[0] > state.horizon, "retained, though unreadable"
        assert all(epoch > state.horizon for _, epoch in self.pins), "the horizon has passed a live pin"


# -- the power goes ----------------------------------------------------------------------------------------------------


def purged_with_cut(step: int | None, fraction: float | None, recycle: bool) -> tuple[MemoryFiles, FaultyFiles, int]:
    stage = Stage(recycle_files=recycle)
    files = FaultyFiles(stage.disk, cut_at=step, cut_fraction=fraction)
    before: list[int] = []

    def body(store: LogStore) -> None:
        rounds(store, 3)
        store.compact()
        before.append(len(files.steps))
        store.purge()
        rounds(store, 1)  # takes the recycled files, if there are any

    if step is None:
        stage.play(2, body, files)
    else:
        with pytest.raises(PowerCut):
            stage.play(2, body, files)
    return stage.disk, files, before[0]


@pytest.mark.parametrize("recycle", [False, True])
@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_of_a_purge_loses_nothing_and_the_next_one_continues(
    model: CrashModel, recycle: bool
) -> None:
    """X-03: also when the freed file is being written again as another one."""
    _, files, first = purged_with_cut(None, None, recycle)
    for step in range(first, len(files.steps)):
        for fraction in (None, 0.5) if files.steps[step].operation in ("write", "allocate") else (None,):
            disk, _, _ = purged_with_cut(step, fraction, recycle)
            stage = Stage(disk.crash(model, SeededRandom(step)), recycle_files=recycle)
            with stage.store() as store:
                found = rows(store.snapshot())
                assert found in (all_rounds(3), all_rounds(3) | of_storage({b"key": b"0"})), files.steps[step]
                store.compact()
                store.purge()
                assert rows(store.refresh()) == found
                logs = [name for name in names(stage.disk) if name.startswith("pwal_")]
                assert len(logs) == len(store.manifest.state.files) - 1, "a file was left behind"
                assert store.manifest.state.horizon >= store.durable - 1
            with stage.store() as store:
                assert rows(store.snapshot()) == found, files.steps[step]


def test_names_go_behind_the_doom_and_are_dropped_behind_their_removal() -> None:
    """The order of the four steps is what makes each of them a safe place to stop."""
    _, files, first = purged_with_cut(None, None, recycle=False)
    reported = [str(step) for step in files.steps[first:]]
    removals = [i for i, step in enumerate(reported) if step.startswith("remove log/pwal_")]
    assert len(removals) == 3
    doomed, dropped = reported.index("sync log/manifest"), reported.index("sync log/manifest", removals[-1])
    assert doomed < removals[0] and removals[-1] < reported.index("sync_directory log", removals[-1]) < dropped


def test_a_removal_that_fails_is_taken_up_by_the_next_purge() -> None:
    stage = Stage()
    files = FaultyFiles(stage.disk)
    with stage.store(files) as store:
        rounds(store, 3)
        store.compact()
        files.faults.append(Fault(FaultKind.IO_ERROR, "remove", "*/pwal_*"))
        with pytest.raises(DiskFailure):
            store.purge()
        assert store.manifest.state.of_state(FileState.DOOMED)
        assert len(store.purge().files) == 3
        assert rows(store.refresh()) == all_rounds(3)


@pytest.mark.parametrize("seed", range(10))
def test_purges_beside_writers_lose_nothing(seed: int) -> None:
    def body(store: LogStore) -> None:
        threads = store.environment.threads

        def write(name: bytes) -> Callable[[], None]:
            def puts() -> None:
                for number in range(6):
                    put(store, {name + b"%d" % number: b"x"})

            return puts

        def upkeep() -> None:
            for _ in range(3):
                store.compact()
                store.purge()

        running = [threads.start("a", write(b"a")), threads.start("b", write(b"b")), threads.start("c", upkeep)]
        for one in running:
            one.join()
        wanted = {name + b"%d" % number: b"x" for name in (b"a", b"b") for number in range(6)}
        assert rows(store.refresh()) == of_storage(wanted)

    Stage(rotate_bytes=1000, recycle_files=seed % 2 == 0).play(seed, body)


# -- recycling ---------------------------------------------------------------------------------------------------------


def one_recycled(store: LogStore) -> FileRecord:
    """A log file that has just gone to the pool."""
    rounds(store, 1)
    record = sealed(store)[-1]
    store.compact()
    store.purge()
    return record


def inode(disk: MemoryFiles, name: str) -> int:
    return disk.stat(join(DIRECTORY, name)).inode


def test_a_freed_log_file_becomes_the_next_one() -> None:
    """CL-07: its container space is used again, the second time with the old bytes still in it."""
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        freed = inode(stage.disk, record.name)
        store.compact()
        store.purge()
        assert len(stage.disk.list(RECYCLE)) == 1
        rounds(store, 1)
        assert stage.disk.list(RECYCLE) == []
        active = store.manifest.state.files[store.channels[0].participant.number]
        assert inode(stage.disk, active.name) == freed
        assert active.is_recycled and active.incarnation != record.incarnation


def test_without_the_option_nothing_is_recycled() -> None:
    stage = Stage()
    with stage.store() as store:
        one_recycled(store)
        assert not stage.disk.exists(RECYCLE)


def test_with_recycling_the_disk_does_not_grow_round_by_round() -> None:
    """CL-07."""
    stage = Stage(recycle_files=True)
    inodes: set[int] = set()
    with stage.store() as store:
        used: list[int] = []
        for _ in range(20):
            one_recycled(store)
            inodes |= {inode(stage.disk, name) for name in names(stage.disk) if name == "pwal_0000"}
            used.append(stage.disk.used_bytes - stage.disk.stat(f"{DIRECTORY}/manifest").size_bytes)
        assert len(inodes) <= 4
        assert max(used[4:]) - min(used[4:]) < 1000


@pytest.mark.parametrize("model", [ALL, SYNCED])
def test_stale_blocks_behind_the_tail_are_not_read(model: CrashModel) -> None:
    """CL-07: a recycled file is full of its earlier life, whose blocks do not bear its incarnation."""
    stage = Stage(recycle_files=True)
    store = stage.open()
    with store.begin() as session:
        for number in range(200):
            session.put(1, b"stale %03d" % number, b"old")
    for number in range(5):
        put(store, {b"stale %d" % number: b"old"})
    store.rotate()
    with store.begin() as session:
        session.clear_storage(1)
    store.compact()
    store.purge()
    put(store, {b"a": b"1"})
    store.rotate()
    put(store, {b"b": b"2"})
    number = store.channels[0].participant.number
    path = f"{DIRECTORY}/pwal_0000"
    assert store.manifest.state.files[number].is_recycled
    assert b"stale 4" in stage.disk.contents(path)
    store.abandon()
    after = stage.crashed(model)
    with after.store() as store:
        assert rows(store.snapshot()) == of_storage({b"a": b"1", b"b": b"2"})
        record = store.manifest.state.files[number]
        assert (record.entries, record.voided) == (1, ())
        assert after.disk.list(f"{DIRECTORY}/quarantine") == []


def test_a_linked_file_is_never_recycled() -> None:
    """CL-07: a backup's link keeps the bytes; they must stay what they were."""
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        stage.disk.link(join(DIRECTORY, record.name), "backup")
        before = stage.disk.contents("backup")
        store.compact()
        assert store.purge().files == (record.name,)
        assert stage.disk.list(RECYCLE) == []
        rounds(store, 3)
        assert stage.disk.contents("backup") == before


def test_a_retained_or_pinned_file_is_not_recycled_while_it_is() -> None:
    """CL-07."""
    stage = Stage(recycle_files=True, retention_seconds=60.0, retention_bytes=1 << 30)
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        store.compact()
        store.purge()
        assert stage.disk.list(RECYCLE) == [] and whole(stage.disk, record)
        pin, _ = store.pins.take("reader", 600.0, numbers=[record.number])
        stage.advance(61)
        store.purge()
        assert stage.disk.list(RECYCLE) == [] and whole(stage.disk, record)
        store.pins.release(pin)


@pytest.mark.parametrize("ending", ["release", "lapse", "revoke over cap"])
def test_a_file_that_was_handed_out_is_removed_and_never_recycled(ending: str) -> None:
    """CL-07: a reader that was too slow may still have it mapped: it must see the old bytes or none."""
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        file = stage.disk.open(join(DIRECTORY, record.name))
        mapped = file.view()
        before = bytes(mapped)
        pin, _ = store.pins.take("reader", 60.0, numbers=[record.number], bytes_max=record.end)
        store.compact()
        store.purge()
        if ending == "release":
            store.pins.release(pin)
        elif ending == "lapse":
            stage.advance(61)
        else:
            path = f"{DIRECTORY}/pins/{pin.id}.json"
            reported = stage.disk.contents(path).replace(b'"bytes_max": %d' % record.end, b'"bytes_max": 1')
            stage.disk.set_contents(path, reported)
        assert store.purge().files == (record.name,)
        assert stage.disk.list(RECYCLE) == []
        rounds(store, 3)
        assert bytes(mapped) == before
        file.close()


def test_a_file_of_a_cut_is_never_recycled() -> None:
    """CL-07."""
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        rounds(store, 1)
        [record] = sealed(store)
        cut = store.cut()
        store.pins.release(cut.pin)
        store.compact()
        assert record.name in store.purge().files
        assert stage.disk.list(RECYCLE) == []
