"""The buffer of our own: what goes to files, when, and what becomes of the files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from tests.log.merge_model import Entry, columns_of
from tests.snapshot.version_buffer_suite import DIRECTORY, SPILLS_SOON_BYTES, TIMELINE, Model, all_of, emptied, put
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import OutOfRoom, SyncFailed
from warren.base.ids import ChannelId
from warren.base.threads import SystemThreads, Threads
from warren.files.protocol import Files, join
from warren.snapshot.version_buffer.memory_buffer import MemoryBuffer
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles, Pages
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

A, B = ChannelId(0), ChannelId(1)
EVERYTHING = (1 << 64) - 1, (1 << 64) - 1


def opened(files: Files, threads: Threads | None = None, memory_bytes_max: int = SPILLS_SOON_BYTES) -> MemoryBuffer:
    rng = SeededRandom(len(files.list("/")) + 1)
    return MemoryBuffer(files, threads or SystemThreads(), rng, DIRECTORY, TIMELINE, memory_bytes_max, block_bytes=100)


def some(major: int, count: int = 4, value: bytes = b"v") -> list[Entry]:
    return [put((major, n), b"%d" % n, value) for n in range(count)]


def names(files: Files) -> list[str]:
    return files.list(DIRECTORY)


def test_vb_03_nothing_is_written_while_memory_suffices() -> None:
    disk = FaultyFiles(MemoryFiles())
    buffer = opened(disk, memory_bytes_max=1 << 20)
    before = len(disk.steps)
    for major in range(40):
        buffer.add(A, major * 4, columns_of(some(major)))
    taken = buffer.take((30, 0))
    assert len(all_of(taken)) == 121
    taken.done()
    assert len(disk.steps) == before


def test_vb_16_the_estimate_of_memory_is_raised_with_every_insert_and_lowered_again() -> None:
    buffer = opened(MemoryFiles(), memory_bytes_max=1 << 30)
    sizes = [buffer.memory_bytes]
    for major in range(60):
        buffer.add(A, major * 4, columns_of(some(major, value=b"v" * 1000)))
        sizes.append(buffer.memory_bytes)
    steps = [after - before for before, after in pairwise(sizes)]
    assert min(steps) >= 4000 and sizes[-1] >= 60 * 4000
    taken = buffer.take(EVERYTHING)
    assert buffer.memory_bytes >= 60 * 4000
    taken.done()
    assert buffer.memory_bytes == 0


def test_many_small_batches_are_joined_so_that_their_objects_do_not_fill_the_memory() -> None:
    buffer = opened(MemoryFiles(), memory_bytes_max=1 << 30)
    entries = [put((n, 1 << 40 if n % 2 else n), b"%d" % n, b"v" * (n % 7)) for n in range(3200)]
    for record, entry in enumerate(entries):
        buffer.add(ChannelId(record % 3), record, columns_of([entry]))
    assert buffer.memory_bytes < 3200 * 100
    assert emptied(buffer) == entries


def test_vb_14_above_the_threshold_the_contents_are_written_to_a_file() -> None:
    disk = MemoryFiles()
    buffer = opened(disk)
    largest = 0
    for major in range(50):
        buffer.add(A, major * 4, columns_of(some(major, value=b"v" * 500)))
        largest = max(largest, buffer.memory_bytes)
    assert len(names(disk)) > 3
    assert largest <= SPILLS_SOON_BYTES
    assert buffer.entries == 200 and len(emptied(buffer)) == 200


def test_vb_15_a_file_is_never_written_again_once_it_is_whole() -> None:
    disk = FaultyFiles(MemoryFiles())
    buffer = opened(disk)
    model = Model()
    for major in (7, 3, 9, 1, 5):
        for _ in range(6):
            model.add(buffer, major % 2, some(major))
        buffer.take((4, 0)).put_back()
    buffer.persist()
    buffer.take((4, 0)).done()
    writes = [step.path for step in disk.steps if step.operation in ("write", "create")]
    spells = [path for n, path in enumerate(writes) if n == 0 or writes[n - 1] != path]
    assert len(spells) == len(set(spells)) > 5
    assert not [step for step in disk.steps if step.operation == "rename"]


def test_vb_17_everything_in_memory_goes_in_order_to_a_file_whose_name_was_never_used() -> None:
    """VB-17: also after a restart, since the name is random: a backup takes equal names for one file."""
    disk = MemoryFiles()
    used: list[str] = []
    for life in range(3):
        buffer = MemoryBuffer(disk, SystemThreads(), SeededRandom(life), DIRECTORY, TIMELINE)
        for major in (5, 2, 9):
            buffer.add(A, major, columns_of(some(major)))
        buffer.persist()
        assert buffer.memory_bytes == 0
        [name] = names(disk)
        used.append(name)
        taken = buffer.take(EVERYTHING)
        assert [batch.majors.at(0) for batch in taken.batches()] == [2, 5, 9]
    assert len(set(used)) == 3


@pytest.mark.parametrize("is_persist", [False, True])
def test_vb_18_vb_23_others_insert_while_a_file_is_written(is_persist: bool) -> None:
    """Some schedule lets an insert begin and end inside the writing; in none is anything lost or out of order."""
    inserted_meanwhile = 0
    for seed in range(60):
        threads = SteppedThreads(seed, switch_probability=0.4)
        disk = FaultyFiles(MemoryFiles(), pause=threads.pause)
        inserted_meanwhile += threads.run(partial(_insert_while_writing, disk, threads, is_persist))
    assert inserted_meanwhile > 0


def _insert_while_writing(disk: FaultyFiles, threads: SteppedThreads, is_persist: bool) -> int:
    buffer = opened(disk, threads)
    buffer.add(A, 0, columns_of(some(0, 16)))  # leaves room for the others: they need not write
    inserted_at: list[int] = []  # how many steps the disk had seen

    def write() -> None:
        if is_persist:
            buffer.persist()
        else:
            buffer.add(A, 16, columns_of(some(4, value=b"v" * 4000)))

    def insert() -> None:
        for record in range(3):
            buffer.add(B, record, columns_of([put((1, record), b"other")]))
            inserted_at.append(len(disk.steps))

    for running in [threads.start("write", write), threads.start("insert", insert)]:
        running.join()
    first = next(step.path for step in disk.steps if step.operation == "create")
    writing = [number for number, step in enumerate(disk.steps) if step.path == first and step.operation != "sync"]
    found = emptied(buffer)
    assert [entry.version for entry in found] == sorted(entry.version for entry in found)
    assert len(found) == 16 + 3 + (0 if is_persist else 4)
    return sum(writing[0] < at <= writing[-1] for at in inserted_at)


def test_vb_13_adding_taking_and_persisting_at_once_lose_nothing_whatever_the_schedule() -> None:
    for seed in range(25):
        threads = SteppedThreads(seed, switch_probability=0.3, starve_probability=0.1)
        disk = FaultyFiles(MemoryFiles(), pause=threads.pause)
        found = threads.run(partial(_all_at_once, disk, threads))
        assert sorted(entry.version for entry in found) == [(n, channel) for n in range(12) for channel in range(2)]


def _all_at_once(disk: FaultyFiles, threads: SteppedThreads) -> list[Entry]:
    buffer = opened(disk, threads)
    found: list[Entry] = []

    def add(channel: int) -> None:
        for n in range(12):
            buffer.add(ChannelId(channel), n, columns_of([put((n, channel), b"k", b"v" * 2500)]))

    def take() -> None:
        for upper in range(0, 15, 3):
            taken = buffer.take((upper, 1))
            some = all_of(taken)
            assert [entry.version for entry in some] == sorted(entry.version for entry in some)
            if upper % 2:
                taken.put_back()
            else:
                taken.done()
                found.extend(some)

    def persist() -> None:
        for _ in range(3):
            buffer.persist()

    jobs: list[Callable[[], None]] = [partial(add, 0), partial(add, 1), take, persist]
    for running in [threads.start(f"job {number}", job) for number, job in enumerate(jobs)]:
        running.join()
    return found + emptied(buffer)


def test_vb_20_memory_and_files_are_merged_by_version() -> None:
    disk = MemoryFiles()
    buffer = opened(disk)
    model = Model()
    for start in range(5):
        entries = [put((1, minor), b"%d" % minor, b"v" * 300) for minor in range(start, 100, 5)]
        model.add(buffer, start % 2, entries)
    assert len(names(disk)) >= 2 and buffer.memory_bytes > 0
    taken = buffer.take((1, 70))
    assert all_of(taken) == model.take((1, 70))
    assert [entry.version[1] for entry in all_of(taken)] == list(range(71))


def test_vb_21_what_of_a_file_lies_above_the_range_goes_back() -> None:
    disk = MemoryFiles()
    buffer = opened(disk)
    buffer.add(A, 0, columns_of([put((1, minor), b"%d" % minor) for minor in range(30)]))
    [old] = buffer.persist()
    taken = buffer.take((1, 12))
    assert buffer.memory_bytes == 0
    taken.done()
    assert buffer.memory_bytes > 0 and buffer.entries == 17
    assert old not in [join(DIRECTORY, name) for name in names(disk)]
    assert [entry.version[1] for entry in emptied(buffer)] == list(range(13, 30))


def test_vb_22_a_range_read_uses_up_the_files_it_reads_when_it_is_done_and_not_before() -> None:
    """VB-22 with X-04 and C-15: files go at `done`. One that lies wholly above the range is not read, and stays."""
    disk = MemoryFiles()
    buffer = opened(disk)
    read = [*_file_of(buffer, 1), *_file_of(buffer, 2), *_file_of(buffer, 3)]
    [above] = _file_of(buffer, 9)
    taken = buffer.take((3, 1))
    assert [entry.version[0] for entry in all_of(taken)] == [1] * 4 + [2] * 4 + [3] * 2
    assert {join(DIRECTORY, name) for name in names(disk)} == {*read, above}
    taken.done()
    assert {join(DIRECTORY, name) for name in names(disk)} == {above}
    assert [entry.version for entry in emptied(buffer)] == [(3, 2), (3, 3), *[(9, n) for n in range(4)]]
    assert names(disk) == []


def _file_of(buffer: MemoryBuffer, major: int) -> list[str]:
    before = set(buffer.persist())
    buffer.add(A, major * 10, columns_of(some(major)))
    return sorted(set(buffer.persist()) - before)


def test_what_goes_back_from_files_is_spilled_again_rather_than_filling_the_memory() -> None:
    disk = MemoryFiles()
    buffer = opened(disk)
    for record in range(60):
        entries = [put((minor, 0), b"%d" % minor, b"v" * 400) for minor in range(record, 600, 60)]
        buffer.add(A, record * 10, columns_of(entries))
    files_before = len(names(disk))
    taken = buffer.take((5, 0))
    taken.done()
    assert buffer.memory_bytes <= SPILLS_SOON_BYTES
    assert files_before > 10 and len(names(disk)) > 10
    assert [entry.version[0] for entry in emptied(buffer)] == list(range(6, 600))


def test_vb_23_persist_brings_everything_to_synced_files_also_what_is_taken() -> None:
    disk = MemoryFiles()
    buffer = opened(disk)
    model = Model()
    for major in range(30):
        model.add(buffer, major % 2, some(major, value=b"v" * 300))
    taken = buffer.take((11, 1))
    expected = model.take((11, 1))
    model.add(buffer, 0, some(8))
    files = buffer.persist()
    assert buffer.memory_bytes == 0 and all_of(taken) == expected
    after = disk.crash(SYNCED, SeededRandom(1))
    assert {join(DIRECTORY, name) for name in names(after)} >= set(files)
    restored = MemoryBuffer(after, SystemThreads(), SeededRandom(3), DIRECTORY, TIMELINE, adopted=files)
    model.end(is_done=False)
    assert emptied(restored) == model.take(EVERYTHING)
    taken.put_back()
    assert buffer.entries == 124


def test_a_full_disk_costs_nothing_but_the_insert_that_met_it() -> None:
    disk = MemoryFiles(capacity_bytes=1 << 20)
    buffer = opened(disk)
    model = Model()
    for major in range(4):
        model.add(buffer, 0, some(major))
    disk.capacity_bytes = disk.used_bytes + 100
    with pytest.raises(OutOfRoom):
        model.add(buffer, 0, some(4, value=b"v" * 3000))
    assert names(disk) == [] and buffer.entries == model.entries == 16
    disk.capacity_bytes = None
    model.add(buffer, 0, some(4, value=b"v" * 3000))
    assert len(names(disk)) == 1
    assert emptied(buffer) == model.take(EVERYTHING)


def test_a_disk_that_fills_up_while_files_are_used_up_loses_nothing() -> None:
    for room in range(0, 12_000, 600):
        disk = MemoryFiles()
        buffer = opened(disk)
        model = Model()
        for record in range(20):
            model.add(buffer, 0, [put((minor, 0), b"%d" % minor, b"v" * 400) for minor in range(record, 200, 20)])
        taken = buffer.take((5, 0))
        model.take((5, 0))
        disk.capacity_bytes = disk.used_bytes + room
        model.end(is_done=True)
        try:
            taken.done()
        except OutOfRoom:
            assert buffer.entries == model.entries
        disk.capacity_bytes = None
        assert emptied(buffer) == model.take(EVERYTHING)


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_failed_is_not_tried_again_and_believed(operation: str) -> None:
    disk = FaultyFiles(MemoryFiles())
    buffer = opened(disk)
    buffer.add(A, 0, columns_of(some(1)))
    disk.faults = [Fault(FaultKind.IO_ERROR, operation, pages=Pages.CLEAN)]
    with pytest.raises(SyncFailed):
        buffer.persist()
    disk.faults = []
    disk._dead_directories.clear()
    with pytest.raises(SyncFailed, match="an earlier sync failed"):
        buffer.persist()
    assert buffer.entries == 4 and emptied(buffer) == some(1)


def _spill_and_use_up(disk: Files) -> None:
    buffer = opened(disk)
    for major in range(12):
        buffer.add(A, major * 4, columns_of(some(major, value=b"v" * 400)))
    buffer.persist()
    buffer.add(A, 100, columns_of(some(1)))
    buffer.take((6, 1)).done()
    buffer.close()


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_whatever_a_power_cut_leaves_of_the_files_is_cleared_away_on_opening(model: CrashModel) -> None:
    """X-03, C-15: nothing of the buffer is relied upon; at every step of writing and removing its files."""
    counting = FaultyFiles(MemoryFiles())
    _spill_and_use_up(counting)
    assert len(counting.steps) > 20
    left_over = 0
    for cut_at in range(len(counting.steps)):
        disk = MemoryFiles()
        with pytest.raises(PowerCut):
            _spill_and_use_up(FaultyFiles(disk, cut_at=cut_at, cut_fraction=0.5 if cut_at % 2 else None))
        after = disk.crash(model, SeededRandom(cut_at))
        left_over += len(names(after)) if after.exists(DIRECTORY) else 0
        buffer = opened(after)
        assert names(after) == [] and buffer.entries == 0
        buffer.add(A, 0, columns_of(some(1)))
        assert len(buffer.persist()) == 1 and emptied(buffer) == some(1)
    assert left_over > 0
