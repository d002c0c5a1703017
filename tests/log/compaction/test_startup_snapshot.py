"""The start-up snapshot: what it reads, when it is kept, when it is made again, and that it says what a dict would."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import DIRECTORY, Stage, State, numbers, of_storage, put, remove, rows, sealed, watch
from tools.simulator.corruption import flip_bit
from warren.base.errors import Damage, OutOfRoom
from warren.base.ids import Epoch
from warren.files.protocol import join
from warren.log.compaction.compaction import CompactionCatalog, snapshot_inputs
from warren.log.compaction.jobs import InlineWorker, Job, run_job
from warren.log.compaction.sorted_file import SortedFileRow
from warren.log.compaction.startup_snapshot import StartupSnapshot
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.manifest import read_manifest, set_change
from warren.log.settings import EntryKind
from warren.log.store import LogStore
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, PowerCut

HOME = f"{DIRECTORY}/snapshot"
PlainRow = tuple[int, bytes, bytes]  # storage, key, value


def snapshot_record(store: LogStore) -> FileRecord:
    return store.manifest.state.files[store.manifest.state.snapshot]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Every job that is run from now on, also while a store is being opened."""
    seen: list[Job] = []

    def run(self: InlineWorker, job: Job, progress: Callable[[float], None]) -> dict[str, object]:
        seen.append(job)
        return run_job(self._files, self._threads, job, progress)

    monkeypatch.setattr(InlineWorker, "run", run)
    return seen


# -- what is read ----------------------------------------------------------------------------------------------------


def test_while_nothing_is_compacted_every_log_file_is_read(jobs: list[Job]) -> None:
    """ST-01: rotated ones and the one that was being written, on all channels."""
    stage = Stage(channel_count=2)
    store = stage.open()
    for number in range(4):
        put(store, {b"%d" % number: b"x"}, channel=number % 2)
        if number < 2:
            store.rotate()
    written = numbers(sealed(store)) + [channel.participant.number for channel in store.channels]
    store.abandon()
    with stage.store() as store:
        assert [job.purpose for job in jobs] == [FileKind.SNAPSHOT]
        assert [record.number for record in jobs[0].inputs] == sorted(written)
        assert rows(store.snapshot()) == of_storage({b"%d" % number: b"x" for number in range(4)})


def test_behind_a_compaction_the_compacted_file_and_what_is_not_in_it_are_read(jobs: list[Job]) -> None:
    """ST-02: the unrotated PWALs, the compacted file, and the rotated PWALs that are not compacted yet."""
    stage = Stage(retention_seconds=1e9, retention_bytes=1 << 30)
    store = stage.open()
    put(store, {b"a": b"compacted"})
    store.compact()
    put(store, {b"b": b"rotated"})
    store.rotate()
    put(store, {b"c": b"unrotated"})
    compacted, rotated = CompactionCatalog.of(store.manifest.state).compacted, sealed(store)[-1]
    unrotated = store.channels[0].participant.number
    assert len(sealed(store)) == 2, "the target of the compaction is still there"
    store.abandon()
    jobs.clear()
    with stage.store() as store:
        assert [record.number for record in jobs[0].inputs] == [compacted[0].number, rotated.number, unrotated]
        assert rows(store.snapshot()) == of_storage({b"a": b"compacted", b"b": b"rotated", b"c": b"unrotated"})


def test_rotated_files_are_chosen_by_the_catalog_as_a_compaction_would(jobs: list[Job]) -> None:
    """ST-03, C-24: a file that was rotated and not compacted is read, a compacted one is passed over. Which files
    are rotated is read from the disk: the manifest's list, since a restart has no answer of a rotation."""
    stage = Stage(retention_seconds=1e9, retention_bytes=1 << 30)
    store = stage.open()
    for number in range(3):
        put(store, {b"%d" % number: b"x"})
        store.rotate()
    store.compact()
    for number in range(3, 5):
        put(store, {b"%d" % number: b"x"})
        store.rotate()
    store.close()
    state = read_manifest(stage.disk, DIRECTORY)
    catalog = CompactionCatalog.of(state)
    rotated = [record for record in state.of_state(FileState.SEALED) if record.purpose is FileKind.LOG]
    assert len(rotated) == 5
    wanted = [*catalog.compacted, *catalog.targets(rotated)]
    assert len(wanted) == 3
    assert snapshot_inputs(state) == wanted
    jobs.clear()
    with stage.store() as store:
        assert [record.number for record in jobs[0].inputs] == numbers(wanted)
        assert rows(store.snapshot()) == of_storage({b"%d" % number: b"x" for number in range(5)})


