"""The memory disk: what each model of a power cut leaves, and what it never leaves."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.errors import OutOfRoom, Refused
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import ALL, REORDERED, SECTOR_BYTES, SYNCED, CrashModel, MemoryFiles

SEEDS = range(300)


def disk_with(contents: bytes = b"") -> MemoryFiles:
    """A disk with one synced file `/f`."""
    disk = MemoryFiles()
    file = disk.create("/f")
    file.write_at(0, [contents])
    file.sync()
    file.close()
    disk.sync_directory("/")
    return disk


def write(disk: MemoryFiles, offset: int, data: bytes, path: str = "/f", is_synced: bool = False) -> None:
    file = disk.open(path, writable=True)
    file.write_at(offset, [data])
    if is_synced:
        file.sync()
    file.close()


def left(disk: MemoryFiles, model: CrashModel = REORDERED, path: str = "/f") -> set[bytes]:
    return {disk.crash(model, SeededRandom(seed)).contents(path) for seed in SEEDS}


def names_left(disk: MemoryFiles, model: CrashModel = REORDERED, path: str = "/") -> set[tuple[str, ...]]:
    return {tuple(disk.crash(model, SeededRandom(seed)).list(path)) for seed in SEEDS}


def test_all_keeps_everything_and_synced_keeps_only_what_was_synced() -> None:
    disk = disk_with(b"old")
    write(disk, 0, b"new and longer")
    disk.create("/g").close()
    assert left(disk, ALL) == {b"new and longer"}
    assert names_left(disk, ALL) == {("f", "g")}
    assert left(disk, SYNCED) == {b"old"}
    assert names_left(disk, SYNCED) == {("f",)}


@pytest.mark.parametrize("model", list(CrashModel))
def test_what_was_synced_survives_every_model(model: CrashModel) -> None:
    disk = disk_with(b"old")
    write(disk, 1, b"-synced-", is_synced=True)
    assert left(disk, model) == {b"o-synced-"}


def test_writing_through_syncs_its_own_bytes_and_no_others() -> None:
    disk = disk_with()
    file = disk.open("/f", writable=True)
    file.write_at(0, [b"0123456789"])
    file.write_through(3, [b"ABC"])
    assert left(disk, SYNCED) == {bytes(3) + b"ABC"}
    assert left(disk, ALL) == {b"012ABC6789"}
    file.write_through(0, [b"xyz"])
    assert left(disk, SYNCED) == {b"xyzABC"}
    assert left(disk, ALL) == {b"xyzABC6789"}
    file.close()


def test_syncing_a_new_file_does_not_sync_its_name() -> None:
    disk = disk_with()
    file = disk.create("/g")
    file.write_at(0, [b"x"])
    file.sync()
    assert names_left(disk, SYNCED) == {("f",)}
    assert names_left(disk) == {("f",), ("f", "g")}
    disk.sync_directory("/")
    assert left(disk, SYNCED, "/g") == {b"x"}


def test_a_synced_name_of_a_file_that_was_not_synced_leads_to_nothing_or_zeros_or_parts() -> None:
    disk = disk_with()
    write_size = 2 * SECTOR_BYTES
    file = disk.create("/g")
    file.write_at(0, [b"x" * write_size])
    disk.sync_directory("/")
    assert left(disk, SYNCED, "/g") == {b""}
    seen = left(disk, REORDERED, "/g")
    assert {b"", bytes(write_size), b"x" * SECTOR_BYTES, b"x" * write_size} <= seen
    assert bytes(SECTOR_BYTES) + b"x" * SECTOR_BYTES in seen


def test_each_unsynced_write_is_kept_dropped_or_torn_alone() -> None:
    disk = disk_with(bytes(3 * SECTOR_BYTES))
    for sector, letter in enumerate((b"a", b"b", b"c")):
        write(disk, sector * SECTOR_BYTES, letter * SECTOR_BYTES)
    firsts = {(state[0], state[SECTOR_BYTES], state[2 * SECTOR_BYTES]) for state in left(disk)}
    assert firsts == {(a, b, c) for a in (0, ord("a")) for b in (0, ord("b")) for c in (0, ord("c"))}


def test_a_sector_is_never_torn_but_by_the_last_write() -> None:
    disk = disk_with(bytes(4 * SECTOR_BYTES))
    write(disk, 100, b"a" * SECTOR_BYTES * 2)
    write(disk, 4 * SECTOR_BYTES - 1, b"!")
    edges = (100, SECTOR_BYTES, 2 * SECTOR_BYTES, 2 * SECTOR_BYTES + 100)
    patterns = set()
    for state in left(disk):
        parts = [set(state[start:end]) for start, end in pairwise(edges)]
        assert all(len(part) == 1 for part in parts)
        patterns.add(tuple(part.pop() for part in parts))
    assert len(patterns) == 8


def test_the_last_write_may_be_torn_at_any_byte() -> None:
    disk = disk_with()
    write(disk, 0, b"0123")
    assert {b"0123"[:size] for size in range(5)} <= left(disk)


def test_later_writes_may_reach_the_disk_before_earlier_ones() -> None:
    disk = disk_with(bytes(2 * SECTOR_BYTES))
    write(disk, 0, b"a" * SECTOR_BYTES * 2)
    write(disk, 0, b"b" * SECTOR_BYTES * 2)
    write(disk, 0, b"c")
    heads = {(state[0:1], state[SECTOR_BYTES : SECTOR_BYTES + 1]) for state in left(disk)}
    assert {(b"a", b"b"), (b"b", b"a"), (b"c", b"\0"), (b"\0", b"\0")} <= heads


def test_two_writes_into_one_sector_may_reach_it_in_either_order() -> None:
    disk = disk_with(bytes(15))
    write(disk, 0, b"a" * 10)
    write(disk, 5, b"b" * 10)
    write(disk, 20, b"the last one, which may be torn at any byte")
    assert {state[:15] for state in left(disk)} == {
        bytes(15),
        b"a" * 10 + bytes(5),
        bytes(5) + b"b" * 10,
        b"a" * 5 + b"b" * 10,
        b"a" * 10 + b"b" * 5,
    }


def test_a_dropped_rename_gives_the_old_file_back_and_a_kept_one_is_whole() -> None:
    disk = disk_with(b"old")
    file = disk.create("/f.tmp")
    file.write_at(0, [b"new"])
    file.sync()
    disk.rename("/f.tmp", "/f")
    states = {
        (after.contents("/f"), "f.tmp" in after.list("/"))
        for after in (disk.crash(REORDERED, SeededRandom(seed)) for seed in SEEDS)
    }
    assert states == {(b"old", False), (b"old", True), (b"new", False)}


def test_a_later_operation_may_survive_an_earlier_one() -> None:
    disk = disk_with()
    disk.create("/a").close()
    disk.create("/b").close()
    disk.remove("/f")
    expected = {(*(["a"] * a), *(["b"] * b), *(["f"] * f)) for a in range(2) for b in range(2) for f in range(2)}
    assert names_left(disk) == expected


def test_a_removed_file_comes_back_with_its_bytes() -> None:
    disk = disk_with(b"bytes")
    disk.remove("/f")
    assert left(disk, SYNCED) == {b"bytes"}
    disk.sync_directory("/")
    assert names_left(disk) == {()}


def test_links_are_counted_anew_after_a_crash() -> None:
    disk = disk_with(b"x")
    disk.link("/f", "/g")
    for seed in SEEDS:
        after = disk.crash(REORDERED, SeededRandom(seed))
        assert after.stat("/f").links == len(after.list("/"))
        if after.exists("/g"):
            assert after.stat("/f").inode == after.stat("/g").inode
    assert names_left(disk) == {("f",), ("f", "g")}


def test_a_rename_between_directories_is_one_until_one_of_them_is_synced() -> None:
    disk = disk_with(b"x")
    disk.make_directories("/d")
    disk.rename("/f", "/d/f")

    def places() -> set[tuple[bool, bool]]:
        afters = [disk.crash(REORDERED, SeededRandom(seed)) for seed in SEEDS]
        return {(after.exists("/f"), after.exists("/d/f")) for after in afters}

    assert places() == {(True, False), (False, True)}
    disk.sync_directory("/d")
    assert places() == {(True, True), (False, True)}
    disk.sync_directory("/")
    assert places() == {(False, True)}


def test_syncing_only_where_a_file_came_from_can_lose_it() -> None:
    disk = disk_with(b"x")
    disk.make_directories("/d")
    disk.rename("/f", "/d/f")
    disk.sync_directory("/")
    after = disk.crash(SYNCED, SeededRandom(0))
    assert not after.exists("/f")
    assert not after.exists("/d/f")


def test_a_made_directory_is_durable_at_once_and_a_removed_one_may_come_back() -> None:
    disk = MemoryFiles()
    disk.make_directories("/a/b")
    assert names_left(disk, SYNCED, "/a") == {("b",)}
    disk.remove_directory("/a/b")
    assert names_left(disk, REORDERED, "/a") == {(), ("b",)}


def test_a_crash_leaves_the_old_disk_as_it_was_and_shares_nothing_with_it() -> None:
    disk = disk_with(b"old")
    write(disk, 0, b"new")
    for model in CrashModel:
        after = disk.crash(model, SeededRandom(1))
        write(after, 0, b"AFTER", is_synced=True)
        after.remove("/f")
    assert disk.contents("/f") == b"new"
    assert left(disk, SYNCED) == {b"old"}
    for contents in (b"later", b"LATER"):
        write(disk, 0, contents, is_synced=True)
        crashed = [disk.crash(model, SeededRandom(1)) for model in CrashModel]
        write(disk, 0, b"again", is_synced=True)
        assert [after.contents("/f") for after in crashed] == [contents] * 3


def test_one_seed_is_one_crash() -> None:
    disk = disk_with(bytes(5 * SECTOR_BYTES))
    for number in range(10):
        write(disk, number * 200, b"%d" % number * 300)
        disk.create(f"/{number}").close()
    for seed in range(20):
        one, two = (disk.crash(REORDERED, SeededRandom(seed)) for _ in range(2))
        assert one.contents("/f") == two.contents("/f")
        assert one.list("/") == two.list("/")


def test_a_lock_dies_with_the_power() -> None:
    disk = MemoryFiles()
    disk.lock("/lock", "me")
    with pytest.raises(Refused):
        disk.lock("/lock", "you")
    disk.crash(ALL, SeededRandom(0)).lock("/lock", "you").release()


def test_the_lock_of_a_killed_holder_is_free_and_its_late_release_frees_no_other() -> None:
    disk = MemoryFiles()
    killed = disk.lock("/lock", "killed")
    disk.forget_locks()
    disk.lock("/lock", "next")
    killed.release()
    with pytest.raises(Refused, match="locked by next"):
        disk.lock("/lock", "third")


def test_a_full_disk_takes_what_fits_raises_and_continues_when_there_is_room() -> None:
    disk = MemoryFiles(capacity_bytes=10)
    file = disk.create("/f")
    file.write_at(0, [b"12345678"])
    with pytest.raises(OutOfRoom, match="hint: free some space"):
        file.write_at(8, [b"abcd"])
    assert file.read_at(0, 99) == b"12345678ab"
    assert disk.free_bytes("/") == 0
    with pytest.raises(OutOfRoom):
        file.allocate(10, 1)
    file.write_at(0, [b"overwriting needs no room"[:10]])
    disk.capacity_bytes = 12
    file.allocate(10, 2)
    assert file.size() == 12


def test_room_comes_back_when_the_last_name_and_the_last_handle_are_gone() -> None:
    disk = MemoryFiles(capacity_bytes=100)
    file = disk.create("/f")
    file.allocate(0, 60)
    disk.link("/f", "/g")
    disk.remove("/f")
    assert disk.used_bytes == 60
    disk.remove("/g")
    assert disk.used_bytes == 60
    file.close()
    assert disk.used_bytes == 0
    disk.create("/a").allocate(0, 70)
    disk.create("/b").close()
    disk.rename("/b", "/a")
    assert disk.crash(ALL, SeededRandom(0)).used_bytes == 0


def test_room_is_counted_anew_after_a_crash() -> None:
    disk = disk_with(b"12345")
    disk.link("/f", "/g")
    disk.sync_directory("/")
    write(disk, 5, b"678")
    disk.create("/h").write_at(0, [b"9"])
    assert [disk.crash(model, SeededRandom(0)).used_bytes for model in (ALL, SYNCED)] == [9, 5]


def test_a_read_only_disk_can_be_read_and_nothing_else() -> None:
    disk = disk_with(b"x")
    file = disk.open("/f", writable=True)
    disk.is_read_only = True
    for attempt in (
        lambda: file.write_at(0, [b"y"]),
        lambda: file.allocate(0, 9),
        lambda: disk.create("/g"),
        lambda: disk.open("/f", writable=True),
        lambda: disk.remove("/f"),
        lambda: disk.rename("/f", "/g"),
        lambda: disk.link("/f", "/g"),
        lambda: disk.make_directories("/d"),
        lambda: disk.lock("/lock", "me"),
    ):
        with pytest.raises(Refused, match="read-only"):
            attempt()
    disk.make_directories("/")
    assert disk.contents("/f") == b"x"


def test_the_pause_comes_before_each_operation() -> None:
    seen: list[bool] = []
    disk = MemoryFiles(pause=lambda: seen.append(disk_has_file()))

    def disk_has_file() -> bool:
        return bool(disk._tree.root.entries)

    file = disk.create("/f")
    file.write_at(0, [b"x"])
    file.sync()
    assert seen == [False, True, True]


def test_ordinary_threads_may_share_it() -> None:
    disk = MemoryFiles(capacity_bytes=1 << 30)

    def grow(name: str) -> None:
        file = disk.create(f"/{name}")
        for number in range(300):
            file.write_at(number * 10, [b"0123456789"])
            file.sync()

    threads = [threading.Thread(target=grow, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert disk.used_bytes == 4 * 3000


WRITES = st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=1500), st.booleans()), max_size=8)


@settings(max_examples=150, deadline=None)
@given(WRITES, st.integers(0, 1000))
def test_a_byte_after_a_crash_was_once_written_there_or_is_zero(
    writes: list[tuple[int, bytes, bool]], seed: int
) -> None:
    disk = disk_with()
    possible: dict[int, set[int]] = {}
    size_max = size_min = 0
    for offset, data, is_synced in writes:
        write(disk, offset, data, is_synced=is_synced)
        for index, byte in enumerate(data, start=offset):
            possible.setdefault(index, {0}).add(byte)
        size_max = max(size_max, offset + len(data))
        if is_synced:
            contents = disk.contents("/f")
            possible = {index: {byte} for index, byte in enumerate(contents)}
            size_min = len(contents)
    after = disk.crash(REORDERED, SeededRandom(seed)).contents("/f")
    assert size_min <= len(after) <= size_max
    assert all(byte in possible.get(index, {0}) for index, byte in enumerate(after))


@settings(max_examples=100, deadline=None)
@given(WRITES)
def test_synced_steps_and_unsynced_steps_together_are_what_reads_see(writes: list[tuple[int, bytes, bool]]) -> None:
    disk, plain = disk_with(), bytearray()
    for offset, data, is_synced in writes:
        write(disk, offset, data, is_synced=is_synced)
        plain.extend(bytes(max(0, offset + len(data) - len(plain))))
        plain[offset : offset + len(data)] = data
    assert disk.contents("/f") == plain
    disk.open("/f", writable=True).sync()
    assert disk.crash(SYNCED, SeededRandom(0)).contents("/f") == plain
