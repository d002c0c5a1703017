"""A cut: the store as it was at one epoch, whatever has happened to its files since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.left_open import remembered
from tests.log.upkeep_stage import (
    DIRECTORY,
    QUIET,
    Stage,
    State,
    of_storage,
    put,
    remove,
    rows,
    sealed,
)
from tools.simulator.corruption import flip_bit
from warren.base.environment import SystemRandom
from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.durability.timeline import Ancestor
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.checkpoint import Checkpoint
from warren.log.file_record import Voided
from warren.log.manifest import file_change, read_manifest
from warren.log.read.blocks import walk
from warren.log.retention import Pins
from warren.log.store import LogStore
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import REORDERED, SYNCED, CrashModel, PowerCut

FOREVER: dict[str, Any] = {"retention_seconds": 1e9, "retention_bytes": 1 << 40}


def fork(stage: Stage, cut: Checkpoint, name: str = "fork") -> LogStore:
    """Write the cut beside the store and open it."""
    cut.write_to(stage.disk, SystemThreads(), stage.rng, name)
    environment = stage.environment()
    environment = Environment(stage.disk, environment.clock, environment.threads, SeededRandom(77))
    return remembered(LogStore.open(name, stage.settings, environment))


def state_at(stage: Stage, store: LogStore, epoch: int) -> State:
    cut = store.cut(Epoch(epoch))
    opened = fork(stage, cut, f"fork-{epoch}-{stage.rng.id64()}")
    found = rows(opened.snapshot())
    assert opened.durable == epoch
    opened.close()
    store.pins.release(cut.pin)
    return found


# -- every epoch -----------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b", b"c"])
WRITE = st.one_of(
    st.tuples(st.just("put"), KEYS, st.binary(max_size=8)),
    st.tuples(st.just("remove"), KEYS, st.just(b"")),
    st.tuples(st.just("clear"), st.just(b""), st.just(b"")),
)
Session = tuple[int, list[tuple[str, bytes, bytes]]]
SESSION = st.tuples(st.integers(0, 1), st.lists(WRITE, min_size=1, max_size=3))
UPKEEP = st.sampled_from(["rotate", "compact", "compact and purge", "reopen", "crash", "message"])


class History:
    """A store, and its state after each of its epochs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = stage.open()
        self.states: dict[int, State] = {0: {}}

    def write(self, session: Session) -> None:
        channel, writes = session
        state = dict(self.states[max(self.states)])
        open_session = self.store.begin(channel)
        for kind, key, value in writes:
            if kind == "put":
                open_session.put(1, key, value)
                state[1, key] = value
            elif kind == "remove":
                open_session.remove(1, key)
                state.pop((1, key), None)
            else:
                open_session.clear_storage(1)
                state.clear()
        self.states[open_session.commit()] = state

    def do(self, verb: str) -> None:
        if verb == "reopen":
            self.store.close()
            self.store = self.stage.open()
        elif verb == "crash":
            self.store.abandon()
            self.stage.disk = self.stage.disk.crash(SYNCED, self.stage.rng)
            self.store = self.stage.open()
        elif verb == "message":
            with self.store.stream("messages").begin() as session:
                session.record(b"message")
            self.states[self.store.durable] = dict(self.states[max(self.states)])
        elif verb == "compact and purge":
            self.store.compact()
            self.store.purge()
        else:
            getattr(self.store, verb)()

    def state_after(self, epoch: int) -> State:
        return self.states[max(known for known in self.states if known <= epoch)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(SESSION, UPKEEP), max_size=10), st.sampled_from([0, 600, 1 << 40]))
def test_a_cut_at_every_epoch_of_a_history_is_the_state_after_that_epoch(
    steps: list[Session | str], retention_bytes: int
) -> None:
    """Or it is gone, which is said, and only of what lies before the horizon."""
    history = History(Stage(channel_count=2, retention_seconds=1e9, retention_bytes=retention_bytes))
    for step in steps:
        history.do(step) if isinstance(step, str) else history.write(step)
    store, horizon = history.store, history.store.manifest.state.horizon
    for epoch in range(store.durable + 1):
        found: State | str
        try:
            found = state_at(history.stage, store, epoch)
        except Gone as gone:
            found = gone.what
        if epoch < horizon and isinstance(found, str):
            assert found == f"epoch {epoch} is gone, horizon is {horizon}"
        else:
            assert found == history.state_after(epoch), f"epoch {epoch}, horizon {horizon}"
    store.close()


