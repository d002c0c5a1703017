"""Disk reserve: space on the disk for what must continue when it is full: acknowledgements, outcomes, flushes.

    `ballast`, a file of zeros  ──the disk is full──▶  removed, and the write that found no room is retried
                                ◀──there is room─────  created again, by the maintenance thread

The leader of a commit releases it, once. `is_in_use` then stops publishers (the server blocks them). What they have
published before and is not durable yet precedes the acknowledgements in the log, in the same epochs: it cannot wait
while these continue. So the reserve covers both (`publish_bytes`). When it is used up the commit waits for room as it
does without a reserve (DESIGN rule 7).

A start needs room as well: on a full disk it uses that of the reserve (`release_if_full`). Free space that suffices for
a start, but not for the whole reserve, does not block publishers; a reserve once used does, until it is whole again.

After a power cut the file is there, partly there, or missing. The log does not depend on it: a file that is not whole
is created again, and nothing of it is synced, for what is reserved need not be durable.
"""

from __future__ import annotations

from warren.base.errors import OutOfRoom
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.file_record import DISK_RESERVE


class DiskReserve:
    def __init__(self, files: Files, directory: str, threads: Threads, size_bytes: int, publish_bytes: int = 0) -> None:
        """`size_bytes`: for acknowledgements, flushes and a start; 0: there is no reserve. `publish_bytes`: for what
        is published and not yet durable when the disk is full. It precedes the acknowledgements in the log."""
        self._files = files
        self._directory = directory
        self._path = join(directory, DISK_RESERVE)
        self._lock = threads.condition()
        self._least_bytes = size_bytes
        self._size_bytes = size_bytes + publish_bytes if size_bytes else 0
        self._is_laid = False
        self._is_whole = False
        self.is_in_use = False  # it was released, and the disk has had no room for it since

    @property
    def room_bytes(self) -> int:
        """Free space at which it is created: never the last that there is."""
        return self._size_bytes + self._least_bytes

    def begin(self, was_released: bool) -> None:
        """At a start. It is in use from the beginning if it made room for the start, or if the disk is almost full:
        publishers wait until it can be created."""
        self.lay()
        if self._size_bytes and not self._is_laid:
            self.is_in_use = was_released or self._files.free_bytes(self._directory) < self._least_bytes

    def lay(self) -> None:
        """Create the file, or enlarge the smaller one of an earlier version. With too little free space a smaller file
        stays as it is, and the next call tries again."""
        if not self._size_bytes:
            return
        with self._lock:
            if self._is_whole:
                return
            present = self._present_bytes()
            if present < self._size_bytes:
                has_room = self._files.free_bytes(self._directory) + present >= self.room_bytes
                if has_room and self._grown(present):
                    present = self._size_bytes
            self._is_whole = present >= self._size_bytes
            self._is_laid = present >= self._least_bytes
            if self._is_laid:
                self.is_in_use = False

    def give_back(self) -> bool:
        """Remove the file. False: there was none."""
        if not self._size_bytes:
            return False
        with self._lock:
            if not self._is_laid:
                return False
            self._is_laid, self._is_whole, self.is_in_use = False, False, True
            self._files.remove(self._path)
            return True

    def _present_bytes(self) -> int:
        """A file that is larger than the settings say, or smaller than the least (torn by a power cut), is removed."""
        if not self._files.exists(self._path):
            return 0
        present = self._files.stat(self._path).size_bytes
        if self._least_bytes <= present <= self._size_bytes:
            return present
        self._files.remove(self._path)
        return 0

    def _grown(self, present: int) -> bool:
        file = self._files.open(self._path, writable=True) if present else self._files.create(self._path)
        try:
            file.allocate(present, self._size_bytes - present)
            file.forget(0, self._size_bytes)
        except OutOfRoom:  # another process has taken the free space meanwhile
            if not present:
                self._files.remove(self._path)
            return False
        finally:
            file.close()
        return True


def release_if_full(files: Files, directory: str, size_bytes: int) -> bool:
    """Before a start, which creates files: with less free space than `size_bytes` (without the part for publishes) the
    reserve makes room for them. Whether it was removed."""
    path = join(directory, DISK_RESERVE)
    if not size_bytes or not files.exists(path) or files.free_bytes(directory) >= size_bytes:
        return False
    files.remove(path)
    return True
