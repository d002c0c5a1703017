"""Texts of settings: what they become, and what they cannot be."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.parse import Parser, listener, log_level, milliseconds, name, port, seconds, truth, whole


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (port, "5672", 5672),
        (port, "0", 0),
        (seconds, "0.5", 0.5),
        (milliseconds, "10000", 10.0),
        (truth, "True", True),
        (truth, "off", False),
        (truth, "none", False),
        (name, "ann", "ann"),
        (log_level, "DEBUG", "debug"),
        (log_level, "notice", "info"),
        (log_level, "none", "critical"),
        (listener, "5672", (None, 5672)),
        (listener, "127.0.0.1:5672", ("127.0.0.1", 5672)),
        (listener, "[::1]:5672", ("::1", 5672)),
        (listener, ":::5672", ("::", 5672)),
    ],
)
def test_a_text_becomes_a_value(read: Parser, text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (port, "65536"),
        (port, "-1"),
        (port, "5672.0"),
        (port, "٣"),
        (port, "9" * 50),
        (whole(1, 3), "4"),
        (seconds, "-1"),
        (seconds, "soon"),
        (seconds, "nan"),
        (milliseconds, "0"),
        (truth, "maybe"),
        (name, ""),
        (log_level, "loud"),
        (listener, "somewhere"),
        (listener, "127.0.0.1:"),
    ],
)
def test_what_it_cannot_be_is_refused_with_a_hint(read: Parser, text: str) -> None:
    with pytest.raises(Misuse) as refused:
        read(text)
    assert refused.value.hint