def test_a_cut_before_the_horizon_is_gone_and_names_it() -> None:
    stage = Stage()
    with stage.store() as store:
        first = put(store, {b"a": b"1"})
        second = put(store, {b"a": b"2"})
        store.compact()
        store.purge()
        with pytest.raises(Gone, match=f"epoch {first} is gone, horizon is {second}") as caught:
            store.cut(first)
        assert caught.value.hint == f"cut at epoch {second} or later"
        assert state_at(stage, store, second) == of_storage({b"a": b"2"})
        assert store.pins.live() == []


def test_an_epoch_that_is_not_durable_cannot_be_cut() -> None:
    with Stage().store() as store:
        epoch = put(store, {b"a": b"1"})
        with pytest.raises(Refused, match=f"epoch {epoch + 5} is not durable") as caught:
            store.cut(Epoch(epoch + 5))
        assert caught.value.hint == f"the newest is {epoch}"


def test_the_cut_at_epoch_zero_is_the_empty_store() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.compact()
        assert state_at(stage, store, 0) == {}


def test_a_store_that_was_opened_after_a_crash_can_be_cut_at_once() -> None:
    stage = Stage()
    store = stage.open()
    epoch = put(store, {b"a": b"1"})
    store.abandon()
    stage.disk.forget_locks()
    with stage.store() as store:
        assert store.cut().epoch == epoch


# -- its files -------------------------------------------------------------------------------------------------------


def test_the_files_of_a_cut_never_change() -> None:
    stage = Stage(recycle_files=True)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.compact()
        put(store, {b"b": b"2"})
        cut = store.cut()
        before = {path: stage.disk.contents(path) for path in cut.paths}
        assert len(before) == 2
        for number in range(6):
            put(store, {b"a": b"%d" % number, b"c": bytes(500)})
            store.compact()
            store.purge()
        assert {path: stage.disk.contents(path) for path in cut.paths} == before
        opened = fork(stage, cut)
        assert rows(opened.snapshot()) == of_storage({b"a": b"1", b"b": b"2"})
        for _ in range(3):
            put(opened, {b"a": b"changed"})
            opened.compact()
            opened.purge()
        opened.close()
        assert {path: stage.disk.contents(path) for path in cut.paths} == before


def test_a_cut_links_and_copies_nothing() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"%d" % number: bytes(1000) for number in range(100)})
        cut = store.cut()
        used = stage.disk.used_bytes
        cut.write_to(stage.disk, SystemThreads(), stage.rng, "fork")
        for path in cut.paths:
            other = join("fork", path.removeprefix(f"{DIRECTORY}/"))
            assert stage.disk.stat(path).inode == stage.disk.stat(other).inode
        assert stage.disk.used_bytes - used < 5000 < 100_000 < used


def test_on_a_real_disk_a_cut_shares_its_inodes_and_survives_the_store(tmp_path: Path) -> None:
    home, other = str(tmp_path / "log"), str(tmp_path / "fork")
    with LogStore.open(home, QUIET) as store:
        put(store, {b"a": b"1"})
        cut = store.cut()
        cut.write_to(LocalFiles(), SystemThreads(), SystemRandom(), other)
        [name] = [Path(path).name for path in cut.paths]
        assert (tmp_path / "log" / name).stat().st_ino == (tmp_path / "fork" / name).stat().st_ino
        put(store, {b"a": b"2"})
        store.pins.release(cut.pin)
        store.compact()
        assert name in store.purge().files
    with LogStore.open(other, QUIET) as opened:
        assert rows(opened.snapshot()) == of_storage({b"a": b"1"})


def test_a_file_that_reaches_beyond_the_epoch_is_taken_with_the_end_it_had_then() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        epochs = [put(store, {b"a": b"%d" % number}) for number in range(4)]
        store.rotate()
        [whole] = sealed(store)
        cut = store.cut(epochs[1])
        [part] = cut.state.files.values()
        assert part.number == whole.number and part.end < whole.end
        assert (part.entries, part.last_epoch, part.sealed_epoch) == (2, epochs[1], epochs[1])
        walked = walk(memoryview(stage.disk.contents(cut.paths[0])), part.identity, 0, part.end)
        assert (walked.end, walked.running) == (part.end, part.running)
        assert store.manifest.state.files[whole.number].end == whole.end


