"""What an entry says. The numbers are on disk: never change one, only add."""

from __future__ import annotations

from enum import IntEnum

from warren.base.ids import StreamId

KV_STREAM = StreamId(0)  # the stream of key-value entries; every other one holds records


class EntryKind(IntEnum):
    PUT = 1  # key has this value as of this version
    REMOVE = 2  # key has no value as of this version (a tombstone)
    CLEAR_STORAGE = 3  # everything older in this storage is gone
    ADD_STORAGE = 4  # the storage exists; says nothing about keys
    REMOVE_STORAGE = 5  # the storage and everything older in it is gone
    RECORD = 16  # one record of a stream; it has no key to be merged by


CLEARING = (EntryKind.CLEAR_STORAGE, EntryKind.REMOVE_STORAGE)
