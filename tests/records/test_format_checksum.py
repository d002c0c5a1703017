from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from warren.records.format import crc32


@given(st.binary(max_size=300), st.binary(max_size=5000), st.integers(0, 20))
def test_it_is_the_checksum_that_zlib_has_whole_and_in_parts(first: bytes, second: bytes, cut: int) -> None:
    assert crc32(first) == zlib.crc32(first)
    assert crc32(second, crc32(first)) == zlib.crc32(first + second)
    view = memoryview(bytearray(second))[cut:]
    assert crc32(view) == zlib.crc32(view)


def test_a_large_buffer_comes_out_the_same() -> None:
    data = bytes(range(256)) * 8192
    assert crc32(data, 7) == zlib.crc32(data, 7)
