"""The version buffer in a column family of RocksDB: one row per entry, in the order of the key.

    add         one WriteBatch, without RocksDB's own log             atomic
    take        nothing is moved: the range is remembered
    batches     iterator → some rows → iterator closed → the next iterator begins behind the last row
    done        one WriteBatch of range deletions

Seed 2 takes the first entry, closes the iterator, deletes the entry, and so on, because deleting under an iterator
fails. Here one iterator reads many rows, and nothing is deleted while one is open (VB-09): deleting waits for `done`,
when the store has the entries (X-04). Until then they survive a crash or `put_back`.

Late entries, added into an open range, are neither in it nor deleted with it: their keys are remembered until it ends,
`batches` skips them, and the range deletions exclude them. (A snapshot would do the same, but iterators of rocksdict
0.3.29 ignore it.)

RocksDB's log is off: `persist` flushes the memtable to disk. The memtable is small and compaction leveled, since the
lowest keys are read and deleted first and should soon be in one level. On opening the family is emptied: the log of
Warren has its entries; only a restored area is taken over (`is_restored`).

An entry is a row of RocksDB, encoded for whole batches at once:

    key      | major u64 | minor u64 | channel u32 | record u64 |                                   28 bytes
    value    | epoch u64 | kind u8 | storage u64 | undo prev u64 | undo next u64 | key bytes u32 |  37 bytes
             | key … | value … |

All numbers are big-endian: RocksDB orders by bytes, and so by write version, channel and record. Version alone
is not enough: entries of one version would overwrite one another. Rows are encoded and decoded as columns; only the
calls into RocksDB are one per row. Page: docs/formats/buffer_file.md.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, repeat
from typing import Any

import numpy as np
from rocksdict import (
    ColumnFamily,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import Damage, Misuse
from warren.base.ids import UINT64_MAX, ChannelId
from warren.base.threads import Threads
from warren.log.merge.pool import Positions, copy_strings
from warren.records.columns import U64, AnyUnsigned, EntryColumns, Heap, NumberColumn, Texts
from warren.snapshot.rocksdb.options import check_process, rocksdb_calls
from warren.snapshot.store import Version
from warren.snapshot.version_buffer.buffer import check_added
from warren.snapshot.version_buffer.entries import BufferedEntries, rows_up_to

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


def row_keys(batch: BufferedEntries) -> list[bytes]:
    table = np.empty(batch.count, dtype=_KEYS)
    for name, column in zip(_KEYS.names or (), batch.columns, strict=True):
        table[name] = column.array()
    data = table.tobytes()
    return [data[at : at + KEY.size] for at in range(0, len(data), KEY.size)]


def row_values(batch: BufferedEntries) -> list[bytes]:
    entries = batch.entries
    assert entries.epochs is not None, "checked when it was added"
    key_starts, key_sizes = entries.keys.bounds()
    value_starts, value_sizes = entries.values.bounds()
    heads = np.empty(batch.count, dtype=_HEADS)
    columns = (entries.epochs, entries.kinds, entries.storages, entries.undo_prev, entries.undo_next)
    for name, column in zip(_HEADS.names or (), columns, strict=False):
        heads[name] = column.array()
    heads["key_bytes"] = key_sizes
    edges = np.concatenate(([0], np.cumsum(HEAD.size + key_sizes + value_sizes)))
    places, out = edges[:-1], np.empty(int(edges[-1]), dtype=np.uint8)
    head_starts = np.arange(batch.count, dtype=np.int64) * HEAD.size
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


FAMILY = "version_buffer"
MEMTABLE_BYTES = 8 << 20
BATCH_BYTES = 1 << 20
_ROWS_MAX = 1 << 14
_ROWS_FIRST = 16  # before it is known how large rows are
_BEYOND = b"\xff" * (KEY.size + 1)


def family_options(memtable_bytes: int = MEMTABLE_BYTES) -> Options:
    """The options of the column family."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(memtable_bytes)
    options.set_max_write_buffer_number(2)
    options.set_compaction_style(DBCompactionStyle.level())
    options.set_level_zero_file_num_compaction_trigger(2)
    options.set_compression_type(DBCompressionType.none())
    return options


def open_buffer(
    path: str, threads: Threads, memtable_bytes: int = MEMTABLE_BYTES, is_restored: bool = False
) -> RocksdbBuffer:
    """A buffer in a database of its own."""
    check_process(path)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    with rocksdb_calls("open the version buffer"):
        database = Rdict(path, options, {FAMILY: family_options(memtable_bytes)})
    return RocksdbBuffer(database, threads, is_restored=is_restored, is_owner=True)


