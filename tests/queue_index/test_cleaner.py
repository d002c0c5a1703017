"""Files of the message stream are deleted when more than half of them is garbage, and nothing alive is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.snapshot.database_stage import DIRECTORY, DatabaseStage
from warren.base.ids import Epoch, FileNumber, QueueId, SequenceId
from warren.base.messages import QueuePlace, Run, sizes_of
from warren.files.protocol import join
from warren.log.file_record import FileState
from warren.queue_index.batch import IndexBatch
from warren.queue_index.cleaner import Cleaner, PointerRow
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.index import QueueIndex
from warren.testing.memory_files import CrashModel

QUEUE = QueuePlace(QueueId(5 << 32))
OTHER = QueuePlace(QueueId(6 << 32))


class CleanerStage:
    """A database with queues, and what should be in them."""

    def __init__(self, stage: DatabaseStage | None = None) -> None:
        self.stage = stage or DatabaseStage()
        self.stage.log_settings = replace(self.stage.log_settings, retention_seconds=0.0, retention_bytes=0)
        self.runs: dict[QueuePlace, dict[int, tuple[Run, list[bytes], int]]] = {QUEUE: {}, OTHER: {}}
        self.open()

    def open(self) -> None:
        self.database = self.stage.open()
        self.index = QueueIndex.of(self.database)
        stream = self.database.log.stream("messages", is_referring=True)
        self.cleaning = Cleaner(
            self.database, stream, lambda: [place.queue for place in self.runs], self.index.stream_lock
        )

    def publish(self, first: int, count: int, size: int = 400, place: QueuePlace = QUEUE) -> Epoch:
        contents = [bytes([65 + (first + index) % 26]) * size for index in range(count)]
        run = Run(SequenceId(first), count, sizes_of(contents))
        batch = self.index.begin()
        batch.publish(place, run, contents)
        self.runs[place][first] = (run, contents, 0)
        return self.end(batch)

    def take(self, first: int, messages: Sequence[int], place: QueuePlace = QUEUE) -> Epoch:
        """Messages of a run leave, by their place in it."""
        run, contents, gone = self.runs[place][first]
        gone |= sum(1 << index for index in messages)
        batch = self.index.begin()
        batch.dequeue(place, run, gone, [(first + index, first + index + 1) for index in messages], DequeueReason.ACKED)
        self.cleaning.note_dead(sum(len(contents[index]) for index in messages))
        if gone.bit_count() == run.count:
            del self.runs[place][first]
        else:
            self.runs[place][first] = (run, contents, gone)
        return self.end(batch)

    def end(self, batch: IndexBatch) -> Epoch:
        epoch = batch.end()
        self.database.log.wait(epoch)
        return epoch

    def seal(self) -> None:
        self.database.settle()
        self.database.log.rotate()
        self.database.settle()
        assert self.database.reflection is not None
        self.database.reflection.flush()

    def check(self) -> None:
        """Everything alive is there, in order, with its contents; nothing else is."""
        newest = self.database.log.durable
        for place, runs in self.runs.items():
            found = list(self.index.scan(place, SequenceId(0), SequenceId(1 << 40), newest))
            assert [each.run.first for each in found] == sorted(runs)
            for indexed in found:
                _, contents, gone = runs[indexed.run.first]
                assert indexed.gone == gone
                read = self.index.contents(place, indexed.run, 0, indexed.run.count)
                for index, content in enumerate(contents):
                    if not gone >> index & 1:
                        assert read[index] == content

    def files(self) -> list[FileNumber]:
        """Of the stream, sealed."""
        stream = self.database.log.stream("messages", is_referring=True)
        state = self.database.log.manifest.state
        return [
            n
            for n, r in sorted(state.files.items())
            if r.state is FileState.SEALED and stream.id in dict(r.stream_ends)
        ]


@pytest.fixture
def cleaner_stage() -> CleanerStage:
    return CleanerStage()


def test_a_file_without_references_is_released_and_one_with_references_is_not(cleaner_stage: CleanerStage) -> None:
    """MR-09"""
    cleaner_stage.publish(0, 10)
    cleaner_stage.seal()
    cleaner_stage.publish(10, 10)
    cleaner_stage.seal()
    first, second = cleaner_stage.files()
    cleaner_stage.take(0, range(10))
    cleaner_stage.database.settle()
    cleaned = cleaner_stage.cleaning.run()
    assert (cleaned.files, cleaned.runs) == (1, 0)
    assert cleaner_stage.files() == [second]
    cleaner_stage.database.log.purge()
    assert first not in cleaner_stage.database.log.manifest.state.files
    cleaner_stage.check()


def test_a_file_that_is_more_than_half_garbage_is_deleted_and_its_live_rows_are_rewritten(
    cleaner_stage: CleanerStage,
) -> None:
    """TS-03: one old unconsumed message keeps no file."""
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    (old,) = cleaner_stage.files()
    for first in range(10, 100, 10):
        cleaner_stage.take(first, range(10))
    cleaned = cleaner_stage.cleaning.run()
    assert (cleaned.files, cleaned.runs) == (1, 1)
    cleaner_stage.database.log.purge()
    assert old not in cleaner_stage.database.log.manifest.state.files
    cleaner_stage.check()


def test_a_file_of_which_half_is_alive_stays(cleaner_stage: CleanerStage) -> None:
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(0, 40, 10):
        cleaner_stage.take(first, range(10))
    assert cleaner_stage.cleaning.run().files == 0
    cleaner_stage.check()


def test_of_a_run_that_is_partly_gone_only_the_rest_is_written_again(cleaner_stage: CleanerStage) -> None:
    """And a run of which most is gone counts as garbage for the most part."""
    cleaner_stage.publish(0, 100)
    cleaner_stage.seal()
    cleaner_stage.take(0, [index for index in range(100) if index % 10])
    cleaned = cleaner_stage.cleaning.run()
    assert (cleaned.files, cleaned.runs) == (1, 1)
    assert 10 * 400 <= cleaned.written_bytes < 10 * 400 + 1000
    cleaner_stage.check()
    cleaner_stage.take(0, range(0, 100, 10))
    cleaner_stage.check()


def test_what_leaves_while_it_is_written_again_does_not_come_back(
    cleaner_stage: CleanerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is read once more, under the lock that every writer holds."""
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(20, 100, 10):
        cleaner_stage.take(first, range(10))
    rows_before = cleaner_stage.cleaning._write_again

    def taken_meanwhile(rows: Sequence[object]) -> int:
        cleaner_stage.take(0, range(10))
        return rows_before(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner_stage.cleaning, "_write_again", taken_meanwhile)
    cleaner_stage.cleaning.run()
    cleaner_stage.check()


