"""Key order against Python's own: (storage, bytes), whatever the keys."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.merge_model import KEYS
from warren.log.merge import key_order as module
from warren.log.merge.key_order import KeyPosition, KeyRanges, KeyWords, squeeze
from warren.log.merge.pool import Strings
from warren.records.columns import NumberColumn, Texts

Named = list[tuple[int, bytes]]


def words_of(named: Named, rows: list[int] | None = None) -> KeyWords:
    storages = NumberColumn.of_array(np.array([storage for storage, _ in named], dtype=np.uint64))
    keys = Strings.of([Texts.of_list([key for _, key in named])])
    return KeyWords(storages, keys, None if rows is None else np.array(rows, dtype=np.int64))


def check_order(named: Named, range_count: int = 1) -> None:
    """Rows are ordered by name, equal names in the order of their rows, and each name's start is known."""
    rows: list[int] = []
    starts: list[int] = []
    ranges = KeyRanges(words_of(named), range_count)
    for number in range(ranges.count):
        found = ranges.order(number)
        starts += (found.starts + len(rows)).tolist()
        rows += found.rows.tolist()
    assert rows == sorted(range(len(named)), key=lambda row: (named[row], row))
    assert starts == [at for at in range(len(rows)) if at == 0 or named[rows[at]] != named[rows[at - 1]]]


@pytest.fixture(params=["python finishes", "numpy alone", "one round at most"])
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small inputs go through every branch that large ones go through."""
    if request.param != "python finishes":
        monkeypatch.setattr(module, "_FEW", 0)
        monkeypatch.setattr(module, "_AT_ONCE", 7)
        monkeypatch.setattr("warren.log.merge.key_order._AT_ONCE", 7)
        monkeypatch.setattr("warren.log.merge.pool._ROWS_AT_ONCE", 5)
    if request.param == "one round at most":
        monkeypatch.setattr(module, "_ROUNDS_MAX", 1)


STORAGES = st.sampled_from([0, 1, 2, 1 << 40, (1 << 64) - 1])


@pytest.mark.usefixtures("rounds")
class TestAgainstSorted:
    @settings(deadline=None)
    @given(st.lists(st.tuples(STORAGES, KEYS), min_size=1, max_size=60), st.integers(1, 4))
    def test_any_keys(self, named: Named, range_count: int) -> None:
        check_order(named, range_count)

    @settings(deadline=None)
    @given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.binary(max_size=30))
    def test_a_common_prefix(self, keys: list[bytes], prefix: bytes) -> None:
        check_order([(7, prefix + key) for key in keys])

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 300), min_size=1, max_size=60))
    def test_digits_behind_a_name(self, numbers: list[int]) -> None:
        check_order([(1, b"customer:%09d:order" % number) for number in numbers])

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), min_size=1, max_size=60))
    def test_numbers_as_keys(self, numbers: list[tuple[int, int]]) -> None:
        check_order([(0, queue.to_bytes(8, "big") + sequence.to_bytes(8, "big")) for queue, sequence in numbers])

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.sampled_from([b"\0", b"\xff", b"a"]))
    def test_keys_that_differ_in_length_only(self, lengths: list[int], byte: bytes) -> None:
        check_order([(0, byte * length) for length in lengths])

    def test_differences_deep_inside(self) -> None:
        deep = [b"p" * depth + bytes([last]) for depth in (7, 8, 9, 63, 64, 200) for last in (0, 1, 255, 1, 0)]
        check_order([(0, key) for key in deep] + [(0, key + b"\0") for key in deep])


def test_a_mebibyte_key_among_short_ones_needs_memory_for_itself_only() -> None:
    named = [(0, b"%d" % number) for number in range(3000)]
    named += [(0, bytes(1 << 20)), (0, bytes((1 << 20) - 1)), (0, bytes(1 << 20)), (0, b"")]
    words = words_of(named)
    tracemalloc.start()
    try:
        found = KeyRanges(words).order(0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.rows.tolist() == sorted(range(len(named)), key=lambda row: (named[row], row))
    assert peak < 16 << 20, "a matrix of count × longest would be 3 GiB"


def test_many_rows_take_the_same_way() -> None:
    random = np.random.default_rng(1)
    keys = random.integers(0, 256, (50_000, 16), dtype=np.uint8)
    keys[20_000:30_000] = keys[:10_000]
    keys[30_000:30_100, :9] = keys[:100, :9]
    check_order([(0, key.tobytes()) for key in keys], range_count=3)


def test_only_the_requested_rows_are_ordered() -> None:
    words = words_of([(0, b"d"), (0, b"c"), (0, b"b"), (0, b"a"), (0, b"c")], rows=[4, 0, 3, 1])
    assert KeyRanges(words).order(0).rows.tolist() == [3, 4, 1, 0]


def test_no_keys_have_an_order_too() -> None:
    found = KeyRanges(words_of([])).order(0)
    assert (found.rows.tolist(), found.starts.tolist()) == ([], [])


def test_a_key_never_falls_into_two_ranges() -> None:
    named = [(0, bytes([number % 3])) for number in range(999)]
    ranges = KeyRanges(words_of(named), 8)
    stored = [{named[row] for row in ranges.order(number).rows.tolist()} for number in range(ranges.count)]
    assert sum(map(len, stored)) == len(set().union(*stored)) == 3


def test_bits_that_never_vary_are_left_out() -> None:
    named = [(9, b"customer:%04d" % number) for number in (417, 423, 399)]
    values, place = squeeze(words_of(named), KeyPosition(), 12)
    assert place is None, "all that differs fits into twelve bits, so equal values mean equal keys"
    assert np.argsort(values).tolist() == [2, 0, 1]
