"""Opening: automatic after any stop, each step again after a power cut, and never a number twice."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.left_open import remembered
from tests.log.stage import (
    DIRECTORY,
    QUIET,
    STORAGE,
    headers_of,
    log_records,
    memory_machine,
    names_in,
    opened,
    put,
    quiet,
    rows_of,
    small_disk,
)
from tools.simulator.corruption import flip_bit, tear_tail
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.durability.epoch_file import SLOT_BYTES
from warren.durability.log_file import LogFile
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.file_record import EPOCH, LOCK, MANIFEST, QUARANTINE, FileState
from warren.log.manifest import read_manifest
from warren.log.store import LogStore
from warren.testing.fakes import START_WALL_NS, ManualClock, SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

HEADER_BYTES = 96


def keys(files: MemoryFiles, store: LogStore) -> list[bytes]:
    return [row.key for row in rows_of(files, store.durable)]


def participant_of(store: LogStore, channel: int = 0) -> LogFile:
    return store.channels[channel].participant


# -- what a stop left ------------------------------------------------------------------------------------------------


def test_a_new_directory_becomes_a_store_and_parents_are_made() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        assert store.durable == 0
        assert {"epoch", "lock", "manifest", "pwal_0000"} <= set(names_in(files))
        put(store, b"key")


def test_a_clean_stop_is_opened_with_all_of_it() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        epochs = [put(store, b"%d" % number) for number in range(5)]
    with opened(files, 2) as store:
        assert store.durable == epochs[-1]
        assert keys(files, store) == [b"%d" % number for number in range(5)]
        assert store.opened.problems == []
        assert put(store, b"next") == epochs[-1] + 1, "after a clean stop no number is passed over"


def test_a_killed_store_opens_automatically_and_its_open_session_never_was() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, b"durable")
    gone = store.begin()
    gone.put(STORAGE, b"open", b"")
    ended = store.begin()
    ended.put(STORAGE, b"ended, never committed", b"")
    ended.end()
    store.abandon()
    with opened(files, 2) as store:
        assert keys(files, store) == [b"durable"]
        put(store, b"continues")
        assert keys(files, store) == [b"durable", b"continues"]
        assert store.rotate().is_complete


def test_a_number_is_never_used_twice() -> None:
    """Neither one that lies in a file, nor one that was only given to a session which died with the process."""
    files = MemoryFiles()
    reported: list[Epoch] = []
    for run in range(8):
        disk = FaultyFiles(files)
        store = remembered(LogStore.open(DIRECTORY, QUIET, memory_machine(disk, run)))
        assert store.commit.open_epoch > max([0, *reported])
        reported.append(put(store, b"durable %d" % run))
        session = store.begin()
        session.put(STORAGE, b"lost %d" % run, b"")
        reported.append(session.end())
        if run % 3 == 1:  # written, and caught before the sync
            disk.cut_at = len(disk.steps) + 1
            with suppress(PowerCut):
                store.wait(reported[-1])
            files = files.crash((SYNCED, REORDERED)[run % 2], SeededRandom(run))
        elif run % 3 == 2:
            store.abandon()
            files = files.crash(ALL, SeededRandom(run))
        else:
            store.close()
    assert len(set(reported)) == len(reported)
    with opened(files, 99) as store:
        assert store.commit.open_epoch > max(reported)
        by_epoch = [row.epoch for row in rows_of(files, store.durable)]
        assert len(by_epoch) == len(set(by_epoch))
        assert {b"durable %d" % run for run in range(8)} <= set(keys(files, store))


def test_a_number_given_out_in_a_run_that_wrote_nothing_is_not_given_out_again() -> None:
    files = MemoryFiles()
    reported = []
    for run in range(5):
        store = opened(files, run)
        session = store.begin()
        session.put(STORAGE, b"never committed", b"")
        reported.append(session.end())
        store.abandon()
    assert len(set(reported)) == 5
    assert reported == sorted(reported)


def test_what_was_not_durable_is_voided_by_the_manifest_and_kept_in_quarantine() -> None:
    """Rule 4: no byte of a file is changed for it; the file is sealed with its valid end, the range noted."""
    disk = FaultyFiles(files := MemoryFiles())
    store = remembered(LogStore.open(DIRECTORY, QUIET, memory_machine(disk)))
    put(store, b"durable")
    end = participant_of(store).end
    session = store.begin()
    session.put(STORAGE, b"void", b"x" * 300)
    disk.cut_at, disk.cut_fraction = len(disk.steps), 0.6
    with pytest.raises(PowerCut):
        session.commit()
    left = files.crash(ALL, SeededRandom(1))
    before = left.contents(join(DIRECTORY, "pwal_0000"))
    with opened(left, 2) as store:
        sealed = log_records(left)[0]
        assert (sealed.state, sealed.name, sealed.end) == (FileState.SEALED, "pwal_0000.0000000001", end)
        assert left.contents(join(DIRECTORY, sealed.name)) == before
        assert sealed.is_repaired
        voided = sealed.voided[0]
        assert (voided.start, voided.reason) == (end, "torn")
        remaining = left.list(join(DIRECTORY, QUARANTINE))
        assert remaining == [f"0000000001-{voided.start}-{voided.end}.voided"]
        assert left.contents(join(DIRECTORY, QUARANTINE, remaining[0])) == before[voided.start : voided.end]
        assert keys(left, store) == [b"durable"]


def test_an_active_file_with_nothing_in_it_is_written_on() -> None:
    files = MemoryFiles()
    for run in range(4):
        opened(files, run).close()
    assert [record.number for record in log_records(files)] == [1]
    with opened(files, 9) as store:
        put(store, b"key")
        assert keys(files, store) == [b"key"]


def test_channels_can_be_more_or_fewer_than_last_time() -> None:
    files = MemoryFiles()
    with opened(files, settings=quiet(channel_count=3)) as store:
        for channel in range(3):
            put(store, b"%d" % channel, channel=channel)
    with opened(files, 2, quiet(channel_count=1)) as store:
        assert len(store.channels) == 1
        assert keys(files, store) == [b"0", b"1", b"2"]
        put(store, b"one", channel=0)
    with opened(files, 3, quiet(channel_count=2)) as store:
        put(store, b"two", channel=1)
        assert sorted(keys(files, store)) == [b"0", b"1", b"2", b"one", b"two"]


def test_what_opening_calls_durable_is_synced_before_it_is_believed() -> None:
    """After a mere kill the last epoch may stand in the page cache only; a power cut later must not take it back."""
    disk = FaultyFiles(files := MemoryFiles())
    store = remembered(LogStore.open(DIRECTORY, QUIET, memory_machine(disk)))
    put(store, b"first")
    session = store.begin()
    session.put(STORAGE, b"in the page cache", b"")
    disk.cut_at = len(disk.steps) + 1  # before the sync
    with pytest.raises(PowerCut):
        session.commit()
    files._locks.clear()  # the process is gone, the machine is not
    with opened(files, 2) as store:
        assert keys(files, store) == [b"first", b"in the page cache"]
        durable = store.durable
        left = files.crash(SYNCED, SeededRandom(1))
    with opened(left, 3) as store:
        assert store.durable >= durable
        assert keys(left, store) == [b"first", b"in the page cache"]


# -- the epoch file --------------------------------------------------------------------------------------------------


def stopped_store() -> MemoryFiles:
    files = MemoryFiles()
    store = opened(files)
    for number in range(3):
        put(store, b"%d" % number)
        store.witness()
    store.abandon()
    return files


@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)])
def test_a_torn_epoch_file_opens_and_says_so(slots: tuple[int, ...]) -> None:
    files = stopped_store()
    for slot in slots:
        flip_bit(files, join(DIRECTORY, EPOCH), (slot * SLOT_BYTES + 30) * 8)
    with opened(files, 2) as store:
        assert keys(files, store) == [b"0", b"1", b"2"]
        assert store.durable == 3
        assert store.opened.problems == [f"{DIRECTORY}/epoch: slot {slot} is damaged" for slot in slots]


@pytest.mark.parametrize("size", [0, 1, 100, SLOT_BYTES, SLOT_BYTES + 100])
def test_an_epoch_file_cut_anywhere_opens(size: int) -> None:
    files = stopped_store()
    path = join(DIRECTORY, EPOCH)
    files.set_contents(path, files.contents(path)[:size])
    with opened(files, 2) as store:
        assert keys(files, store) == [b"0", b"1", b"2"]
        put(store, b"3")
    with opened(files, 3) as store:
        assert keys(files, store) == [b"0", b"1", b"2", b"3"]


def test_an_epoch_file_of_another_store_is_not_believed() -> None:
    files, other = stopped_store(), MemoryFiles()
    with opened(other, 77) as store:
        for number in range(9):
            put(store, b"%d" % number)
    files.set_contents(join(DIRECTORY, EPOCH), other.contents(join(DIRECTORY, EPOCH)))
    with opened(files, 2) as store:
        assert store.durable == 3


def test_the_monotone_time_does_not_go_back_when_the_clock_does_and_the_epoch_file_is_lost() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        put(store, b"key")
        monotone = store.commit.marks.monotone_ns
        assert monotone >= START_WALL_NS
        store.rotate()
    for name in names_in(files):
        if name.startswith(EPOCH):
            files.remove(join(DIRECTORY, name))
    clock = ManualClock(wall_ns=5)
    with LogStore.open(DIRECTORY, QUIET, memory_machine(files, 2, clock=clock)) as store:
        assert store.commit.marks.monotone_ns >= monotone
        put(store, b"key")
        assert store.commit.marks.monotone_ns > monotone


# -- files that should not be there, or should be --------------------------------------------------------------------


def test_log_files_that_no_edit_names_are_set_aside_not_deleted() -> None:
    """They were made for an edit which did not come, so that nothing in them was confirmed."""
    files, other = MemoryFiles(), MemoryFiles()
    with opened(other, 5, quiet(channel_count=2)) as store:
        put(store, b"elsewhere", channel=1)
    foreign = other.contents(join(DIRECTORY, "pwal_0001"))
    with opened(files) as store:
        put(store, b"key")
    for name, content in (("pwal_0007", foreign), ("pwal_0003.0000000099", b"not even a header")):
        files.create(join(DIRECTORY, name)).close()
        files.set_contents(join(DIRECTORY, name), content)
    files.create(join(DIRECTORY, "notes.txt")).close()
    with opened(files, 2) as store:
        assert keys(files, store) == [b"key"]
        assert files.contents(join(DIRECTORY, QUARANTINE, "pwal_0007.0")) == foreign
        assert files.contents(join(DIRECTORY, QUARANTINE, "pwal_0003.0000000099.0")) == b"not even a header"
        assert len(store.opened.problems) == 2
        assert all("unknown to the manifest" in problem for problem in store.opened.problems)
        assert "notes.txt" in names_in(files), "what is no log file is none of our business"


def test_a_missing_log_file_is_damage_that_names_it() -> None:
    for is_rotated in (False, True):
        files = MemoryFiles()
        with opened(files) as store:
            put(store, b"key")
            if is_rotated:
                store.rotate()
        name = "pwal_0000.0000000001" if is_rotated else "pwal_0000"
        files.remove(join(DIRECTORY, name))
        with pytest.raises(Damage, match=r"log file 1 .*missing") as damage:
            opened(files, 2)
        assert damage.value.path == join(DIRECTORY, name)
        assert "verify" in damage.value.hint


def test_log_files_without_a_manifest_are_not_taken_for_a_new_store() -> None:
    files = stopped_store()
    files.remove(join(DIRECTORY, MANIFEST))
    with pytest.raises(Damage, match="but no manifest"):
        opened(files, 2)
    assert "pwal_0000" in names_in(files)


def test_a_manifest_that_is_older_than_the_witness_is_damage() -> None:
    """An old copy was put back, or the last edits are gone: files it does not know may hold durable entries."""
    files = MemoryFiles()
    store = opened(files)
    old = files.contents(join(DIRECTORY, MANIFEST))
    put(store, b"key")
    store.rotate()
    store.witness()
    store.abandon()
    files.set_contents(join(DIRECTORY, MANIFEST), old)
    with pytest.raises(Damage, match=r"ends with edit \d+, \d+ were synced") as damage:
        opened(files, 2)
    assert damage.value.path == join(DIRECTORY, MANIFEST)


def test_a_file_that_was_rotated_but_not_yet_named_so_is_found_under_either_name() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, b"key")
    store.abandon()
    files.rename(join(DIRECTORY, "pwal_0000"), join(DIRECTORY, "pwal_0000.0000000001"))
    with opened(files, 2) as store:
        assert keys(files, store) == [b"key"]


# -- the lock --------------------------------------------------------------------------------------------------------


def test_a_second_opener_is_refused_with_the_holder_of_the_directory(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with LogStore.open(directory, QUIET) as store:
        with pytest.raises(Refused, match="locked by") as refusal:
            LogStore.open(directory, QUIET)
        assert refusal.value.hint == "stop that one first"
        holder = (tmp_path / "log" / LOCK).read_text()
        assert holder in refusal.value.what
        assert f"process {os.getpid()} on " in holder
        session = store.begin()
        session.put(STORAGE, b"undisturbed", b"")
        session.commit()
    with LogStore.open(directory, QUIET):
        assert [row.key for row in rows_of(LocalFiles(), directory=directory)] == [b"undisturbed"]


def test_the_lock_is_released_when_opening_fails() -> None:
    files = stopped_store()
    path = join(DIRECTORY, MANIFEST)
    remaining = files.contents(path)
    files.set_contents(path, b"no manifest")
    for _ in range(2):
        with pytest.raises(Damage):
            opened(files, 2)
    files.set_contents(path, remaining)
    opened(files, 3).close()


@pytest.mark.parametrize("count", [-1, 0, 101])
def test_a_count_of_channels_that_no_log_has_is_refused(count: int) -> None:
    with pytest.raises(Refused, match=f"{count} channels") as refusal:
        opened(MemoryFiles(), settings=quiet(channel_count=count))
    assert "channel_count" in refusal.value.hint


@pytest.mark.parametrize("changes", [{"rotate_bytes": 2 << 30}, {"session_bytes_max": 2 << 30}])
def test_files_too_long_for_log_sequence_numbers_are_refused(changes: dict[str, int]) -> None:
    """CL-05: 32 of the 64 bits are for the place in the file; behind them numbers would be given twice."""
    with pytest.raises(Refused, match="a log file has at most") as refusal:
        opened(MemoryFiles(), settings=quiet(**changes))
    assert next(iter(changes)) in refusal.value.hint
    opened(MemoryFiles(), settings=quiet(rotate_bytes=1 << 30)).close()


def test_a_hundred_channels_are_opened_written_rotated_and_opened_again() -> None:
    """CL-04: a log has room for about a hundred streams with channels of their own."""
    files = small_disk()
    with opened(files, settings=quiet(channel_count=100)) as store:
        for channel in range(100):
            session = store.begin(channel)
            session.put(STORAGE, b"%d" % channel, b"")
            epoch = session.end()
        store.wait(epoch)
        assert len(store.rotate().rotated) == 100
        put(store, b"next", channel=99)
    with opened(files, 2, quiet(channel_count=100)) as store:
        assert len(keys(files, store)) == 101


# -- a power cut while opening ---------------------------------------------------------------------------------------


def crashed_store() -> MemoryFiles:
    """Two channels, three durable epochs, a fourth of which only one part reached the disk whole, and an orphan."""
    memory, threads = small_disk(), SteppedThreads(5)

    def body() -> None:
        environment = memory_machine(memory, 1, threads, threads.clock)
        store = LogStore.open(DIRECTORY, quiet(channel_count=2), environment)
        for number in range(3):
            put(store, b"%d" % number, channel=number % 2)
            store.witness()
        end = participant_of(store, 1).end
        for channel in range(2):
            session = store.begin(channel)
            session.put(STORAGE, b"void", bytes(100))
            epoch = session.end()
        store.wait(epoch)
        store.abandon()
        flip_bit(memory, join(DIRECTORY, "pwal_0001"), (end + 80) * 8)

    threads.run(body)
    memory.create(join(DIRECTORY, "pwal_0009")).close()
    return memory.crash(ALL, SeededRandom(1))


def open_until(files: MemoryFiles, step: int | None, seed: int) -> int:
    """Open and abandon, or a power cut at a step; how many steps there were."""
    threads = SteppedThreads(seed)
    disk = FaultyFiles(files, cut_at=step, cut_fraction=0.5, on_cut=threads.cut_power)
    environment = memory_machine(disk, seed, threads, threads.clock)
    with suppress(PowerCut):
        threads.run(lambda: LogStore.open(DIRECTORY, quiet(channel_count=2), environment).abandon())
    return len(disk.steps)


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_of_opening_and_another_one_in_the_next_lose_nothing(model: CrashModel) -> None:
    before = crashed_store()
    steps = open_until(before.crash(ALL, SeededRandom(0)), None, 2)
    assert steps > 15
    for step in range(steps):
        once = before.crash(ALL, SeededRandom(0))
        open_until(once, step, 2)
        twice = once.crash(model, SeededRandom(step))
        open_until(twice, (step * 7) % steps, 3)
        files = twice.crash(model, SeededRandom(step))
        with opened(files, 4, quiet(channel_count=2)) as store:
            assert sorted(keys(files, store)) == [b"0", b"1", b"2"], f"cut at step {step}"
            assert store.durable == 3
            seen = [header.epoch for record in log_records(files) for header in headers_of(files, record)]
            assert store.commit.open_epoch > max([4, *seen])
            put(store, b"next")


def test_damage_below_the_witness_is_found_also_after_an_opening_that_was_cut_short() -> None:
    """It leaves a newer epoch file, which names the new files; the old ones must not be forgotten."""
    steps = open_until(crashed_store(), None, 2)
    for step in range(steps):
        files = crashed_store()
        open_until(files, step, 2)
        files = files.crash(ALL, SeededRandom(step))
        record = log_records(files)[0]
        if record.state is FileState.SEALED:
            break
        names = [name for name in names_in(files) if name in ("pwal_0000", "pwal_0000.0000000001")]
        name = next(n for n in names if files.contents(join(DIRECTORY, n))[HEADER_BYTES:].strip(b"\0"))
        flip_bit(files, join(DIRECTORY, name), (HEADER_BYTES + 90) * 8)
        with pytest.raises(Damage):
            opened(files, 3, quiet(channel_count=2))
    else:
        raise AssertionError("the opening never sealed the file")
    assert step > 10


def test_opening_is_repeatable_without_end() -> None:
    files = crashed_store()
    for run in range(5):
        open_until(files, None, 10 + run)
    state = read_manifest(files, DIRECTORY)
    assert len([r for r in state.files.values() if r.state is FileState.ACTIVE]) == 2
    with opened(files, 50, quiet(channel_count=2)) as store:
        assert sorted(keys(files, store)) == [b"0", b"1", b"2"]


def test_a_torn_tail_of_any_length_behind_the_witness_opens() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, b"witnessed")
    store.witness()
    put(store, b"a" * 200)
    put(store, b"b" * 200)
    end = participant_of(store).end
    start = participant_of(store).durable_end.end - 200
    store.abandon()
    whole = files.contents(join(DIRECTORY, "pwal_0000"))
    for size in range(start, end, 11):
        files = files.crash(ALL, SeededRandom(1))
        files.set_contents(join(DIRECTORY, "pwal_0000"), whole)
        tear_tail(files, join(DIRECTORY, "pwal_0000"), len(whole) - size)
        copy = files.crash(ALL, SeededRandom(1))
        with opened(copy, 2) as store:
            assert keys(copy, store)[:2] == [b"witnessed", b"a" * 200]


def test_threads_and_handles_are_given_back_when_opening_fails_late() -> None:
    """A full disk in the last steps of opening: no thread of ours stays behind."""
    files = MemoryFiles()
    with opened(files) as store:
        put(store, b"key")
    files.capacity_bytes = files.used_bytes + 1000
    before = set(threading.enumerate())
    for _ in range(2):
        with suppress(Exception):
            LogStore.open(DIRECTORY, QUIET, memory_machine(files, 2, SystemThreads()))
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()
    files.capacity_bytes = None
    with opened(files, 3) as store:
        assert keys(files, store) == [b"key"]
