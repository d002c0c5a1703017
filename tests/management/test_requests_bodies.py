"""How deep JSON is, without a parser."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.management.requests import HttpRefusal, depth_of, json_object

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def nesting(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(nesting, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(nesting, value), default=0)
    return 0


@given(VALUES)
def test_the_depth_is_counted_as_a_parser_would_find_it(value: Any) -> None:
    assert depth_of(json.dumps(value).encode()) == nesting(value)
    assert depth_of(json.dumps(value, ensure_ascii=False, indent=1).encode(errors="replace")) == nesting(value)


@pytest.mark.parametrize("body", [b'"\\"' * 300_000, b'"' + b"\\" * 999_999, b'\\"' * 500_000, b"[" * 1_000_000])
def test_each_byte_is_scanned_once(body: bytes) -> None:
    begun = time.process_time()
    depth_of(body)
    assert time.process_time() - begun < 5, "rescanning each byte would take hours"


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    with suppress(HttpRefusal):
        assert isinstance(json_object(body, 32), dict)


@pytest.mark.parametrize(
    "body", [b'{"a": "\\ud800"}', b'{"\\uDFFF": 1}', b'{"a": [{"b": "x\\udc00\\ud800"}]}', b'{"a": "\xed\xa0\x80"}']
)
def test_half_of_a_surrogate_pair_is_refused(body: bytes) -> None:
    with pytest.raises(HttpRefusal) as refused:
        json_object(body, 32)
    assert refused.value.status == 400


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert json_object(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}', 32) == {"a": "\U0001f600", "b": "\\ud800"}
