from __future__ import annotations

from tests.broker.exchanges.rows import binding
from warren.broker.exchanges.simple import Direct


def test_only_the_very_same_key_matches() -> None:
    direct = Direct()
    for number, key in enumerate(("a", "a.b", "A", "#", ""), 1):
        direct.add(binding(number, 100, number, key))
    assert list(direct.match("a", {})) == [(1, None)]
    assert list(direct.match("A", {})) == [(3, None)]
    assert list(direct.match("", {})) == [(5, None)]
    assert not list(direct.match("b", {}))
