"""Run rows: a round trip in whole or in part, and invalid bytes are reported."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index.bad_bytes import value_or_error
from tests.queue_index.worked_rows import CONTENTS, ORIGIN, PLACE
from tests.queue_index.worked_rows import RUN as WORKED
from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import Origin, Run, sizes_of
from warren.queue_index.row_format import (
    ROW_BYTES_MAX,
    RUN,
    RUN_COUNT_MAX,
    SIZES_DIFFER,
    STORED,
    check_run,
    decode_contents,
    decode_run,
    encode_run,
    row_bytes,
)

FIRST = SequenceId(258)


def run_of(contents: list[bytes], **more: object) -> Run:
    return replace(Run(FIRST, len(contents), sizes_of(contents)), **more)  # type: ignore[arg-type]


def described(run: Run) -> tuple[object, ...]:
    sizes = run.sizes if isinstance(run.sizes, int) else run.sizes.tolist()
    return run.first, run.count, sizes, run.is_persistent, run.expires_ms, run.published_ms, run.origin, run.stored


@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=30),
    st.integers(0, 2**64 - 1),
    st.builds(Origin, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.integers(0, 255)),
    st.data(),
)
def test_a_run_comes_back_as_it_went_and_any_part_of_its_contents(
    contents: list[bytes], moment: int, origin: Origin, data: st.DataObject
) -> None:
    """QI-02: a publication's metadata is a small head, once for all that came together."""
    run = run_of(contents, expires_ms=moment, published_ms=moment // 2, origin=origin)
    raw = encode_run(run, contents)
    assert len(raw) == row_bytes(run, is_embedded=True)
    for value in (raw, memoryview(raw)):
        read = decode_run(PLACE, FIRST, value, Epoch(9))
        assert described(read) == described(run)
        assert read.epoch == 9
        start = data.draw(st.integers(0, len(contents)))
        stop = data.draw(st.integers(start, len(contents)))
        assert decode_contents(PLACE, FIRST, value, start, stop) == contents[start:stop]


@pytest.mark.parametrize("sizes", [5000, np.array([5000, 1 << 31, 0], dtype=np.uint32)])
def test_a_run_whose_contents_are_elsewhere_has_their_place_and_size(sizes: object) -> None:
    run = Run(FIRST, 3, sizes, stored=b"\x01unit")  # type: ignore[arg-type]
    assert described(decode_run(PLACE, FIRST, encode_run(run, None), Epoch(1))) == described(run)
    with pytest.raises(Misuse, match="in the message store"):
        decode_contents(PLACE, FIRST, encode_run(run, None), 0, 1)


def test_sizes_that_were_read_keep_no_contents_alive() -> None:
    read = decode_run(PLACE, FIRST, encode_run(WORKED, CONTENTS), Epoch(1))
    assert isinstance(read.sizes, np.ndarray)
    assert read.sizes.base is None


def test_an_extension_of_a_later_version_is_skipped() -> None:
    raw = encode_run(WORKED, CONTENTS)
    names = RUN.size + 10
    longer = bytearray(raw[:names] + b"later" + raw[names:])
    longer[1] |= 0x10
    longer[2] = 5
    assert described(decode_run(PLACE, FIRST, bytes(longer), Epoch(1))) == described(WORKED)
    assert decode_contents(PLACE, FIRST, bytes(longer), 1, 3) == CONTENTS[1:]


@pytest.mark.parametrize(("at", "byte"), [(0, 2), (0, 0), (1, 0x05)])
def test_a_run_of_another_version_is_refused_by_name(at: int, byte: int) -> None:
    raw = bytearray(encode_run(WORKED, CONTENTS))
    raw[at] = byte
    with pytest.raises(Refused, match="queue 258, level 3, sequence id 258: the run's row"):
        decode_run(PLACE, FIRST, bytes(raw), Epoch(1))


def head(flags: int, count: int, size: int, texts: tuple[int, int, int] = (0, 0, 0), extension: int = 0) -> bytes:
    return RUN.pack(1, flags, extension, count, 0, 0, size, *texts, 0, 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x01",
        head(0, 0, 0),
        head(0, RUN_COUNT_MAX + 1, 0),
        head(0, 0xFFFFFFFF, 0),
        head(0, 3, 0xFFFFFFFF) + b"abc",
        head(0, 3, 1) + b"ab",
        head(0, 3, 1) + b"abcd",
        head(0, 1, 0, (65535, 65535, 65535)),
        head(0, 1, 0, (1, 1, 0)) + b"\xff\xff",
        head(0, 1, 0, extension=9) + b"12345678",
        head(SIZES_DIFFER, RUN_COUNT_MAX, 0) + bytes(4 * RUN_COUNT_MAX - 1),
        head(SIZES_DIFFER, 2, 0) + struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF) + b"xy",
        head(STORED, 2, 7),
    ],
)
def test_a_run_row_that_does_not_fit_itself_is_damage_and_names_the_place(raw: bytes) -> None:
    with pytest.raises(Damage, match="queue 258, level 3, sequence id 258"):
        decode_run(PLACE, FIRST, raw, Epoch(1))