@pytest.mark.parametrize("purge", [False, True])
def test_a_snapshot_has_the_same_contents_before_and_after_a_compaction(purge: bool) -> None:
    """ST-04: also over restarts; tests/log/compaction/test_compaction.py says it of every history."""
    stage = Stage()
    with stage.store() as store:
        put(store, {b"%03d" % number: b"first" for number in range(200)})
        remove(store, *(b"%03d" % number for number in range(0, 200, 3)))
        put(store, {b"%03d" % number: b"second" for number in range(0, 200, 7)})
        before = list(store.refresh().cursor())
        store.compact()
        if purge:
            store.purge()
        behind = list(store.refresh().cursor())
        assert behind == before, "keys, values and versions"
    with stage.store() as store:
        assert list(store.snapshot().cursor()) == before


# -- when it is kept -------------------------------------------------------------------------------------------------


def test_the_snapshot_of_a_clean_stop_is_the_next_start_s(jobs: list[Job]) -> None:
    stage = Stage(snapshot_at_stop=True)
    with stage.store() as store:
        put(store, {b"a": b"1"})
        epoch = store.durable
    assert [job.purpose for job in jobs] == [FileKind.SNAPSHOT]
    [remaining] = stage.disk.list(HOME)
    with stage.store() as store:
        assert len(jobs) == 1, "nothing was merged"
        assert stage.disk.list(HOME) == [remaining]
        assert store.snapshot().epoch == epoch
        assert rows(store.snapshot()) == of_storage({b"a": b"1"})
    assert len(jobs) == 1, "nothing was written, so nothing is made"


def test_what_ended_and_was_not_waited_for_is_in_the_snapshot_of_the_stop() -> None:
    stage = Stage(snapshot_at_stop=True)
    with stage.store() as store:
        session = store.begin()
        session.put(1, b"a", b"1")
        session.end()
    with stage.store() as store:
        assert rows(store.snapshot()) == of_storage({b"a": b"1"})


def test_without_the_setting_nothing_is_made_at_the_stop(jobs: list[Job]) -> None:
    stage = Stage(snapshot_at_stop=False)
    with stage.store() as store:
        put(store, {b"a": b"1"})
    assert jobs == []
    with stage.store() as store:
        assert rows(store.snapshot()) == of_storage({b"a": b"1"})
    assert len(jobs) == 1


def kept_snapshot() -> tuple[Stage, str]:
    stage = Stage(snapshot_at_stop=True)
    with stage.store() as store:
        put(store, {b"%03d" % number: b"x" for number in range(100)})
    [name] = stage.disk.list(HOME)
    return stage, join(HOME, name)


def spoil_nothing(stage: Stage, path: str) -> None:
    pass


def remove_it(stage: Stage, path: str) -> None:
    stage.disk.remove(path)


def empty_it(stage: Stage, path: str) -> None:
    stage.disk.set_contents(path, b"")


def cut_it_short(stage: Stage, path: str) -> None:
    stage.disk.set_contents(path, stage.disk.contents(path)[:-20])


def flip_its_header(stage: Stage, path: str) -> None:
    flip_bit(stage.disk, path, 8 * 20)


def flip_its_index(stage: Stage, path: str) -> None:
    flip_bit(stage.disk, path, 8 * (len(stage.disk.contents(path)) - 10))


def put_another_in_its_place(stage: Stage, path: str) -> None:
    other, elsewhere = Stage(seed=2, snapshot_at_stop=True), ""
    with other.store() as store:
        put(store, {b"other": b"x"})
    [elsewhere] = other.disk.list(HOME)
    stage.disk.set_contents(path, other.disk.contents(join(HOME, elsewhere)))


