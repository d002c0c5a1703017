from __future__ import annotations

from typing import Any

import pytest

from warren.amqp.types import RawString
from warren.broker.exchanges.routing import NO_COPIES, copies_of, without_blind
from warren.broker.exchanges.simple import BadCopies


def test_keys_come_from_both_headers_and_what_is_no_text_is_passed_over() -> None:
    headers = {"CC": ["a", 1, "b", b"bytes", None], "BCC": ["c", RawString(b"\xff")]}
    assert copies_of(headers) == (("a", "b"), ("c", "\udcff"))


def test_without_them_there_are_none_and_case_matters() -> None:
    assert copies_of({"cc": ["a"], "Bcc": ["b"]}) is NO_COPIES


@pytest.mark.parametrize("bad", ["a", 1, None, {"a": "b"}])
def test_what_is_no_array_is_refused(bad: Any) -> None:
    for name in ("CC", "BCC"):
        with pytest.raises(BadCopies, match=name):
            copies_of({name: bad})


def test_bcc_keys_are_not_stored_and_the_senders_table_is_not_changed() -> None:
    headers = {"CC": ["a"], "BCC": ["b"], "x": 1}
    assert without_blind(headers) == {"CC": ["a"], "x": 1}
    assert "BCC" in headers
    open_only = {"CC": ["a"]}
    assert without_blind(open_only) is open_only