class RocksdbBuffer:
    """Is a `VersionBuffer`. The database is open and has the family; it is closed with the buffer only if owned."""

    def __init__(
        self,
        database: Rdict,
        threads: Threads,
        family: str = FAMILY,
        is_restored: bool = False,
        is_owner: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._database = database if is_owner else None
        with rocksdb_calls("open the version buffer"):
            self._family = database.get_column_family(family)
            self._handle: ColumnFamily | None = database.get_column_family_handle(family)
        self._without_log = WriteOptions()
        setattr(self._without_log, "disable_wal", True)  # noqa: B010 - an attribute, which the stubs call a method
        self._changed = threads.condition()
        self._batch_bytes = batch_bytes
        self._taken: RocksdbTakenEntries | None = None
        self._late: set[bytes] = set()
        if not is_restored:
            with rocksdb_calls("empty the version buffer"):
                self._family.delete_range(b"", _BEYOND, self._without_log)
        self._entries = self._count(_BEYOND) if is_restored else 0
        call_in_children(self)

    def forked(self) -> None:
        never_destroy(self)

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def memory_bytes(self) -> int:
        with rocksdb_calls("read figures of the version buffer"):
            return self._family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0

    def add(self, channel: ChannelId, first_record: int, batch: EntryColumns) -> None:
        if batch.count == 0:
            return
        check_added(batch)
        added = BufferedEntries.of_views(channel, first_record, batch)
        keys = row_keys(added)
        writes = WriteBatch(raw_mode=True)
        deque(map(writes.put, keys, row_values(added), repeat(self._handle)), maxlen=0)
        with self._changed:
            late = self._late_keys(batch, keys)
            with rocksdb_calls("add to the version buffer"):
                self._family.write(writes, self._without_log)
            self._late |= late
            self._entries += batch.count

    def take(self, up_to: Version) -> RocksdbTakenEntries:
        with self._changed:
            if self._taken is not None:
                raise Misuse("a range is taken from the version buffer already", "call its done or put_back first")
            self._taken = RocksdbTakenEntries(self, up_to)
            return self._taken

    def persist(self) -> list[str]:
        with rocksdb_calls("flush the version buffer"):
            self._family.flush(True)
            return [self._family.path() + file["name"] for file in self._family.live_files()]

    def close(self) -> None:
        with rocksdb_calls("close the version buffer"):
            self._handle = None  # it would keep the database open
            self._family.close()
            if self._database is not None:
                self._database.close()

    def read(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """For `RocksdbTakenEntries`: one batch of rows from `start` on. The iterator is closed on return."""
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        rows: list[tuple[bytes, bytes]] = []
        read_bytes, count = 0, _ROWS_FIRST
        with rocksdb_calls("read the version buffer"):
            iterator: Iterator[Any] = self._family.items(from_key=start, read_opt=options)
            while read_bytes < self._batch_bytes and len(rows) < _ROWS_MAX:
                more = list(islice(iterator, count))
                rows += more
                read_bytes += sum(len(value) for _, value in more)
                if len(more) < count:
                    break
                usual = read_bytes // len(rows) + 1
                count = max(min((self._batch_bytes - read_bytes) // usual, _ROWS_MAX - len(rows), 4 * len(rows)), 1)
        return rows

    def without_late(self, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        with self._changed:
            return [row for row in rows if row[0] not in self._late] if self._late else rows

    def end(self, taken: RocksdbTakenEntries, is_done: bool) -> None:
        """For `RocksdbTakenEntries`: its entries are in the store, or they stay."""
        with self._changed:
            if self._taken is not taken:
                raise Misuse("this taking has ended already", "take again")
            if is_done:
                count = self._count(taken.stop) - len(self._late) if taken.count is None else taken.count
                self._delete(taken.stop)
                self._entries -= count
            self._taken = None
            self._late = set()

    def _delete(self, stop: bytes) -> None:
        """Everything before `stop` but the late ones."""
        writes = WriteBatch(raw_mode=True)
        start = b""
        for late in sorted(self._late):
            writes.delete_range(start, late, self._handle)
            start = late + b"\0"
        writes.delete_range(start, stop, self._handle)
        with rocksdb_calls("delete from the version buffer"):
            self._family.write(writes, self._without_log)

    def _late_keys(self, batch: EntryColumns, keys: list[bytes]) -> set[bytes]:
        if self._taken is None:
            return set()
        flags = rows_up_to(batch.majors, batch.minors, self._taken.up_to)
        if isinstance(flags, bool):
            return set(keys) if flags else set()
        return {key for key, is_late in zip(keys, flags.tolist(), strict=True) if is_late}

    def _count(self, stop: bytes) -> int:
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        with rocksdb_calls("count the version buffer"):
            return sum(1 for _ in self._family.keys(read_opt=options))


class RocksdbTakenEntries:
    """Is a `TakenEntries`."""

    def __init__(self, home: RocksdbBuffer, up_to: Version) -> None:
        self._home = home
        self.up_to = up_to
        self.stop = behind(up_to)
        self.count: int | None = None  # known after it was read to its end

    def batches(self) -> Iterator[EntryColumns]:
        start, count = b"", 0
        while rows := self._home.read(start, self.stop):
            start = rows[-1][0] + b"\0"
            if rows := self._home.without_late(rows):
                count += len(rows)
                yield entries_of_rows([key for key, _ in rows], [value for _, value in rows])
        self.count = count

    def done(self) -> None:
        self._home.end(self, is_done=True)

    def put_back(self) -> None:
        self._home.end(self, is_done=False)
