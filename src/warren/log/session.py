"""Session: entries that become durable together, or not at all.

    session = store.begin()
    session.put(storage, b"key", b"value")
    epoch = session.end()                      # written whole, into the epoch that is open at its end
    store.wait(epoch)                          # durable

Entries stay in memory until `end`; an open session blocks nothing. Entries without an explicit write version get
(epoch, n-th entry of the epoch), so that what ends later is newer. There are three ways to add entries, fastest last:
one entry, lists of bytes, columns. A session belongs to one thread.

Input is checked when it is added, in the caller's thread. A small session shares its block with others, and the block
is encoded only when its epoch closes: an entry that cannot be encoded would take those of other sessions with it.
Columns are written as they are: wrong offsets would pass every checksum and make the block unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from warren.base.errors import Misuse
from warren.base.ids import UINT64_MAX, Epoch, Lsn, StreamId
from warren.log.pointers import POINTER_PREFIX
from warren.log.settings import KV_STREAM, EntryKind
from warren.records.block import BlockDraft, draft
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.records.entries import Versions, draft_entries
from warren.records.format import ENTRY_BYTES_MAX, BlockKind
from warren.records.small_blocks import body_of_rows

if TYPE_CHECKING:
    from warren.log.writer import LogWriter, Placed


def check_strings(key: object, value: object) -> None:
    if not (isinstance(key, bytes) and isinstance(value, bytes)):
        wrong = value if isinstance(key, bytes) else key
        raise Misuse(f"keys and values are bytes, not {type(wrong).__name__}", "encode it")


def check_no_pointer(value: bytes) -> None:
    if value.startswith(POINTER_PREFIX):
        raise Misuse(f"a value of this stream cannot begin with {value[:1].hex()}: pointers do", "begin it otherwise")


def check_64_bits(what: str, *numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= UINT64_MAX:
            raise Misuse(f"{what} {number} does not fit 64 bits", "it must be from 0 to 2**64 - 1")


def check_size(size: int) -> None:
    if size > ENTRY_BYTES_MAX:
        raise Misuse(f"an entry of {size} bytes is over the limit of {ENTRY_BYTES_MAX}", "cut it into chunks")


def check_columns(keys: Texts, values: Texts, majors: NumberColumn | None, minors: NumberColumn | None) -> None:
    count = keys.count
    if values.count != count or any(n is not None and n.count != count for n in (majors, minors)):
        raise Misuse(f"{count} keys and {values.count} values: the columns differ in length")
    if (majors is None) != (minors is None):
        raise Misuse("a write version has two parts: give majors and minors, or neither")
    for numbers in (majors, minors):
        if numbers is not None and count:
            check_64_bits("version", numbers.base, numbers.base + (count - 1) * numbers.step)
    check_offsets(keys)
    check_offsets(values)
    check_largest(keys, values)


def check_offsets(texts: Texts) -> None:
    """Offsets never decrease and end inside the heap."""
    offsets = texts.offsets
    steady = offsets.step >= 0 if offsets.deltas is None else not (offsets.deltas[1:] < offsets.deltas[:-1]).any()
    if not steady or not 0 <= texts.start <= texts.end <= len(texts.heap):
        raise Misuse(
            f"the offsets of a column run from {texts.start} to {texts.end}, its heap has {len(texts.heap)} bytes",
            "give count + 1 offsets into the heap that never decrease",
        )


def check_largest(keys: Texts, values: Texts) -> None:
    if keys.size_bytes + values.size_bytes <= ENTRY_BYTES_MAX:
        return
    _, key_sizes = keys.bounds()
    _, value_sizes = values.bounds()
    check_size(int((key_sizes + value_sizes).max()))


@dataclass(slots=True)
class EntryRows:
    kinds: list[int] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    undo_prev: list[int] = field(default_factory=list)
    undo_next: list[int] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, kind: int, storage: int, key: bytes, value: bytes, undo_prev: int = 0, undo_next: int = 0) -> None:
        self.kinds.append(kind)
        self.storages.append(storage)
        self.keys.append(key)
        self.values.append(value)
        self.undo_prev.append(undo_prev)
        self.undo_next.append(undo_next)
        self.size_bytes += len(key) + len(value)

    def extend(self, other: EntryRows) -> None:
        self.kinds += other.kinds
        self.storages += other.storages
        self.keys += other.keys
        self.values += other.values
        self.undo_prev += other.undo_prev
        self.undo_next += other.undo_next
        self.size_bytes += other.size_bytes

    def columns(self, minors: list[int] | None = None, majors: list[int] | None = None) -> EntryColumns:
        count = len(self)
        return EntryColumns(
            numbers(self.kinds),
            numbers(self.storages),
            NumberColumn(count, 0) if majors is None else numbers(majors),
            NumberColumn(count, 0) if minors is None else numbers(minors),
            Texts.of_list(self.keys),
            Texts.of_list(self.values),
            numbers(self.undo_prev),
            numbers(self.undo_next),
        )


def numbers(values: list[int]) -> NumberColumn:
    first = values[0]
    if values.count(first) == len(values):
        return NumberColumn(len(values), first)
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


def draft_rows(rows: EntryRows, stream: StreamId, minors: list[int] | None = None) -> BlockDraft:
    """A block of a few rows, whatever their size; without `minors` they follow one another."""
    body = body_of_rows(rows.kinds, rows.storages, rows.keys, rows.values, rows.undo_prev, rows.undo_next, minors)
    return draft(BlockKind.ENTRIES, list(body), len(rows), stream)


SMALL_BYTES_MAX = 64 << 10
SMALL_ROWS_MAX = 1024
Version = tuple[int, int]  # (major, minor)
Batch = tuple[EntryColumns, Versions]


class Session:
    """One session on one channel. Made by `LogWriter.begin`."""

    def __init__(
        self,
        writer: LogWriter,
        channel: int,
        stream: StreamId,
        block_bytes: int,
        bytes_max: int,
        is_referring: bool = False,
    ) -> None:
        self._writer = writer
        self._channel = channel
        self._stream = stream
        self._block_bytes = block_bytes
        self._bytes_max = bytes_max
        self._is_referring = is_referring
        self._batches: list[Batch] = []
        self._rows = EntryRows()
        self._versions: list[Version] | None = None  # of the rows, if explicit
        self._size_bytes = 0
        self._is_open = True
        self.epoch: Epoch | None = None  # set by `end`
        self.first_lsn: Lsn | None = None  # of its first entry, set by `end`
        self.placed: list[Placed] = []  # where its entries are, block by block, set by `end`
        writer.session_began(self)

    # -- one entry -----------------------------------------------------------------------------------------------

    def put(self, storage: int, key: bytes, value: bytes, version: Version | None = None) -> None:
        self._add(EntryKind.PUT, storage, key, value, version)

    def remove(self, storage: int, key: bytes, version: Version | None = None) -> None:
        self._add(EntryKind.REMOVE, storage, key, b"", version)

    def clear_storage(self, storage: int, version: Version | None = None) -> None:
        """Remove everything older in the storage."""
        self._add(EntryKind.CLEAR_STORAGE, storage, b"", b"", version)

    def add_storage(self, storage: int, version: Version | None = None) -> None:
        self._add(EntryKind.ADD_STORAGE, storage, b"", b"", version)

    def remove_storage(self, storage: int, version: Version | None = None) -> None:
        self._add(EntryKind.REMOVE_STORAGE, storage, b"", b"", version)

    def record(self, value: bytes, undo_prev: Lsn = Lsn(0), undo_next: Lsn = Lsn(0), key: bytes = b"") -> None:
        """One record of the session's stream, linked back to earlier ones."""
        check_strings(key, value)
        check_64_bits("link", undo_prev, undo_next)
        self._admit(len(key) + len(value))
        if self._stream == KV_STREAM:
            raise Misuse("a record has no place among key-values", "begin a session of a stream: store.stream(name)")
        self._start_rows(None)
        self._rows.add(EntryKind.RECORD, 0, key, value, undo_prev, undo_next)

    # -- many ----------------------------------------------------------------------------------------------------

    def put_many(
        self,
        storage: int,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        versions: Sequence[Version] | None = None,
    ) -> None:
        """Lists of bytes, side by side."""
        if len(keys) != len(values) or (versions is not None and len(versions) != len(keys)):
            raise Misuse(f"{len(keys)} keys, {len(values)} values, {len(versions or keys)} versions: the lists differ")
        if versions is None:
            self.put_columns(storage, _texts(keys), _texts(values))
            return
        for key, value, version in zip(keys, values, versions, strict=True):
            self.put(storage, key, value, version)

    def put_columns(
        self,
        storage: int,
        keys: Texts,
        values: Texts,
        majors: NumberColumn | None = None,
        minors: NumberColumn | None = None,
    ) -> None:
        """Columns, not copied: do not change the arrays until the session's epoch is durable."""
        self._add_columns(EntryKind.PUT, storage, keys, values, majors, minors)

    def remove_many(self, storage: int, keys: Sequence[bytes]) -> None:
        self._add_columns(EntryKind.REMOVE, storage, _texts(keys), Texts.empty(len(keys)), None, None)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Epoch:
        """Write the session whole into the present epoch; the epoch to wait for."""
        self._finish()
        try:
            self.epoch, self.first_lsn = self._append()
        except BaseException:
            self._writer.session_ended(self)
            raise
        return self.epoch

    def commit(self) -> Epoch:
        """End it and wait until it is durable."""
        epoch = self.end()
        self._writer.wait(epoch)
        return epoch

    def abort(self) -> None:
        """Discard the session. Nothing of it has been written."""
        self._finish()
        self._writer.session_ended(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Commit; abort if an exception is raised."""
        if self._is_open:
            if kind is None:
                self.commit()
            else:
                self.abort()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if not self._is_open:
            raise Misuse("the session has ended", "begin another one")
        self._is_open = False

    def _append(self) -> tuple[Epoch, Lsn]:
        if self._is_small():
            return self._writer.append_rows(self, self._channel, self._stream, self._rows)
        if self._is_plain() and self._rows.size_bytes <= self._block_bytes:
            return self._writer.append_drafts(self, self._channel, [draft_rows(self._rows, self._stream)])
        self._flush_rows()
        drafts = [draft for batch in self._batches for draft in self._drafts(*batch)]
        return self._writer.append_drafts(self, self._channel, drafts)

    def _is_small(self) -> bool:
        """Small enough to share a block with others."""
        return self._is_plain() and self._rows.size_bytes <= SMALL_BYTES_MAX

    def _is_plain(self) -> bool:
        """Only a few rows: no columns, no explicit versions."""
        return len(self._rows) <= SMALL_ROWS_MAX and not self._batches and self._versions is None

    def _admit(self, size: int) -> None:
        if not self._is_open:
            raise Misuse("the session has ended", "begin another one")
        check_size(size)
        self._grow(size)

    def _grow(self, size: int) -> None:
        if self._size_bytes + size > self._bytes_max:
            raise Misuse(
                f"the session holds more than {self._bytes_max} bytes", "end it in between, or raise session_bytes_max"
            )
        self._size_bytes += size

    def _check_stream(self) -> None:
        if self._stream != KV_STREAM and not self._is_referring:
            raise Misuse("a key-value has no place among a stream's records", "begin a session with store.begin()")

    def _add(self, kind: EntryKind, storage: int, key: bytes, value: bytes, version: Version | None) -> None:
        self._check_stream()
        check_strings(key, value)
        if self._is_referring:
            check_no_pointer(value)
        check_64_bits("storage", storage)
        if version is not None:
            check_64_bits("version", *version)
        self._admit(len(key) + len(value))
        self._start_rows(version)
        self._rows.add(kind, storage, key, value)
        if version is not None and self._versions is not None:
            self._versions.append(version)

    def _start_rows(self, version: Version | None) -> None:
        """Rows with and without an explicit version do not mix in one batch."""
        if (self._versions is None) == (version is None):
            return
        self._flush_rows()
        self._versions = None if version is None else []

    def _flush_rows(self) -> None:
        if not len(self._rows):
            return
        if self._versions is None:
            self._batches.append((self._rows.columns(), Versions.FROM_HEADER))
        else:
            majors, minors = [v[0] for v in self._versions], [v[1] for v in self._versions]
            self._batches.append((self._rows.columns(minors, majors), Versions.WRITTEN))
        self._rows, self._versions = EntryRows(), None

    def _add_columns(
        self,
        kind: EntryKind,
        storage: int,
        keys: Texts,
        values: Texts,
        majors: NumberColumn | None,
        minors: NumberColumn | None,
    ) -> None:
        self._check_stream()
        if self._is_referring:
            raise Misuse("a stream that is referred to takes one value at a time", "use put and remove")
        check_64_bits("storage", storage)
        check_columns(keys, values, majors, minors)
        count = keys.count
        self._admit(0)
        if count == 0:
            return
        self._grow(keys.size_bytes + values.size_bytes)
        self._flush_rows()
        none = NumberColumn(count, 0)
        columns = EntryColumns(
            NumberColumn(count, kind),
            NumberColumn(count, storage),
            majors or none,
            minors or none,
            keys,
            values,
            none,
            none,
        )
        self._batches.append((columns, Versions.FROM_HEADER if majors is None else Versions.WRITTEN))

    def _drafts(self, columns: EntryColumns, versions: Versions) -> list[BlockDraft]:
        return [draft_entries(part, self._stream, versions=versions) for part in columns.split(self._block_bytes)]


def _texts(items: Sequence[bytes]) -> Texts:
    try:
        return Texts.of_list(items)
    except TypeError as error:
        raise Misuse(f"keys and values are bytes: {error}", "encode them") from error