@pytest.mark.parametrize("taken", [[1], list(range(10))], ids=["in part", "wholly"])
def test_a_run_that_is_acknowledged_while_it_is_read_is_read_once_more(
    cleaner_stage: CleanerStage, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    """Cleaning reads without the lock of the stream: what changes meanwhile is not written as it was before."""
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(20, 100, 10):
        cleaner_stage.take(first, range(10))
    trimmed, read = cleaner_stage.cleaning._trimmed, list[int]()

    def taken_meanwhile(row: PointerRow) -> bytes | None:
        value = trimmed(row)
        if row.first == 0 and not read:
            cleaner_stage.take(0, taken)
        read.append(row.first)
        return value

    monkeypatch.setattr(cleaner_stage.cleaning, "_trimmed", taken_meanwhile)
    assert cleaner_stage.cleaning.run().files == 1
    assert read == ([0, 10, 0] if len(taken) == 1 else [0, 10])
    cleaner_stage.check()


def test_a_queue_that_is_deleted_while_it_is_read_does_not_come_back(
    cleaner_stage: CleanerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(20, 100, 10):
        cleaner_stage.take(first, range(10))
    trimmed = cleaner_stage.cleaning._trimmed

    def deleted_meanwhile(row: PointerRow) -> bytes | None:
        value = trimmed(row)
        if cleaner_stage.runs[QUEUE]:
            cleaner_stage.runs[QUEUE] = {}
            batch = cleaner_stage.index.begin()
            batch.remove_queue(QUEUE.queue)
            cleaner_stage.end(batch)
        return value

    monkeypatch.setattr(cleaner_stage.cleaning, "_trimmed", deleted_meanwhile)
    cleaner_stage.cleaning.run()
    cleaner_stage.check()


def test_cleaning_that_waits_for_a_full_disk_does_not_hold_the_lock_of_the_stream(cleaner_stage: CleanerStage) -> None:
    """Every batch of the event loop takes it: consumers and heartbeats stood still with it."""
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(10, 100, 10):
        cleaner_stage.take(first, range(10))
    disk, log = cleaner_stage.stage.disk, cleaner_stage.database.log
    cleaner_stage.stage.disk.capacity_bytes = disk.used_bytes
    unwritten, contents = cleaner_stage.index.begin(), [bytes(900_000)]
    for first in range(1000, 1004):  # together more than the containers that are allocated
        cleaner_stage.runs[OTHER][first] = (Run(SequenceId(first), 1, sizes_of(contents)), contents, 0)
        unwritten.publish(OTHER, cleaner_stage.runs[OTHER][first][0], contents)
    unwritten.end()
    cleaning = threading.Thread(target=cleaner_stage.cleaning.run)
    cleaning.start()
    while not log.commit.is_out_of_room:
        time.sleep(0.001)
    lock = cleaner_stage.index.stream_lock.lock
    assert isinstance(lock, threading.Condition)
    is_free = lock.acquire(blocking=False)
    if is_free:
        lock.release()
    disk.capacity_bytes = None
    cleaning.join()
    assert is_free
    cleaner_stage.check()


def test_a_queue_is_read_on_while_its_file_goes(cleaner_stage: CleanerStage) -> None:
    """X-07: a reader that knows the old place finds the new one."""
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(10, 100, 10):
        cleaner_stage.take(first, range(10))
    run, contents, _ = cleaner_stage.runs[QUEUE][0]
    view = cleaner_stage.database.view_at(cleaner_stage.database.log.durable)
    cleaner_stage.cleaning.run()
    cleaner_stage.database.log.purge()
    assert cleaner_stage.index.contents(QUEUE, run, 0, 10) == contents
    view.close()


def test_a_run_whose_position_is_gone_is_found_in_the_store_without_applying_anything(
    cleaner_stage: CleanerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 40, 4):
        cleaner_stage.publish(first, 4)
    run, contents, _ = cleaner_stage.runs[QUEUE][8]
    cleaner_stage.seal()
    for first in (0, 4, 12, 16, 20, 24, 28, 32, 36):
        cleaner_stage.take(first, range(4))
    assert cleaner_stage.cleaning.run().files == 1
    cleaner_stage.database.log.purge()
    cleaner_stage.publish(100, 4)  # the store is behind again
    assert run.block and cleaner_stage.database.store.applied.epoch < cleaner_stage.database.log.durable
    monkeypatch.setattr(cleaner_stage.database, "_unapplied", None)
    monkeypatch.setattr(cleaner_stage.database, "_latest", None)
    assert cleaner_stage.index.contents(QUEUE, run, 0, run.count) == contents


def test_a_file_that_is_not_yet_in_the_store_on_disk_is_not_judged(cleaner_stage: CleanerStage) -> None:
    cleaner_stage.publish(0, 10)
    cleaner_stage.take(0, range(10))
    cleaner_stage.database.log.rotate()
    assert cleaner_stage.cleaning.run().files == 0


def test_a_damaged_file_stays_and_is_reported_and_the_others_are_cleaned(cleaner_stage: CleanerStage) -> None:
    for first in (0, 10):
        cleaner_stage.publish(first, 10, place=QUEUE)
        cleaner_stage.publish(first, 40, place=OTHER)
        cleaner_stage.seal()
    hurt, _ = cleaner_stage.files()
    record = cleaner_stage.database.log.manifest.state.files[hurt]
    handle = cleaner_stage.stage.disk.open(join(DIRECTORY, "log", record.name), writable=True)
    handle.write_at(1000, [b"?" * 5000])
    handle.close()
    cleaner_stage.database.pointed.forget([hurt])
    for first in (0, 10):
        cleaner_stage.take(first, range(40), OTHER)
    cleaner_stage.cleaning.run()
    assert cleaner_stage.files() == [hurt]
    assert list(cleaner_stage.cleaning.damaged) == [hurt]


@pytest.mark.parametrize("model", list(CrashModel))
def test_a_power_cut_behind_a_cleaning_leaves_everything(model: CrashModel) -> None:
    cleaner_stage = CleanerStage()
    for first in range(0, 100, 10):
        cleaner_stage.publish(first, 10)
    cleaner_stage.seal()
    for first in range(10, 100, 10):
        cleaner_stage.take(first, range(10))
    cleaner_stage.cleaning.run()
    cleaner_stage.database.log.purge()
    cleaner_stage.database.abandon()
    cleaner_stage.stage.crash(model, 3)
    cleaner_stage.open()
    cleaner_stage.check()


def test_a_liveness_scan_is_due_after_a_start_and_when_enough_has_died(cleaner_stage: CleanerStage) -> None:
    cleaner_stage.publish(0, 10)
    assert not cleaner_stage.cleaning.is_due()  # nothing is sealed
    cleaner_stage.seal()
    assert cleaner_stage.cleaning.is_due()
    cleaner_stage.cleaning.run()
    assert not cleaner_stage.cleaning.is_due()
    cleaner_stage.cleaning.note_dead(1 << 20)
    assert cleaner_stage.cleaning.is_due()
