"""The merge rule once more, as plainly as it can be said: the oracle of the vectorised one. And rows as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts


class Entry(NamedTuple):
    kind: int
    storage: int
    key: bytes
    version: tuple[int, int]
    value: bytes = b""
    epoch: int = 1
    undo: tuple[int, int] = (0, 0)


def columns_of(entries: Sequence[Entry]) -> EntryColumns:
    return EntryColumns(
        _numbers([entry.kind for entry in entries]),
        _numbers([entry.storage for entry in entries]),
        _numbers([entry.version[0] for entry in entries]),
        _numbers([entry.version[1] for entry in entries]),
        Texts.of_list([entry.key for entry in entries]),
        Texts.of_list([entry.value for entry in entries]),
        _numbers([entry.undo[0] for entry in entries]),
        _numbers([entry.undo[1] for entry in entries]),
        _numbers([entry.epoch for entry in entries]),
    )


def entries_of(batches: Iterable[EntryColumns]) -> list[Entry]:
    return [entry for batch in batches for entry in _entries_of(batch)]


def _entries_of(batch: EntryColumns) -> Iterator[Entry]:
    assert batch.epochs is not None
    versions = zip(batch.majors.array().tolist(), batch.minors.array().tolist(), strict=True)
    undo = zip(batch.undo_prev.array().tolist(), batch.undo_next.array().tolist(), strict=True)
    kinds, storages = batch.kinds.array().tolist(), batch.storages.array().tolist()
    epochs = batch.epochs.array().tolist()
    return map(Entry, kinds, storages, batch.keys.to_list(), versions, batch.values.to_list(), epochs, undo)


def merged_by_hand(entries: Iterable[Entry], is_bottom: bool) -> list[Entry]:
    """One entry after another into a dict."""
    entries = list(entries)
    clears: dict[int, tuple[int, int]] = {}
    removals: dict[int, tuple[int, int]] = {}
    for entry in entries:
        if entry.kind in CLEARING:
            clears[entry.storage] = max(clears.get(entry.storage, (0, 0)), entry.version)
        if entry.kind == EntryKind.REMOVE_STORAGE:
            removals[entry.storage] = max(removals.get(entry.storage, (0, 0)), entry.version)
    newest: dict[tuple[int, bytes, int], Entry] = {}
    for entry in entries:
        is_keyed = entry.kind in (EntryKind.PUT, EntryKind.REMOVE)
        older_than = (clears if is_keyed else removals).get(entry.storage, (0, 0))
        name = (entry.storage, entry.key, 99 if is_keyed else entry.kind)
        if entry.version >= older_than and (name not in newest or newest[name].version < entry.version):
            newest[name] = entry
    dropped = (EntryKind.REMOVE, *CLEARING) if is_bottom else ()
    return [entry for _, entry in sorted(newest.items()) if entry.kind not in dropped]


@dataclass(frozen=True)
class Batches:
    """An input of a merge, made of lists."""

    lists: Sequence[Sequence[Entry]]
    is_mapped: bool = True

    @property
    def entries(self) -> int:
        return sum(map(len, self.lists))

    @property
    def size_bytes(self) -> int:
        return sum(len(entry.key) + len(entry.value) for batch in self.lists for entry in batch)

    def batches(self) -> Iterator[EntryColumns]:
        return (columns_of(batch) for batch in self.lists)


# Few different keys, so that they meet; and keys that differ only where a careless comparison does not look.
KEYS = st.one_of(
    st.sampled_from([b"", b"\0", b"\0\0", b"a", b"a\0", b"a" * 8, b"a" * 8 + b"\0", b"a" * 7 + b"\xff", b"a" * 16]),
    st.builds(lambda stem, tail: stem * 9 + tail, st.sampled_from([b"k", b"\xff", b"\0"]), st.binary(max_size=2)),
    st.binary(max_size=3),
)


@st.composite
def histories(draw: st.DrawFn, entries_max: int = 40) -> list[list[Entry]]:
    """Several inputs whose versions come in any order. A version names one entry: drawn twice, it is the same again."""
    pairs = st.tuples(st.integers(0, 4), st.integers(0, 6))
    versions = draw(st.lists(pairs, min_size=1, max_size=entries_max, unique=True))
    entries = [draw(_entry_of(version)) for version in versions]
    again = draw(st.lists(st.sampled_from(entries), max_size=6))
    shuffled = draw(st.permutations([*entries, *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(shuffled)), max_size=4)))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]


@st.composite
def _entry_of(draw: st.DrawFn, version: tuple[int, int]) -> Entry:
    kind = draw(st.sampled_from([EntryKind.PUT] * 8 + [EntryKind.REMOVE] * 3 + list(EntryKind)[2:5]))
    storage = draw(st.sampled_from([0, 1, 1, 2, (1 << 64) - 1]))
    if kind not in (EntryKind.PUT, EntryKind.REMOVE):
        return Entry(kind, storage, b"", version, b"", epoch=version[0] + 1)
    value = draw(st.binary(max_size=12)) if kind == EntryKind.PUT else b""
    return Entry(kind, storage, draw(KEYS), version, value, epoch=version[0] + 1, undo=(version[1], 7))


def _numbers(values: list[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))
