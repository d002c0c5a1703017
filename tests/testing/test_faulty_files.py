"""The faulty disk: it fails exactly as configured, and the power stays cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.simulator.corruption import flip_bit, stale_tail, tear_tail, zero_tail
from warren.base.errors import DiskFailure, Misuse, OutOfRoom, SyncFailed
from warren.files.protocol import Files
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import CHANGING, Fault, FaultKind, FaultyFiles, Pages
from warren.testing.memory_files import ALL, SYNCED, MemoryFiles, PowerCut


def everything(files: Files) -> None:
    """Each operation that changes a disk, once."""
    files.make_directories("/d/e")
    lock = files.lock("/d/lock", "me")
    file = files.create("/d/f")
    file.allocate(0, 10)
    file.write_at(0, [b"01234", b"56789"])
    file.sync()
    file.close()
    files.link("/d/f", "/d/g")
    files.rename("/d/g", "/d/e/g")
    files.sync_directory("/d")
    files.remove("/d/e/g")
    files.remove_directory("/d/e")
    lock.release()


def test_every_change_is_a_step_and_reading_is_none() -> None:
    disk = FaultyFiles(MemoryFiles())
    everything(disk)
    assert [str(step) for step in disk.steps] == [
        "make_directory /d",
        "make_directory /d/e",
        "lock /d/lock",
        "create /d/f",
        "allocate /d/f",
        "write /d/f",
        "sync /d/f",
        "link /d/f to /d/g",
        "rename /d/g to /d/e/g",
        "sync_directory /d",
        "remove /d/e/g",
        "remove_directory /d/e",
    ]
    assert {step.operation for step in disk.steps} == CHANGING
    count = len(disk.steps)
    disk.open("/d/f").read_at(0, 5)
    disk.exists("/d/f")
    disk.list("/d")
    disk.make_directories("/d")
    assert len(disk.steps) == count


def test_a_cut_before_step_n_leaves_exactly_the_steps_before_it() -> None:
    for number in range(12):
        disk, plain = MemoryFiles(), FaultyFiles(MemoryFiles())
        cut = FaultyFiles(disk, cut_at=number)
        with pytest.raises(PowerCut, match=f"at step {number}: "):
            everything(cut)
        assert len(cut.steps) == number + 1
        everything(plain)
        assert cut.steps == plain.steps[: number + 1]
        assert disk.exists("/d/f") == (number > 3)
        assert disk.exists("/d/e/g") == (8 < number <= 10)


def test_a_cut_during_a_write_leaves_a_first_part_of_it() -> None:
    for fraction, expected in ((0.0, b"\0" * 10), (0.35, b"012" + b"\0" * 7), (1.0, b"0123456789")):
        disk = MemoryFiles()
        with pytest.raises(PowerCut):
            everything(FaultyFiles(disk, cut_at=5, cut_fraction=fraction))
        assert disk.contents("/d/f") == expected


def test_a_cut_during_any_other_step_executes_it_without_returning() -> None:
    disk = MemoryFiles()
    with pytest.raises(PowerCut):
        everything(FaultyFiles(disk, cut_at=7, cut_fraction=0.5))
    assert disk.stat("/d/f").links == 2


def test_after_the_cut_every_operation_is_cut_and_the_disk_stays_as_it_is() -> None:
    inner = MemoryFiles()
    disk = FaultyFiles(inner)
    everything(disk)
    lock, file = disk.lock("/d/second", "me"), disk.open("/d/f", writable=True)
    disk.cut_at = len(disk.steps)
    attempts: list[Callable[[], object]] = [
        lambda: disk.create("/x"),
        lambda: disk.create("/x"),
        lambda: disk.open("/d/f"),
        lambda: disk.exists("/d/f"),
        lambda: disk.list("/d"),
        lambda: disk.make_directories("/y"),
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, [b"x"]),
        file.sync,
        file.close,
        lock.release,
    ]
    for attempt in attempts:
        with pytest.raises(PowerCut):
            attempt()
    assert disk.is_cut
    assert inner.list("/") == ["d"]
    assert inner.contents("/d/f") == b"0123456789"


def test_a_power_cut_is_no_exception_that_a_product_might_catch() -> None:
    assert not issubclass(PowerCut, Exception)


def test_the_callback_of_a_cut_is_called_once() -> None:
    calls: list[str] = []
    disk = FaultyFiles(MemoryFiles(), cut_at=0, on_cut=lambda: calls.append("cut"))
    for _ in range(2):
        with pytest.raises(PowerCut):
            disk.create("/f")
    assert calls == ["cut"]


def test_an_error_once_is_once_and_a_sticky_one_stays() -> None:
    disk = FaultyFiles(MemoryFiles())
    file = disk.create("/f")
    disk.faults.append(Fault(FaultKind.IO_ERROR, "write"))
    with pytest.raises(DiskFailure, match="cannot write /f: Input/output error"):
        file.write_at(0, [b"x"])
    file.write_at(0, [b"y"])
    disk.faults.append(Fault(FaultKind.IO_ERROR, "read", times=None))
    for _ in range(3):
        with pytest.raises(DiskFailure, match="read /f"):
            file.read_at(0, 1)
    disk.faults.clear()
    assert file.read_at(0, 9) == b"y"


def test_a_fault_meets_only_its_path_its_operation_and_its_step() -> None:
    disk = FaultyFiles(MemoryFiles(), [Fault(FaultKind.IO_ERROR, "create", "*.log")])
    disk.create("/f.txt")
    disk.make_directories("/d.log")
    with pytest.raises(DiskFailure):
        disk.create("/f.log")
    disk.create("/f.log")
    disk.faults.append(Fault(FaultKind.IO_ERROR, "rename", "/g.log"))
    with pytest.raises(DiskFailure):
        disk.rename("/f.log", "/g.log")
    disk.faults.append(Fault(FaultKind.IO_ERROR, at_step=len(disk.steps) + 1))
    disk.remove("/f.log")
    with pytest.raises(DiskFailure):
        disk.remove("/f.txt")


def test_a_short_write_leaves_a_first_part_and_fails() -> None:
    disk = FaultyFiles(MemoryFiles(), [Fault(FaultKind.SHORT_WRITE, fraction=0.3)])
    file = disk.create("/f")
    with pytest.raises(DiskFailure):
        file.write_at(0, [b"01234", b"56789"])
    assert file.read_at(0, 99) == b"012"


def test_a_full_disk_refuses_growth_while_the_switch_is_on_and_nothing_else() -> None:
    full = Fault(FaultKind.NO_SPACE, times=None, is_armed=False)
    disk = FaultyFiles(MemoryFiles(), [full])
    file = disk.create("/f")
    file.write_at(0, [b"x"])
    full.is_armed = True
    for attempt in (
        lambda: file.write_at(1, [b"yz"]),
        lambda: file.allocate(9, 9),
        lambda: disk.create("/g"),
        lambda: disk.link("/f", "/g"),
    ):
        with pytest.raises(OutOfRoom):
            attempt()
    assert file.read_at(0, 1) == b"x"
    file.sync()
    disk.rename("/f", "/h")
    disk.sync_directory("/")
    full.is_armed = False
    file.write_at(1, [b"yz"])
    assert file.read_at(0, 3) == b"xyz"


def test_no_space_at_one_step_passes() -> None:
    disk = FaultyFiles(MemoryFiles(), [Fault(FaultKind.NO_SPACE, at_step=1)])
    file = disk.create("/f")
    with pytest.raises(OutOfRoom):
        file.allocate(0, 10)
    file.allocate(0, 10)
    assert file.size() == 10


def failed_sync(pages: Pages) -> tuple[MemoryFiles, FaultyFiles]:
    inner = MemoryFiles()
    disk = FaultyFiles(inner)
    file = disk.create("/f")
    disk.sync_directory("/")
    file.write_at(0, [b"old"])
    file.sync()
    file.write_at(0, [b"lost!"])
    disk.faults.append(Fault(FaultKind.IO_ERROR, "sync", pages=pages))
    with pytest.raises(SyncFailed):
        file.sync()
    attempts: list[Callable[[], None]] = [file.sync, lambda: file.write_at(0, [b"x"]), lambda: file.allocate(0, 1)]
    for attempt in attempts:
        with pytest.raises(SyncFailed, match="an earlier sync failed"):
            attempt()
    return inner, disk


@pytest.mark.parametrize(
    ("pages", "read", "survives_sync"),
    [(Pages.DIRTY, b"lost!", b"lost!"), (Pages.CLEAN, b"lost!", b"old"), (Pages.DROPPED, b"old", b"old")],
)
def test_after_a_failed_sync_the_handle_is_dead_and_the_pages_are_as_configured(
    pages: Pages, read: bytes, survives_sync: bytes
) -> None:
    inner, disk = failed_sync(pages)
    again = disk.open("/f", writable=True)
    assert again.read_at(0, 99) == read
    again.sync()  # a new handle's sync succeeds, and lies
    assert inner.crash(SYNCED, SeededRandom(0)).contents("/f") == survives_sync
    assert inner.crash(ALL, SeededRandom(0)).contents("/f") == survives_sync


def test_a_failed_directory_sync_stays_failed() -> None:
    disk = FaultyFiles(MemoryFiles(), [Fault(FaultKind.IO_ERROR, "sync_directory")])
    for _ in range(2):
        with pytest.raises(SyncFailed, match="sync_directory /"):
            disk.sync_directory("/")


def test_bytes_decay_as_configured() -> None:
    disk = MemoryFiles()
    disk.create("/f").write_at(0, [b"0123456789"])
    disk.link("/f", "/g")
    tear_tail(disk, "/f", 2)
    assert disk.contents("/g") == b"01234567"
    zero_tail(disk, "/f", 3)
    assert disk.contents("/f") == b"01234\0\0\0"
    flip_bit(disk, "/f", 8 * 1 + 0)
    assert disk.contents("/f") == b"00234\0\0\0"
    stale_tail(disk, "/f", b"AB", offset=5)
    assert disk.contents("/f") == b"00234AB\0"
    stale_tail(disk, "/f", b"CD")
    assert disk.contents("/f") == b"00234AB\0CD"
    assert disk.used_bytes == 10
    for model in (ALL, SYNCED):
        disk.sync_directory("/")
        assert disk.crash(model, SeededRandom(0)).contents("/f") == b"00234AB\0CD"


def test_decay_of_what_is_not_there_is_misuse() -> None:
    disk = MemoryFiles()
    disk.create("/f").write_at(0, [b"x"])
    attempts: list[Callable[[], None]] = [
        lambda: tear_tail(disk, "/f", 2),
        lambda: zero_tail(disk, "/f", 2),
        lambda: flip_bit(disk, "/f", 8),
        lambda: stale_tail(disk, "/f", b"", offset=2),
    ]
    for attempt in attempts:
        with pytest.raises(Misuse):
            attempt()
