"""Block format: the layout of a block on disk, its checksum, and the verdicts of a reader.

    | magic u32 | checksum u32 | kind u8 | flags u8 | format u16 | body_bytes u32 | entries u32 | stream u32 |
    | timeline u64 | incarnation u64 | own offset u64 | epoch u64 | first u64 |             64 bytes
    | body, a multiple of 8 bytes long, its padding zeros |

The checksum is CRC-32 over the body followed by the header behind the checksum field. The body's part of it can thus be
computed before the block's offset is known, and no byte of a block is outside the checksum.

`first` is the number of the block's first entry within its epoch. An entry without an explicit write version has the
version (epoch, first + index), which takes no column.

Body of `ENTRIES` and `SORTED` blocks:

    | columns u16 | 0 u16 | heap_at u32 | columns × ( tag u8, encoding u8, width u8, 0 u8, data_bytes u32, base u64 ) |
    | column data, each padded to 8 | heap: all keys, then all values | zeros to a multiple of 8 |

A reader that expects a block at an offset finds a good block, or one of:

    EMPTY    zeros, or the end of the file: never written
    STALE    a block of another incarnation of the file, another timeline or another offset: treated as empty
    TORN     begins like a block of this file, but has a wrong checksum, an impossible size or a cut end

Whether TORN is the result of a power cut or damage depends on the durable epoch: log/read/scan decides.

Invariants
* A block starts at a multiple of 8.
* Its header contains its offset, the incarnation of its file and the timeline. A block that was copied, moved, or left
  over from an earlier use of a recycled file is therefore not read as a current one.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum

# ISA-L uses carry-less multiplication: a block of 100 KB takes a twentieth of zlib's time. The values are the same (a
# test compares), so files are readable on machines without a wheel of it.
try:
    from isal.isal_zlib import crc32 as crc32  # noqa: PLC0414 - exported
except ImportError:
    from zlib import crc32 as crc32  # noqa: PLC0414

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
    FILE_HEADER = 1  # first block of every log file: identifies it
    ENTRIES = 2  # entries in the order they were appended
    CLOSING = 3  # ends an epoch: names every file written in it
    EDIT = 4  # one manifest edit, all or nothing
    SORTED = 5  # entries in key order: compacted files and snapshots
    INDEX = 6  # offsets of the blocks of a sorted file


class ColumnTag(IntEnum):
    """The content of a column. A reader must know every tag below 128; it may skip tags from 128 on."""

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


class BlockVerdict(Enum):
    GOOD = "good"
    EMPTY = "empty"
    STALE = "stale"
    TORN = "torn"
