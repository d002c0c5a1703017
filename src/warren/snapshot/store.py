"""The safe snapshot store, as a protocol: the newest value of every key as of the safe snapshot version, on disk.

    apply       one batch: entries + counters + the mark (`Applied`), atomically        in version order
    flush       what was applied is on disk; the mark that is                           (no write-ahead log of its own)
    view        a reader's snapshot: it sees one mark, whatever is applied meanwhile

The log of Warren is its write-ahead log. After a crash it is at some earlier mark, whole, and what follows that mark is
read from the log again. So no log file may be purged before `flush` has returned a mark beyond it.

    mark.timeline    the history that the store belongs to: a store of another timeline is foreign
    mark.epoch       every entry of the log up to this epoch is in it; a start-up continues to read the log here
    mark.version     the safe snapshot version: every later entry up to this version is in it, as far as the log was
                     read; nothing above is

An entry whose version is above the safe snapshot version (its writer gave it one) waits in the version buffer and holds
the epoch back. Invariant: mark.epoch <= the durable epoch when the mark is written.

Implementations: rocksdb/store, and tools/simulator/forgetful_store for power cuts, which loses on purpose what was not
flushed. One suite tests both (tests/snapshot/snapshot_store_suite.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from warren.base.errors import Damage
from warren.base.ids import UINT64_MAX, Epoch, TimelineId
from warren.records.columns import EntryColumns

Version = tuple[int, int]  # major, minor
NO_VERSION: Version = (0, 0)
MINOR_MAX = UINT64_MAX


class Applied(NamedTuple):
    timeline: TimelineId
    epoch: Epoch
    version: Version


class StoredVersion(NamedTuple):
    value: bytes
    version: Version


class StoreRow(NamedTuple):
    storage: int
    key: bytes
    value: bytes
    version: Version


class StoreReader(Protocol):
    """Reads of the store, or of a view."""

    @property
    def applied(self) -> Applied: ...

    def get(self, storage: int, key: bytes) -> StoredVersion | None: ...

    def get_many(self, storage: int, keys: Sequence[bytes]) -> list[StoredVersion | None]: ...

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]:
        """Rows with low <= key < high, in key order or backwards, with memory for a few of them."""
        ...

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[StoreRow]: ...

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        """All rows as columns, in the order of storage and key, and in front of a storage's rows its ADD_STORAGE entry,
        if there is one: what a merge of all entries up to the mark would leave."""
        ...

    def counter(self, name: bytes) -> bytes | None: ...


class ReadView(StoreReader, Protocol):
    def close(self) -> None: ...


class StoreView(ReadView, Protocol):
    """A view of the store itself. It reports removes and clears as well, for an overlay with late entries."""

    def removed_at(self, storage: int, keys: Sequence[bytes]) -> list[Version | None]:
        """The version of the remove that the store remembers, per key: removes that a late entry is compared with."""
        ...

    def about_at(self, storage: int) -> Mapping[int, Version]:
        """The newest version per kind of entry about the storage as a whole, with clears and removals."""
        ...


class SnapshotStore(StoreReader, Protocol):
    def apply(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        are_late: bool = False,
    ) -> None:
        """Apply entries that are newer than everything in the store, and their mark, in one batch. Entries come in
        version order, or collapsed to one per key. `are_late`: some may be older than the store's, or than a clear;
        each is compared first. A mark that goes back, or of another timeline, is `Misuse`."""
        ...

    def ingest(
        self,
        paths: Sequence[str],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        cleared: Iterable[int] = (),
    ) -> None:
        """Ingest tables (tables/tasks), counters and mark atomically; on disk on return. Rows of `cleared` storages are
        removed. All entries in the tables are newer than the store's, and of epochs up to the mark's. Idempotent; the
        files are consumed."""
        ...

    on_damage: Callable[[Damage], None]  # called in any thread, with damage found by a read

    @property
    def is_settled(self) -> bool:
        """Whether no entry in it will be applied again: reading continues with epochs above the mark's."""
        ...

    @property
    def size_bytes(self) -> int:
        """Estimated size of its contents on disk, after `tidy`."""
        ...

    def tidy(self) -> None:
        """Free unused disk space, if that takes only a moment; called while there are no writes."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether its compaction has fallen behind: a caller that can wait should."""
        ...

    def flush(self) -> Applied:
        """Write and sync everything applied so far; the mark that is on disk."""
        ...

    def view(self) -> StoreView: ...

    @property
    def failure(self) -> str | None:
        """Why it accepts no more writes: an error of its background work, or of the disk; None if it does."""
        ...

    def resume(self) -> None:
        """Reopen after a failure. What was not on disk is lost: reading continues from `applied`. Open views and ranges
        are closed."""
        ...

    def close(self) -> None: ...
