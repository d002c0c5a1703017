"""The machine's disk: what only a real operating system can show."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from warren.base.environment import SystemClock
from warren.base.errors import DiskFailure, Misuse, OutOfRoom, Refused, SyncFailed
from warren.files import local
from warren.files.local import LocalFiles, this_process, translate
from warren.files.protocol import parent


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "f")


def test_a_short_write_is_continued_where_it_stopped(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.pwritev, []

    def three_bytes_at_most(descriptor: int, pieces: Sequence[bytes], offset: int, flags: int = 0) -> int:
        sizes.append(sum(memoryview(piece).nbytes for piece in pieces))
        return real(descriptor, [b"".join(pieces)[:3]], offset, flags)

    monkeypatch.setattr(os, "pwritev", three_bytes_at_most)
    file = LocalFiles().create(path)
    file.write_at(2, [b"ab", b"", memoryview(b"cdef"), b"g"])
    file.write_through(2, [b"ab", b"", memoryview(b"cdef"), b"g"])
    assert sizes == [7, 4, 1] * 2
    assert file.read_at(0, 99) == b"\0\0abcdefg"
    file.close()


def test_a_write_of_nothing_by_the_system_is_a_failure_and_no_endless_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    file = LocalFiles().create(path)
    with pytest.raises(DiskFailure, match="write"):
        file.write_at(0, [b"x"])
    file.close()


def test_a_short_read_is_continued(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalFiles().create(path)
    file.write_at(0, [b"0123456789"])
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: real(descriptor, min(size, 3), offset))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(8, 8) == b"89"
    file.close()


def test_after_a_failed_sync_the_handle_is_dead_though_the_system_would_go_on(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LocalFiles().create(path)
    file.write_at(0, [b"x"])

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local, "_sync_data", fail)
    with pytest.raises(SyncFailed, match=r"sync .*/f: Input/output error"):
        file.sync()
    monkeypatch.undo()
    for attempt in (file.sync, lambda: file.write_at(0, [b"y"]), lambda: file.allocate(0, 1)):
        with pytest.raises(SyncFailed, match="an earlier sync failed"):
            attempt()
    assert file.read_at(0, 1) == b"x"
    file.close()


def refusing(number: int, calls: list[int]) -> object:
    """What the system says to writing through; plain writes go on."""
    real = os.pwritev

    def pwritev(descriptor: int, pieces: Sequence[bytes], offset: int, flags: int = 0) -> int:
        calls.append(flags)
        if flags:
            raise OSError(number, os.strerror(number))
        return real(descriptor, pieces, offset)

    return pwritev


def test_writing_through_is_one_call_that_syncs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = os.pwritev

    def pwritev(descriptor: int, pieces: Sequence[bytes], offset: int, flags: int = 0) -> int:
        calls.append(flags)
        return real(descriptor, pieces, offset, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(local, "_sync_data", lambda descriptor: pytest.fail("a second call"))
    file = LocalFiles().create(path)
    file.write_through(0, [b"ab", b"c"])
    assert calls == [os.RWF_DSYNC]
    assert file.read_at(0, 10) == b"abc"
    file.close()


def test_a_failure_of_writing_through_kills_the_handle(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalFiles().create(path)
    monkeypatch.setattr(os, "pwritev", refusing(errno.EIO, []))
    with pytest.raises(SyncFailed, match="cannot sync"):
        file.write_through(0, [b"abc"])
    agains = (partial(file.write_at, 0, [b"abc"]), file.sync, partial(file.write_through, 0, [b"abc"]))
    for again in agains:
        with pytest.raises(SyncFailed, match="an earlier sync failed"):
            again()
    file.close()


def test_a_full_disk_does_not_kill_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalFiles().create(path)
    with monkeypatch.context() as full:
        full.setattr(os, "pwritev", refusing(errno.ENOSPC, []))
        with pytest.raises(OutOfRoom):
            file.write_through(0, [b"abc"])
    file.write_through(0, [b"abc"])
    assert file.read_at(0, 10) == b"abc"
    file.close()


def test_where_the_system_cannot_write_through_it_writes_and_syncs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    syncs: list[int] = []
    monkeypatch.setattr(os, "pwritev", refusing(errno.EOPNOTSUPP, calls))
    monkeypatch.setattr(local, "_sync_data", syncs.append)
    file = LocalFiles().create(path)
    file.write_through(0, [b"abc"])
    file.write_through(3, [b"de"])
    assert calls == [os.RWF_DSYNC, 0, 0]  # tried once
    assert len(syncs) == 2
    assert file.read_at(0, 10) == b"abcde"
    file.close()


def test_a_system_that_takes_no_hints_is_as_good(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalFiles().create(path)
    file.write_at(0, [b"abc"])
    monkeypatch.setattr(local, "_advise", None)
    file.forget(0, 3)

    def refused(*arguments: int) -> None:
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(local, "_advise", refused)
    file.forget(0, 3)
    assert file.read_at(0, 3) == b"abc"
    file.close()


def test_a_hint_about_nothing_is_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes a length of 0 for all the rest."""
    hints: list[tuple[int, ...]] = []
    monkeypatch.setattr(local, "_advise", lambda *arguments: hints.append(arguments[1:3]))
    file = LocalFiles().create(path)
    file.forget(0, 0)
    file.expect(5, 0)
    file.expect(5, 7)
    assert hints == [(5, 7)]
    file.close()


