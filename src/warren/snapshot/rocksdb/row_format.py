"""The bytes of the safe snapshot store: keys and values of RocksDB. See docs/formats/snapshot_store.md.

    00                          the mark (`Applied`)
    01 name                     a counter
    02 storage u64 key          a row: header + value
    03 storage u64 kind u8      an entry about a storage as a whole, the newest of its kind: header + value
    04 storage u64 key          a grave: the version of a remove, for comparison with late entries

Storages are big-endian, so that RocksDB's order is that of storage and key. A header is as wide as the versions at hand
need, and has no epoch where the epoch is the version's major part, which it nearly always is:

    | head u8: major width 2 bits · minor width 2 bits · has epoch 1 bit | major | minor | epoch u64, if it has one |

All are in one column family: only then do one flush and one snapshot cover rows and mark together.

Rows are encoded thousands at a time. Headers of a batch share one width, so that they are one table of bytes; keys and
values of one length are one table as well, which numpy cuts into `bytes` ten times as fast as a loop.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from warren.base.errors import Damage
from warren.base.ids import UINT64_MAX, Epoch, TimelineId
from warren.log.merge.pool import are_same
from warren.records.columns import NumberColumn, Texts, narrowest
from warren.snapshot.store import NO_VERSION, Applied, Version

FORMAT = 1
MARK_KEY, COUNTER, ROW, ABOUT, GRAVE, BEHIND_ALL = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
#   | format u32 | timeline u64 | epoch u64 | major u64 | minor u64 | highest epoch u64 | batch u64 |
MARK = struct.Struct("<IQQQQQQ")
assert MARK.size == 52
ROW_PREFIX_BYTES = 9
_HAS_EPOCH = 16
_WIDTHS = (1, 2, 4, 8)
_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_HEADERS = [  # by head
    struct.Struct(
        f"<x{_LETTERS[_WIDTHS[head & 3]]}{_LETTERS[_WIDTHS[head >> 2 & 3]]}{'Q' if head & _HAS_EPOCH else ''}"
    )
    for head in range(32)
]

Bytes2d = npt.NDArray[np.uint8]


class StoreMark(NamedTuple):
    """The stored mark; written in the same batch as its rows."""

    applied: Applied
    highest_epoch: int = 0  # of all entries ever applied
    batch: int = 0  # number of the batch, so that two reads can be compared

    @property
    def is_settled(self) -> bool:
        """Whether no entry in the store will be offered again: reading continues above the mark's epoch."""
        return self.highest_epoch <= self.applied.epoch


def no_mark(timeline: TimelineId) -> StoreMark:
    return StoreMark(Applied(timeline, Epoch(0), NO_VERSION))


def mark_bytes(mark: StoreMark) -> bytes:
    applied = mark.applied
    return MARK.pack(FORMAT, applied.timeline, applied.epoch, *applied.version, mark.highest_epoch, mark.batch)


def format_of_mark(data: bytes) -> int:
    """The format number is first in every version."""
    if len(data) < 4:
        raise _damaged("the mark")
    return int.from_bytes(data[:4], "little")


def mark_of(data: bytes) -> StoreMark:
    if len(data) != MARK.size:
        raise _damaged("the mark")
    _, timeline, epoch, major, minor, highest_epoch, batch = MARK.unpack(data)
    return StoreMark(Applied(TimelineId(timeline), Epoch(epoch), (major, minor)), highest_epoch, batch)


def row_prefix(storage: int, tag: bytes = ROW) -> bytes:
    return tag + storage.to_bytes(8, "big")


def behind_storage(storage: int) -> bytes:
    """The least key after all rows of the storage."""
    return row_prefix(storage + 1) if storage < UINT64_MAX else ABOUT


def about_key(storage: int, kind: int) -> bytes:
    return row_prefix(storage, ABOUT) + bytes((kind,))


def storage_of(key: bytes) -> int:
    return int.from_bytes(key[1:ROW_PREFIX_BYTES], "big")


def behind_prefix(start: bytes) -> bytes | None:
    """The least string above all strings with the prefix `start`; None if there is none."""
    stem = start.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def row_keys(storages: NumberColumn, keys: Texts, tag: bytes = ROW) -> list[bytes]:
    """RocksDB's keys of many rows."""
    if storages.is_constant:
        return _prefixed(np.frombuffer(row_prefix(storages.base, tag), dtype=np.uint8), keys)
    prefixes = np.empty((storages.count, ROW_PREFIX_BYTES), dtype=np.uint8)
    prefixes[:, 0] = tag[0]
    prefixes[:, 1:] = storages.array().astype(">u8").view(np.uint8).reshape(-1, 8)
    return _prefixed(prefixes, keys)


