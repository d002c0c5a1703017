"""Bodies as they are handed in: checked, and cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warren.base.errors import Misuse, Refused
from warren.embedded.messages import checked_body, pieces


def cut(bodies: object, bytes_max: int = 100, count_max: int = 4, piece_bytes_max: int = 20) -> list[list[bytes]]:
    return list(pieces(bodies, bytes_max, count_max, piece_bytes_max))  # type: ignore[arg-type]


def test_few_bodies_are_one_piece() -> None:
    assert cut([b"1", b"22"]) == cut((b"1", b"22")) == cut(iter([b"1", b"22"])) == [[b"1", b"22"]]
    assert cut([]) == cut(iter(())) == []


def test_many_or_large_ones_are_cut_in_order() -> None:
    assert cut([b"%d" % number for number in range(6)]) == [[b"0", b"1", b"2", b"3"], [b"4", b"5"]]
    large = [b"a" * 15, b"b" * 5, b"c", b"d" * 30, b"e"]
    assert cut(large, count_max=9) == [[b"a" * 15, b"b" * 5], [b"c"], [b"d" * 30], [b"e"]]
    assert cut(iter(large), count_max=2) == [[b"a" * 15, b"b" * 5], [b"c"], [b"d" * 30], [b"e"]]


def test_what_is_no_body_is_named() -> None:
    with pytest.raises(Misuse, match="not bytearray"):
        cut([b"1", bytearray(b"2")])
    with pytest.raises(Misuse, match="use put"):
        cut("text")
    with pytest.raises(Refused, match="101 bytes: at most 100"):
        cut([b"1", b"x" * 101])
    with pytest.raises(Misuse, match="not NoneType"):
        checked_body(None, 5)  # type: ignore[arg-type]


def test_a_list_is_judged_before_any_of_it_is_put() -> None:
    some: Iterator[list[bytes]] = pieces([b"%d" % number for number in range(9)] + ["x"], 100, 4, 20)  # type: ignore[list-item]
    with pytest.raises(Misuse):
        next(some)
