"""Room on the disk that is kept for those who must go on when it is full: acknowledgements, outcomes, flushes.

    `ballast`, a file of zeros  ──the disk is full──▶  removed, and the write that found no room is tried again
                                ◀──there is room──────  laid once more, by the thread that tidies up

Whoever leads a commit gives it back, once; what is written from then on must be little. So `is_in_use` is to stop those
who bring new things (the server blocks publishers), and only they can use it up. Then the commit waits for room as it
does without a ballast (DESIGN rule 7).

A start needs room as well: on a disk that is full it uses that of the ballast (`release_if_full`).

What a power cut leaves: the file, a part of it, or none. It means nothing to the log: one that is not whole is laid
anew, and nothing of it needs to be synced, for what is reserved need not be durable.
"""

from __future__ import annotations

from warren.base.errors import OutOfRoom
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.layout import BALLAST

ROOM_TIMES = 2  # it is laid where the disk has so many times as much: never the last that there is


class Ballast:
    def __init__(self, files: Files, directory: str, threads: Threads, size_bytes: int) -> None:
        """`size_bytes` 0: there is none."""
        self._files = files
        self._directory = directory
        self._path = join(directory, BALLAST)
        self._lock = threads.condition()
        self._size_bytes = size_bytes
        self._is_laid = False
        self.is_in_use = False  # it was given back, and the disk has had no room for it since

    @property
    def room_bytes(self) -> int:
        """Free space with which it is laid."""
        return ROOM_TIMES * self._size_bytes

    def begin(self, was_released: bool) -> None:
        """At a start. It is in use from the beginning if it made room for the start, or if the disk is as good as full:
        publishers wait until it can be laid."""
        self.lay()
        if self._size_bytes and not self._is_laid:
            self.is_in_use = was_released or self._files.free_bytes(self._directory) < self._size_bytes

    def lay(self) -> None:
        """Unless it lies there, or the disk has too little room: then somebody calls again."""
        if not self._size_bytes:
            return
        with self._lock:
            if self._is_laid:
                return
            if not self._is_whole():
                if self._files.exists(self._path):
                    self._files.remove(self._path)
                if self._files.free_bytes(self._directory) < self.room_bytes or not self._made():
                    return
            self._is_laid, self.is_in_use = True, False

    def give_back(self) -> bool:
        """Whether there was something to give."""
        if not self._size_bytes:
            return False
        with self._lock:
            if not self._is_laid:
                return False
            self._is_laid, self.is_in_use = False, True
            self._files.remove(self._path)
            return True

    def _is_whole(self) -> bool:
        return self._files.exists(self._path) and self._files.stat(self._path).size_bytes == self._size_bytes

    def _made(self) -> bool:
        file = self._files.create(self._path)
        try:
            file.allocate(0, self._size_bytes)
            file.forget(0, self._size_bytes)
        except OutOfRoom:  # somebody else was quicker
            self._files.remove(self._path)
            return False
        finally:
            file.close()
        return True


def release_if_full(files: Files, directory: str, size_bytes: int) -> bool:
    """Before a start, which creates files: on a disk with less free space than the ballast, the ballast makes room for
    them. Whether it was removed."""
    path = join(directory, BALLAST)
    if not size_bytes or not files.exists(path) or files.free_bytes(directory) >= size_bytes:
        return False
    files.remove(path)
    return True
