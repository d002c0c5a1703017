"""Sizes and shares, as RabbitMQ's configuration writes them."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.parse import share, size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("50MB", 50_000_000),
        ("50mb", 50_000_000),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1k", 1024),
        ("1K", 1024),
        ("2M", 2 << 20),
        ("1GiB", 1 << 30),
        ("1gib", 1 << 30),
        ("1Gi", 1 << 30),
        ("1.5 GB", 1_500_000_000),
        (" 10 MiB ", 10 << 20),
        ("2TB", 2 * 10**12),
        ("7b", 7),
    ],
)
def test_a_size_has_a_unit_or_none(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1MBB", "ten", "1e9", "1,000", "9999999PB", "٣"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misuse, match="like 50MB, 1GiB or 4096"):
        size_bytes(text)


def test_a_share_is_a_number_above_zero() -> None:
    assert share("0.4") == 0.4
    for text in ("0", "-1", "nan", "inf", "half", "11", ""):
        with pytest.raises(Misuse, match=r"a number like 0\.4"):
            share(text)
