"""The one scanner: verdicts, what each means for the whole scan, workers, and entries that may be served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from tests.log.forge import DIRECTORY, EVERYTHING, QUIET, STORAGE, Forge, environment, put, small_store, stored
from tools.simulator.corruption import flip_bit
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Damage, DiskFailure, Gone, Refused
from warren.base.ids import Epoch, StreamId
from warren.base.threads import StartedThread, SystemThreads
from warren.files.protocol import base_name
from warren.log.file_record import FileRecord, FileState, Voided, is_detached_wal, is_wal
from warren.log.read.blocks import AtNondurable, FileScan, ScanVerdict
from warren.log.read.read_only import open_for_reading
from warren.log.read.scan import END_IS_BROKEN, LogInput, LogScan, ScanResult, entries_of, scan_one, settle
from warren.log.store import LogStore
from warren.records.format import FORMAT_VERSION
from warren.testing.memory_files import MemoryFiles

DURABLE = Epoch(2)


@pytest.fixture
def forge() -> Forge:
    """A file with epochs 1 and 2, both durable."""
    created = Forge(MemoryFiles())
    created.epoch(1, b"a", b"b")
    created.epoch(2, b"c")
    return created


def scan(
    forge: Forge,
    record: FileRecord,
    fail_fast: bool = False,
    at_nondurable: AtNondurable = AtNondurable.REPORT,
    reported: list[str] | None = None,
) -> ScanResult:
    job = LogScan(
        forge.files, DIRECTORY, [record], DURABLE, SystemThreads(), 1, fail_fast, at_nondurable,
        report=(reported if reported is not None else []).append,
    )  # fmt: skip
    return job.run()


def keys_of(found: FileScan) -> list[bytes]:
    return [key for columns in entries_of(found, DURABLE) for key in columns.keys.to_list()]


# -- the start-up scan -----------------------------------------------------------------------------------------------


def test_sc_01_the_start_up_scan_stops_at_the_first_damage() -> None:
    files = small_store()
    flip_bit(files, f"{DIRECTORY}/pwal_0000.0000000001", 100 * 8)
    with pytest.raises(Damage, match=r"pwal_0000\.0000000001 at byte 96"):
        LogStore.open(DIRECTORY, QUIET, environment(files, 2))


def test_sc_02_blocks_beyond_the_durable_epoch_are_repaired_by_marking(forge: Forge) -> None:
    """C-38: the mark is a manifest entry. The file stays as it is, and once marked it is good."""
    start = forge.epoch(3, b"not durable")
    before = forge.files.contents(forge.path)
    result = scan(forge, forge.active(), at_nondurable=AtNondurable.REPAIR_BY_MARK)
    assert result.verdict is ScanVerdict.REPAIRED
    [marked] = result.marked
    assert marked.voided == (Voided(start, forge.end, "not durable: epoch 3"),)
    assert forge.files.contents(forge.path) == before
    assert scan(forge, marked).verdict is ScanVerdict.OK


def test_sc_03_a_truncated_tail_is_reported(forge: Forge) -> None:
    start = forge.torn()
    reported: list[str] = []
    [found] = scan(forge, forge.active(), reported=reported).files
    assert found.verdict is ScanVerdict.BROKEN_AFTER
    assert (found.problems[0].offset, found.problems[0].is_tail) == (start, True)
    assert "broken_after" in reported[0] and forge.path in reported[0]


def test_sc_04_a_damaged_block_is_reported_with_its_place_and_what_it_hits(forge: Forge) -> None:
    record = forge.sealed()
    forge.spoil(100 + 64)
    reported: list[str] = []
    [found] = scan(forge, record, reported=reported).files
    assert found.verdict is ScanVerdict.UNEXPECTED
    [problem] = found.problems
    assert problem.offset == 96
    assert problem.hit is not None
    assert (problem.hit.first_epoch, problem.hit.kind, problem.hit.entries_max) == (1, "entries", 2)
    assert "entries block of epoch 1, at most 2 entries" in reported[0]


def test_sc_05_files_that_are_no_log_files_are_passed_over(forge: Forge) -> None:
    record = forge.sealed()
    forge.spoil(100)
    other = record.changed(name="notes.txt")
    assert not is_wal(other.name)
    result = scan(forge, other, fail_fast=True)
    assert (result.verdict, result.files) == (ScanVerdict.OK, ())


# -- verdicts and what they mean -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seal", [Forge.active, Forge.sealed])
def test_sc_06_a_whole_file_is_ok(forge: Forge, seal: Callable[[Forge], FileRecord]) -> None:
    [found] = scan(forge, seal(forge), fail_fast=True).files
    assert (found.verdict, found.problems, found.blocks, found.entries) == (ScanVerdict.OK, (), 5, 3)
    assert found.good == ((0, forge.end),)
    assert keys_of(found) == [b"a", b"b", b"c"]


def test_sc_07_repaired_means_that_this_scan_made_the_mark(forge: Forge) -> None:
    forge.epoch(3, b"x")
    once = scan(forge, forge.active(), fail_fast=True, at_nondurable=AtNondurable.REPAIR_BY_MARK)
    assert once.verdict is ScanVerdict.REPAIRED
    again = scan(forge, once.marked[0], fail_fast=True, at_nondurable=AtNondurable.REPAIR_BY_MARK)
    assert (again.verdict, again.marked) == (ScanVerdict.OK, ())


def test_sc_08_a_broken_tail_behind_a_mark_stops_the_scan_of_a_file_that_is_written(forge: Forge) -> None:
    """C-41: opening has sealed such a file before it is scanned at start-up."""
    forge.epoch(3, b"x")
    forge.torn()
    [found] = scan(forge, forge.active(), at_nondurable=AtNondurable.REPAIR_BY_MARK).files
    assert found.verdict is ScanVerdict.BROKEN_AFTER_MARKED
    with pytest.raises(Damage, match=END_IS_BROKEN):
        scan(forge, forge.active(), fail_fast=True, at_nondurable=AtNondurable.REPAIR_BY_MARK)


def test_sc_09_a_broken_tail_behind_a_mark_of_a_detached_file_is_repaired_or_ok(forge: Forge) -> None:
    record = forge.sealed()
    end = forge.end
    forge.epoch(3, b"x")
    torn = forge.torn()
    marked_now = scan(forge, record, fail_fast=True, at_nondurable=AtNondurable.REPAIR_BY_MARK)
    assert marked_now.verdict is ScanVerdict.REPAIRED
    marked_before = record.changed(voided=(Voided(end, torn + 40, "not durable: epoch 3"),))
    assert scan(forge, marked_before, fail_fast=True).verdict is ScanVerdict.OK


def test_sc_10_a_broken_tail_stops_the_scan_only_where_the_file_is_not_detached(forge: Forge) -> None:
    forge.torn()
    with pytest.raises(Damage, match=END_IS_BROKEN):
        scan(forge, forge.active(), fail_fast=True)
    assert scan(forge, forge.active(), fail_fast=False).verdict is ScanVerdict.BROKEN_AFTER
    assert scan(forge, forge.sealed(), fail_fast=True).verdict is ScanVerdict.BROKEN_AFTER


def test_sc_11_nondurable_entries_are_reported_and_no_reason_to_stop(forge: Forge) -> None:
    forge.epoch(3, b"x")
    reported: list[str] = []
    result = scan(forge, forge.active(), fail_fast=True, reported=reported)
    assert result.verdict is ScanVerdict.NONDURABLE_ENTRIES
    assert "nondurable_entries" in reported[0] and "beyond the durable epoch 2" in reported[0]
    assert keys_of(result.files[0]) == [b"a", b"b", b"c"]


def test_sc_12_damage_and_a_failed_read_stop_a_fail_fast_scan_with_the_message(forge: Forge) -> None:
    gone = forge.active().changed(number=9, channel=9, name="pwal_0009")
    assert scan(forge, gone).verdict is ScanVerdict.FAILED
    with pytest.raises(Damage, match="pwal_0009"):
        scan(forge, gone, fail_fast=True)
    forge.spoil(150)
    record = forge.sealed()
    with pytest.raises(Damage, match="checksum does not hold, bytes 96") as raised:
        scan(forge, record, fail_fast=True)
    assert (raised.value.path, raised.value.offset) == (forge.path, 96)


def test_sc_13_a_pending_cut_is_never_seen(forge: Forge) -> None:
    pending = FileScan(forge.active(), forge.path, memoryview(b""), ScanVerdict.BROKEN_AFTER_TOBE_CUT)
    with pytest.raises(AssertionError, match="pending cut"):
        settle(pending, False, lambda line: None)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("workers", [1, 2])
def test_sc_14_the_worst_verdict_of_all_files_is_kept(order: tuple[int, ...], workers: int) -> None:
    """SC-14: wherever in the list the worst file stands, and whichever file is scanned last."""
    files = MemoryFiles()
    good, torn, damaged = (Forge(files, number + 1, number) for number in range(3))
    for forge in (good, torn, damaged):
        forge.epoch(1, b"a")
    torn.torn()
    damaged_record = damaged.sealed()
    damaged.spoil(120)
    expected = [(good.active(), "ok"), (torn.active(), "broken_after"), (damaged_record, "unexpected")]
    arranged = [expected[place] for place in order]

    def verdict_of(count: int) -> ScanVerdict:
        records = [record for record, _ in arranged[:count]]
        result = LogScan(files, DIRECTORY, records, DURABLE, SystemThreads(), workers).run()
        assert [found.verdict.word for found in result.files] == [word for _, word in arranged[:count]]
        return result.verdict

    severity = {"ok": ScanVerdict.OK, "broken_after": ScanVerdict.BROKEN_AFTER, "unexpected": ScanVerdict.UNEXPECTED}
    for count in (1, 2, 3):
        assert verdict_of(count) is max(severity[word] for _, word in arranged[:count])


@pytest.mark.parametrize("order", list(permutations((11, 15, 12))))
def test_sc_15_the_highest_epoch_is_that_of_the_durable_epoch_and_all_files(order: tuple[int, ...]) -> None:
    """SC-15: it starts at the last durable epoch, and no later file lowers it."""
    files = MemoryFiles()
    forges = [Forge(files, number + 1, number) for number in range(3)]
    for forge, epoch in zip(forges, order, strict=True):
        forge.epoch(epoch, b"x")
    records = [forge.active() for forge in forges]
    highest = {
        durable: LogScan(files, DIRECTORY, records, Epoch(durable), SystemThreads(), 2).run().max_epoch
        for durable in (9, 14, 20)
    }
    assert highest == {9: 15, 14: 15, 20: 20}
    assert LogScan(files, DIRECTORY, [], Epoch(9), SystemThreads()).run().max_epoch == 9


# -- workers ---------------------------------------------------------------------------------------------------------


def several(count: int) -> tuple[MemoryFiles, list[FileRecord], list[Forge]]:
    files = MemoryFiles()
    forges = [Forge(files, number + 1, number) for number in range(count)]
    for number, forge in enumerate(forges):
        forge.epoch(1, b"key %d" % number)
    return files, [forge.active() for forge in forges], forges


@pytest.mark.parametrize("thread_num", [1, 2, 3, 16])
def test_sc_16_workers_take_one_file_at_a_time_from_the_shared_list(thread_num: int) -> None:
    files, records, _ = several(6)
    started: list[str] = []

    class Counting(SystemThreads):
        def start(self, name: str, body: Callable[[], None]):  # type: ignore[no-untyped-def]
            started.append(name)
            return super().start(name, body)

    seen: list[str] = []
    job = LogScan(
        files, DIRECTORY, records, DURABLE, Counting(), thread_num, on_file=lambda found: seen.append(found.path)
    )
    assert [found.record for found in job.run().files] == records
    assert sorted(seen) == sorted(f"{DIRECTORY}/{record.name}" for record in records)
    assert len(started) + 1 == min(thread_num, 6), "the caller is a worker too"


@pytest.mark.parametrize("seed", range(5))
def test_sc_17_a_worker_ends_when_no_file_is_left(seed: int) -> None:
    """Under threads that take turns by a seed a worker that did not end would be a deadlock."""
    threads = SteppedThreads(seed)
    files, records, _ = several(3)
    files.pause = threads.pause
    job = LogScan(files, DIRECTORY, records, DURABLE, threads, 2)
    result = threads.run(job.run)
    assert [found.record for found in result.files] == records


class Failing(MemoryFiles):
    """Opening a file fails, by its name, with an error that is not the scanned file's fault."""

    def __init__(self, inner: MemoryFiles, errors: dict[str, Exception]) -> None:
        self.__dict__.update(inner.__dict__)
        self.errors = errors

    def open(self, path: str, writable: bool = False):  # type: ignore[no-untyped-def]
        if error := self.errors.get(base_name(path)):
            raise error
        return super().open(path, writable)