def row_values(majors: NumberColumn, minors: NumberColumn, epochs: NumberColumn, values: Texts) -> list[bytes]:
    """RocksDB's values of many rows."""
    dtype = _header_dtype(_head_for(majors, minors, epochs))
    is_one = majors.is_constant and minors.is_constant and epochs.is_constant
    headers = np.empty(1 if is_one else values.count, dtype=dtype)
    headers["head"] = _head_for(majors, minors, epochs)
    for name, column in (("major", majors), ("minor", minors), ("epoch", epochs)):
        if name in (dtype.names or ()):
            headers[name] = column.base if is_one else column.array()
    table = headers.view(np.uint8).reshape(-1, dtype.itemsize)
    return _prefixed(table[0] if is_one else table, values)


def header_bytes(version: Version, epoch: int) -> bytes:
    """The header of a single row."""
    major, minor = (NumberColumn.constant(1, number) for number in version)
    return row_values(major, minor, NumberColumn.constant(1, epoch), Texts.empty(1))[0]


def version_and_value(data: bytes) -> tuple[Version, bytes]:
    header = _header_of(data)
    major, minor, *_ = header.unpack_from(data)
    return (major, minor), data[header.size :]


def version_of(data: bytes) -> Version:
    major, minor, *_ = _header_of(data).unpack_from(data)
    return major, minor


def columns_of_values(datas: Sequence[bytes]) -> tuple[NumberColumn, NumberColumn, NumberColumn, Texts]:
    """Majors, minors, epochs and values of many rows."""
    headers = [_header_of(data) for data in datas]
    numbers = np.array(
        [
            (fields[0], fields[1], fields[-1 if len(fields) == 3 else 0])
            for fields in map(struct.Struct.unpack_from, headers, datas)
        ],
        dtype=np.uint64,
    ).reshape(-1, 3)
    majors, minors, epochs = (NumberColumn.of_array(numbers[:, column]) for column in range(3))
    values = Texts.of_list([data[header.size :] for header, data in zip(headers, datas, strict=True)])
    return majors, minors, majors if are_same(majors, epochs) else epochs, values


def _head_for(majors: NumberColumn, minors: NumberColumn, epochs: NumberColumn) -> int:
    widths = [_WIDTHS.index(narrowest(_highest(column))) for column in (majors, minors)]
    return widths[0] | widths[1] << 2 | (0 if epochs is majors or are_same(majors, epochs) else _HAS_EPOCH)


def _highest(column: NumberColumn) -> int:
    return column.base if column.is_constant else int(column.array().max(initial=0))


def _header_dtype(head: int) -> np.dtype[Any]:
    fields = [("head", "u1"), ("major", f"<u{_WIDTHS[head & 3]}"), ("minor", f"<u{_WIDTHS[head >> 2 & 3]}")]
    return np.dtype([*fields, ("epoch", "<u8")] if head & _HAS_EPOCH else fields)


def _header_of(data: bytes) -> struct.Struct:
    if not data or data[0] >= len(_HEADERS) or len(data) < _HEADERS[data[0]].size:
        raise _damaged("a row's header")
    return _HEADERS[data[0]]


def _prefixed(prefixes: Bytes2d, texts: Texts) -> list[bytes]:
    """Each text with its prefix, or with one prefix for all."""
    count, is_one = texts.count, prefixes.ndim == 1
    if count == 0:
        return []
    if texts.offsets.deltas is None:
        prefix_bytes, text_bytes = prefixes.shape[-1], texts.offsets.step
        table = np.empty((count, prefix_bytes + text_bytes), dtype=np.uint8)
        table[:, :prefix_bytes] = prefixes
        table[:, prefix_bytes:] = texts.heap[texts.start : texts.end].reshape(count, text_bytes)
        return _cut(table)
    if is_one:
        prefix = prefixes.tobytes()
        return [prefix + text for text in texts.to_list()]
    return list(map(add, _cut(prefixes), texts.to_list()))


def _cut(table: Bytes2d) -> list[bytes]:
    """Each line of the table as `bytes`."""
    lines: list[bytes] = np.ascontiguousarray(table).view(f"V{table.shape[1]}").ravel().tolist()
    return lines


def _damaged(what: str) -> Damage:
    return Damage(
        f"{what} of the snapshot store is not what was written there",
        hint="remove the snapshot store's directory: it is rebuilt from the log",
    )
