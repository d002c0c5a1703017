"""The owning process, and what is called in a child that is forked from it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from warren.base.environment import OwningProcess, call_in_children
from warren.base.errors import ForkedProcess, Locked
from warren.files.local import LocalFiles


def in_a_child(body: Callable[[], object]) -> str:
    """What the body returned or raised in a forked child, as text."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            result = repr(body())
        except BaseException as error:
            result = type(error).__name__
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def test_a_check_passes_in_the_owner_and_raises_in_a_child() -> None:
    owner = OwningProcess("/var/lib/app")
    owner.check()
    assert owner.is_this
    assert in_a_child(owner.check) == ForkedProcess.__name__
    assert in_a_child(lambda: owner.is_this) == "False"
    assert in_a_child(lambda: OwningProcess("/var/lib/app").is_this) == "True"


def test_a_child_cannot_write_a_file_that_its_parent_opened(tmp_path: Path) -> None:
    """Whichever way leads there: the last check is at the file."""
    files = LocalFiles()
    file = files.create(str(tmp_path / "file"))
    try:
        for write in (
            lambda: file.write_at(0, [b"child"]),
            lambda: file.write_through(0, [b"child"]),
            lambda: file.allocate(0, 5),
            file.sync,
        ):
            assert in_a_child(write) == ForkedProcess.__name__
        assert in_a_child(lambda: files.create(str(tmp_path / "own")).write_at(0, [b"child"])) == "None"
        file.write_at(0, [b"owner"])
    finally:
        file.close()
    assert (tmp_path / "file").read_bytes() == b"owner"


def test_a_child_that_releases_a_lock_leaves_it_to_its_parent(tmp_path: Path) -> None:
    lock = LocalFiles().lock(str(tmp_path / "lock"), "this test")
    assert in_a_child(lock.release) == "None"
    with pytest.raises(Locked):
        LocalFiles().lock(str(tmp_path / "lock"), "another")
    lock.release()
    LocalFiles().lock(str(tmp_path / "lock"), "another").release()


def test_an_object_is_called_in_each_child_as_long_as_it_exists() -> None:
    class Counting:
        calls = 0

        def forked(self) -> None:
            type(self).calls += 1

    counting = Counting()
    call_in_children(counting)
    assert in_a_child(lambda: Counting.calls) == "1"
    assert Counting.calls == 0
    del counting
    gc.collect()
    assert in_a_child(lambda: Counting.calls) == "0"