@pytest.mark.parametrize("both_fail", [True, False])
def test_sc_18_the_first_error_is_kept_and_files_not_begun_are_left_alone(both_fail: bool) -> None:
    """Both workers are at a file. The started one fails; the caller's continues, or fails, once the other has ended."""
    files, records, _ = several(6)
    others: list[StartedThread] = []

    class Watched(SystemThreads):
        def start(self, name: str, body: Callable[[], None]) -> StartedThread:
            others.append(super().start(name, body))
            return others[-1]

    begun: list[str] = []
    caller, caller_began = threading.current_thread(), threading.Event()

    def fail(found: FileScan) -> None:
        begun.append(found.path)
        if threading.current_thread() is not caller:
            assert caller_began.wait(60)
            raise KeyError("first")
        caller_began.set()
        others[0].join()
        if both_fail:
            raise KeyError("second")

    with pytest.raises(KeyError, match="first"):
        LogScan(files, DIRECTORY, records, DURABLE, Watched(), 2, on_file=fail).run()
    assert len(begun) == 2


@pytest.mark.parametrize("seed", range(8))
def test_sc_19_the_error_reaches_the_caller_after_every_worker_has_ended(seed: int) -> None:
    threads = SteppedThreads(seed)
    files, records, _ = several(4)
    failing = Failing(files, {"pwal_0000": KeyError("kept")})
    failing.pause = threads.pause
    ended: list[str] = []

    class Watched(SteppedThreads):
        def start(self, name: str, body: Callable[[], None]):  # type: ignore[no-untyped-def]
            def watched() -> None:
                body()
                ended.append(name)

            return threads.start(name, watched)

        def condition(self):  # type: ignore[no-untyped-def]
            return threads.condition()

    def main() -> list[str]:
        with pytest.raises(KeyError, match="kept"):
            LogScan(failing, DIRECTORY, records, DURABLE, Watched(seed), 3).run()
        return list(ended)

    assert len(threads.run(main)) == 2, "the third worker is the caller"