def test_a_cut_holds_its_files_by_a_pin_and_a_lapsed_one_is_reported() -> None:
    stage = Stage(pin_seconds=60.0)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        cut = store.cut()
        store.compact()
        assert store.purge().files == ()
        stage.advance(61)
        assert store.purge().files
        with pytest.raises(Gone, match=f"cut at epoch {cut.epoch} has lapsed, horizon is {cut.epoch}"):
            cut.write_to(stage.disk, SystemThreads(), stage.rng, "fork")
        assert not stage.disk.exists("fork/manifest")


def test_damage_in_a_sealed_file_is_not_cut_off_in_silence() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        put(store, {b"b": b"2"})
        store.rotate()
        [record] = sealed(store)
        path = join(DIRECTORY, record.name)
        flip_bit(stage.disk, path, 8 * stage.disk.contents(path).rindex(b"a1"))
        with pytest.raises(Damage, match="sealed file is damaged") as caught:
            store.cut()
        assert caught.value.path == path
        assert store.pins.live() == [], "a cut that failed holds nothing"


def test_a_repaired_file_is_cut_with_what_lies_behind_its_voided_part() -> None:
    stage = Stage()
    with stage.store() as store:
        for key in (b"a", b"b", b"c"):
            put(store, {key: b"1"})
        store.rotate()
        [record] = sealed(store)
        path = join(DIRECTORY, record.name)
        blocks = walk(memoryview(stage.disk.contents(path)), record.identity, 0, record.end).headers
        bad = [block for block in blocks if block.kind == BlockKind.ENTRIES][1]
        flip_bit(stage.disk, path, 8 * (bad.body_at + 1))
        good = [block.checksum for block in blocks if block is not bad]
        voided = record.changed(voided=(Voided(bad.offset, bad.end, "damaged"),), running=running_of(good))
        store.manifest.commit([file_change(voided)])
        assert rows(fork(stage, store.cut()).snapshot()) == of_storage({b"a": b"1", b"c": b"1"})


def running_of(checksums: list[int]) -> int:
    from warren.durability.log_file import run_on

    running = 0
    for checksum in checksums:
        running = run_on(running, checksum)
    return running


# -- a new timeline --------------------------------------------------------------------------------------------------


def test_opening_a_cut_begins_a_new_timeline_that_knows_where_it_left() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        epoch = put(store, {b"a": b"2"})
        put(store, {b"a": b"3"})
        own = store.manifest.state.timeline
        opened = fork(stage, store.cut(epoch))
        theirs = opened.manifest.state.timeline
        assert theirs.id != own.id
        assert theirs.ancestry == (*own.ancestry, Ancestor(own.id, epoch))
        assert put(opened, {b"b": b"1"}) == epoch + 1, "numbers go on, on another timeline"
        reader = Pins(stage.disk, "fork", stage.clock, SeededRandom(3))
        reader.take("spark", 60.0, from_epoch=epoch, timeline=own.id)
        with pytest.raises(Refused, match=f"was abandoned: this store left it at epoch {epoch}"):
            reader.take("spark", 60.0, from_epoch=Epoch(epoch + 1), timeline=own.id)
        opened.close()
        assert rows(store.refresh()) == of_storage({b"a": b"3"})
    opened = remembered(LogStore.open("fork", stage.settings, stage.environment()))
    assert opened.manifest.state.timeline == theirs, "only the first opening forks"
    assert rows(opened.snapshot()) == of_storage({b"a": b"2", b"b": b"1"})
    opened.close()


def test_a_cut_of_a_cut_holds_what_the_fork_wrote() -> None:
    """Its files were sealed at later epochs of the store it came from; that must not pass for sealed in the fork."""
    stage = Stage(**FOREVER)
    with stage.store() as store:
        first = put(store, {b"a": b"1"})
        for number in range(5):
            put(store, {b"later": b"%d" % number})
        opened = fork(stage, store.cut(first))
        epoch = put(opened, {b"b": b"2"})
        again = opened.cut(epoch)
        second = fork(stage, again, "fork of fork")
        assert rows(second.snapshot()) == of_storage({b"a": b"1", b"b": b"2"})
        assert len(second.manifest.state.timeline.ancestry) == 2
        second.close()
        opened.compact()
        opened.purge()
        assert rows(opened.refresh()) == of_storage({b"a": b"1", b"b": b"2"})
        assert opened.manifest.state.horizon <= opened.durable
        opened.close()


