"""Settings of the log store, with units (docs/configuration.md; a test compares), and the kinds of its entries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from warren.base.ids import StreamId

KV_STREAM = StreamId(0)  # the stream of key-value entries; every other one holds records


class EntryKind(IntEnum):
    """The numbers are on disk: never change one, only add."""

    PUT = 1  # key has this value as of this version
    REMOVE = 2  # key has no value as of this version (a tombstone)
    CLEAR_STORAGE = 3  # everything older in this storage is gone
    ADD_STORAGE = 4  # the storage exists; says nothing about keys
    REMOVE_STORAGE = 5  # the storage and everything older in it is gone
    RECORD = 16  # one record of a stream; it has no key to be merged by


CLEARING = (EntryKind.CLEAR_STORAGE, EntryKind.REMOVE_STORAGE)


CONTAINER_BYTES_MIN = 512 << 10
CHANNELS_MAX = 100


@dataclass(frozen=True, slots=True)
class LogSettings:
    channel_count: int = 1  # series of log files written in parallel for key-value sessions
    container_bytes: int = (
        1 << 20
    )  # unit of allocation inside a log file; at least 512 KiB, rounded up to a whole sector
    initial_containers: int = 2  # containers a new log file starts with; at least 2
    max_write_buffers: int = 10  # blocks gathered before they are flushed without being asked for
    gathered_blocks_max: int = 0  # … before a writer that adds more waits for the disk; never below `max_write_buffers`
    block_bytes: int = 1 << 20  # a session's entries are cut into blocks of about this size
    session_bytes_max: int = 256 << 20  # largest session
    rotate_bytes: int = 64 << 20  # a log file of this size is rotated at the next epoch switch
    page_cache_bytes: int = 16 << 20  # of a file being written so much may stay in the system's memory; 0: all of it
    ballast_bytes: int = 0  # room kept on the disk for acknowledgements and flushes when it is full; 0: none
    ballast_publish_bytes: int = 0  # … on top of it for what is published and not durable then
    rotation_reply_seconds_max: float = 30.0  # longest a rotation's answer waits for sessions that were open
    merge_memory_bytes: int = 512 << 20  # memory a merge may use; above it the merge works in pieces on disk
    scan_threads: int = 2  # threads of a scan or a merge
    keeps_snapshot: bool = True  # False: no start-up snapshot; a safe snapshot store stands in for it
    snapshot_at_stop: bool = True  # write the start-up snapshot at a clean stop
    compaction_garbage_ratio: float = (
        0.5  # share of bytes that may be superseded before compaction starts; 0: only on request
    )
    compaction_bytes_min: int = 64 << 20  # uncompacted bytes below which compaction does not start on its own
    compaction_poll_seconds: float = 1.0  # how often ctrl/start_compaction is looked for
    retention_seconds: float = 86400.0  # history kept this long …
    retention_bytes: int = 1 << 30  # … and at most this much of it; 0 in either: none
    free_bytes_min: int = 0  # with less free space than this history is removed; 0: only when writers wait for room
    quarantine_bytes_max: int = 1 << 30  # above it an alarm is shown; nothing is deleted
    pin_seconds: float = 300.0  # a pin that is not renewed for this long lapses
    recycle_files: bool = False  # reuse freed log files instead of creating new ones
    use_worker_process: bool = True  # compaction and snapshots in a niced process of their own


def container_bytes_of(settings: LogSettings, sector_bytes: int) -> int:
    """The container size in force: never below 512 KiB, a whole number of sectors."""
    size = max(settings.container_bytes, CONTAINER_BYTES_MIN)
    return -(-size // sector_bytes) * sector_bytes