def test_l6_03_targets_come_from_the_list_and_not_from_the_directory() -> None:
    files, records, forges = several(3)
    forges[2].spoil(120)
    result = LogScan(files, DIRECTORY, records[:2], DURABLE, SystemThreads(), 2, fail_fast=True).run()
    assert [found.record for found in result.files] == records[:2]
    sealed = forges[0].sealed()
    assert [is_wal(name) for name in files.list(DIRECTORY)] == [True] * 3
    assert is_detached_wal(sealed.name) and not is_detached_wal(records[1].name)
    assert scan_one(files, forges[0].path, sealed, DURABLE).is_detached


# -- where damage is, and what must not be believed ------------------------------------------------------------------


def test_an_active_file_that_ends_before_the_witness_is_damaged(forge: Forge) -> None:
    witnessed = forge.witnessed()
    forge.spoil(forge.end - 8)
    assert scan_one(forge.files, forge.path, forge.active(), DURABLE).verdict is ScanVerdict.BROKEN_AFTER
    found = scan_one(forge.files, forge.path, forge.active(), DURABLE, witnessed)
    assert found.verdict is ScanVerdict.UNEXPECTED
    assert found.problems[0].end == forge.end


def test_damage_before_a_durable_block_of_an_active_file_needs_no_witness(forge: Forge) -> None:
    forge.spoil(130)
    found = scan_one(forge.files, forge.path, forge.active(), DURABLE)
    assert found.verdict is ScanVerdict.UNEXPECTED
    assert keys_of(found) == [b"c"]


