"""Bad input gets an error that says what, where and what to do; nothing is lost and no other session is disturbed."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from tests.log.stage import DIRECTORY, QUIET, STORAGE, names_in, opened, put, rows_of
from warren.base.errors import Damage, Misuse, OutOfRoom, Refused, WarrenError
from warren.durability.epoch_file import SLOT_BYTES
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.file_record import EPOCH, MANIFEST
from warren.log.store import LogStore
from warren.records.format import ENTRY_BYTES_MAX
from warren.testing.memory_files import MemoryFiles

LOG_FILE = "pwal_0000"


def stored(is_rotated: bool = False) -> MemoryFiles:
    """A store with three keys in it, stopped without ado."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(3):
        put(store, b"%d" % number)
    if is_rotated:
        store.rotate()
    store.witness()
    store.abandon()
    return files


def check_refused_and_nothing_lost(
    files: MemoryFiles, name: str, spoil: Callable[[bytearray], None], family: type[WarrenError], match: str
) -> WarrenError:
    """Spoil a file, see that opening refuses and leaves everything as it was, mend it, and find all there."""
    path = join(DIRECTORY, name)
    whole = files.contents(path)
    raw = bytearray(whole)
    spoil(raw)
    files.set_contents(path, bytes(raw))
    before = {other: files.contents(join(DIRECTORY, other)) for other in names_in(files) if other != "lock"}
    for _ in range(2):
        with pytest.raises(family, match=match) as error:
            opened(files, 2)
    assert error.value.hint
    for other, content in before.items():
        assert files.contents(join(DIRECTORY, other)) == content, f"{other} was changed by an opening that was refused"
    files.set_contents(path, whole)
    with opened(files, 3) as store:
        assert [row.key for row in rows_of(files, store.durable)] == [b"0", b"1", b"2"]
    return error.value


def newer_block(offset: int) -> Callable[[bytearray], None]:
    """Make the block there one of format 2, under a right checksum."""

    def spoil(raw: bytearray) -> None:
        (size,) = struct.unpack_from("<I", raw, offset + 12)
        struct.pack_into("<H", raw, offset + 10, 2)
        body = crc32(raw[offset + 64 : offset + 64 + size])
        struct.pack_into("<I", raw, offset + 4, crc32(raw[offset + 8 : offset + 64], body))

    return spoil


def newer_witness(raw: bytearray) -> None:
    for start in (0, SLOT_BYTES):
        (count,) = struct.unpack_from("<H", raw, start + 10)
        struct.pack_into("<H", raw, start + 8, 2)
        struct.pack_into("<I", raw, start + 4, crc32(raw[start + 8 : start + 80 + count * 32]))


def foreign(raw: bytearray) -> None:
    raw[: len(raw)] = (b"SQLite format 3\0" * (len(raw) // 16 + 1))[: len(raw)]


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 96])
def test_a_log_file_of_a_newer_format_is_refused(offset: int) -> None:
    error = check_refused_and_nothing_lost(stored(), LOG_FILE, newer_block(offset), Refused, "format 2")
    assert LOG_FILE in error.what
    assert "newer warren" in error.hint


def test_a_sealed_log_file_of_a_newer_format_is_refused() -> None:
    name = "pwal_0000.0000000001"
    error = check_refused_and_nothing_lost(stored(is_rotated=True), name, newer_block(0), Refused, "format 2")
    assert name in error.what
    assert "newer warren" in error.hint


def test_a_manifest_of_a_newer_format_is_refused() -> None:
    error = check_refused_and_nothing_lost(stored(), MANIFEST, newer_block(0), Refused, "format 2")
    assert MANIFEST in error.what
    assert "newer warren" in error.hint


def test_an_epoch_file_of_a_newer_format_is_refused() -> None:
    error = check_refused_and_nothing_lost(stored(), EPOCH, newer_witness, Refused, "format 2")
    assert "newer warren" in error.hint


