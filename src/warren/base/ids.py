"""Different integers are different types.

An epoch is not a file number, however much both look like 17. Each is 64 bits wide on disk and none is ever used
twice: numbers come from log positions or from the manifest, and a number that was voided stays used.
"""

from typing import NewType

Epoch = NewType("Epoch", int)  # one turn of the durability clock; 0 means "before the first"
TimelineId = NewType("TimelineId", int)  # random; new on create, restore, fork and on opening a backup
Incarnation = NewType(
    "Incarnation", int
)  # random; one life of one file, so that a recycled file's old blocks are not read
FileNumber = NewType("FileNumber", int)  # order of creation among log files
ChannelId = NewType("ChannelId", int)  # one series of log files written one behind the other
StreamId = NewType("StreamId", int)  # one independent sequence of entries, with a base of its own
StorageId = NewType("StorageId", int)  # a key space
VhostId = NewType("VhostId", int)  # these are log positions, given by the catalog
ExchangeId = NewType("ExchangeId", int)
QueueId = NewType("QueueId", int)
BindingId = NewType("BindingId", int)
UserId = NewType("UserId", int)
PermissionId = NewType("PermissionId", int)
TopicPermissionId = NewType("TopicPermissionId", int)
SequenceId = NewType("SequenceId", int)  # place of a message in one queue: given once, in order, never again
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
