"""The machine's disk with its syncs counted at the seam, independent of the counters of any component.

Only log files count, and of a new one not the first sync, which brings its header: the epoch file, the manifest and
rotations would else make up for epochs that are not synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warren.files.local import LocalFile, LocalFiles
from warren.files.protocol import base_name
from warren.log.file_record import is_wal

if TYPE_CHECKING:
    from warren.files.protocol import Buffer


class CountingFiles(LocalFiles):
    """As `LocalFiles`, which it is, and counts."""

    def __init__(self) -> None:
        self.log_syncs = 0

    def create(self, path: str) -> LocalFile:
        return self._counted(super().create(path), is_new=True)

    def open(self, path: str, writable: bool = False) -> LocalFile:
        return self._counted(super().open(path, writable), is_new=False)

    def _counted(self, file: LocalFile, is_new: bool) -> LocalFile:
        return _CountedFile(self, file, is_new) if is_wal(base_name(file.path)) else file


class _CountedFile(LocalFile):
    __slots__ = ("_counter", "_file", "_is_new")

    def __init__(self, counter: CountingFiles, file: LocalFile, is_new: bool) -> None:
        self._counter = counter
        self._file = file
        self._is_new = is_new

    @property
    def path(self) -> str:
        return self._file.path

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        self._file.write_at(offset, pieces)

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        self._file.write_through(offset, pieces)
        self._count_sync()

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def allocate(self, offset: int, size: int) -> None:
        self._file.allocate(offset, size)

    def expect(self, offset: int, size: int) -> None:
        self._file.expect(offset, size)

    def forget(self, offset: int, size: int) -> None:
        self._file.forget(offset, size)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()
        self._count_sync()

    def _count_sync(self) -> None:
        self._counter.log_syncs += not self._is_new
        self._is_new = False

    def view(self) -> memoryview:
        return self._file.view()

    def close(self) -> None:
        self._file.close()