def fill_it_with_noise(stage: Stage, path: str) -> None:
    stage.disk.set_contents(path, bytes(range(256)) * 20)


SPOILERS = [
    remove_it,
    empty_it,
    cut_it_short,
    flip_its_header,
    flip_its_index,
    put_another_in_its_place,
    fill_it_with_noise,
]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_snapshot_that_is_not_whole_is_made_again(spoil: Callable[[Stage, str], None], jobs: list[Job]) -> None:
    """It is derived: nothing is lost by it."""
    stage, path = kept_snapshot()
    spoil(stage, path)
    jobs.clear()
    with stage.store() as store:
        assert len(jobs) == 1
        assert rows(store.snapshot()) == of_storage({b"%03d" % number: b"x" for number in range(100)})
        assert len(stage.disk.list(HOME)) == 1


def test_a_snapshot_the_disk_will_not_give_is_made_again(jobs: list[Job]) -> None:
    stage, path = kept_snapshot()
    jobs.clear()
    with stage.store(FaultyFiles(stage.disk, [Fault(FaultKind.IO_ERROR, "open", path)])) as store:
        assert len(jobs) == 1
        assert len(store.snapshot()) == 100


def test_damage_inside_a_block_is_found_when_it_is_touched_and_refresh_makes_a_good_one() -> None:
    stage, path = kept_snapshot()
    flip_bit(stage.disk, path, 8 * stage.disk.contents(path).index(b"050"))
    with stage.store() as store:
        with pytest.raises(Damage) as caught:
            list(store.snapshot().cursor())
        assert caught.value.path == path
        with pytest.raises(Damage):
            store.snapshot().get(1, b"050")
        assert len(rows(store.refresh())) == 100


def test_a_snapshot_of_another_epoch_is_made_again(jobs: list[Job]) -> None:
    stage, _ = kept_snapshot()
    store = stage.open(snapshot_at_stop=False)
    epoch = put(store, {b"new": b"y"})
    store.close()
    jobs.clear()
    with stage.store() as store:
        assert len(jobs) == 1
        assert store.snapshot().epoch == epoch
        assert store.snapshot().get(1, b"new") == b"y"


def test_a_snapshot_of_a_later_epoch_than_is_durable_is_not_believed(jobs: list[Job]) -> None:
    stage, _ = kept_snapshot()
    store = stage.open()
    store.manifest.commit([set_change(snapshot_epoch=Epoch(store.durable + 1))])
    store.abandon()
    jobs.clear()
    with stage.store() as store:
        assert len(jobs) == 1
        assert len(store.snapshot()) == 100


def test_an_empty_store_has_an_empty_snapshot() -> None:
    stage = Stage(snapshot_at_stop=True)
    for _ in range(2):
        with stage.store() as store:
            snapshot = store.snapshot()
            assert (len(snapshot), rows(snapshot), snapshot.get(1, b"a")) == (0, {}, None)
            assert [*snapshot.range(1), *snapshot.prefix(1, b"a"), *snapshot.batches()] == []
            assert stage.disk.list(HOME) == []


def test_what_was_removed_leaves_an_empty_snapshot_behind() -> None:
    with Stage().store() as store:
        put(store, {b"a": b"1"})
        remove(store, b"a")
        snapshot = store.refresh()
        assert (len(snapshot), rows(snapshot)) == (0, {})


# -- refreshing ------------------------------------------------------------------------------------------------------


def test_a_snapshot_stays_what_it_is_while_others_are_made_and_its_file_goes() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        old = store.refresh()
        put(store, {b"a": b"2", b"b": b"2"})
        new = store.refresh()
        store.compact()
        store.purge()
        assert rows(old) == of_storage({b"a": b"1"})
        assert rows(new) == of_storage({b"a": b"2", b"b": b"2"})
        assert old.epoch < new.epoch == store.durable
        assert len(stage.disk.list(HOME)) == 1, "the manifest's one is kept, the other one is not"


