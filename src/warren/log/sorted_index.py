"""Where the blocks of a sorted file begin: a small tree of INDEX blocks behind the SORTED ones.

    | sorted | sorted | sorted | … | index level 0 | index level 0 | index level 1 |
                                     ^ lists sorted blocks            ^ the last one: lists all of level 0

For each block below it an index block says: offset, number of entries, and a *separator*, the shortest string that is
not greater than the block's first key and greater than the last key before it. There are as many levels as it takes
until one block lists all; with keys of usual length that is two levels from 4096 sorted blocks on, else one.

An index block is laid out as a block of entries, so nothing new has to be read or checked: KIND is the level, STORAGE
and KEY the separator, MAJOR the offset, MINOR the number of entries; values are empty.
Bytes: docs/formats/sorted_file.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from warren.records.block import BlockDraft
from warren.records.columns import EntryColumns, Texts
from warren.records.entries import draft_entries
from warren.records.format import BlockKind
from warren.records.numbers import NumberColumn

LISTED_MAX = 4096  # blocks listed by one index block
_SEPARATOR_BYTES_MAX = 4 << 20  # of one index block; at least four of the longest fit


class Separator(NamedTuple):
    storage: int
    key: bytes


class IndexedBlock(NamedTuple):
    """One block, as the index lists it."""

    separator: Separator
    offset: int
    entries: int


@dataclass(slots=True)
class SortedIndex:
    """All sorted blocks of a file, in order."""

    separators: list[Separator] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=lambda: [0])  # number of each block's first entry, and of the end

    def add(self, listed: IndexedBlock) -> None:
        self.separators.append(listed.separator)
        self.offsets.append(listed.offset)
        self.firsts.append(self.firsts[-1] + listed.entries)

    @property
    def entries(self) -> int:
        return self.firsts[-1]

    def block_of(self, storage: int, key: bytes) -> int:
        """The only block that may hold the key; -1 if it lies before the first."""
        return bisect_right(self.separators, (storage, key)) - 1

    def blocks_between(self, low: Separator, high: Separator) -> range:
        """Blocks that may hold keys from `low` on and below `high`."""
        return range(max(self.block_of(*low), 0), bisect_left(self.separators, high))


def separator_of(last: Separator | None, first: Separator) -> Separator:
    """The shortest start of `first` that is still greater than `last`."""
    if last is None or last.storage != first.storage:
        return Separator(first.storage, b"")
    return Separator(first.storage, first.key[: _common_bytes(last.key, first.key) + 1])


def index_drafts(listed: list[IndexedBlock], level: int) -> Iterator[tuple[BlockDraft, IndexedBlock]]:
    """Index blocks for these blocks, each with how the level above lists it (its offset is not known yet: 0)."""
    for at in range(0, max(len(listed), 1), LISTED_MAX):
        some = listed[at : at + LISTED_MAX]
        rows = 0
        for part in _columns(some, level).split(_SEPARATOR_BYTES_MAX):
            first = some[rows].separator if some else Separator(0, b"")
            yield draft_entries(part, kind=BlockKind.INDEX), IndexedBlock(first, 0, part.count)
            rows += part.count


def listed_by(columns: EntryColumns) -> Iterator[IndexedBlock]:
    separators = map(Separator, columns.storages.array().tolist(), columns.keys.to_list())
    return map(IndexedBlock, separators, columns.majors.array().tolist(), columns.minors.array().tolist())


def _common_bytes(left: bytes, right: bytes) -> int:
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    differs = np.frombuffer(left, dtype=np.uint8)[:shorter] != np.frombuffer(right, dtype=np.uint8)[:shorter]
    return int(np.argmax(differs))


def _columns(listed: list[IndexedBlock], level: int) -> EntryColumns:
    count = len(listed)
    nothing = NumberColumn(count, 0)
    return EntryColumns(
        NumberColumn(count, level),
        _numbers([item.separator.storage for item in listed]),
        _numbers([item.offset for item in listed]),
        _numbers([item.entries for item in listed]),
        Texts.of_list([item.separator.key for item in listed]),
        Texts.empty(count),
        nothing,
        nothing,
    )


def _numbers(values: list[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))
