"""Hash buckets: together they are everything, a key is in one of them, and clears are in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.log.merge.external import Bucket, bucket_of, newest_values
from warren.log.merge.merge import merge
from warren.log.merge.pool import Strings, joined_strings
from warren.log.session import EntryRows
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts

KEYS = st.binary(max_size=20) | st.binary(min_size=250, max_size=270)
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([EntryKind.PUT, EntryKind.PUT, EntryKind.REMOVE, EntryKind.CLEAR_STORAGE]),
        st.integers(1, 3),
        KEYS,
        st.binary(max_size=5),
    ),
    min_size=1,
    max_size=40,
)


class Listed:
    """Batches in memory as an input."""

    is_mapped = False

    def __init__(self, batches: list[EntryColumns]) -> None:
        self._batches = batches
        self.entries = sum(batch.count for batch in batches)
        self.size_bytes = sum(batch.keys.size_bytes + batch.values.size_bytes for batch in batches)

    def batches(self) -> Iterator[EntryColumns]:
        return iter(self._batches)


def columns(entries: list[tuple[EntryKind, int, bytes, bytes]], first: int) -> EntryColumns:
    rows = EntryRows()
    for kind, storage, key, value in entries:
        rows.add(kind, storage, b"" if kind is EntryKind.CLEAR_STORAGE else key, value)
    created = rows.columns(minors=list(range(first, first + len(entries))))
    ones = NumberColumn.constant(created.count, 1)
    return replace(created, majors=ones, epochs=ones)


def plain(batches: list[EntryColumns]) -> list[tuple[int, bytes, bytes, int]]:
    return [
        (batch.storages.at(row), batch.keys.at(row), batch.values.at(row), batch.minors.at(row))
        for batch in batches
        for row in range(batch.count)
        if batch.kinds.at(row) == EntryKind.PUT
    ]


@settings(deadline=None)
@given(entries=ENTRIES, count=st.integers(1, 5), memory=st.sampled_from([0, 1 << 30]))
def test_buckets_together_are_the_whole_merge(
    entries: list[tuple[EntryKind, int, bytes, bytes]], count: int, memory: int
) -> None:
    half = len(entries) // 2
    batches = [columns(part, at) for part, at in ((entries[:half], 0), (entries[half:], half)) if part]
    shares = [plain(list(newest_values([Bucket(Listed(batches), number, count)], memory))) for number in range(count)]
    assert sorted(row for share in shares for row in share) == plain([merge(batches, is_bottom=True)])
    assert all(share == sorted(share) for share in shares), "each in key order"


@settings(deadline=None)
@given(keys=st.lists(KEYS, min_size=1, max_size=30), count=st.integers(1, 1000))
def test_a_key_has_one_bucket_whatever_stands_beside_it(keys: list[bytes], count: int) -> None:
    together = bucket_of(NumberColumn.constant(len(keys), 7), Strings.of([Texts.of_list(keys)]), count).tolist()
    alone = [int(bucket_of(NumberColumn.constant(1, 7), Strings.of([Texts.of_list([key])]), count)[0]) for key in keys]
    assert together == alone and all(0 <= bucket < count for bucket in together)


def test_keys_spread_evenly() -> None:
    keys = Strings.of([Texts.of_list([b"user:%08d" % number for number in range(20_000)])])
    found = np.bincount(bucket_of(NumberColumn.sequence(20_000, 1 << 40, 0), keys, 16), minlength=16)
    assert found.min() > 1100 and found.max() < 1400


def test_values_that_are_not_needed_are_left_out() -> None:
    batch = columns([(EntryKind.PUT, 1, b"a", b"value"), (EntryKind.PUT, 1, b"b", b"more")], 0)
    for count in (1, 2):
        shares = [list(Bucket(Listed([batch]), number, count, with_values=False).batches()) for number in range(count)]
        assert sorted(row[1:3] for share in shares for row in plain(share)) == [(b"a", b""), (b"b", b"")]


@settings(deadline=None)
@given(st.lists(st.lists(KEYS, min_size=1, max_size=6), min_size=1, max_size=5))
def test_joined_strings_are_what_they_were(parts: list[list[bytes]]) -> None:
    texts = [Texts.of_list(part) for part in parts]
    strings = joined_strings([Strings.of([text]) for text in [*texts, texts[0]]])
    rows = np.arange(strings.count, dtype=np.int64)
    assert strings.gather(rows).to_list() == [key for part in [*parts, parts[0]] for key in part]
    assert len(strings.heaps) <= len(parts) + 1, "the same heap has one number"


def test_more_heaps_than_can_be_numbered_are_copied() -> None:
    texts = [Texts.of_list([b"%d" % number]) for number in range(5000)]
    strings = joined_strings([Strings.of(texts[:3000]), Strings.of(texts[3000:])])
    rows = np.arange(strings.count, dtype=np.int64)
    assert strings.gather(rows).to_list() == [b"%d" % number for number in range(5000)]