def test_a_block_that_was_sealed_and_is_now_another_good_one_is_damage(forge: Forge) -> None:
    record = forge.sealed().changed(running=1)
    found = scan_one(forge.files, forge.path, record, DURABLE)
    assert found.verdict is ScanVerdict.UNEXPECTED
    assert "running checksum" in found.problems[0].what


def test_a_voided_range_in_the_middle_is_stepped_over(forge: Forge) -> None:
    second = forge.epoch(2, b"d")
    last = forge.epoch(2, b"e")
    whole = forge.sealed()
    running = scan_one(forge.files, forge.path, whole, DURABLE).running
    forge.spoil(second + 70)
    damaged = scan_one(forge.files, forge.path, whole, DURABLE)
    record = whole.changed(voided=(Voided(second, damaged.problems[0].end, "damaged"),), running=damaged.running)
    found = scan_one(forge.files, forge.path, record, DURABLE)
    assert found.verdict is ScanVerdict.OK and found.running != running
    assert keys_of(found) == [b"a", b"b", b"c", b"e"]
    assert found.good[-1][1] == forge.end > last


def test_two_damaged_places_are_two_problems(forge: Forge) -> None:
    last = forge.entries(2, b"d")
    record = forge.sealed()
    for offset in (100, last):
        forge.spoil(offset)
    found = scan_one(forge.files, forge.path, record, DURABLE)
    assert [problem.offset for problem in found.problems] == [96, last]


