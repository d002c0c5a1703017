"""The version buffer, as a protocol: entries read from the log and not yet in the snapshot store, by write version.

    add         entries of one channel, as they became durable        any thread, also during `take` or a spill
    take        all entries up to a version, in order                 the order of (version, channel, record)
    done        they are in the store: drop them                      or put_back: they are not

Channels reach the buffer out of step, and a writer may give versions of its own, so entries come in any order. Two
entries of equal version are two entries: neither overwrites the other. The buffer needs no durability: what is in it is
in the log as well until the store has it on disk, so a crash only costs reading that again.

Every buffer accepts entries of bounded size that know their epochs (`check_added`). Implementations: `memory_buffer`
keeps columns in memory and spills to files, `rocksdb_buffer` is a column family. One suite tests both
(tests/snapshot/version_buffer/test_buffer_version_buffer.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from warren.base.errors import Misuse
from warren.base.ids import ChannelId
from warren.log.session import check_largest
from warren.records.columns import EntryColumns
from warren.snapshot.store import Version


class TakenEntries(Protocol):
    """Entries up to a version, taken out of the buffer for applying."""

    def batches(self) -> Iterator[EntryColumns]:
        """The entries in order, with their epochs; repeatable."""
        ...

    def done(self) -> None:
        """They are applied: drop them. Until then they can be taken again, after a crash or `put_back`."""
        ...

    def put_back(self) -> None: ...


class VersionBuffer(Protocol):
    @property
    def entries(self) -> int:
        """Number of entries added and not done."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Estimated memory use."""
        ...

    def add(self, channel: ChannelId, first_record: int, batch: EntryColumns) -> None:
        """Add entries of a channel, from its record number `first_record` on. The batch has its epochs."""
        ...

    def take(self, up_to: Version) -> TakenEntries:
        """Take all entries with a version up to `up_to`; one range at a time."""
        ...

    def persist(self) -> list[str]:
        """Write and sync everything; the files that hold it, which never change from now on."""
        ...

    def close(self) -> None: ...


def check_added(batch: EntryColumns) -> None:
    """Refuse a batch that no buffer can hold; nothing of it is added."""
    if batch.epochs is None:
        raise Misuse("a batch for the version buffer does not say the epochs of its entries", "fill in the block's")
    check_largest(batch.keys, batch.values)