def test_a_compaction_that_comes_between_takes_the_snapshot_along() -> None:
    """What it superseded is unknown by then: a snapshot of the older epoch would lack the key altogether."""
    with Stage().store() as store:
        put(store, {b"a": b"1"})
        rotated = store.rotate()
        epoch = put(store, {b"a": b"2"})
        store.compact()
        snapshot = store._snapshots.make(rotated.epoch)
        assert rows(snapshot) == of_storage({b"a": b"2"})
        assert snapshot.epoch == epoch


@pytest.mark.parametrize("seed", range(15))
def test_refreshing_beside_writers_and_compactions_shows_every_session_up_to_its_epoch(seed: int) -> None:
    written: list[tuple[Epoch, bytes, bytes]] = []

    def body(store: LogStore) -> None:
        threads = store.environment.threads

        def write() -> None:
            for number in range(8):
                key, value = b"%d" % (number % 3), b"%d" % number
                written.append((put(store, {key: value}), key, value))

        def refresh() -> None:
            for _ in range(4):
                snapshot = store.refresh()
                wanted = {key: value for epoch, key, value in written if epoch <= snapshot.epoch}
                assert rows(snapshot) == of_storage(wanted), f"epoch {snapshot.epoch} of {written}"

        def compact() -> None:
            for _ in range(3):
                store.compact()

        for one in [threads.start(body.__name__, body) for body in (write, refresh, compact)]:
            one.join()

    Stage(retention_seconds=1e9, retention_bytes=1 << 30).play(seed, body)


def test_two_refreshes_at_once_both_show_the_state() -> None:
    def body(store: LogStore) -> None:
        threads = store.environment.threads
        put(store, {b"a": b"1"})
        found: list[State] = []
        running = [threads.start(f"{n}", lambda: found.append(rows(store.refresh()))) for n in range(3)]
        for one in running:
            one.join()
        assert found == [of_storage({b"a": b"1"})] * 3

    for seed in range(30):
        Stage().play(seed, body)


def test_a_refresh_beside_compaction_and_purge_finds_its_inputs() -> None:
    def body(store: LogStore) -> None:
        threads = store.environment.threads

        def upkeep() -> None:
            for number in range(3):
                put(store, {b"b": b"%d" % number})
                store.compact()
                store.purge()

        def refresh() -> None:
            for _ in range(4):
                assert store.refresh().get(1, b"a") == b"1"

        put(store, {b"a": b"1"})
        for one in [threads.start("upkeep", upkeep), threads.start("refresh", refresh)]:
            one.join()

    for seed in range(40):
        Stage().play(seed, body)


def test_a_full_disk_ends_the_refresh_gives_its_room_back_and_keeps_the_old_snapshot() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        old = store.refresh()
        put(store, {b"%04d" % number: bytes(50) for number in range(1000)})
        store.rotate()
        stage.disk.capacity_bytes = stage.disk.used_bytes + 20_000
        with pytest.raises(OutOfRoom):
            store.refresh()
        assert stage.disk.list(f"{DIRECTORY}/staging") == []
        assert store.snapshot() is old and rows(old) == of_storage({b"a": b"1"})
        stage.disk.capacity_bytes = None
        assert len(store.refresh()) == 1001


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_of_a_snapshot_costs_a_snapshot_and_nothing_else(model: CrashModel) -> None:
    def body(store: LogStore) -> None:
        put(store, {b"a": b"1", b"b": b"1"})
        store.refresh()
        put(store, {b"a": b"2"})
        marks.append(len(files.steps))
        store.refresh()

    marks: list[int] = []
    files = FaultyFiles(Stage().disk)
    first = Stage(files.inner)  # type: ignore[arg-type]
    first.play(1, body, files)
    for step in range(marks[0], len(files.steps)):
        stage = Stage()
        with pytest.raises(PowerCut):
            stage.play(1, body, FaultyFiles(stage.disk, cut_at=step))
        after = Stage(stage.disk.crash(model, SeededRandom(step)))
        with after.store() as store:
            assert rows(store.snapshot()) == of_storage({b"a": b"2", b"b": b"1"}), files.steps[step]
            assert after.disk.list(HOME) == [snapshot_record(store).name.rpartition("/")[2]]
            assert after.disk.list(f"{DIRECTORY}/staging") == []


