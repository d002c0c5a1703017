"""Checked blocks of the log as Arrow batches, column by column, without a loop over rows.

    block     Numbers (constant, sequence, base + narrow deltas)       Texts: heap + offsets
    Arrow     int64 / int32 / int8                                     binary: the same heap, offsets as int32

A large block becomes a batch whose keys and values are the mapped bytes of the file (zero copy). Small blocks (an
epoch may be one entry) are gathered until a batch is large enough for the JVM; their columns are joined with the
functions of the merge. Only the selected columns are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from warren.log.merge.pool import Strings, joined
from warren.log.read.parts import EntryBlock
from warren.log.settings import EntryKind
from warren.pipeline.schema import SelectedColumn
from warren.records.columns import EntryColumns, NumberColumn, Texts

BATCH_ROWS_MIN = 8192
BATCH_BYTES_MIN = 4 << 20
_NUMPY_TYPES = {"bigint": np.int64, "int": np.int32, "tinyint": np.int8}
_KIND_NAMES = {kind.value: kind.name.lower() for kind in EntryKind}
_KINDS = pa.array([_KIND_NAMES.get(number, f"kind {number}") for number in range(256)])


@dataclass(slots=True)
class Chunk:
    """Some entries and their block; the columns are decoded on first use."""

    count: int
    read: Callable[[], EntryColumns]
    block: EntryBlock | None = None  # None: output of a merge
    _columns: EntryColumns | None = None

    @classmethod
    def of_block(cls, block: EntryBlock, shown: Callable[[EntryColumns], EntryColumns]) -> Chunk:
        """`shown` maps the columns of the block to the visible ones."""
        return cls(block.count, lambda: shown(block.columns()), block)

    @classmethod
    def of_columns(cls, columns: EntryColumns) -> Chunk:
        return cls(columns.count, lambda: columns)

    @property
    def columns(self) -> EntryColumns:
        if self._columns is None:
            self._columns = self.read()
        return self._columns


def _epochs(chunk: Chunk) -> NumberColumn:
    if chunk.block is not None:
        return NumberColumn.constant(chunk.count, chunk.block.header.epoch)
    epochs = chunk.columns.epochs
    assert epochs is not None, "a merge sets the epochs of its output"
    return epochs


def _of_block(value: Callable[[EntryBlock], int], step: int = 0) -> Callable[[Chunk], NumberColumn]:
    def numbers(chunk: Chunk) -> NumberColumn:
        assert chunk.block is not None, "only entries of the raw log have a position in it"
        return NumberColumn(chunk.count, value(chunk.block), step)

    return numbers


_NUMBERS: dict[str, Callable[[Chunk], NumberColumn]] = {
    "epoch": _epochs,
    "kind": lambda chunk: chunk.columns.kinds,
    "storage": lambda chunk: chunk.columns.storages,
    "major": lambda chunk: chunk.columns.majors,
    "minor": lambda chunk: chunk.columns.minors,
    "undo_prev": lambda chunk: chunk.columns.undo_prev,
    "undo_next": lambda chunk: chunk.columns.undo_next,
    "stream": _of_block(lambda block: block.header.stream),
    "file": _of_block(lambda block: block.number),
    "lsn": _of_block(lambda block: block.first_lsn, step=1),
}
_TEXTS: dict[str, Callable[[Chunk], Texts]] = {
    "key": lambda chunk: chunk.columns.keys,
    "value": lambda chunk: chunk.columns.values,
}


def batches_of(chunks: Iterable[Chunk], fields: Sequence[SelectedColumn], schema: Any) -> Iterator[Any]:
    """Arrow batches of this schema, each of at least BATCH_ROWS_MIN rows or BATCH_BYTES_MIN bytes, except the last."""
    has_values = any(field.name == "value" for field in fields)
    waiting, rows, size_bytes = list[Chunk](), 0, 0
    for chunk in chunks:
        waiting.append(chunk)
        rows += chunk.count
        size_bytes += chunk.columns.values.size_bytes if has_values else 0
        if rows >= BATCH_ROWS_MIN or size_bytes >= BATCH_BYTES_MIN:
            yield _batch(waiting, fields, schema)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield _batch(waiting, fields, schema)


def _batch(chunks: list[Chunk], fields: Sequence[SelectedColumn], schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([_array(chunks, field) for field in fields], schema=schema)


def _array(chunks: list[Chunk], field: SelectedColumn) -> Any:
    if field.name in _TEXTS:
        return binary_array([_TEXTS[field.name](chunk) for chunk in chunks])
    parts = [_NUMBERS[field.name](chunk) for chunk in chunks]
    numbers = parts[0] if len(parts) == 1 else joined(parts)
    return _words(numbers) if field.type == "string" else number_array(numbers, field.type)


def number_array(numbers: NumberColumn, type_name: str) -> Any:
    """The numbers as one of Spark's integer types; beyond its range they wrap, as documented."""
    values = numbers.array()
    wanted = _NUMPY_TYPES[type_name]
    return pa.array(values.view(np.int64) if wanted is np.int64 else values.astype(wanted))


def _words(kinds: NumberColumn) -> Any:
    if kinds.is_constant:
        return pa.repeat(_KINDS[kinds.base & 255], kinds.count)
    return _KINDS.take(pa.array(kinds.array().astype(np.uint8)))


def binary_array(parts: Sequence[Texts]) -> Any:
    """The strings of all parts; those of a single part are not copied."""
    texts = parts[0] if len(parts) == 1 else _gathered(parts)
    offsets = _offsets(texts.offsets, texts.start)
    heap = np.ascontiguousarray(texts.heap[texts.start : texts.end])
    return pa.Array.from_buffers(pa.binary(), texts.count, [None, pa.py_buffer(offsets), pa.py_buffer(heap)])


def _gathered(parts: Sequence[Texts]) -> Texts:
    strings = Strings.of(parts)
    return strings.gather(np.arange(strings.count, dtype=np.int64))


def _offsets(offsets: NumberColumn, start: int) -> Any:
    if offsets.deltas is not None and offsets.deltas.itemsize == 4 and offsets.base == start:
        return offsets.deltas.view(np.int32)
    if offsets.deltas is not None:
        return offsets.deltas.astype(np.int32) + np.int32(offsets.base - start)
    return np.arange(offsets.count, dtype=np.int32) * np.int32(offsets.step)
