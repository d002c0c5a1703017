"""An entry of the version buffer as a row of RocksDB, for whole batches at once.

    key      | major u64 | minor u64 | channel u32 | record u64 |                                   28 bytes
    value    | epoch u64 | kind u8 | storage u64 | undo prev u64 | undo next u64 | key bytes u32 |  37 bytes
             | key … | value … |

All numbers are big-endian: RocksDB orders by bytes, and so by write version, channel and record. Version alone would
not do: entries of one version would overwrite one another. Rows are built and taken apart as columns; only the calls
into RocksDB are one for each row. Page: docs/formats/buffer_file.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import UINT64_MAX
from warren.log.gather import Positions, copy_strings
from warren.records.columns import EntryColumns, Heap, Texts
from warren.records.numbers import U64, AnyUnsigned, NumberColumn
from warren.snapshot.applied import Version
from warren.snapshot.kept import BufferedEntries

KEY = struct.Struct(">QQIQ")
HEAD = struct.Struct(">QBQQQI")
assert KEY.size == 28 and HEAD.size == 37
_CHANNEL_MAX = (1 << 32) - 1

_KEYS = np.dtype([("major", ">u8"), ("minor", ">u8"), ("channel", ">u4"), ("record", ">u8")])
_HEADS = np.dtype(
    [("epoch", ">u8"), ("kind", "u1"), ("storage", ">u8"), ("prev", ">u8"), ("next", ">u8"), ("key_bytes", ">u4")]
)
assert _KEYS.itemsize == KEY.size and _HEADS.itemsize == HEAD.size


def behind(up_to: Version) -> bytes:
    """The least key greater than that of every entry up to this version."""
    return KEY.pack(*up_to, _CHANNEL_MAX, UINT64_MAX) + b"\0"


def row_keys(kept: BufferedEntries) -> list[bytes]:
    made = np.empty(kept.count, dtype=_KEYS)
    for name, column in zip(_KEYS.names or (), kept.columns, strict=True):
        made[name] = column.array()
    data = made.tobytes()
    return [data[at : at + KEY.size] for at in range(0, len(data), KEY.size)]


def row_values(kept: BufferedEntries) -> list[bytes]:
    entries = kept.entries
    assert entries.epochs is not None, "checked when it was added"
    key_starts, key_sizes = entries.keys.bounds()
    value_starts, value_sizes = entries.values.bounds()
    heads = np.empty(kept.count, dtype=_HEADS)
    columns = (entries.epochs, entries.kinds, entries.storages, entries.undo_prev, entries.undo_next)
    for name, column in zip(_HEADS.names or (), columns, strict=False):
        heads[name] = column.array()
    heads["key_bytes"] = key_sizes
    edges = np.concatenate(([0], np.cumsum(HEAD.size + key_sizes + value_sizes)))
    places, out = edges[:-1], np.empty(int(edges[-1]), dtype=np.uint8)
    head_starts = np.arange(kept.count, dtype=np.int64) * HEAD.size
    _copy(np.frombuffer(heads.tobytes(), dtype=np.uint8), head_starts, np.full_like(key_sizes, HEAD.size), out, places)
    _copy(entries.keys.heap, key_starts, key_sizes, out, places + HEAD.size)
    _copy(entries.values.heap, value_starts, value_sizes, out, places + HEAD.size + key_sizes)
    data = out.tobytes()
    return [data[start:stop] for start, stop in pairwise(edges.tolist())]


def entries_of_rows(keys: Sequence[bytes], values: Sequence[bytes]) -> EntryColumns:
    """The entries of these rows, in their order."""
    names = np.frombuffer(b"".join(keys), dtype=_KEYS)
    heap = np.frombuffer(b"".join(values), dtype=np.uint8)
    sizes = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    starts = np.cumsum(sizes) - sizes
    if len(names) != len(values) or (len(sizes) and int(sizes.min()) < HEAD.size):
        raise Damage("a row of the version buffer is too short", hint="drop the buffer: the log has what was in it")
    heads = _gathered(heap, starts, np.full_like(sizes, HEAD.size)).view(_HEADS)
    key_sizes = heads["key_bytes"].astype(np.int64)
    value_sizes = sizes - HEAD.size - key_sizes
    if len(sizes) and int(value_sizes.min()) < 0:
        raise Damage("a row of the version buffer has a wrong size", hint="drop the buffer: the log has what was in it")
    starts = starts + HEAD.size
    return EntryColumns(
        _numbers(heads["kind"]),
        _numbers(heads["storage"]),
        _numbers(names["major"]),
        _numbers(names["minor"]),
        Texts.of_lengths(_gathered(heap, starts, key_sizes), key_sizes),
        Texts.of_lengths(_gathered(heap, starts + key_sizes, value_sizes), value_sizes),
        _numbers(heads["prev"]),
        _numbers(heads["next"]),
        _numbers(heads["epoch"]),
    )


def _numbers(column: AnyUnsigned) -> NumberColumn:
    wide: U64 = column.astype(np.uint64)
    return NumberColumn.of_array(wide)


def _gathered(heap: Heap, starts: Positions, sizes: Positions) -> Heap:
    out = np.empty(int(sizes.sum()), dtype=np.uint8)
    _copy(heap, starts, sizes, out, np.cumsum(sizes) - sizes)
    return out


def _copy(heap: Heap, starts: Positions, sizes: Positions, out: Heap, places: Positions) -> None:
    copy_strings([heap], np.zeros(len(starts), dtype=np.int64), starts, sizes, out, places)