BODIES = st.builds(head, st.integers(0, 3), st.integers(0, 20), st.integers(0, 3))


@given(st.binary(max_size=80) | st.tuples(BODIES, st.binary(max_size=60)).map(b"".join), st.integers(0, 5))
def test_any_bytes_are_a_run_or_an_error_of_ours(raw: bytes, start: int) -> None:
    run = value_or_error(lambda: decode_run(PLACE, FIRST, raw, Epoch(1)))
    if isinstance(run, Run):
        contents = value_or_error(lambda: decode_contents(PLACE, FIRST, raw, 0, run.count))
        assert run.stored if isinstance(contents, str) else sizes_match(run, contents)
    for reported in (run, value_or_error(lambda: decode_contents(PLACE, FIRST, raw, start, start + 1))):
        assert not isinstance(reported, str) or "queue 258, level 3, sequence id 258" in reported


def sizes_match(run: Run, contents: list[bytes]) -> bool:
    return [run.size_of(at, at + 1) for at in range(run.count)] == [len(content) for content in contents]


@given(st.data())
def test_a_changed_byte_is_never_an_error_of_another_kind(data: st.DataObject) -> None:
    raw = bytearray(encode_run(WORKED, CONTENTS))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for value in (bytes(raw), cut):
        run = value_or_error(partial(decode_run, PLACE, FIRST, value, Epoch(1)))
        contents = value_or_error(partial(decode_contents, PLACE, FIRST, value, 0, 1))
        for reported in (run, contents):
            assert not isinstance(reported, str) or "sequence id 258" in reported


def test_messages_that_a_run_does_not_have_cannot_be_requested() -> None:
    raw = encode_run(WORKED, CONTENTS)
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(Misuse, match="of a run of 3"):
            decode_contents(PLACE, FIRST, raw, start, stop)


def test_what_would_not_fit_a_row_is_misuse_before_anything_happens() -> None:
    check_run(PLACE, run_of([bytes(ROW_BYTES_MAX - RUN.size)]), [bytes(ROW_BYTES_MAX - RUN.size)])
    for contents in ([bytes(ROW_BYTES_MAX - RUN.size + 1)], [b""] * (RUN_COUNT_MAX + 1), []):
        with pytest.raises(Misuse, match="queue 258, level 3, sequence id 258"):
            check_run(PLACE, run_of(contents), contents)
    with pytest.raises(Misuse, match="3 messages with 2 contents"):
        check_run(PLACE, WORKED, CONTENTS[:2])
    with pytest.raises(Misuse, match="names have up to 65535 bytes"):
        check_run(PLACE, run_of([b"x"], origin=ORIGIN._replace(routing_key="ü" * 32768)), [b"x"])
