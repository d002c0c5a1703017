"""One suite over every disk: what `files.protocol` promises holds on the machine, in memory and behind faults."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.errors import DiskFailure, Misuse, OutOfRoom, Refused, WarrenError
from warren.files.local import LocalFiles
from warren.files.protocol import Files, join
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

MAKERS: dict[str, Callable[[], Files]] = {
    "local": LocalFiles,
    "memory": MemoryFiles,
    "faulty memory": lambda: FaultyFiles(MemoryFiles()),
    "faulty local": lambda: FaultyFiles(LocalFiles()),
}


@pytest.fixture(params=MAKERS)
def files(request: pytest.FixtureRequest) -> Files:
    return MAKERS[request.param]()


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    path = join(str(tmp_path), "data")
    files.make_directories(path)
    return path


def put(files: Files, path: str, contents: bytes = b"") -> None:
    file = files.create(path)
    file.write_at(0, [contents])
    file.close()


def contents_of(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_pieces_are_written_one_behind_the_other(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    file.write_at(4, [b"", b"XY", b"Z"])
    assert file.read_at(0, 100) == b"abcdXYZ"
    assert file.size() == 7
    file.close()


def test_wide_elements_of_a_piece_are_counted_in_bytes(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [memoryview(bytes(range(16))).cast("Q"), b"!"])
    assert file.read_at(0, 100) == bytes(range(16)) + b"!"
    file.close()


def test_thousands_of_pieces_are_one_write(files: Files, root: str) -> None:
    pieces = [b"%05d" % number for number in range(5000)]
    file = files.create(root + "/f")
    file.write_at(3, pieces)
    assert file.read_at(0, 1 << 20) == b"\0\0\0" + b"".join(pieces)
    file.close()


def test_writing_nothing_leaves_the_file_alone(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(10, [])
    file.write_at(10, [b""])
    assert file.size() == 0
    file.close()


def test_a_write_behind_the_end_leaves_zeros_between(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(4, [b"x"])
    assert file.read_at(0, 10) == b"\0\0\0\0x"
    file.close()


def test_reading_returns_fewer_bytes_only_at_the_end(files: Files, root: str) -> None:
    put(files, root + "/f", b"0123456789")
    file = files.open(root + "/f")
    assert file.read_at(2, 3) == b"234"
    assert file.read_at(8, 10) == b"89"
    assert file.read_at(10, 5) == b""
    assert file.read_at(99, 5) == b""
    file.close()


def test_allocate_fills_with_zeros_and_grows_to_the_end(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [b"x" * 10])
    file.allocate(4, (1 << 20) + 5)
    assert file.size() == (1 << 20) + 9
    assert file.read_at(0, 6) == b"xxxx\0\0"
    assert not any(file.read_at(4, 1 << 21))
    file.allocate(0, 2)
    assert file.size() == (1 << 20) + 9
    assert file.read_at(0, 4) == b"\0\0xx"
    file.close()


def test_a_view_is_the_whole_file_and_read_only(files: Files, root: str) -> None:
    put(files, root + "/f", b"hello")
    file = files.open(root + "/f")
    view = file.view()
    file.close()
    assert bytes(view) == b"hello"
    assert view.readonly


def test_a_view_of_an_empty_file_is_empty(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    assert bytes(file.view()) == b""
    file.close()


def test_a_view_keeps_its_length_when_the_file_grows_and_shows_writes_inside_it(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [b"hello"])
    view = file.view()
    file.write_at(0, [b"J"])
    file.write_at(5, [b" world"])
    assert bytes(view) == b"Jello"
    assert bytes(file.view()) == b"Jello world"
    file.close()


def test_sync_keeps_what_was_written(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [b"a"])
    file.sync()
    file.write_at(1, [b"b"])
    file.sync()
    file.sync()
    assert file.read_at(0, 5) == b"ab"
    file.close()


def test_writing_through_writes_everything_and_can_be_repeated(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.write_at(0, [bytes(10)])
    for _ in range(2):
        file.write_through(3, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    file.write_through(12, [b"%d" % (number % 10) for number in range(3000)])  # more pieces than a call takes
    expected = bytes(3) + b"abcdef" + bytes(3) + b"0123456789" * 300
    assert file.read_at(0, 5000) == expected and file.size() == len(expected)
    file.close()
    assert contents_of(files, root + "/f") == expected


def test_what_is_forgotten_is_read_as_before_and_a_closed_file_forgets_nothing(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    contents = bytes(range(256)) * 64
    file.write_at(0, [contents])
    file.forget(0, len(contents))
    file.sync()
    file.expect(0, len(contents))
    file.forget(0, len(contents))
    file.forget(len(contents) * 2, 100)
    assert file.read_at(0, len(contents) + 1) == contents
    file.close()
    file.forget(0, 10)
    file.expect(0, 10)


def test_a_name_is_created_once(files: Files, root: str) -> None:
    put(files, root + "/f", b"first")
    with pytest.raises(Refused, match=r"create .*/f"):
        files.create(root + "/f")
    assert contents_of(files, root + "/f") == b"first"


def test_what_is_missing_is_refused_by_name(files: Files, root: str) -> None:
    missing = root + "/missing"
    for attempt in (
        lambda: files.open(missing),
        lambda: files.open(missing, writable=True),
        lambda: files.stat(missing),
        lambda: files.list(missing),
        lambda: files.remove(missing),
        lambda: files.remove_directory(missing),
        lambda: files.rename(missing, root + "/x"),
        lambda: files.link(missing, root + "/x"),
        lambda: files.sync_directory(missing),
        lambda: files.free_bytes(missing),
        lambda: files.create(missing + "/f"),
    ):
        with pytest.raises(Refused, match="missing"):
            attempt()
    assert files.list(root) == []


def test_a_file_in_a_directorys_place_is_refused_with_a_hint(files: Files, root: str) -> None:
    put(files, root + "/f")
    for attempt in (
        lambda: files.make_directories(root + "/f"),
        lambda: files.make_directories(root + "/f/below"),
        lambda: files.create(root + "/f/below"),
        lambda: files.list(root + "/f"),
        lambda: files.sync_directory(root + "/f"),
        lambda: files.remove_directory(root + "/f"),
    ):
        with pytest.raises(Refused, match="hint: a file stands where a directory is needed"):
            attempt()
    assert not files.exists(root + "/f/below")


def test_a_directory_in_a_files_place_is_refused(files: Files, root: str) -> None:
    files.make_directories(root + "/d")
    put(files, root + "/f")
    for attempt in (
        lambda: files.open(root + "/d"),
        lambda: files.open(root + "/d", writable=True),
        lambda: files.create(root + "/d"),
        lambda: files.remove(root + "/d"),
        lambda: files.rename(root + "/f", root + "/d"),
        lambda: files.rename(root + "/d", root + "/f"),
        lambda: files.link(root + "/d", root + "/e"),
    ):
        with pytest.raises(Refused):
            attempt()
    assert files.list(root) == ["d", "f"]


def test_a_file_opened_for_reading_can_not_be_changed(files: Files, root: str) -> None:
    put(files, root + "/f", b"x")
    file = files.open(root + "/f")
    attempts: list[Callable[[], None]] = [lambda: file.write_at(0, [b"y"]), lambda: file.allocate(0, 9), file.sync]
    for attempt in attempts:
        with pytest.raises(Misuse, match="opened for reading"):
            attempt()
    assert file.read_at(0, 9) == b"x"
    file.close()


def test_a_closed_file_is_misuse_and_closing_twice_is_not(files: Files, root: str) -> None:
    file = files.create(root + "/f")
    file.close()
    file.close()
    for attempt in (lambda: file.write_at(0, [b"y"]), lambda: file.read_at(0, 1), file.size, file.sync, file.view):
        with pytest.raises(Misuse, match="closed"):
            attempt()


def test_rename_replaces_and_an_open_file_keeps_its_bytes_and_its_name(files: Files, root: str) -> None:
    put(files, root + "/old", b"old")
    put(files, root + "/new", b"new")
    reader = files.open(root + "/old")
    files.rename(root + "/new", root + "/old")
    assert contents_of(files, root + "/old") == b"new"
    assert files.list(root) == ["old"]
    assert reader.read_at(0, 9) == b"old"
    assert reader.path == root + "/old"
    reader.close()


def test_renaming_one_link_of_a_file_over_another_does_nothing(files: Files, root: str) -> None:
    put(files, root + "/a", b"x")
    files.link(root + "/a", root + "/b")
    files.rename(root + "/a", root + "/b")
    assert files.list(root) == ["a", "b"]


def test_a_directory_can_be_renamed_with_what_is_in_it(files: Files, root: str) -> None:
    files.make_directories(root + "/staging/job")
    put(files, root + "/staging/job/f", b"x")
    files.rename(root + "/staging/job", root + "/done")
    assert contents_of(files, root + "/done/f") == b"x"
    assert files.list(root + "/staging") == []


def test_a_directory_can_not_be_moved_into_itself(files: Files, root: str) -> None:
    files.make_directories(root + "/d")
    with pytest.raises(DiskFailure, match="Invalid argument"):
        files.rename(root + "/d", root + "/d/below")


def test_links_are_counted_and_share_their_bytes(files: Files, root: str) -> None:
    put(files, root + "/a", b"x")
    files.link(root + "/a", root + "/b")
    assert files.stat(root + "/a") == files.stat(root + "/b")
    assert files.stat(root + "/a").links == 2
    with pytest.raises(Refused):
        files.link(root + "/a", root + "/b")
    writer = files.open(root + "/b", writable=True)
    writer.write_at(0, [b"y"])
    writer.close()
    files.remove(root + "/b")
    assert files.stat(root + "/a").links == 1
    assert contents_of(files, root + "/a") == b"y"


def test_stat_returns_size_kind_and_identity(files: Files, root: str) -> None:
    put(files, root + "/a", b"12345")
    put(files, root + "/b")
    a, b = files.stat(root + "/a"), files.stat(root + "/b")
    assert (a.size_bytes, a.links, a.is_directory) == (5, 1, False)
    assert a.device == b.device
    assert a.inode != b.inode
    assert files.stat(root).is_directory


def test_a_removed_file_that_is_open_can_still_be_read(files: Files, root: str) -> None:
    put(files, root + "/f", b"x")
    file = files.open(root + "/f")
    files.remove(root + "/f")
    assert not files.exists(root + "/f")
    assert file.read_at(0, 1) == b"x"
    file.close()


def test_directories_are_made_with_their_parents_listed_in_order_and_removed_when_empty(
    files: Files, root: str
) -> None:
    files.make_directories(root + "/b/c/d")
    files.make_directories(root + "/b/c")
    files.make_directories(root + "/a")
    put(files, root + "/b/f")
    assert files.list(root) == ["a", "b"]
    assert files.list(root + "/b") == ["c", "f"]
    with pytest.raises(Refused, match="hint: the directory still holds something"):
        files.remove_directory(root + "/b/c")
    files.remove_directory(root + "/b/c/d")
    files.remove_directory(root + "/b/c")
    files.sync_directory(root + "/b")
    assert files.list(root + "/b") == ["f"]


def test_the_second_opener_of_a_lock_gets_the_holder_until_it_is_released(files: Files, root: str) -> None:
    lock = files.lock(root + "/lock", "process 17 on rock")
    with pytest.raises(Refused, match=r"lock is locked by process 17 on rock\n  hint"):
        files.lock(root + "/lock", "another opener")
    lock.release()
    lock.release()
    second = files.lock(root + "/lock", "a")
    with pytest.raises(Refused, match=r"locked by a\n"):
        files.lock(root + "/lock", "b")
    second.release()


def test_free_space_and_sector_are_plausible(files: Files, root: str) -> None:
    assert files.free_bytes(root) > 0
    assert files.sector_bytes(root) in (512, 1024, 2048, 4096, 8192, 16384)


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "a/a"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["create", "remove", "remove_directory", "make_directories", "sync_directory"]), NAMES
        ),
        st.tuples(st.sampled_from(["rename", "link"]), NAMES, NAMES),
        st.tuples(st.just("write"), NAMES, st.integers(0, 12), st.binary(max_size=8)),
        st.tuples(st.just("allocate"), NAMES, st.integers(0, 12), st.integers(0, 8)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_any_sequence_of_operations_has_the_same_outcome_on_the_real_and_the_memory_disk(
    operations: list[tuple[object, ...]],
) -> None:
    directory = tempfile.mkdtemp(prefix="warren-conformance-")
    try:
        real, memory = LocalFiles(), MemoryFiles()
        memory.make_directories(directory)
        for operation in operations:
            assert outcome(real, directory, *operation) == outcome(memory, directory, *operation), operation
            assert tree(real, directory) == tree(memory, directory), operation
    finally:
        shutil.rmtree(directory)


def outcome(files: Files, root: str, operation: object, *arguments: object) -> str:
    try:
        match operation, *arguments:
            case "create", str(name):
                files.create(f"{root}/{name}").close()
            case ("rename" | "link") as verb, str(old), str(new):
                getattr(files, verb)(f"{root}/{old}", f"{root}/{new}")
            case "write", str(name), int(offset), bytes(data):
                file = files.open(f"{root}/{name}", writable=True)
                file.write_at(offset, [data])
                file.close()
            case "allocate", str(name), int(offset), int(size):
                file = files.open(f"{root}/{name}", writable=True)
                file.allocate(offset, size)
                file.close()
            case str(verb), str(name):
                getattr(files, verb)(f"{root}/{name}")
    except WarrenError as error:
        return type(error).__name__
    return "done"


def tree(files: Files, path: str) -> object:
    found = files.stat(path)
    if found.is_directory:
        return {name: tree(files, f"{path}/{name}") for name in files.list(path)}
    return found.links, contents_of(files, path)


def test_the_families_of_errors_are_as_promised() -> None:
    """OutOfRoom can be had from a memory disk only; the real one's is in test_local."""
    disk = MemoryFiles(capacity_bytes=10)
    file = disk.create("/f")
    with pytest.raises(OutOfRoom, match="write /f: No space left on device"):
        file.write_at(0, [bytes(11)])
