"""Sorted files: what was written is what is read, by key, range, cursor and batch; and never anything else."""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.merge_model import KEYS, Entry, columns_of, entries_of
from warren.base.errors import Damage, Misuse
from warren.base.ids import Epoch, Incarnation, TimelineId
from warren.files.protocol import Buffer, File
from warren.log.compaction import sorted_file as sorted_index
from warren.log.compaction import sorted_file as sorted_reader
from warren.log.compaction.sorted_file import (
    Separator,
    SortedFile,
    SortedFileRow,
    SortedSummary,
    SortedWriter,
    separator_of,
)
from warren.log.read.blocks import walk
from warren.log.settings import EntryKind
from warren.records.block import FileIdentity, Header, check_block
from warren.records.format import BlockVerdict
from warren.testing.memory_files import MemoryFiles

IDENTITY = FileIdentity(TimelineId(11), Incarnation(22))
PUT = EntryKind.PUT


def put(storage: int, key: bytes, value: bytes = b"v", version: tuple[int, int] = (1, 1)) -> Entry:
    return Entry(PUT, storage, key, version, value, epoch=version[0])


def written(batches: Sequence[Sequence[Entry]], block_bytes: int = 64, start: int = 0) -> tuple[bytes, SortedSummary]:
    file = MemoryFiles().create("/sorted")
    if start:
        file.write_at(0, [bytes(start)])
    writer = SortedWriter(file, IDENTITY, start, Epoch(5), block_bytes=block_bytes)
    for batch in batches:
        writer.add(columns_of(batch))
    summary = writer.finish()
    return bytes(file.view()), summary


def opened(data: bytes, index_offset: int) -> SortedFile:
    return SortedFile(memoryview(data), IDENTITY, index_offset, "/log/sorted")


def file_of(entries: Sequence[Entry], block_bytes: int = 64) -> SortedFile:
    data, summary = written([entries], block_bytes)
    return opened(data, summary.index_offset)


def rows_of(entries: Sequence[Entry]) -> list[SortedFileRow]:
    return [SortedFileRow(e.storage, e.key, e.value, e.version) for e in entries if e.kind == PUT]


@st.composite
def contents(draw: st.DrawFn) -> list[Entry]:
    names = draw(st.sets(st.tuples(st.sampled_from([0, 1, 7, (1 << 64) - 1]), KEYS), max_size=40))
    kinds = st.sampled_from([PUT, PUT, PUT, EntryKind.REMOVE])
    versions = st.tuples(st.integers(0, 3), st.integers(0, 1 << 40))
    return [
        Entry(draw(kinds), storage, key, version := draw(versions), draw(st.binary(max_size=30)), epoch=version[0] + 1)
        for storage, key in sorted(names)
    ]


