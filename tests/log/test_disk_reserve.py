"""The room that is kept on a disk: laid, given back when the disk is full, laid again when it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.durability.stage import Stage
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.log.disk_reserve import DiskReserve
from warren.log.file_record import DISK_RESERVE
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

SIZE = 1 << 20
PATH = "/log/" + DISK_RESERVE


def ballast_on(files: MemoryFiles, size_bytes: int = SIZE, publish_bytes: int = 0) -> DiskReserve:
    files.make_directories("/log")
    return DiskReserve(files, "/log", SystemThreads(), size_bytes, publish_bytes)


def test_it_takes_room_until_it_is_given_back_once() -> None:
    files = MemoryFiles()
    disk_reserve = ballast_on(files)
    assert not disk_reserve.give_back(), "it was never laid"
    disk_reserve.lay()
    assert (disk_reserve.is_in_use, files.stat(PATH).size_bytes) == (False, SIZE)
    before = files.used_bytes
    assert (disk_reserve.give_back(), disk_reserve.is_in_use) == (True, True)
    assert before - files.used_bytes >= SIZE
    assert not disk_reserve.give_back()


def test_it_is_laid_again_when_the_disk_has_more_than_that() -> None:
    files = MemoryFiles()
    disk_reserve = ballast_on(files)
    disk_reserve.lay()
    disk_reserve.give_back()
    files.capacity_bytes = files.used_bytes + disk_reserve.room_bytes - 1
    disk_reserve.lay()
    assert (disk_reserve.is_in_use, files.exists(PATH)) == (True, False), "others need that"
    files.capacity_bytes += 1
    disk_reserve.lay()
    assert (disk_reserve.is_in_use, files.stat(PATH).size_bytes) == (False, SIZE)


def test_one_that_lies_there_is_kept_and_one_that_a_power_cut_has_torn_is_laid_anew() -> None:
    files = MemoryFiles()
    ballast_on(files).lay()
    inode = files.stat(PATH).inode
    ballast_on(files).lay()
    assert files.stat(PATH).inode == inode
    larger = ballast_on(files, 2 * SIZE)
    larger.lay()
    assert files.stat(PATH).size_bytes == 2 * SIZE
    assert larger.give_back() and not files.exists(PATH)


def test_a_smaller_one_of_an_earlier_version_is_enlarged_when_there_is_room() -> None:
    files = MemoryFiles()
    ballast_on(files).lay()
    larger = ballast_on(files, SIZE, publish_bytes=3 * SIZE)
    files.capacity_bytes = files.used_bytes + larger.room_bytes - SIZE - 1
    larger.begin(was_released=False)
    assert (larger.is_in_use, files.stat(PATH).size_bytes) == (False, SIZE), "it is kept as it is"
    files.capacity_bytes += 1
    larger.lay()
    assert files.stat(PATH).size_bytes == 4 * SIZE
    larger.give_back()
    files.capacity_bytes = files.used_bytes + larger.room_bytes - 1
    larger.lay()
    assert larger.is_in_use, "publishers wait until it is whole"


def test_a_smaller_one_stays_if_the_disk_fills_up_while_it_is_enlarged(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    ballast_on(files).lay()
    larger = ballast_on(files, SIZE, publish_bytes=3 * SIZE)
    monkeypatch.setattr(MemoryFiles, "free_bytes", lambda self, path: 10 * SIZE)
    files.capacity_bytes = files.used_bytes + SIZE
    larger.lay()
    assert files.stat(PATH).size_bytes >= SIZE and larger.give_back()


@pytest.mark.parametrize("free_bytes", [0, SIZE // 2])
def test_a_start_on_a_full_disk_uses_a_smaller_one_of_an_earlier_version(free_bytes: int) -> None:
    files = MemoryFiles()
    settings = LogSettings(ballast_bytes=8 * SIZE, use_worker_process=False, compaction_poll_seconds=1e6)
    environment = Environment(files, ManualClock(), SystemThreads(), SeededRandom(1))
    LogStore.open("/log", settings, environment).close()
    files.capacity_bytes = files.used_bytes + free_bytes
    with LogStore.open("/log", replace(settings, ballast_publish_bytes=32 * SIZE), environment) as store:
        assert (store.disk_reserve.is_in_use, files.exists(PATH)) == (True, False)


def test_a_disk_that_fills_up_meanwhile_has_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    disk_reserve = ballast_on(files)
    monkeypatch.setattr(MemoryFiles, "free_bytes", lambda self, path: 10 * SIZE)
    files.capacity_bytes = files.used_bytes + SIZE // 2
    disk_reserve.lay()
    assert not files.exists(PATH) and not disk_reserve.give_back()


def test_a_start_on_a_full_disk_uses_it_and_publishers_wait_until_it_is_laid_again() -> None:
    files = MemoryFiles()
    settings = LogSettings(ballast_bytes=8 * SIZE, use_worker_process=False, compaction_poll_seconds=1e6)
    environment = Environment(files, ManualClock(), SystemThreads(), SeededRandom(1))
    LogStore.open("/log", settings, environment).close()
    assert files.stat(PATH).size_bytes == 8 * SIZE
    files.capacity_bytes = files.used_bytes
    with LogStore.open("/log", settings, environment) as store:
        assert (store.disk_reserve.is_in_use, files.exists(PATH)) == (True, False)
        files.capacity_bytes = None
        store.disk_reserve.lay()
        assert (store.disk_reserve.is_in_use, files.exists(PATH)) == (False, True)


def test_a_disk_with_less_room_than_it_takes_counts_as_full_at_a_start() -> None:
    files = MemoryFiles()
    disk_reserve = ballast_on(files)
    for free, is_full in ((SIZE - 1, True), (SIZE, False)):
        files.capacity_bytes = files.used_bytes + free
        disk_reserve.begin(was_released=False)
        assert disk_reserve.is_in_use == is_full
    disk_reserve.begin(was_released=True)
    assert disk_reserve.is_in_use, "what was released is in use until it is laid"


def test_no_reserve_is_created_unless_it_is_configured() -> None:
    files = MemoryFiles()
    disk_reserve = ballast_on(files, 0)
    disk_reserve.lay()
    assert not files.exists(PATH) and not disk_reserve.give_back() and not disk_reserve.is_in_use


def test_a_commit_that_finds_the_disk_full_continues_with_what_was_kept() -> None:
    """DESIGN rule 7: it waits only when nothing of that is left."""
    memory = MemoryFiles()
    stage = Stage(files=FaultyFiles(memory))
    stage.commit.wait(stage.append())
    memory.capacity_bytes = memory.used_bytes

    def more() -> bool:
        assert memory.capacity_bytes is not None
        memory.capacity_bytes += 1 << 20
        return True

    stage.diary.room = [more]
    stage.commit.wait(stage.append(bytes(8000)))
    assert stage.commit.durable == 2 and not stage.commit.is_out_of_room and stage.diary.room == []
    stage.commit.stop()