def test_a_foreign_manifest_is_damage_that_names_it() -> None:
    error = check_refused_and_nothing_lost(stored(), MANIFEST, foreign, Damage, "manifest")
    assert isinstance(error, Damage)
    assert error.path == join(DIRECTORY, MANIFEST)
    assert "verify" in error.hint


@pytest.mark.parametrize("is_rotated", [False, True])
def test_a_foreign_log_file_is_damage_that_names_it(is_rotated: bool) -> None:
    name = "pwal_0000.0000000001" if is_rotated else LOG_FILE
    error = check_refused_and_nothing_lost(stored(is_rotated), name, foreign, Damage, "log file 1")
    assert isinstance(error, Damage)
    assert error.path == join(DIRECTORY, name)


def test_a_foreign_epoch_file_is_no_witness_and_the_log_opens_without_it() -> None:
    files = stored()
    raw = bytearray(files.contents(join(DIRECTORY, EPOCH)))
    foreign(raw)
    files.set_contents(join(DIRECTORY, EPOCH), bytes(raw))
    with opened(files, 2) as store:
        assert [row.key for row in rows_of(files, store.durable)] == [b"0", b"1", b"2"]
        assert len(store.opened.problems) == 2


# -- entries ---------------------------------------------------------------------------------------------------------


def test_an_entry_over_the_limit_disturbs_no_other_session() -> None:
    """LC-01: refused with the limit and a hint; the session continues, and so do others."""
    files = MemoryFiles()
    with opened(files) as store:
        other = store.begin()
        other.put(STORAGE, b"other", b"")
        session = store.begin()
        session.put(STORAGE, b"before", b"")
        with pytest.raises(Misuse, match="over the limit of 1048576") as misuse:
            session.put(STORAGE, b"large", bytes(ENTRY_BYTES_MAX))
        assert misuse.value.hint == "cut it into chunks"
        session.put(STORAGE, b"behind", b"")
        session.commit()
        other.commit()
        assert {row.key for row in rows_of(files)} == {b"before", b"behind", b"other"}


# -- the directory ---------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from warren.log.settings import LogSettings
from warren.log.store import LogStore
store = LogStore.open(sys.argv[1], LogSettings(use_worker_process=False))
print("open", flush=True)
sys.stdin.readline()
with store.begin() as session:
    session.put(7, b"undisturbed", b"")