# -- reading ---------------------------------------------------------------------------------------------------------

KEY = st.binary(max_size=3) | st.sampled_from([b"\xff\xff", b"a", b"ab", b"b"])
PAIRS = st.dictionaries(st.tuples(st.sampled_from([0, 1, 7, 2**64 - 1]), KEY), st.binary(max_size=6), max_size=25)


@settings(max_examples=80, deadline=None)
@given(PAIRS, KEY, KEY)
def test_reading_agrees_with_a_dict(model: State, low: bytes, high: bytes) -> None:
    """Cursor, point lookup, range, prefix and batches, forwards and backwards, in every storage."""
    with Stage().store() as store:
        with store.begin() as session:
            for (storage, key), value in model.items():
                session.put(storage, key, value)
        snapshot = store.refresh()
        wanted = sorted((storage, key, value) for (storage, key), value in model.items())
        assert plain(snapshot.cursor()) == wanted
        assert len(snapshot) == len(model)
        for storage in (0, 1, 7, 2**64 - 1):
            check_storage(snapshot, storage, [row for row in wanted if row[0] == storage], low, high)
        batches = [batch for batch in snapshot.batches() if batch.count]
        found = [
            (batch.storages.at(row), batch.keys.at(row), batch.values.at(row))
            for batch in batches
            for row in range(batch.count)
        ]
        assert found == wanted
        assert all(batch.kinds.at(row) == EntryKind.PUT for batch in batches for row in range(batch.count))


def check_storage(
    snapshot: StartupSnapshot, storage: int, wanted: list[tuple[int, bytes, bytes]], low: bytes, high: bytes
) -> None:
    for _, key, value in wanted:
        assert snapshot.get(storage, key) == value
    for key in (low, high):
        assert snapshot.get(storage, key) == {key: value for _, key, value in wanted}.get(key)
    assert plain(snapshot.range(storage)) == wanted
    between = [row for row in wanted if low <= row[1] < high]
    assert plain(snapshot.range(storage, low, high)) == between
    assert plain(snapshot.range(storage, low, high, reverse=True)) == between[::-1]
    assert plain(snapshot.range(storage, low)) == [row for row in wanted if low <= row[1]]
    prefixed = [row for row in wanted if row[1].startswith(low)]
    assert plain(snapshot.prefix(storage, low)) == prefixed
    assert plain(snapshot.prefix(storage, low, reverse=True)) == prefixed[::-1]


def plain(found: Iterable[SortedFileRow]) -> list[PlainRow]:
    return [(row.storage, row.key, row.value) for row in found]


def test_a_snapshot_of_many_blocks_is_read_across_their_borders() -> None:
    with Stage().store() as store:
        keys = [b"key %05d" % number for number in range(0, 6000, 2)]
        with store.begin() as session:
            session.put_many(1, keys, [bytes(200)] * len(keys))
        snapshot = store.refresh()
        assert sum(1 for _ in snapshot.batches()) > 2
        assert [row.key for row in snapshot.cursor()] == keys
        assert [row.key for row in snapshot.range(1, b"key 02000", b"key 04001")] == keys[1000:2001]
        assert [row.key for row in snapshot.range(1, b"key 02000", b"key 04001", reverse=True)] == keys[1000:2001][::-1]
        assert snapshot.get(1, b"key 03334") == bytes(200) and snapshot.get(1, b"key 03335") is None


def test_versions_are_shown_with_the_rows() -> None:
    with Stage().store() as store:
        epoch = put(store, {b"a": b"1"})
        with store.begin() as session:
            session.put(1, b"b", b"2", (epoch + 50, 3))
        assert [row.version for row in store.refresh().cursor()] == [(epoch, 0), (epoch + 50, 3)]


def test_snapshots_are_jobs_of_the_same_worker() -> None:
    with Stage().store() as store:
        put(store, {b"a": b"1"})
        watched = watch(store)
        store.refresh()
        assert [job.purpose for job in watched.jobs] == [FileKind.SNAPSHOT]
