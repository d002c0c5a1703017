"""Entries and blocks for the tests of this package: as hypothesis draws them, and by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from warren.base.ids import UINT64_MAX, Epoch, Incarnation, StreamId, TimelineId
from warren.records.block import BlockDraft, FileIdentity, Header, check_block, draft
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.records.entries import Versions, draft_entries
from warren.records.format import BlockKind

OURS = FileIdentity(TimelineId(0x1111), Incarnation(0x2222))
OTHER_LIFE = FileIdentity(TimelineId(0x1111), Incarnation(0x3333))
OTHER_TIMELINE = FileIdentity(TimelineId(0x4444), Incarnation(0x2222))


@dataclass(frozen=True, slots=True)
class Row:
    kind: int = 1
    storage: int = 7
    major: int = 0
    minor: int = 0
    key: bytes = b""
    value: bytes = b""
    undo_prev: int = 0
    undo_next: int = 0


numbers64 = st.one_of(st.just(0), st.integers(0, 300), st.integers(0, UINT64_MAX))
rows = st.lists(
    st.builds(
        Row,
        st.sampled_from([1, 2, 3, 4, 5, 16]),
        numbers64,
        numbers64,
        numbers64,
        st.binary(max_size=40),
        st.binary(max_size=90),
        numbers64,
        numbers64,
    ),
    min_size=1,
    max_size=30,
)


def columns_of(items: list[Row]) -> EntryColumns:
    return EntryColumns(
        _numbers([row.kind for row in items]),
        _numbers([row.storage for row in items]),
        _numbers([row.major for row in items]),
        _numbers([row.minor for row in items]),
        Texts.of_list([row.key for row in items]),
        Texts.of_list([row.value for row in items]),
        _numbers([row.undo_prev for row in items]),
        _numbers([row.undo_next for row in items]),
    )


def rows_of(columns: EntryColumns) -> list[Row]:
    plain = (columns.kinds, columns.storages, columns.majors, columns.minors)
    numbers = [column.array().tolist() for column in plain]
    undo = [columns.undo_prev.array().tolist(), columns.undo_next.array().tolist()]
    texts = [columns.keys.to_list(), columns.values.to_list()]
    return [Row(*row) for row in zip(*numbers, *texts, *undo, strict=True)]


def _numbers(items: list[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(items, dtype=np.uint64))


def placed(
    drafted: BlockDraft, offset: int = 0, epoch: int = 9, first: int = 0, identity: FileIdentity = OURS
) -> bytes:
    header, _ = drafted.place(identity, offset, Epoch(epoch), first)
    return header + b"".join(drafted.pieces)


def plain_block(body: bytes = b"body", offset: int = 0, epoch: int = 9, identity: FileIdentity = OURS) -> bytes:
    return placed(draft(BlockKind.EDIT, [body]), offset, epoch, identity=identity)


def entries_block(items: list[Row], offset: int = 0, versions: Versions = Versions.WRITTEN, first: int = 0) -> bytes:
    return placed(draft_entries(columns_of(items), StreamId(3), versions=versions), offset, first=first)


def header_of(raw: bytes, offset: int = 0) -> Header:
    found = check_block(memoryview(raw), offset, None)
    assert isinstance(found, Header), found
    return found


def three_blocks() -> bytes:
    raw = plain_block(b"first", 0, 1)
    raw += plain_block(b"the second, somewhat longer", len(raw), 1)
    return raw + plain_block(b"third", len(raw), 2)
