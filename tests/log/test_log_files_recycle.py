"""Recycled files (CL-07): the space of freed files is used again, and never that of a file still in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.base.errors import Refused
from warren.files.local import LocalFiles
from warren.files.protocol import Files
from warren.log.log_files import RecyclePool
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut


def put(files: Files, path: str, contents: bytes) -> None:
    file = files.create(path)
    file.write_at(0, [contents])
    file.sync()
    file.close()


def disk_with_log(*names: str) -> MemoryFiles:
    disk = MemoryFiles()
    disk.make_directories("/log")
    for name in names:
        put(disk, f"/log/{name}", name.encode() * 100)
    disk.sync_directory("/log")
    return disk


def pool_on(files: Files, count_max: int = 4, pinned: str = "") -> RecyclePool:
    return RecyclePool(files, "/recycle", lambda path: path != pinned, count_max)


def test_cl_07_the_space_of_a_freed_file_is_used_again_with_its_old_bytes_left_in_it() -> None:
    disk = disk_with_log("1")
    pool = pool_on(disk)
    inode = disk.stat("/log/1").inode
    assert pool.offer("/log/1")
    assert disk.list("/log") == []
    file = pool.take("/log/2")
    assert file is not None
    assert disk.stat("/log/2").inode == inode
    assert file.read_at(0, 1000) == b"1" * 100
    file.write_at(0, [b"new life"])
    file.close()
    assert disk.list("/recycle") == []


def test_a_file_with_a_second_name_is_never_accepted() -> None:
    disk = disk_with_log("1")
    disk.link("/log/1", "/log/backup")
    assert not pool_on(disk).offer("/log/1")
    assert disk.list("/log") == ["1", "backup"]


def test_a_file_that_the_caller_does_not_call_free_is_never_accepted() -> None:
    disk = disk_with_log("1", "2")
    pool = pool_on(disk, pinned="/log/1")
    assert not pool.offer("/log/1")
    assert pool.offer("/log/2")
    assert disk.list("/log") == ["1"]


def test_a_file_that_was_linked_while_it_waited_is_not_handed_out() -> None:
    disk = disk_with_log("1", "2")
    pool = pool_on(disk)
    assert pool.offer("/log/1")
    disk.link("/recycle/000001", "/log/backup")
    assert pool.take("/log/3") is None
    assert disk.contents("/log/backup") == b"1" * 100
    assert disk.stat("/log/backup").links == 1
    assert pool.offer("/log/2")
    assert pool.take("/log/3") is not None


def test_a_directory_is_not_accepted() -> None:
    disk = disk_with_log()
    disk.make_directories("/log/d")
    assert not pool_on(disk).offer("/log/d")


def test_the_pool_holds_only_so_many_and_hands_out_the_oldest_first() -> None:
    disk = disk_with_log("1", "2", "3")
    pool = pool_on(disk, count_max=2)
    assert [pool.offer(f"/log/{name}") for name in "123"] == [True, True, False]
    assert len(pool) == 2
    file = pool.take("/log/9")
    assert file is not None
    assert file.read_at(0, 1) == b"1"


def test_an_empty_pool_gives_nothing_and_a_taken_name_is_refused() -> None:
    disk = disk_with_log("1", "2")
    pool = pool_on(disk)
    assert pool.take("/log/9") is None
    assert pool.offer("/log/1")
    with pytest.raises(Refused, match="taken"):
        pool.take("/log/2")
    assert disk.contents("/log/2") == b"2" * 100


def test_a_pool_that_is_opened_again_knows_what_it_holds_and_overwrites_nothing() -> None:
    disk = disk_with_log("1", "2")
    assert pool_on(disk).offer("/log/1")
    again = pool_on(disk)
    assert len(again) == 1
    assert again.offer("/log/2")
    assert disk.list("/recycle") == ["000001", "000002"]


@pytest.mark.parametrize("model", list(CrashModel))
def test_after_a_power_cut_at_any_step_no_file_in_use_is_in_the_pool(model: CrashModel) -> None:
    def work(files: Files) -> None:
        pool = pool_on(files)
        for old, new in (("1", "11"), ("2", "12")):
            pool.offer(f"/log/{old}")
            file = pool.take(f"/log/{new}")
            assert file is not None
            file.write_at(0, [b"new life"])
            file.sync()
            files.sync_directory("/log")
            confirmed.append(new)

    confirmed: list[str] = []
    counting = FaultyFiles(disk_with_log("1", "2"))
    work(counting)
    for number in range(len(counting.steps)):
        for seed in range(30):
            confirmed.clear()
            disk = disk_with_log("1", "2")
            with pytest.raises(PowerCut):
                work(FaultyFiles(disk, cut_at=number, cut_fraction=None if seed % 2 else 0.5))
            after = disk.crash(model, SeededRandom(seed))
            pool_on(after)
            pooled = {after.stat(f"/recycle/{name}").inode for name in after.list("/recycle")}
            in_use = {after.stat(f"/log/{name}").inode for name in after.list("/log")}
            assert not pooled & in_use
            assert set(confirmed) <= set(after.list("/log"))
            assert all(after.contents(f"/log/{name}").startswith(b"new life") for name in confirmed)


def test_the_crash_that_leaves_both_names_does_happen_in_the_model() -> None:
    """So the test above is not vacuous: the log's directory was synced, the pool's was not."""
    disk = disk_with_log("1")
    pool = pool_on(disk)
    pool.offer("/log/1")
    disk.sync_directory("/recycle")
    pool.take("/log/2")
    disk.sync_directory("/log")
    assert disk.crash(SYNCED, SeededRandom(0)).stat("/log/2").links == 2
    links = {disk.crash(REORDERED, SeededRandom(seed)).stat("/log/2").links for seed in range(20)}
    assert links == {1, 2}


def test_it_works_on_the_machines_disk(tmp_path: Path) -> None:
    files = LocalFiles()
    put(files, f"{tmp_path}/1", b"old life")
    pool = RecyclePool(files, f"{tmp_path}/recycle", lambda path: True)
    assert pool.offer(f"{tmp_path}/1")
    file = pool.take(f"{tmp_path}/2")
    assert file is not None
    assert file.read_at(0, 99) == b"old life"
    file.close()
