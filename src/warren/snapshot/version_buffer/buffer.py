"""The version buffer: entries that came out of the log and are not in the safe snapshot store yet, by write version.

    add         entries of one channel, as they became durable        any thread, also while others take or spill
    take        all entries up to a version, in order                 the order of (version, channel, record)
    done        they are in the store: forget them                    or put_back: they are not

Channels reach the buffer out of step, and a writer may give versions of his own, so entries come in any order. Two
entries of equal version are two entries: none overwrites the other. The buffer is no place of safety: what is in it is
in the log as well until the store has it on disk, so a crash costs nothing but reading that again.

This is the protocol; `memory_buffer` keeps columns in memory and spills to files, `rocksdb_buffer` is a column family.
One suite holds both to it (tests/snapshot/version_buffer/test_buffer_version_buffer.py).

What may be added to a version buffer: entries of bounded size that know their epochs. The same for every buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from warren.base.errors import Misuse
from warren.base.ids import ChannelId
from warren.log.session import check_largest
from warren.records.columns import EntryColumns
from warren.snapshot.store import Version


class TakenRange(Protocol):
    """What was taken: out of the buffer's way, and not lost."""

    def batches(self) -> Iterator[EntryColumns]:
        """The entries in order, with their epochs; may be asked for again."""
        ...

    def done(self) -> None:
        """They are applied. Until then a crash, or `put_back`, leaves them to be taken again."""
        ...

    def put_back(self) -> None: ...


class VersionBuffer(Protocol):
    @property
    def entries(self) -> int:
        """How many are in it: added, and not done."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        ...

    def add(self, channel: ChannelId, first_record: int, batch: EntryColumns) -> None:
        """Entries of a channel, the first of which is its record number `first_record`. The batch knows its epochs."""
        ...

    def take(self, up_to: Version) -> TakenRange:
        """Everything whose version is not above `up_to`; one taking at a time."""
        ...

    def persist(self) -> list[str]:
        """Bring everything in it to the disk, synced; the files that hold it, none of which is changed from now on."""
        ...

    def close(self) -> None: ...


def check_added(batch: EntryColumns) -> None:
    """Refuse what could not be kept: nothing of the batch is then in the buffer."""
    if batch.epochs is None:
        raise Misuse("a batch for the version buffer does not say the epochs of its entries", "fill in the block's")
    check_largest(batch.keys, batch.values)
