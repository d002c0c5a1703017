"""Verifying the safe snapshot store: every block that holds rows is read, and its checksum compared.

The store is opened for reading only, beside its owner if it has one: what the owner has flushed is checked. The owner may
remove files while they are opened; then the store is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import basename, dirname

from rocksdict import AccessType, Rdict, ReadOptions

from warren.base.errors import Damage, DiskFailure, Refused
from warren.files.protocol import Files, join
from warren.snapshot.layout import LOG, STORE
from warren.snapshot.rocksdb_errors import rocksdb_calls
from warren.snapshot.rocksdb_options import SnapshotStoreSettings, store_options

TRIES = 3


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
    rows = 0
    try:
        db = _opened(directory)
        try:
            options = ReadOptions()
            options.set_verify_checksums(True)
            options.fill_cache(False)
            with rocksdb_calls(f"read the snapshot store in {directory}"):
                iterator = db.iter(options)
                iterator.seek_to_first()
                while iterator.valid():
                    rows += 1
                    iterator.next()
                iterator.status()
        finally:
            db.close()
    except Damage as damage:
        return VerifiedStore(directory, rows, damage)
    return VerifiedStore(directory, rows, None)


def _opened(directory: str) -> Rdict:
    options = store_options(SnapshotStoreSettings())
    options.create_if_missing(False)
    for left in reversed(range(TRIES)):
        try:
            with rocksdb_calls(f"read the snapshot store in {directory}"):
                return Rdict(directory, options, access_type=AccessType.read_only())
        except (Refused, DiskFailure):
            if not left:
                raise
    raise AssertionError("the last try returns or raises")
