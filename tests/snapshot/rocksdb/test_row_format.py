"""The bytes of the snapshot store: those of docs/formats/snapshot_store.md, and every row comes back as it went in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import Damage
from warren.base.ids import Epoch, TimelineId
from warren.log.settings import EntryKind
from warren.records.columns import NumberColumn, Texts
from warren.snapshot.rocksdb.row_format import (
    StoreMark,
    about_key,
    behind_prefix,
    behind_storage,
    columns_of_values,
    format_of_mark,
    header_bytes,
    mark_bytes,
    mark_of,
    row_keys,
    row_prefix,
    row_values,
    storage_of,
    version_and_value,
    version_of,
)
from warren.snapshot.store import Applied

NUMBERS = st.one_of(
    st.integers(0, 3), st.integers(0, (1 << 64) - 1), st.sampled_from([255, 256, 65535, 65536, 1 << 32])
)
ROWS = st.tuples(NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS, st.binary(max_size=9), st.binary(max_size=9))


def numbers(*values: int) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


def test_the_bytes_are_those_of_the_page() -> None:
    [key] = row_keys(numbers(3), Texts.of_list([b"ant"]))
    assert key.hex(" ") == "02 00 00 00 00 00 00 00 03 61 6e 74"
    major = numbers(0x123456)
    [ant] = row_values(major, numbers(7), major, Texts.of_list([b"six legs"]))
    assert ant.hex(" ") == "02 56 34 12 00 07 73 69 78 20 6c 65 67 73"
    [bee] = row_values(numbers(5), numbers(300), numbers(9), Texts.of_list([b"wings"]))
    assert bee.hex(" ") == "14 05 2c 01 09 00 00 00 00 00 00 00 77 69 6e 67 73"
    assert about_key(3, EntryKind.CLEAR_STORAGE).hex(" ") == "03 00 00 00 00 00 00 00 03 03"
    assert header_bytes((6, 0), 6).hex(" ") == "00 06 00"
    mark = StoreMark(Applied(TimelineId(0x11), Epoch(0x123456), (0x123456, 7)), 0x123456, 2)
    assert mark_bytes(mark).hex(" ") == (
        "01 00 00 00 11 00 00 00 00 00 00 00 56 34 12 00 00 00 00 00 56 34 12 00 00 00 00 00 "
        "07 00 00 00 00 00 00 00 56 34 12 00 00 00 00 00 02 00 00 00 00 00 00 00"
    )
    assert mark_of(mark_bytes(mark)) == mark and format_of_mark(mark_bytes(mark)) == 1


@given(st.lists(ROWS, min_size=1, max_size=8), st.booleans())
def test_rows_come_back_as_they_went_in(rows: list[tuple[int, int, int, int | None, bytes, bytes]], once: bool) -> None:
    rows = rows[:1] * len(rows) if once else rows  # all of one version and length, as in a bulk load
    storages, majors, minors = (numbers(*column) for column in list(zip(*(row[:3] for row in rows), strict=True)))
    epoch_list = [row[1] if row[3] is None else row[3] for row in rows]
    keys, values = Texts.of_list([row[4] for row in rows]), Texts.of_list([row[5] for row in rows])
    made_keys = row_keys(storages, keys)
    assert [(storage_of(key), key[9:]) for key in made_keys] == [(row[0], row[4]) for row in rows]
    datas = row_values(majors, minors, numbers(*epoch_list), values)
    assert [version_and_value(data) for data in datas] == [((row[1], row[2]), row[5]) for row in rows]
    assert [version_of(data) for data in datas] == [(row[1], row[2]) for row in rows]
    columns = columns_of_values(datas)
    assert [column.array().tolist() for column in columns[:3]] == [
        [row[1] for row in rows],
        [row[2] for row in rows],
        epoch_list,
    ]
    assert columns[3].to_list() == [row[5] for row in rows]


@given(st.lists(st.tuples(NUMBERS, st.binary(max_size=9)), max_size=8))
def test_rocksdb_orders_rows_by_storage_and_key(rows: list[tuple[int, bytes]]) -> None:
    keys = [row_prefix(storage) + key for storage, key in rows]
    assert [(storage_of(key), key[9:]) for key in sorted(keys)] == sorted(rows)
    assert all(key < behind_storage(storage_of(key)) for key in keys)


def test_parts_of_a_batch_are_laid_out_from_where_they_begin() -> None:
    keys = Texts.of_list([b"aa", b"bb", b"cc"]).part(1, 3)
    assert [key[9:] for key in row_keys(numbers(1, 1), keys)] == [b"bb", b"cc"]
    assert row_keys(numbers(), Texts.of_list([])) == []


def test_an_impossible_header_is_damage() -> None:
    for data in (b"", b"\x20\0\0\0", b"\x02\0\0", b"\xff" * 40):
        with pytest.raises(Damage, match="header"):
            version_of(data)
    for data in (b"", b"\x01\0"):
        with pytest.raises(Damage, match="mark"):
            format_of_mark(data)
    with pytest.raises(Damage, match="mark"):
        mark_of(b"\x01\0\0\0" + b"\0" * 40)


def test_the_end_of_a_prefix() -> None:
    assert behind_prefix(b"ab") == b"ac" and behind_prefix(b"a\xff") == b"b"
    assert behind_prefix(b"\xff") is None and behind_prefix(b"") is None
