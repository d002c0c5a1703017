"""A reader beside an owner that rotates, compacts or purges: every interleaving of a given shape, one at a time.

    reader   op op op ┐                  ┌ op op op …
    owner             └ op op … op, stop ┘             … op op

Before its n-th operation on the disk the reader pauses; the owner performs the first k operations of its change, or all
of them; then the reader runs to its end, and the owner completes the change. `points` yields every n; k is every place
right behind an operation that changes a name. Two real threads, of which one runs at a time: no seed, no timing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from warren.files.protocol import Files
from warren.log.store import LogStore
from warren.testing.faulty_files import FaultyFiles

Result = TypeVar("Result")
WATCHDOG_SECONDS = 60.0  # passes only if a thread hangs
NEVER = -1
NAMING = ("create", "rename", "remove", "link")


@dataclass(slots=True)
class Interleaving:
    """One run: `reader` gets the disk to read from, `change` the store to change."""

    make: Callable[[Files | None], LogStore]  # a store, on this disk of the owner's
    change: Callable[[LogStore], object]
    reader: Callable[[Files, LogStore], object]
    reader_op: int  # the change begins before this operation of the reader
    owner_ops: int | None = None  # of the change before the reader continues; None: all
    reader_ops: int = 0

    def run(self, inner: Files) -> object:
        owner_disk, reader_disk = FaultyFiles(inner), FaultyFiles(inner)
        store = self.make(owner_disk)
        owner = _Owner(lambda: self.change(store), owner_disk, self.owner_ops)

        def before_reader_op() -> None:
            if self.reader_ops == self.reader_op:
                owner.start()
            self.reader_ops += 1

        reader_disk.pause = before_reader_op
        try:
            return self.reader(reader_disk, store)
        finally:
            reader_disk.pause = None
            owner.finish()
            store.abandon()


class _Owner:
    def __init__(self, change: Callable[[], object], disk: FaultyFiles, ops: int | None) -> None:
        self._change = change
        self._disk = disk
        self._ops = ops
        self._paused, self._resumed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._first = 0

    def start(self) -> None:
        """Perform the first operations of the change in a thread of its own."""
        self._first = len(self._disk.steps)
        self._disk.pause = self._before_op
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._paused.wait(WATCHDOG_SECONDS)

    def finish(self) -> None:
        self._resumed.set()
        if self._thread is not None:
            self._thread.join(WATCHDOG_SECONDS)
            assert not self._thread.is_alive()
        self._disk.pause = None
        if self._failure is not None:
            raise self._failure

    def _before_op(self) -> None:
        if threading.current_thread() is self._thread and len(self._disk.steps) - self._first == self._ops:
            self._paused.set()
            assert self._resumed.wait(WATCHDOG_SECONDS)

    def _run(self) -> None:
        try:
            self._change()
        except BaseException as error:
            self._failure = error
        finally:
            self._paused.set()


def every_run(
    make: Callable[[Files | None], LogStore],
    change: Callable[[LogStore], object],
    reader: Callable[[Files, LogStore], Result],
    disk: Callable[[], Files],
    is_partial: bool = True,
) -> Iterator[Callable[[], Result]]:
    """Every interleaving, ready to be run. `is_partial`: also with the change stopped behind each change of a name."""
    plain = Interleaving(make, change, reader, NEVER)
    plain.run(disk())
    ends: list[int | None] = [None]
    if is_partial:
        store = make(counted := FaultyFiles(disk()))
        first = len(counted.steps)
        change(store)
        store.abandon()
        ends += [index + 1 for index, step in enumerate(counted.steps[first:]) if step.operation in NAMING]
    total = plain.reader_ops
    for reader_op in range(total):
        for owner_ops in ends:
            yield lambda n=reader_op, k=owner_ops: Interleaving(make, change, reader, n, k).run(disk())  # type: ignore[misc]