store.close()
"""


@pytest.mark.slow
def test_a_second_process_is_refused_with_the_name_of_the_one_that_holds_the_directory(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    command = [sys.executable, "-c", HOLDER, directory]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin and holder.stdout
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(Refused, match=f"locked by .*process {holder.pid} on ") as refusal:
            LogStore.open(directory, QUIET)
        assert refusal.value.hint == "stop that one first"
        holder.stdin.write("go\n")
        holder.stdin.close()
        assert holder.wait(30) == 0
    with LogStore.open(directory, QUIET) as store:
        assert store.snapshot().get(STORAGE, b"undisturbed") == b""


def test_a_read_only_disk_is_refused_with_a_hint() -> None:
    for files in (MemoryFiles(), stored()):
        files.is_read_only = True
        with pytest.raises(Refused, match="Read-only file system") as refusal:
            opened(files, 2)
        assert "remount" in refusal.value.hint
    files.is_read_only = False
    with opened(files, 3) as store:
        assert len(rows_of(files, store.durable)) == 3


def test_a_disk_that_becomes_read_only_stops_the_log_and_loses_nothing_that_was_confirmed() -> None:
    files = stored()
    store = opened(files, 2)
    put(store, b"3")
    files.is_read_only = True
    with pytest.raises(Refused, match="Read-only file system"):
        put(store, b"never confirmed")
    with pytest.raises(Refused, match="Read-only file system"):
        store.begin()
    store.abandon()
    files.is_read_only = False
    with opened(files, 3) as store:
        assert [row.key for row in rows_of(files, store.durable)] == [b"0", b"1", b"2", b"3"]


def test_a_directory_that_is_a_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Refused) as refusal:
            LogStore.open(str(directory), QUIET)
        assert str(tmp_path / "file") in refusal.value.what
        assert "a file stands where a directory is needed" in refusal.value.hint
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("name", [LOG_FILE, MANIFEST, EPOCH])
def test_a_directory_where_a_file_is_needed_is_refused(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "log"
    LogStore.open(str(directory), QUIET).close()
    (directory / name).rename(tmp_path / "kept")
    (directory / name).mkdir()
    with pytest.raises(WarrenError) as error:
        LogStore.open(str(directory), QUIET)
    assert isinstance(error.value, Refused | Damage)
    assert error.value.hint
    (directory / name).rmdir()
    (tmp_path / "kept").rename(directory / name)
    LogStore.open(str(directory), QUIET).close()


def test_foreign_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "README").write_text("mine")
    with LogStore.open(str(directory), QUIET) as store:
        put(store, b"key")
    assert (directory / "README").read_text() == "mine"
    assert len(rows_of(LocalFiles(), directory=str(directory))) == 1


# -- a full disk -----------------------------------------------------------------------------------------------------


def is_out_of_room(store: LogStore) -> bool:
    return store.commit.is_out_of_room


def test_a_full_disk_holds_appends_up_and_they_continue_without_a_restart() -> None:
    """Promise 3: several writers, and one with a callback only. None is confirmed before, all are after."""
    files = MemoryFiles()
    store = opened(files)
    put(store, b"before")
    files.capacity_bytes = files.used_bytes + 10_000
    reported: list[bytes] = []
    called: list[int] = []
    store.commit.call_when_durable(called.append)

    def write(name: int) -> None:
        for number in range(3):
            key = b"%d/%d" % (name, number)
            put(store, key, bytes(400_000))
            reported.append(key)

    writers = [threading.Thread(target=write, args=(name,), daemon=True) for name in range(3)]
    for writer in writers:
        writer.start()
    while not is_out_of_room(store):
        assert any(writer.is_alive() for writer in writers)
    [alarm] = store.alarms()
    assert alarm.startswith("writers wait for room: cannot allocate ") and LOG_FILE in alarm
    assert alarm.endswith("; free some space on this disk; an open store continues automatically")
    durable, count = store.durable, len(reported)
    for writer in writers:
        writer.join(0.1)
        assert writer.is_alive(), "no writer ends, and none is confirmed"
    assert (store.durable, len(reported)) == (durable, count)
    assert b"before" in {row.key for row in rows_of(files, store.durable)}, "reading continues"
    files.capacity_bytes = None
    for writer in writers:
        writer.join(30)
    assert len(reported) == 9
    assert not is_out_of_room(store) and store.alarms() == []
    assert called == list(range(2, store.durable + 1))
    store.close()
    with opened(files, 2) as store:
        assert {row.key for row in rows_of(files, store.durable)} == {b"before", *reported}


def test_a_disk_that_is_full_at_the_start_says_so_and_the_next_start_finds_everything() -> None:
    files = stored()
    for room in range(0, 1_200_000, 150_000):
        files.capacity_bytes = files.used_bytes + room
        with pytest.raises(OutOfRoom) as error:
            opened(files, 2)
        assert "free some space" in error.value.hint
    files.capacity_bytes = None
    with opened(files, 3) as store:
        assert [row.key for row in rows_of(files, store.durable)] == [b"0", b"1", b"2"]


def test_a_log_that_is_closed_on_a_full_disk_says_so_and_loses_nothing_that_was_confirmed() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, b"confirmed")
    files.capacity_bytes = files.used_bytes
    session = store.begin()
    session.put_many(STORAGE, [b"never confirmed"] * 3, [bytes(1_000_000)] * 3)
    session.end()
    with pytest.raises(OutOfRoom):
        store.close()
    files.capacity_bytes = None
    with opened(files, 2) as store:
        assert [row.key for row in rows_of(files, store.durable)] == [b"confirmed"]
