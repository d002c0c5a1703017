"""What stands beside our figures, measured in the same run on the same disk.

    SQLite       a table of keys and values, appended to; WAL, synchronous = FULL: a commit that returns is on the disk
    bare write   pwrite + fdatasync onto a file that was filled with zeros and synced before: what the disk can do
    copy         read the files and write their bytes to another, synced: the least a rebuild or a compaction can cost
    checksum     crc32 over a file: the least the first scan can cost

Timed calls return seconds. The bare file's zeros are written untimed, which favours it: a log pays for its own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from time import perf_counter
from zlib import crc32

from tools.bench.workload import LogWorkload

SQLITE_TRANSACTION_ENTRIES = 1000
_PIECE_BYTES = 4 << 20


class Sqlite:
    """A log as many an application keeps it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, key BLOB, value BLOB)")

    def append(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """One transaction."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO log (key, value) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class BareFile:
    """Writes of one size, one behind the other, each synced."""

    def __init__(self, path: Path, write_bytes: int, writes_max: int) -> None:
        self._payload = os.urandom(write_bytes)
        self._offset = 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _fill_with_zeros(self._descriptor, write_bytes * writes_max)

    def append(self) -> None:
        os.pwrite(self._descriptor, self._payload, self._offset)
        os.fdatasync(self._descriptor)
        self._offset += len(self._payload)

    def close(self) -> None:
        os.close(self._descriptor)


def sqlite_seconds(path: Path, workload: LogWorkload) -> float:
    """Append it all, a thousand entries per transaction."""
    rows = [
        row
        for session in workload.sessions
        for row in zip(session.keys.to_list(), session.values.to_list(), strict=True)
    ]
    with closing(Sqlite(path)) as database:
        start = perf_counter()
        for first in range(0, len(rows), SQLITE_TRANSACTION_ENTRIES):
            database.append(rows[first : first + SQLITE_TRANSACTION_ENTRIES])
        return perf_counter() - start


def bare_seconds(path: Path, size_bytes: int, writes: int) -> float:
    """So many bytes in so many synced writes."""
    with closing(BareFile(path, -(-size_bytes // writes), writes)) as file:
        start = perf_counter()
        for _ in range(writes):
            file.append()
        return perf_counter() - start


def copy_seconds(sources: Iterable[Path], target: Path) -> float:
    start = perf_counter()
    with target.open("wb", buffering=0) as out:
        for source in sources:
            with source.open("rb", buffering=0) as file:
                while piece := file.read(_PIECE_BYTES):
                    out.write(piece)
        os.fdatasync(out.fileno())
    return perf_counter() - start


def checksum_seconds(path: Path) -> float:
    start, running = perf_counter(), 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            running = crc32(piece, running)
    return perf_counter() - start


def _fill_with_zeros(descriptor: int, size_bytes: int) -> None:
    zeros = bytes(_PIECE_BYTES)
    for offset in range(0, size_bytes, _PIECE_BYTES):
        os.pwrite(descriptor, zeros[: size_bytes - offset], offset)
    os.fsync(descriptor)