def test_a_newer_format_is_refused_with_a_hint(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.records.block.FORMAT_VERSION", FORMAT_VERSION + 1)
    forge.epoch(2, b"from the future")
    with pytest.raises(Refused, match="use a newer warren"):
        scan_one(forge.files, forge.path, forge.active(), DURABLE)


def test_the_bytes_of_an_earlier_life_behind_the_end_say_nothing(forge: Forge) -> None:
    end = forge.end
    forge.torn()
    record = forge.sealed().changed(end=end, is_recycled=True)
    assert scan_one(forge.files, forge.path, record, DURABLE).verdict is ScanVerdict.OK


# -- entries ---------------------------------------------------------------------------------------------------------


def test_entries_have_their_epoch_and_lie_in_the_requested_range(forge: Forge) -> None:
    forge.epoch(3, b"not durable")
    found = scan_one(forge.files, forge.path, forge.active(), DURABLE)
    epochs = [columns.epochs.array().tolist() for columns in entries_of(found, DURABLE) if columns.epochs]
    assert epochs == [[1, 1], [2]]
    assert [c.keys.to_list() for c in entries_of(found, DURABLE, Epoch(2))] == [[b"c"]]
    assert [c.keys.to_list() for c in entries_of(found, Epoch(1))] == [[b"a", b"b"]]
    assert list(entries_of(found, DURABLE, streams=(StreamId(5),))) == []


def test_an_input_of_a_merge_can_be_read_again_and_serves_no_damage(forge: Forge) -> None:
    record = forge.sealed().changed(entries=3)
    source = LogInput(forge.files, DIRECTORY, record, DURABLE)
    for _ in range(2):
        assert [key for columns in source.batches() for key in columns.keys.to_list()] == [b"a", b"b", b"c"]
    assert (source.entries, source.size_bytes) == (3, forge.end - 96)
    forge.spoil(100)
    with pytest.raises(Damage):
        list(LogInput(forge.files, DIRECTORY, record, DURABLE).batches())


def test_a_scan_hands_over_the_entries_of_good_files_only() -> None:
    files, records, forges = several(3)
    witnessed = [forge.witnessed() for forge in forges]
    forges[1].spoil(120)
    seen: list[bytes] = []
    job = LogScan(files, DIRECTORY, records, DURABLE, SystemThreads(), 2, witnessed=witnessed)
    job.run(lambda found, columns: seen.extend(columns.keys.to_list()))
    assert sorted(seen) == [b"key 0", b"key 2"]


def test_reading_beside_a_running_store_stops_at_the_witness() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    first = store.begin()
    first.put(STORAGE, b"seen", b"")
    first.commit()
    store.epoch_file.write(store.commit)
    second = store.begin()
    second.put(STORAGE, b"not yet", b"")
    second.commit()
    log = open_for_reading(files, DIRECTORY)
    sources: Sequence[LogInput] = [log.input_of(record) for record in log.records()]
    assert [k for source in sources for c in source.batches() for k in c.keys.to_list()] == [b"seen"]
    assert log.durable == first.epoch
    store.close()


def test_a_reader_whose_file_was_purged_meanwhile_gets_the_horizon() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, replace(QUIET, retention_seconds=0), environment(files))
    put(store, b"a")
    store.rotate()
    put(store, b"b")
    log = open_for_reading(files, DIRECTORY)
    source = log.input_of(log.records()[0])
    store.compact()
    store.purge()
    with pytest.raises(Gone, match="horizon is 2"):
        source.scan()
    store.close()


def test_a_directory_without_a_manifest_is_refused() -> None:
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    with pytest.raises(Refused, match="no log directory"):
        open_for_reading(files, DIRECTORY)


def test_a_small_store_is_read_whole() -> None:
    files = small_store()
    log = open_for_reading(files, DIRECTORY)
    found = {k: v for r in log.records() for c in log.input_of(r).batches()
             for k, v in zip(c.keys.to_list(), c.values.to_list(), strict=True)}  # fmt: skip
    assert found == EVERYTHING == stored(files)
    assert {record.state for record in log.records()} == {FileState.SEALED, FileState.ACTIVE}


def test_a_failing_disk_is_a_verdict_and_not_a_crash(forge: Forge) -> None:
    failing = Failing(forge.files, {"pwal_0000": DiskFailure("cannot open /log/pwal_0000: input/output error")})
    found = scan_one(failing, forge.path, forge.active(), DURABLE)
    assert (found.verdict, found.problems[0].what) == (
        ScanVerdict.FAILED,
        "cannot open /log/pwal_0000: input/output error",
    )
