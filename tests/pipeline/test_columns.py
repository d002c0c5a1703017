"""Columns of blocks as Arrow arrays, and schemas that fit or do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.source_tree import DOCS
from warren.base.errors import Refused
from warren.pipeline import options
from warren.pipeline.arrow import BATCH_ROWS_MIN, Chunk, batches_of, binary_array, number_array
from warren.pipeline.schema import COLUMNS, SelectedColumn, TableView, checked, fields_of, usual_schema
from warren.records.columns import EntryColumns, NumberColumn, Texts


@given(st.lists(st.lists(st.binary(max_size=12), min_size=1, max_size=9), min_size=1, max_size=4), st.booleans())
def test_strings_are_what_they_were(parts: list[list[bytes]], is_cut: bool) -> None:
    texts = [
        Texts.of_list([b"before", *part]).part(1, len(part) + 1) if is_cut else Texts.of_list(part) for part in parts
    ]
    array = binary_array(texts)
    array.validate(full=True)
    assert array.to_pylist() == [item for part in parts for item in part]


def test_a_large_block_is_not_copied() -> None:
    heap = np.arange(200_000, dtype=np.uint64).view(np.uint8)
    texts = Texts(heap, NumberColumn(3, 0, 0, np.array([0, 70_000, len(heap)], dtype="<u4")))
    array = binary_array([texts])
    assert array.buffers()[2].address == heap.ctypes.data
    assert array.buffers()[1].address == texts.offsets.deltas.ctypes.data  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "numbers",
    [
        NumberColumn.constant(3, (1 << 64) - 1),
        NumberColumn.sequence(3, 7, 5),
        NumberColumn(3, 1000, 0, np.array([1, 0, 255], dtype="u1")),
        NumberColumn(3, 0, 0, np.array([1, 0, 1 << 63], dtype="<u8")),
    ],
)
def test_numbers_keep_their_bits(numbers: NumberColumn) -> None:
    array = number_array(numbers, "bigint")
    assert array.type == pa.int64()
    assert [value % (1 << 64) for value in array.to_pylist()] == numbers.array().tolist()


def entries(count: int, value: bytes = b"v") -> EntryColumns:
    none, keys = NumberColumn.constant(count, 0), Texts.of_list([b"k"] * count)
    ones = NumberColumn.constant(count, 1)
    return EntryColumns(ones, ones, ones, ones, keys, Texts.of_list([value] * count), none, none, ones)


def test_small_blocks_are_gathered_and_large_ones_go_alone() -> None:
    fields = [SelectedColumn("storage", "bigint"), SelectedColumn("value", "binary")]
    schema = pa.schema([("storage", pa.int64()), ("value", pa.binary())])
    small = [Chunk.of_columns(entries(1)) for _ in range(20_000)]
    assert [batch.num_rows for batch in batches_of(small, fields, schema)] == [BATCH_ROWS_MIN, BATCH_ROWS_MIN, 3616]
    large = [Chunk.of_columns(entries(5, b"x" * (1 << 20))) for _ in range(2)]
    assert [batch.num_rows for batch in batches_of(large, fields, schema)] == [5, 5]


def test_a_column_that_is_not_asked_for_is_not_decoded() -> None:
    def read() -> EntryColumns:
        raise AssertionError("not selected")

    header = SimpleNamespace(epoch=7, stream=3)
    block: Any = SimpleNamespace(header=header, number=5, first_lsn=99)
    fields = [SelectedColumn("epoch", "bigint"), SelectedColumn("lsn", "bigint"), SelectedColumn("stream", "int")]
    schema = pa.schema([("epoch", pa.int64()), ("lsn", pa.int64()), ("stream", pa.int32())])
    [batch] = batches_of([Chunk(2, read, block)], fields, schema)
    assert batch.to_pylist() == [{"epoch": 7, "lsn": 99, "stream": 3}, {"epoch": 7, "lsn": 100, "stream": 3}]


@pytest.mark.parametrize(
    ("view", "fields", "words"),
    [
        (TableView.ENTRIES, [SelectedColumn("epcoh", "bigint")], "view 'entries' has no column 'epcoh'"),
        (TableView.KV, [SelectedColumn("lsn", "bigint")], "view 'kv' has no column 'lsn'"),
        (
            TableView.ENTRIES,
            [SelectedColumn("epoch", "string")],
            "column 'epoch' of view 'entries' is bigint, not string",
        ),
        (TableView.DAMAGE, [], "without columns"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(view: TableView, fields: list[SelectedColumn], words: str) -> None:
    with pytest.raises(Refused, match=words) as raised:
        checked(view, fields)
    assert "its columns are: " in raised.value.hint


def test_every_usual_schema_fits() -> None:
    for view in TableView:
        parts = [part.split() for part in usual_schema(view).split(", ")]
        shaped = [SimpleNamespace(name=n, dataType=SimpleNamespace(simpleString=lambda t=t: t)) for n, t in parts]
        assert len(fields_of(view, SimpleNamespace(fields=shaped))) == len(parts)


def test_the_page_names_every_option_and_column() -> None:
    page = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    assert not [name for name, line in options.OPTIONS.items() if f"| `{name}` | {line} |" not in page]
    assert not [column.name for columns in COLUMNS.values() for column in columns if f"`{column.name}`" not in page]
