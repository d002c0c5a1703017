"""The block on disk: one header, then a body.

    | magic u32 | checksum u32 | kind u8 | flags u8 | format u16 | body_bytes u32 | entries u32 | stream u32 |
    | timeline u64 | incarnation u64 | own offset u64 | epoch u64 | first u64 |             64 bytes
    | body, a multiple of 8 bytes long, its padding zeros |

The checksum is CRC-32 over the body followed by the header behind the checksum field, so that a body's part of it can
be computed before its place in the file is known, and so that nothing in a block lies outside it.

Always true: a block stands at a multiple of 8; its header names the offset it stands at, the life of the file it was
written in and the timeline, so a block that was copied, moved, or left over from an earlier life of a recycled file is
not read as one of ours.

`first` is the number of the block's first entry within its epoch. Entries that were not given a write version have
(epoch, first + index): the header says it, no column does.

Body of `ENTRIES` and `SORTED` blocks:

    | columns u16 | 0 u16 | heap_at u32 | columns × ( tag u8, encoding u8, width u8, 0 u8, data_bytes u32, base u64 ) |
    | column data, each padded to 8 | heap: all keys, then all values | zeros to a multiple of 8 |

What was found where a block was looked for.

    EMPTY    zeros, or the end of the file: nothing was ever written here
    STALE    a block of another life of the file, another timeline or another place: as good as nothing
    TORN     something of ours begins here and does not end well: a wrong checksum, an impossible size, a cut

Whether TORN is a power cut's doing or damage is not the block's to say: it depends on the durable witness (log/read/scan).
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum

MAGIC = 0x4E525257  # "WRRN" as bytes
FORMAT_VERSION = 1
ALIGNMENT_BYTES = 8

HEADER = struct.Struct("<IIBBHIIIQQQQQ")
assert HEADER.size == 64
CHECKSUM = struct.Struct("<I")
CHECKSUM_AT = 4
CHECKED_FROM = 8  # the checksum covers the header from here on

BODY_HEAD = struct.Struct("<HHI")
assert BODY_HEAD.size == 8
COLUMN = struct.Struct("<BBBBIQ")
assert COLUMN.size == 16

BLOCK_BYTES_MAX = 8 << 20
BLOCK_HEAP_BYTES_MAX = 4 << 20  # keys and values a writer puts into one block …
BLOCK_ROWS_MAX = 1 << 16  # … and entries: with every column 8 bytes wide the two stay below BLOCK_BYTES_MAX
ENTRY_BYTES_MAX = 1 << 20
COLUMNS_MAX = 64


class BlockKind(IntEnum):
    FILE_HEADER = 1  # first block of every log file: who it is
    ENTRIES = 2  # entries in the order they were appended
    CLOSING = 3  # ends an epoch: names every participant
    EDIT = 4  # one manifest edit, all or nothing
    SORTED = 5  # entries in key order: compacted files and snapshots
    INDEX = 6  # where the blocks of a sorted file begin


class ColumnTag(IntEnum):
    """What a column holds. Below 128 a reader must know it; from 128 on it may be passed over."""

    KIND = 1
    STORAGE = 2
    MAJOR = 3  # write version, first part; absent: the block's epoch
    MINOR = 4  # write version, second part; absent: the header's `first` + index
    KEY_OFFSETS = 5  # entries + 1 offsets into the keys' part of the heap
    VALUE_OFFSETS = 6
    UNDO_PREV = 7  # LSN of an earlier entry of the same stream, 0 for none
    UNDO_NEXT = 8
    EPOCH = 9  # the epoch each entry was first durable in; absent: the block's


class Encoding(IntEnum):
    CONSTANT = 0  # every value is `base`
    SEQUENCE = 1  # base + i × step; the step is the column's data (i64)
    OFFSET = 2  # base + data[i], data of `width` bytes
    SAME_AS = 3  # the column whose tag is `base`


def padded(size: int) -> int:
    return (size + 7) & ~7


class BlockVerdict(Enum):
    GOOD = "good"
    EMPTY = "empty"
    STALE = "stale"
    TORN = "torn"
