from __future__ import annotations

import pytest

from tests.broker.exchanges.rows import binding
from warren.base.errors import Misuse
from warren.base.ids import QueueId
from warren.broker.exchanges.simple import Default


def test_the_key_is_a_queues_name_as_long_as_it_is_there() -> None:
    names = {"tasks": QueueId(3)}
    default = Default(names)
    assert list(default.match("tasks", {})) == [(3, None)]
    del names["tasks"]
    assert not list(default.match("tasks", {}))


def test_nothing_can_be_bound_to_it() -> None:
    with pytest.raises(Misuse, match="takes no bindings"):
        Default({}).add(binding(1, 100, 1))
    with pytest.raises(Misuse, match="no bindings to remove"):
        Default({}).remove(binding(1, 100, 1))
