"""Repair: the store opens again with everything that was not hit; what was hit is voided, quarantined and reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.log.forge import DIRECTORY, EVERYTHING, QUIET, STORAGE, environment, put, small_store, stored
from tools.simulator.corruption import flip_bit
from warren.base.errors import Damage, Gone, Refused, WarrenError
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.files.protocol import Files, join
from warren.log.check.repair import Repair
from warren.log.check.verify import VerifyReport, verify
from warren.log.file_record import LOCK, MANIFEST, QUARANTINE, FileState
from warren.log.manifest import ManifestState, read_manifest
from warren.log.read.read_only import open_for_reading
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import ALL, SYNCED, CrashModel, MemoryFiles, PowerCut

SEALED, ACTIVE = "pwal_0000.0000000001", "pwal_0000"
HEADER_AT, ENTRIES_AT, CLOSING_AT = 20, 180, 280  # bytes of the first blocks of a file


def repair(files: Files, epoch: int | None = None, cut: bool = False) -> Repair:
    back_to = None if epoch is None else Epoch(epoch)
    return Repair(files, DIRECTORY, ManualClock(), SystemThreads(), SeededRandom(3), back_to, cut, thread_num=1)


def check(files: MemoryFiles) -> VerifyReport:
    return verify(files, DIRECTORY, SystemThreads(), thread_num=1)


def state_of(files: MemoryFiles) -> ManifestState:
    return read_manifest(files, DIRECTORY)


def contents(files: MemoryFiles) -> dict[str, bytes]:
    """Every file of the directory but the lock, whose text names the holder."""
    found: dict[str, bytes] = {}
    for home in ("", QUARANTINE, "staging", "snapshot"):
        directory = join(DIRECTORY, home) if home else DIRECTORY
        for name in files.list(directory):
            path = join(directory, name)
            if name != LOCK and not files.stat(path).is_directory:
                found[path] = files.contents(path)
    return found


def damaged(name: str, at: int) -> MemoryFiles:
    files = small_store(is_stopped=False)
    flip_bit(files, join(DIRECTORY, name), at * 8)
    return files


def check_repaired(files: MemoryFiles, lost: set[bytes]) -> None:
    """The store is good, opens with everything but what was lost, and can be written."""
    report = check(files)
    assert report.is_good, list(map(str, report.findings))
    store = LogStore.open(DIRECTORY, QUIET, environment(files, 4))
    assert {row.key for row in store.snapshot().cursor()} == set(EVERYTHING) - lost
    put(store, b"afterwards")
    store.close()
    report = check(files)
    assert report.is_good, list(map(str, report.findings))
    assert set(stored(files)) == (set(EVERYTHING) - lost) | {b"afterwards"}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("name", "at", "lost"),
    [
        (SEALED, HEADER_AT, set()),
        (SEALED, ENTRIES_AT, {b"key 0"}),
        (SEALED, CLOSING_AT, set()),
        (ACTIVE, HEADER_AT, set()),
        (ACTIVE, ENTRIES_AT, {b"key 4"}),
        (ACTIVE, CLOSING_AT, set()),
    ],
)
def test_a_damaged_block_is_voided_and_everything_else_is_served(
    name: str, at: int, lost: set[bytes], cut: bool
) -> None:
    files = damaged(name, at)
    before = check(files)
    assert before.first_damage is not None
    report = repair(files, cut=cut).run()
    assert report.is_needed and len(report.epochs_hit) == 1
    assert report.entries_lost is None or report.entries_lost == len(lost)
    [hit] = [plan for plan in report.repairs if plan.hits]
    assert hit.voided[0].start == before.first_damage.offset
    assert hit.voided[0].start <= at < hit.voided[0].end
    assert hit.voided[0].reason.startswith("damaged: ")
    check_repaired(files, lost)


@pytest.mark.parametrize("at", [HEADER_AT, ENTRIES_AT])
def test_voided_bytes_are_kept_in_quarantine_as_they_were(at: int) -> None:
    files = damaged(SEALED, at)
    original = files.contents(join(DIRECTORY, SEALED))
    report = repair(files).run()
    [voided] = next(plan.voided for plan in report.repairs if plan.hits)
    remaining = join(DIRECTORY, QUARANTINE, f"0000000001-{voided.start}-{voided.end}.voided")
    assert remaining in report.quarantined
    assert files.contents(remaining) == original[voided.start : voided.end]


def test_without_cut_the_damaged_file_is_not_changed() -> None:
    files = damaged(SEALED, ENTRIES_AT)
    original = files.contents(join(DIRECTORY, SEALED))
    inode = files.stat(join(DIRECTORY, SEALED)).inode
    repair(files).run()
    assert files.contents(join(DIRECTORY, SEALED)) == original
    assert files.stat(join(DIRECTORY, SEALED)).inode == inode


def test_cut_writes_a_new_file_with_the_good_blocks_at_their_own_places() -> None:
    files = damaged(SEALED, ENTRIES_AT)
    path = join(DIRECTORY, SEALED)
    original, inode = files.contents(path), files.stat(path).inode
    other_name = join(DIRECTORY, "linked into a backup")
    files.link(path, other_name)
    report = repair(files, cut=True).run()
    record = state_of(files).files[report.repairs[0].record.number]
    [voided] = record.voided
    assert files.stat(path).inode != inode
    wanted = original[: voided.start] + bytes(voided.end - voided.start) + original[voided.end : record.end]
    assert files.contents(path) == wanted
    assert files.contents(other_name) == original
    assert original in [files.contents(remaining) for remaining in report.quarantined]


def test_a_dry_run_changes_nothing_and_reports_the_same() -> None:
    files = damaged(ACTIVE, ENTRIES_AT)
    before = contents(files)
    planned = repair(files, cut=True).plan()
    assert contents(files) == before
    assert planned.is_dry_run and planned.is_needed
    done = repair(files, cut=True).run()
    assert [plan.voided for plan in planned.repairs] == [plan.voided for plan in done.repairs]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_good_store_is_left_alone(is_stopped: bool) -> None:
    files = small_store(is_stopped)
    before = contents(files)
    assert not repair(files).run().is_needed
    assert not repair(files, cut=True).run().is_needed
    assert contents(files) == before


def test_a_torn_tail_above_the_witness_is_left_to_opening() -> None:
    files = small_store(is_stopped=False)
    path = join(DIRECTORY, ACTIVE)
    whole = files.contents(path)
    end = len(whole.rstrip(b"\0")) + 8
    files.set_contents(path, whole[:end] + b"WRRN torn" + whole[end + 9 :])
    assert not repair(files).run().is_needed
    assert stored(files) == EVERYTHING


@pytest.mark.parametrize(
    ("name", "lost"),
    [("pwal_0001.0000000002", {b"key 1", b"key 3"}), ("pwal_0001", {b"key 5", b"key 7"})],
)
def test_a_missing_file_is_replaced_by_an_empty_one_and_its_entries_are_reported_as_lost(
    name: str, lost: set[bytes]
) -> None:
    files = small_store(is_stopped=False)
    files.remove(join(DIRECTORY, name))
    report = repair(files).run()
    assert report.entries_lost in (None, len(lost))
    assert any("missing" in voided.reason for plan in report.repairs for voided in plan.voided)
    check_repaired(files, lost)


def test_two_damaged_files_are_repaired_together() -> None:
    files = damaged(SEALED, ENTRIES_AT)
    flip_bit(files, join(DIRECTORY, "pwal_0001"), ENTRIES_AT * 8)
    assert len(repair(files).run().epochs_hit) == 2
    check_repaired(files, {b"key 0", b"key 5"})


def test_repairing_again_finds_nothing_to_do() -> None:
    files = damaged(ACTIVE, ENTRIES_AT)
    assert repair(files).run().is_needed
    assert not repair(files).run().is_needed
    assert repair(files, cut=True).run().is_needed
    assert not repair(files, cut=True).run().is_needed


def test_damage_above_the_witness_but_below_a_later_epoch_is_repaired_too() -> None:
    """The witness lags; a block of epoch 3 proves that epoch 2 was durable, and epoch 2 is hit."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    for key in (b"key 0", b"key 1", b"key 2"):
        put(store, key)
        if key == b"key 0":
            store.epoch_file.write(store.commit)
    store.abandon()
    log = open_for_reading(files, DIRECTORY)
    assert log.durable == 1
    flip_bit(files, join(DIRECTORY, ACTIVE), (400 + 70) * 8)
    with pytest.raises(Damage):
        stored(files)
    assert not check(files).is_good
    report = repair(files).run()
    assert report.durable == 3
    assert set(stored(files)) == {b"key 0", b"key 2"}
    assert check(files).is_good