@settings(deadline=None)
@given(contents(), st.integers(1, 5), st.sampled_from([1, 40, 200, 1 << 17]))
def test_everything_written_is_read_back_in_every_way(entries: list[Entry], batch_count: int, block_bytes: int) -> None:
    cut = -(-len(entries) // batch_count) or 1
    data, summary = written([entries[at : at + cut] for at in range(0, len(entries), cut)], block_bytes, start=8)
    file = opened(data, summary.index_offset)
    assert entries_of(file.batches()) == entries
    assert list(file.cursor()) == rows_of(entries)
    assert list(file.cursor(reverse=True)) == rows_of(entries)[::-1]
    assert (file.entries, summary.entries) == (len(entries), len(entries))
    for entry in entries:
        found = file.get(entry.storage, entry.key)
        assert found == ((entry.value, entry.version) if entry.kind == PUT else None)
        assert file.get(entry.storage, entry.key + b"\1") is None or (entry.storage, entry.key + b"\1") in {
            (other.storage, other.key) for other in entries
        }


@settings(deadline=None)
@given(contents(), KEYS, st.one_of(st.none(), KEYS), st.booleans(), st.sampled_from([1, 60]))
def test_a_range_is_what_filtering_would_be(
    entries: list[Entry], low: bytes, high: bytes | None, reverse: bool, block_bytes: int
) -> None:
    file = file_of(entries, block_bytes)
    for storage in (0, 1, 5, (1 << 64) - 1):
        rows = [row for row in rows_of(entries) if row.storage == storage]
        expected = [row for row in rows if row.key >= low and (high is None or row.key < high)]
        assert list(file.range(storage, low, high, reverse)) == (expected[::-1] if reverse else expected)
        starting = [row for row in rows if row.key.startswith(low)]
        assert list(file.prefix(storage, low, reverse)) == (starting[::-1] if reverse else starting)


def test_a_key_that_is_not_there_is_not_found() -> None:
    file = file_of([put(1, b"b"), put(1, b"d"), put(3, b"b")])
    absent = [(0, b"b"), (1, b""), (1, b"a"), (1, b"c"), (1, b"e"), (2, b"b"), (9, b"")]
    assert [file.get(*name) for name in absent] == [None] * len(absent)


def test_entries_about_storages_and_tombstones_are_seen_by_batches_only() -> None:
    clear, add = Entry(EntryKind.CLEAR_STORAGE, 1, b"", (4, 0)), Entry(EntryKind.ADD_STORAGE, 1, b"", (4, 1))
    entries = [clear, add, put(1, b"", b"empty key"), Entry(EntryKind.REMOVE, 1, b"a", (5, 0)), put(1, b"b")]
    for block_bytes in (1, 1 << 17):
        file = file_of(entries, block_bytes)
        assert entries_of(file.batches()) == entries
        assert list(file.cursor()) == list(file.range(1)) == rows_of(entries)
        assert file.get(1, b"") == (b"empty key", (1, 1))
        assert file.get(1, b"a") is None


def test_batches_may_be_requested_by_block_number() -> None:
    entries = [put(1, b"%03d" % number) for number in range(50)]
    file = file_of(entries, block_bytes=30)
    half = file.block_count // 2
    assert half > 2
    assert entries_of(file.batches(0, half)) + entries_of(file.batches(half)) == entries


def test_batches_are_views_of_the_file() -> None:
    data, summary = written([[put(1, b"%03d" % number) for number in range(50)]])
    moving = bytearray(data)
    batch = next(opened(moving, summary.index_offset).batches())  # type: ignore[arg-type]
    at = moving.index(b"000")
    moving[at : at + 3] = b"abc"
    assert batch.keys.at(0) == b"abc"


def test_the_running_checksum_is_the_one_a_walk_over_the_blocks_finds() -> None:
    data, summary = written([[put(1, b"%03d" % number) for number in range(500)]], start=8)
    found = walk(memoryview(data), IDENTITY, start=8)
    assert (found.running, found.end) == (summary.running_checksum, summary.end_offset)
    assert summary.end_offset == len(data)
    assert (summary.key_bytes, summary.value_bytes) == (1500, 500)
    by_hand = 0
    for header in found.headers:
        by_hand = crc32(header.checksum.to_bytes(4, "little"), by_hand)
    assert by_hand == summary.running_checksum


def test_the_worked_bytes_of_the_format_page_are_what_is_written() -> None:
    file = MemoryFiles().create("/sorted")
    writer = SortedWriter(file, FileIdentity(TimelineId(0x11), Incarnation(0x22)), 0, Epoch(5))
    writer.add(columns_of([put(3, b"ant", b"six legs", (4, 7)), put(3, b"bee", b"wings", (5, 2))]))
    summary = writer.finish()
    page = (Path(__file__).parents[3] / "docs/formats/sorted_file.md").read_text(encoding="utf-8")
    shown = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} )+) ", page, re.MULTILINE)
    assert len(shown) > 25
    for at, reported in shown:
        expected = bytes.fromhex(reported)
        assert bytes(file.view()[int(at, 16) :][: len(expected)]) == expected, at
    assert (summary.index_offset, summary.end_offset) == (0xF8, 0x1A0)
    assert f"running checksum {summary.running_checksum:#x}" in page


def test_an_empty_file_is_a_file() -> None:
    file = file_of([])
    assert (file.entries, file.block_count, list(file.cursor()), file.get(0, b"")) == (0, 0, [], None)
    assert list(file.range(0)) == []
    assert list(file.batches()) == []


def test_an_index_of_several_levels_finds_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_index, "LISTED_MAX", 3)
    entries = [put(1 + number // 60, b"key-%05d" % number, b"%d" % number) for number in range(120)]
    data, summary = written([entries], block_bytes=24)
    file = opened(data, summary.index_offset)
    assert file.block_count > 27, "more than three levels"
    assert entries_of(file.batches()) == entries
    assert all(file.get(e.storage, e.key) == (e.value, e.version) for e in entries)


def test_separators_of_a_mebibyte_do_not_overflow_an_index_block() -> None:
    stem = b"s" * ((1 << 20) - 8)
    entries = [put(1, stem + b"%04d" % number) for number in range(12)]
    data, summary = written([entries], block_bytes=1)
    file = opened(data, summary.index_offset)
    assert file.block_count == 12
    assert [file.get(1, e.key) for e in entries] == [(e.value, e.version) for e in entries]


@settings(deadline=None)
@given(st.lists(KEYS, min_size=2, max_size=2).map(sorted))
def test_a_separator_is_short_and_lies_between(keys: list[bytes]) -> None:
    last, first = Separator(1, keys[0]), Separator(1, keys[1])
    between = separator_of(last, first)
    assert between <= first and first.key.startswith(between.key)
    if last < first:
        assert last < between
        assert not between.key or last >= Separator(1, between.key[:-1])
    assert separator_of(last, Separator(2, b"key")) == (2, b"")


def test_small_batches_share_a_block_and_writes_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Counting:
        path = "/sorted"

        def __init__(self, file: File) -> None:
            self._file = file

        def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
            sizes.append(sum(map(len, pieces)))
            self._file.write_at(offset, pieces)

    file = MemoryFiles().create("/sorted")
    writer = SortedWriter(Counting(file), IDENTITY, 0, Epoch(5))  # type: ignore[arg-type]
    entries = [put(1, b"%08d" % number, bytes(1000)) for number in range(9000)]
    for at in range(0, len(entries), 10):
        writer.add(columns_of(entries[at : at + 10]))
    summary = writer.finish()
    reader = opened(bytes(file.view()), summary.index_offset)
    assert entries_of(reader.batches()) == entries
    assert (64 << 10) <= summary.end_offset / reader.block_count <= (256 << 10)
    assert min(sizes[:-1]) >= 1 << 20


def test_entries_out_of_order_are_misuse() -> None:
    writer = SortedWriter(MemoryFiles().create("/sorted"), IDENTITY, 0, Epoch(1), block_bytes=1)
    writer.add(columns_of([put(2, b"b")]))
    with pytest.raises(Misuse, match="/sorted"):
        writer.add(columns_of([put(2, b"a")]))


def everything_in(file: SortedFile, names: Sequence[tuple[int, bytes]]) -> object:
    return list(file.cursor()), [file.get(*name) for name in names], entries_of(file.batches())


SAMPLE = [put(1, b"key-%04d" % (number * 3), b"value %d" % number, (number, number * 7)) for number in range(40)]
NAMES = [(entry.storage, entry.key) for entry in SAMPLE]


def test_every_single_bit_flip_is_damage_and_never_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_index, "LISTED_MAX", 4)
    data, summary = written([SAMPLE], block_bytes=100)
    assert everything_in(opened(data, summary.index_offset), NAMES)
    for bit in random.Random(1).sample(range(len(data) * 8), 1500):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damage, match="/log/sorted at byte") as raised:
            everything_in(opened(bytes(flipped), summary.index_offset), NAMES)
        assert raised.value.offset <= bit // 8, "the block that is named begins before the flipped bit"


