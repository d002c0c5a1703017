"""Distinct integer types for ids and positions.

Each is 64 bits wide on disk, and no value is ever reused: ids come from log positions or from the manifest, and an id
whose file or entry was voided stays used.
"""

from typing import NewType

Epoch = NewType("Epoch", int)  # unit of group commit; 0: before the first
TimelineId = NewType("TimelineId", int)  # random; new on create, restore, fork and on opening a backup
Incarnation = NewType("Incarnation", int)  # random, per use of a file: old blocks of a recycled file are not read
FileNumber = NewType("FileNumber", int)  # order of creation among log files
ChannelId = NewType("ChannelId", int)  # one series of log files, written one after the other
StreamId = NewType("StreamId", int)  # one independent sequence of entries, with a base of its own
StorageId = NewType("StorageId", int)  # a key space
VhostId = NewType("VhostId", int)  # these are log positions, assigned by the catalog
ExchangeId = NewType("ExchangeId", int)
QueueId = NewType("QueueId", int)
BindingId = NewType("BindingId", int)
UserId = NewType("UserId", int)
PermissionId = NewType("PermissionId", int)
TopicPermissionId = NewType("TopicPermissionId", int)
ParameterId = NewType("ParameterId", int)
SequenceId = NewType("SequenceId", int)  # position of a message in one queue: increasing, never reused
Lsn = NewType("Lsn", int)  # position of one entry: file number << 32 | (block offset + index in block)

UINT64_MAX = (1 << 64) - 1


def lsn_of(file: FileNumber, block_offset: int, index: int = 0) -> Lsn:
    """The log sequence number of entry `index` of the block at `block_offset`: unique because a block is at least as
    many bytes long as it has entries, always increasing because file numbers and offsets are."""
    return Lsn((file << 32) | (block_offset + index))


def file_of_lsn(lsn: Lsn) -> FileNumber:
    return FileNumber(lsn >> 32)


def position_of_lsn(lsn: Lsn) -> int:
    return lsn & 0xFFFFFFFF