def test_a_part_missing_at_a_files_end_is_known_from_the_other_files_closing_block() -> None:
    """Epoch 2 wrote to both channels; epoch 3 proves that it was durable; channel 1's part is torn off."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    put(store, b"key 0")
    store.epoch_file.write(store.commit)
    sessions = [store.begin(channel) for channel in (0, 1)]
    for channel, session in enumerate(sessions):
        session.put(STORAGE, b"both %d" % channel, b"")
        session.end()
    store.wait(Epoch(2))
    put(store, b"key 3")
    store.abandon()
    path = join(DIRECTORY, "pwal_0001")
    files.set_contents(path, files.contents(path)[:200] + bytes(2000))
    with pytest.raises(Damage):
        stored(files)
    report = repair(files).run()
    assert [plan.record.channel for plan in report.repairs if plan.hits] == [1]
    assert set(stored(files)) == {b"key 0", b"both 0", b"key 3"}
    assert check(files).is_good


# -- going back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", range(1, 8))
@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("cut", [False, True])
def test_epoch_goes_back_and_begins_a_new_timeline(epoch: int, is_stopped: bool, cut: bool) -> None:
    files = small_store(is_stopped)
    old = state_of(files).timeline
    report = repair(files, epoch=epoch, cut=cut).run()
    assert (report.closed[0], report.entries_cut, report.entries_lost) == (epoch, 8 - epoch, 0)
    timeline = state_of(files).timeline
    assert timeline.id != old.id and timeline.ancestry[-1].fork_epoch == epoch
    assert timeline.ancestry[-1].timeline == old.id
    timeline.admit(old.id, Epoch(epoch))
    with pytest.raises(Refused, match="abandoned"):
        timeline.admit(old.id, Epoch(epoch + 1))
    check_repaired(files, {b"key %d" % number for number in range(epoch, 8)})
    store = LogStore.open(DIRECTORY, QUIET, environment(files, 5))
    assert put(store, b"next") > 8, "an epoch number is never used twice"
    store.close()


def test_what_was_cut_away_is_kept_in_quarantine() -> None:
    files = small_store(is_stopped=True)
    report = repair(files, epoch=6).run()
    assert report.quarantined
    assert any(b"value of key 7" in files.contents(path) for path in report.quarantined)


@pytest.mark.parametrize(("epoch", "error"), [(8, Refused), (99, Refused)])
def test_an_epoch_that_is_not_in_the_past_is_refused(epoch: int, error: type[WarrenError]) -> None:
    files = small_store()
    before = contents(files)
    with pytest.raises(error):
        repair(files, epoch=epoch).run()
    assert contents(files) == before


def test_an_epoch_before_the_horizon_is_gone() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, replace(QUIET, retention_seconds=0), environment(files))
    for number in range(4):
        put(store, b"key %d" % number)
    store.compact()
    store.purge()
    put(store, b"later")
    store.close()
    with pytest.raises(Gone, match="horizon is 4"):
        repair(files, epoch=3).run()


def test_going_back_behind_a_compaction_uses_the_log_files_it_was_made_from() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    for number in range(4):
        put(store, b"key %d" % number)
    store.compact()
    put(store, b"key 4")
    store.close()
    report = repair(files, epoch=2).run()
    assert [record.name for record in report.dropped if "compacted" in record.name]
    assert state_of(files).compacted == ()
    assert set(stored(files)) == {b"key 0", b"key 1"}
    assert check(files).is_good


# -- derived files ---------------------------------------------------------------------------------------------------


def with_compacted(retention_seconds: float) -> tuple[MemoryFiles, str]:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, replace(QUIET, retention_seconds=retention_seconds), environment(files))
    for number in range(8):
        put(store, b"key %d" % number)
    store.compact()
    store.purge()
    store.close()
    return files, next(name for name in files.list(DIRECTORY) if "compacted" in name)


def test_a_damaged_compacted_file_is_not_missed_while_its_sources_are_there() -> None:
    files, name = with_compacted(retention_seconds=1000)
    flip_bit(files, join(DIRECTORY, name), 200 * 8)
    report = repair(files).run()
    assert [record.name for record in report.dropped if "compacted" in record.name] == [name]
    assert report.entries_lost == 0
    assert stored(files) == EVERYTHING
    assert check(files).is_good


def test_a_damaged_compacted_file_without_sources_loses_the_hit_block_only_and_says_so() -> None:
    files, name = with_compacted(retention_seconds=0)
    flip_bit(files, join(DIRECTORY, name), 200 * 8)
    report = repair(files).run()
    assert report.entries_lost == 8
    assert stored(files) == {}
    assert check(files).is_good


def test_a_damaged_snapshot_is_set_aside_and_made_anew() -> None:
    files = small_store(is_stopped=True, settings=replace(QUIET, snapshot_at_stop=True))
    [name] = files.list(join(DIRECTORY, "snapshot"))
    flip_bit(files, join(DIRECTORY, "snapshot", name), 150 * 8)
    report = repair(files).run()
    assert [record.name for record in report.dropped] == [f"snapshot/{name}"]
    assert report.entries_lost == 0
    assert stored(files) == EVERYTHING


def test_a_snapshot_of_what_is_lost_is_kept_in_quarantine_and_no_longer_served() -> None:
    files = small_store(is_stopped=True, settings=replace(QUIET, snapshot_at_stop=True))
    flip_bit(files, join(DIRECTORY, SEALED), ENTRIES_AT * 8)
    report = repair(files).run()
    assert any(b"value of key 0" in files.contents(path) for path in report.quarantined if "snapshot" in path)
    assert set(stored(files)) == set(EVERYTHING) - {b"key 0"}


# -- what cannot be done ---------------------------------------------------------------------------------------------


def test_a_store_that_is_open_is_refused_and_its_holder_named() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    with pytest.raises(Refused, match="locked by warren log store"):
        repair(files).run()
    store.close()
    assert not repair(files).run().is_needed


def test_a_directory_that_is_no_store_is_refused() -> None:
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    with pytest.raises(Refused, match="no log directory"):
        repair(files).run()
    assert files.list(DIRECTORY) == []


def test_a_damaged_manifest_is_reported_with_its_place() -> None:
    files = small_store()
    flip_bit(files, join(DIRECTORY, MANIFEST), 100 * 8)
    with pytest.raises(Damage, match="manifest") as raised:
        repair(files).run()
    assert raised.value.path == join(DIRECTORY, MANIFEST)
    assert raised.value.hint


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", [ALL, SYNCED], ids=["all", "synced"])
@pytest.mark.parametrize(
    ("name", "at", "lost"), [(SEALED, HEADER_AT, set()), (ACTIVE, HEADER_AT, set()), (SEALED, ENTRIES_AT, {b"key 0"})]
)
def test_a_power_cut_at_any_step_of_a_repair_is_mended_by_repeating_it(
    model: CrashModel, name: str, at: int, lost: set[bytes]
) -> None:
    step = 0
    while True:
        disk = damaged(name, at).crash(ALL, SeededRandom(1))
        try:
            repair(FaultyFiles(disk, cut_at=step), cut=True).run()
        except PowerCut:
            pass
        else:
            assert step > 20
            return
        after = disk.crash(model, SeededRandom(step))
        repair(after, cut=True).run()
        assert set(stored(after)) == set(EVERYTHING) - lost, step
        assert check(after).is_good
        step += 1


def test_after_a_repair_no_active_file_is_left_and_every_record_says_what_is_void() -> None:
    files = damaged(ACTIVE, ENTRIES_AT)
    repair(files).run()
    state = state_of(files)
    assert not state.of_state(FileState.ACTIVE)
    assert [len(record.voided) for record in state.files.values()].count(1) == 1
