from __future__ import annotations

from tests.broker.exchanges.rows import binding
from warren.broker.exchanges.simple import Fanout


def test_the_key_does_not_matter() -> None:
    fanout = Fanout()
    fanout.add(binding(1, 100, 1, "a"))
    fanout.add(binding(2, 100, 2, "b"))
    assert list(fanout.match("c", {})) == [(1, None), (2, None)]
