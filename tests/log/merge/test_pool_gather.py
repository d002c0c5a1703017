"""Strings from anywhere, packed: every length and every border, against plain slices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.log.merge.pool import HEAP_BITS, Strings, copy_strings, heaps_of, numbers_at, spans
from warren.records.columns import NumberColumn, Texts

LENGTHS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    33,
    63,
    64,
    65,
    127,
    129,
    1000,
    4095,
    4096,
    4097,
    8191,
    8192,
    20000,
]


def random_strings(seed: int, lengths: list[int]) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, length, dtype=np.uint8).tobytes() for length in lengths]


def rows_of(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("length", LENGTHS)
def test_strings_of_every_length_are_copied_whole_and_nothing_beside_them(length: int) -> None:
    source = np.frombuffer(random_strings(1, [3 * length + 7])[0], dtype=np.uint8)
    target = np.full(2 * length + 5, 255, dtype=np.uint8)
    starts = rows_of([len(source) - length, 1])  # one ends where the heap ends
    copy_strings([source], rows_of([0, 0]), starts, rows_of([length, length]), target, rows_of([1, length + 3]))
    assert target[1 : 1 + length].tobytes() == source[len(source) - length :].tobytes()
    assert target[length + 3 : 2 * length + 3].tobytes() == source[1 : 1 + length].tobytes()
    assert target[[0, length + 1, length + 2, 2 * length + 3, 2 * length + 4]].tolist() == [255] * 5


@settings(deadline=None)
@given(
    lengths=st.lists(st.one_of(st.integers(0, 40), st.sampled_from(LENGTHS)), min_size=1, max_size=30),
    order=st.randoms(use_true_random=False),
    parts=st.integers(1, 4),
)
def test_gathering_is_what_slicing_and_joining_is(lengths: list[int], order: object, parts: int) -> None:
    strings = random_strings(len(lengths), lengths)
    texts = [Texts.of_list(strings[part::parts]) for part in range(parts)]
    flat = [string for part in range(parts) for string in strings[part::parts]]
    rows = list(range(len(flat))) * 2
    order.shuffle(rows)  # type: ignore[attr-defined]
    found = Strings.of(texts).gather(rows_of(rows))
    assert found.to_list() == [flat[row] for row in rows]


def test_strings_that_stand_in_order_already_are_copied_in_one_piece() -> None:
    strings = random_strings(2, [5, 0, 9, 300, 17, 17, 1] * 50)
    pool = Strings.of([Texts.of_list(strings)])
    assert pool.gather(np.arange(len(strings))).to_list() == strings
    some = [*range(10, 200), 3, *range(200, 340)]
    assert pool.gather(rows_of(some)).to_list() == [strings[row] for row in some]


def test_adjacent_strings_in_two_heaps_are_not_taken_for_one_string() -> None:
    first, second = Texts.of_list([b"abc", b"def"]), Texts.of_list([b"ghi", b"jkl"])
    assert Strings.of([first, second]).gather(np.arange(4)).to_list() == [b"abc", b"def", b"ghi", b"jkl"]


def test_views_of_one_buffer_are_one_heap_and_are_not_copied() -> None:
    buffer = bytearray(b"..keys..values..")
    view = memoryview(buffer)
    keys = Texts(np.frombuffer(view[2:6], dtype=np.uint8), NumberColumn.sequence(3, 0, 2))
    values = Texts(np.frombuffer(view[8:14], dtype=np.uint8), NumberColumn.sequence(3, 0, 3))
    heaps, origins = heaps_of([keys, values])
    assert [len(heap) for heap in heaps] == [0, len(buffer)]
    assert origins == [(1, 2), (1, 8)]
    pool = Strings.of([keys, values])
    buffer[2:4] = b"KE"
    assert pool.gather(np.arange(4)).to_list() == [b"KE", b"ys", b"val", b"ues"]


def test_more_heaps_than_can_be_numbered_are_copied_into_one() -> None:
    strings = random_strings(3, [10] * (3 << HEAP_BITS))
    texts = [Texts.of_list([b"before", string, b"behind"]).part(1, 2) for string in strings]
    pool = Strings.of(texts)
    assert len(pool.heaps) == 1
    assert pool.gather(np.arange(len(strings))).to_list() == strings


def test_a_large_buffer_is_seen_through_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.log.merge.pool._WINDOW_BYTES", 64)
    buffer = memoryview(random_strings(6, [1000])[0])
    parts = [
        Texts(np.frombuffer(buffer[at : at + 50], dtype=np.uint8), NumberColumn.sequence(11, 0, 5))
        for at in range(0, 1000, 50)
    ]
    pool = Strings.of(parts)
    assert len(pool.heaps) == 1 + 15
    assert max(map(len, pool.heaps)) == 128, "a string may begin in one window and end in the next"
    assert b"".join(pool.gather(np.arange(200)).to_list()) == bytes(buffer)


def test_threads_may_gather_from_the_same_strings_at_once() -> None:
    strings = random_strings(4, [50 + number % 100 for number in range(20_000)])
    pool = Strings.of([Texts.of_list(strings)])
    rows = np.random.default_rng(5).permutation(len(strings))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda part: pool.gather(part).to_list(), np.array_split(rows, 16)))
    assert [string for part in found for string in part] == [strings[row] for row in rows.tolist()]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.integers(0, 24))
def test_words_are_eight_bytes_padded_with_zeros(strings: list[bytes], depth: int) -> None:
    words = Strings.of([Texts.of_list(strings)]).words(depth, np.arange(len(strings)))
    padded = [string[depth : depth + 8].ljust(8, b"\0") for string in strings]
    assert words.tolist() == [int.from_bytes(word, "big") for word in padded]


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=20), st.booleans())
def test_equality_is_that_of_bytes(pairs: list[tuple[bytes, bytes]], are_same: bool) -> None:
    pairs = [(left, left if are_same else right) for left, right in pairs]
    pool = Strings.of([Texts.of_list([left for left, _ in pairs]), Texts.of_list([right for _, right in pairs])])
    numbers = np.arange(len(pairs))
    assert pool.are_equal(numbers, numbers + len(pairs)).tolist() == [left == right for left, right in pairs]


@pytest.mark.parametrize(
    "numbers",
    [
        NumberColumn(6, 7),
        NumberColumn(6, 100, -3),
        NumberColumn(6, 1 << 63, 2),
        NumberColumn.of_array(np.array([5, 3, 9, 3, 1 << 60, 4])),
    ],
)
def test_numbers_at_rows_are_the_columns_own(numbers: NumberColumn) -> None:
    rows = rows_of([5, 0, 0, 3])
    assert numbers_at(numbers, rows).tolist() == [numbers.at(row) for row in rows.tolist()]


def test_spans_are_the_members_of_ranges() -> None:
    assert spans(rows_of([10, 3, 50]), rows_of([3, 0, 2])).tolist() == [10, 11, 12, 50, 51]
    assert spans(rows_of([]), rows_of([])).tolist() == []


def test_many_small_parts_and_large_ones_keep_their_order() -> None:
    lists = [random_strings(number, [number % 5] * (number % 20)) for number in range(60)]
    lists += [random_strings(7, [3, 4]), [], random_strings(8, [9] * 40), [b""] * 3]
    flat = [string for strings in lists for string in strings]
    joined = memoryview(b"".join(flat))
    parts, at = [], 0
    for strings in lists:
        size = sum(map(len, strings))
        heap = np.frombuffer(joined[at : at + size], dtype=np.uint8)
        parts.append(Texts(heap, Texts.of_list(strings).offsets))
        at += size
    pool = Strings.of(parts)
    assert len(pool.heaps) == 2, "nothing, and the one buffer"
    assert pool.gather(np.arange(len(flat))).to_list() == flat
    assert [pool.at(row) for row in range(len(flat))] == flat