def test_a_failed_directory_sync_is_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SyncFailed, match="sync directory"):
        LocalFiles().sync_directory(str(tmp_path))


def test_each_new_directory_is_synced_into_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalFiles, "sync_directory", lambda self, path: synced.append(path))
    LocalFiles().make_directories(f"{tmp_path}/a/b")
    LocalFiles().make_directories(f"{tmp_path}/a/b")
    assert synced == [f"{tmp_path}", f"{tmp_path}/a"]


def test_only_the_owner_may_read_new_files_and_directories(tmp_path: Path) -> None:
    files = LocalFiles()
    files.make_directories(f"{tmp_path}/d")
    files.create(f"{tmp_path}/d/f").close()
    files.lock(f"{tmp_path}/d/lock", "me").release()
    modes = [stat.S_IMODE((tmp_path / "d" / name).stat().st_mode) for name in ("", "f", "lock")]
    assert modes == [0o700, 0o600, 0o600]


def test_allocated_room_is_real_and_no_hole(path: str) -> None:
    file = LocalFiles().create(path)
    file.allocate(0, 3 << 20)
    file.sync()
    assert os.stat(path).st_blocks * 512 >= 3 << 20
    file.close()


def test_a_full_disk_is_out_of_room() -> None:
    file = LocalFiles().open("/dev/full", writable=True)
    with pytest.raises(OutOfRoom, match="No space left on device\n  hint: free some space"):
        file.write_at(0, [b"x"])
    file.close()


@pytest.mark.parametrize(
    ("number", "family", "hint"),
    [
        (errno.EROFS, Refused, "mounted read-only"),
        (errno.EACCES, Refused, "access"),
        (errno.ENOTDIR, Refused, "a file stands where a directory is needed"),
        (errno.ENOSPC, OutOfRoom, "free some space"),
        (errno.EDQUOT, OutOfRoom, "quota"),
        (errno.EIO, DiskFailure, "dmesg"),
        (errno.EMFILE, DiskFailure, "ulimit"),
    ],
)
def test_each_system_error_has_a_family_and_a_hint(number: int, family: type, hint: str) -> None:
    error = translate(OSError(number, "text"), "open", "/some/path")
    assert type(error) is family
    assert error.what == f"cannot open /some/path: {os.strerror(number)}"
    assert hint in error.hint


def test_descriptors_are_closed_again(tmp_path: Path) -> None:
    files = LocalFiles()
    files.lock(f"{tmp_path}/warm-up", "me").release()
    before = len(os.listdir("/proc/self/fd"))
    lock = files.lock(f"{tmp_path}/lock", "me")
    for _ in range(10):
        files.make_directories(f"{tmp_path}/d/e")
        files.sync_directory(str(tmp_path))
        with pytest.raises(Refused):
            files.lock(f"{tmp_path}/lock", "you")
        with pytest.raises(Refused):
            files.open(str(tmp_path))
        file = files.create(f"{tmp_path}/f")
        file.write_at(0, [b"x"])
        del_view = file.view()
        file.close()
        del del_view
        files.remove(f"{tmp_path}/f")
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_that_a_child_of_a_killed_holder_still_has_is_waited_for(tmp_path: Path) -> None:
    """A child is between fork and exec for a moment, with everything that its parent had open."""
    path = f"{tmp_path}/lock"
    code = (
        "import os, sys, time; from warren.files.local import LocalFiles, this_process;"
        "from warren.base.environment import SystemClock;"
        "lock = LocalFiles().lock(sys.argv[1], this_process(SystemClock()));"
        "child = os.fork(); print('locked', flush=True) if child else time.sleep(0.5); time.sleep(60 if child else 0)"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"locked\n"
        with pytest.raises(Refused, match="locked by"):
            LocalFiles().lock(path, "me")
        holder.kill()
        holder.wait()
        LocalFiles().lock(path, "me").release()


def test_a_lock_is_seen_by_another_process_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    script = (
        "import sys, time; from warren.files.local import LocalFiles, this_process;"
        "from warren.base.environment import SystemClock;"
        "lock = LocalFiles().lock(sys.argv[1], this_process(SystemClock()));"
        "print('locked', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(Refused, match=rf"locked by process {holder.pid} on .+, since 20.* UTC"):
            LocalFiles().lock(path, "me")
        holder.kill()
        holder.wait()
    LocalFiles().lock(path, "me").release()


def test_a_shorter_holder_replaces_the_whole_text(tmp_path: Path) -> None:
    LocalFiles().lock(f"{tmp_path}/lock", "a long name").release()
    LocalFiles().lock(f"{tmp_path}/lock", "short").release()
    assert (tmp_path / "lock").read_text() == "short"


def test_this_process_names_itself() -> None:
    assert this_process(SystemClock()).startswith(f"process {os.getpid()} on ")


def test_the_parent_of_a_path_is_where_its_name_stands() -> None:
    assert [parent(path) for path in ("/a/b", "/a", "a/b", "a")] == ["/a", "/", "a", "."]


def test_a_directory_can_be_made_under_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LocalFiles().make_directories("here/below")
    assert (tmp_path / "here" / "below").is_dir()


def test_misuse_is_distinguished_from_failure(path: str) -> None:
    file = LocalFiles().create(path)
    file.close()
    with pytest.raises(Misuse):
        file.write_at(0, [b"x"])
