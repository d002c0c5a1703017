"""What every exchange type promises, checked for each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.exchanges.rows import binding
from warren.broker.exchanges.routing import KINDS
from warren.broker.exchanges.simple import Destination, Matcher, destination_of


@pytest.fixture(params=list(KINDS))
def make(request: pytest.FixtureRequest) -> Callable[[], Matcher]:
    return KINDS[request.param]


def test_what_is_bound_is_met_and_what_was_removed_is_not(make: Callable[[], Matcher]) -> None:
    matcher = make()
    matcher.add(binding(1, 100, 5, "a.b"))
    matcher.add(binding(2, 100, 101, "a.b"))
    assert set(matcher.match("a.b", {})) == {Destination(binding(1, 100, 5).queue_id, None), (None, 101)}
    matcher.remove(binding(1, 100, 5, "a.b"))
    assert list(matcher.match("a.b", {})) == [(None, 101)]


def test_adding_twice_is_adding_once_and_removing_nothing_is_allowed(make: Callable[[], Matcher]) -> None:
    matcher = make()
    matcher.remove(binding(1, 100, 5, "a.b"))
    matcher.add(binding(1, 100, 5, "a.b"))
    matcher.add(binding(1, 100, 5, "a.b"))
    matcher.remove(binding(2, 100, 5, "a.b.c"))
    assert list(matcher.match("a.b", {})) == [(5, None)]
    matcher.remove(binding(1, 100, 5, "a.b"))
    assert not list(matcher.match("a.b", {}))


def test_of_two_bindings_to_one_queue_the_other_one_stays(make: Callable[[], Matcher]) -> None:
    matcher = make()
    matcher.add(binding(1, 100, 5, "a", {"x-one": 1}))
    matcher.add(binding(2, 100, 5, "a", {"x-two": 2}))
    matcher.remove(binding(1, 100, 5, "a", {"x-one": 1}))
    assert list(matcher.match("a", {})) == [(5, None)]


def test_only_a_headers_exchange_uses_headers() -> None:
    assert [name for name, kind in KINDS.items() if kind().uses_headers] == ["headers"]


def test_a_binding_leads_to_a_queue_or_to_an_exchange() -> None:
    assert destination_of(binding(1, 100, 5)) == (5, None)
    assert destination_of(binding(1, 100, 101)) == (None, 101)
