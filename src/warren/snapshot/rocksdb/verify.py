"""Verifying the safe snapshot store: every block that holds rows is read, and its checksum compared.

The store is opened for reading only, beside its owner if it has one: what the owner has flushed is checked. The owner
may remove files while they are opened; then the store is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import basename, dirname

from rocksdict import AccessType, Rdict, ReadOptions

from warren.base.errors import Damage, DiskFailure, Refused
from warren.files.protocol import Files, join
from warren.snapshot.database import LOG, STORE
from warren.snapshot.rocksdb.options import NO_SUCH_FILE, SnapshotStoreSettings, rocksdb_calls, store_options

TRIES = 8


@dataclass(frozen=True, slots=True)
class VerifiedStore:
    directory: str
    rows: int  # that were read before the end, or before the damage
    damage: Damage | None


def store_beside(files: Files, log_directory: str) -> str | None:
    """The store of the database that a log directory belongs to, if it belongs to one."""
    path = log_directory.rstrip("/")
    store = join(dirname(path) or ".", STORE)
    return store if basename(path) == LOG and files.exists(join(store, "CURRENT")) else None


def verify_store(directory: str) -> VerifiedStore:
    for left in reversed(range(TRIES)):
        rows = _TableRows()
        try:
            _read_all(directory, rows)
            return VerifiedStore(directory, rows.count, None)
        except (Damage, Refused, DiskFailure) as error:
            is_gone = NO_SUCH_FILE in error.what  # its owner has compacted it meanwhile; or it is missing for good
            if is_gone and left:
                continue
            if isinstance(error, Damage):
                return VerifiedStore(directory, rows.count, error)
            raise
    raise AssertionError("the last try returns or raises")


class _TableRows:
    def __init__(self) -> None:
        self.count = 0


def _read_all(directory: str, rows: _TableRows) -> None:
    options = store_options(SnapshotStoreSettings())
    options.create_if_missing(False)
    reading = ReadOptions()
    reading.set_verify_checksums(True)
    reading.fill_cache(False)  # type: ignore[call-arg]  # the stub lacks the argument
    with rocksdb_calls(f"read the snapshot store in {directory}"):
        db = Rdict(directory, options, access_type=AccessType.read_only())
        try:
            iterator = db.iter(reading)
            iterator.seek_to_first()
            while iterator.valid():
                rows.count += 1
                iterator.next()
            iterator.status()
        finally:
            db.close()