def test_a_lookup_in_a_good_block_is_served_whatever_is_damaged_elsewhere() -> None:
    data, summary = written([SAMPLE], block_bytes=100)
    flipped = bytearray(data)
    flipped[data.index(b"value 39")] ^= 1
    file = opened(bytes(flipped), summary.index_offset)
    assert file.get(*NAMES[0]) == (b"value 0", (0, 0))
    for _ in range(2):
        with pytest.raises(Damage):
            file.get(*NAMES[39])


def test_every_truncation_is_damage() -> None:
    data, summary = written([SAMPLE], block_bytes=100)
    for size in range(len(data)):
        with pytest.raises(Damage):
            everything_in(opened(data[:size], summary.index_offset), NAMES)


def test_a_block_of_another_life_or_place_is_not_read() -> None:
    data, summary = written([SAMPLE], block_bytes=100)
    with pytest.raises(Damage, match="stale"):
        SortedFile(memoryview(data), FileIdentity(TimelineId(11), Incarnation(23)), summary.index_offset, "/log/sorted")
    with pytest.raises(Damage, match="kind"):
        opened(data, 0)  # a sorted block is no index
    headers = walk(memoryview(data), IDENTITY).headers
    a, b = next((a, b) for a, b in combinations(headers, 2) if a.body_bytes == b.body_bytes)
    swapped = bytearray(data)
    swapped[a.offset : a.end], swapped[b.offset : b.end] = data[b.offset : b.end], data[a.offset : a.end]
    with pytest.raises(Damage):
        everything_in(opened(bytes(swapped), summary.index_offset), NAMES)


def test_checksums_are_verified_at_the_first_touch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def watched(view: memoryview, offset: int, identity: FileIdentity) -> Header | BlockVerdict:
        looks.append(offset)
        return check_block(view, offset, identity)

    monkeypatch.setattr(sorted_reader, "check_block", watched)
    file = file_of(SAMPLE, block_bytes=100)
    everything_in(file, NAMES)
    everything_in(file, NAMES)
    assert len(looks) == len(set(looks)) == file.block_count + 1


def test_a_cursor_holds_one_block_at_a_time() -> None:
    file = file_of(SAMPLE, block_bytes=100)
    cursor = file.cursor()
    before = len(file._headers)
    assert next(cursor).key == b"key-0000"
    assert len(file._headers) == before + 1


def test_the_block_of_a_key_is_found_among_many() -> None:
    names = sorted({(random.Random(5).randrange(3), b"%d" % (n * n)) for n in range(300)})
    file = file_of([put(*name) for name in names], block_bytes=20)
    for probe in [(s, b"%d" % n) for s in range(4) for n in range(0, 90_000, 977)]:
        at = bisect_left(names, probe)
        assert (file.get(*probe) is not None) == (at < len(names) and names[at] == probe)


def test_entries_without_a_byte_do_not_pile_up_in_one_block() -> None:
    """A storage each, with the empty key and no value: only their columns take room."""
    entries = [put(storage, b"", b"") for storage in range(100_000)]
    data, summary = written([entries[at : at + 1000] for at in range(0, len(entries), 1000)], block_bytes=128 << 10)
    file = opened(data, summary.index_offset)
    assert file.block_count > 10
    assert file.get(77_777, b"") == (b"", (1, 1))
