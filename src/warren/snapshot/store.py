"""The safe snapshot store: the newest value of every key as of the safe snapshot version, on disk, by key.

    apply       one batch: entries + counters + the mark (applied), whole or not at all        in version order
    flush       what was applied is on disk; the mark that is                                   (no log of its own)
    view        a reader's hold: it sees one mark, whatever is applied meanwhile

It keeps no log: the log of Warren is its log. After a crash it stands at some earlier mark, whole, and what lies behind
that mark is read from the log again. So nothing of the log may go before `flush` has told a mark beyond it.

This is the protocol; `rocksdb_store` is RocksDB, `testing/forgetful_store` stands in for it where power is cut, and
loses on purpose what was not flushed. One suite holds both to it (tests/snapshot/snapshot_store_suite.py).

How far the safe snapshot store has come: the mark that goes with every batch it takes.

    timeline    the past that it belongs to: a store of another one is not ours
    epoch       every entry of the log up to this epoch is in it
    version     and so is every later one whose write version is not above this one, as far as the log was read; nothing
                above it is

`epoch` says from where a start-up goes on reading the log. An entry whose version is still to come (its writer gave it
one) waits in the version buffer and holds the epoch back. `version` is the safe snapshot version, above which nothing
is visible. Always true: epoch <= the durable one when the mark is written.
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
    """What can be asked, of the store as it is or of a view."""

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
    """A view of the store itself. It can say what is gone as well, to whoever lays entries over it that may be late."""

    def removed_at(self, storage: int, keys: Sequence[bytes]) -> list[Version | None]:
        """Of each key the version of the remove that the store remembers: those that may have to be compared with."""
        ...

    def about_at(self, storage: int) -> Mapping[int, Version]:
        """Of each kind of entry about the storage as a whole the newest version; clears and removals are among them."""
        ...


class SnapshotStore(StoreReader, Protocol):
    def apply(
        self,
        entries: Sequence[EntryColumns],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        are_late: bool = False,
    ) -> None:
        """Take entries that are newer than everything in the store, and the mark behind them, in one batch. Entries
        come in version order, or collapsed to one for each key. `are_late`: some may be older than what is there, or
        than a clear that was; each is compared first. A mark that goes back, or of another timeline, is misuse."""
        ...

    def ingest(
        self,
        paths: Sequence[str],
        applied: Applied,
        counters: Mapping[bytes, bytes | None] | None = None,
        cleared: Iterable[int] = (),
    ) -> None:
        """Take sorted files that were made for it (`sorted_tables`), counters and mark, whole or not at all, on disk
        when this returns. What the store holds of `cleared` storages goes. All entries in the files are newer than the
        store's, and of epochs up to the mark's. Done twice it is as done once; the files are used up."""
        ...

    on_damage: Callable[[Damage], None]  # called, from any thread, with damage that a read of it has met

    @property
    def is_settled(self) -> bool:
        """Nothing that is in it will be offered to it again: whoever goes on reads epochs above the mark's."""
        ...

    @property
    def size_bytes(self) -> int:
        """About how much what it holds takes on disk, once it is tidied."""
        ...

    def tidy(self) -> None:
        """Nobody writes: give back what lies on disk for nothing, if that takes no more than a moment."""
        ...

    @property
    def is_behind(self) -> bool:
        """Its own upkeep has fallen behind: whoever can wait with more should."""
        ...

    def flush(self) -> Applied:
        """Bring everything applied so far to the disk; the mark that is safe now."""
        ...

    def view(self) -> StoreView: ...

    @property
    def failure(self) -> str | None:
        """Why it takes nothing more: an error of its background work, or of the disk. None: all is well."""
        ...

    def resume(self) -> None:
        """Try to go on after a failure that somebody has mended. What was not on disk is lost: go on from `applied`.
        Views and ranges that were open are closed."""
        ...

    def close(self) -> None: ...