def test_the_horizon_of_a_cut_does_not_lie_beyond_it() -> None:
    """A stream's purge has moved the horizon; the key-values of an earlier epoch are all there."""
    stage = Stage()
    with stage.store() as store:
        epoch = put(store, {b"a": b"1"})
        stream = store.stream("messages")
        for _ in range(3):
            with stream.begin() as session:
                session.record(b"message")
        store.rotate()
        stream.move_base(stream.end)
        store.purge()
        assert store.manifest.state.horizon > epoch
        cut = store.cut(epoch)
        assert cut.state.horizon <= epoch
        opened = fork(stage, cut)
        put(opened, {b"b": b"2"})
        Pins(stage.disk, "fork", stage.clock, SeededRandom(3)).take("spark", 60.0, from_epoch=Epoch(epoch + 1))
        opened.close()


def test_a_stream_is_cut_with_its_records_up_to_the_epoch() -> None:
    stage = Stage(**FOREVER)
    with stage.store() as store:
        stream = store.stream("messages")
        epochs = []
        for number in range(4):
            session = stream.begin()
            session.record(b"message %d" % number)
            epochs.append(session.commit())
        opened = fork(stage, store.cut(epochs[1]))
        found = [value for _, block in opened.stream("messages").read() for value in block.values.to_list()]
        assert found == [b"message 0", b"message 1"]
        opened.close()


# -- beside others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_while_writers_continue_holds_every_session_up_to_its_epoch_and_none_behind(seed: int) -> None:
    stage = Stage(channel_count=2, rotate_bytes=1500, **FOREVER)
    written: list[tuple[Epoch, bytes]] = []

    def body(store: LogStore) -> list[Checkpoint]:
        threads = store.environment.threads
        cuts: list[Checkpoint] = []

        def write(channel: int) -> None:
            for number in range(8):
                key = b"%d %d" % (channel, number)
                written.append((put(store, {key: b"x"}, channel=channel), key))

        def cut() -> None:
            for _ in range(3):
                certain = {key for _, key in written}
                cuts.append(store.cut())
                assert certain <= {key for epoch, key in written if epoch <= cuts[-1].epoch}
                store.compact()

        running = [threads.start("zero", lambda: write(0)), threads.start("one", lambda: write(1))]
        for one in [*running, threads.start("cut", cut)]:
            one.join()
        for number, created in enumerate(cuts):
            created.write_to(stage.disk, threads, stage.rng, f"cut {number}")
        return cuts

    for number, created in enumerate(stage.play(seed, body)):
        opened = remembered(LogStore.open(f"cut {number}", stage.settings, stage.environment()))
        assert rows(opened.snapshot()) == of_storage({key: b"x" for epoch, key in written if epoch <= created.epoch})
        opened.close()


@pytest.mark.parametrize("model", [SYNCED, REORDERED])
def test_a_power_cut_while_a_cut_is_written_leaves_a_store_or_no_store(model: CrashModel) -> None:
    """The manifest comes last: whatever opens as a store has all of its files."""
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.compact()
        remove(store, b"a")
        put(store, {b"b": b"2"})
        cut = store.cut()
    counted = FaultyFiles(stage.crashed(SYNCED).disk)
    cut.write_to(counted, SystemThreads(), SeededRandom(1), "fork")
    opened = 0
    for step in range(len(counted.steps) + 1):
        environment = stage.crashed(SYNCED)
        with pytest.raises(PowerCut) if step < len(counted.steps) else _nothing():
            cut.write_to(FaultyFiles(environment.disk, cut_at=step), SystemThreads(), SeededRandom(1), "fork")
        after = environment.crashed(model, step)
        if not after.disk.exists("fork/manifest"):
            continue
        fork_store = LogStore.open("fork", stage.settings, after.environment())
        assert rows(fork_store.snapshot()) == of_storage({b"b": b"2"})
        assert set(cut.state.files) <= set(read_manifest(after.disk, "fork").files)
        fork_store.close()
        opened += 1
    assert opened >= 1


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *reported: object) -> None: ...
