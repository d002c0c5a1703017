"""Routes of dead letters: the set of possible targets contains every actual target."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.exchanges.rows import binding, exchange, queue
from tests.broker.exchanges.test_routing_model import BINDINGS, EXCHANGES, HEADERS, KEYS, QUEUES, TOPOLOGIES
from warren.base.ids import QueueId
from warren.base.threads import SystemThreads
from warren.broker.dead_letters import NO_DEAD_LETTER_ROUTES, DeadLetterRoutes
from warren.broker.exchanges.routing import load
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow

ONE, TWO = QueueId(1), QueueId(2)


@given(TOPOLOGIES, BINDINGS, st.sampled_from(KEYS), HEADERS, st.data())
def test_no_message_comes_anywhere_else_than_may_be_reached(
    rows: list[ExchangeRow], bound: list[BindingRow], key: str, headers: dict[str, Any], data: st.DataObject
) -> None:
    routing = load(rows, map(queue, QUEUES), bound)
    dead_letter_routes = DeadLetterRoutes(routing, SystemThreads().condition())
    for gone in [
        None,
        *data.draw(st.lists(st.sampled_from(bound), unique_by=lambda each: each.id) if bound else st.just([])),
    ]:
        if gone is not None:
            routing.remove_binding(gone)  # what was remembered is forgotten
        for number in EXCHANGES:
            name = f"x{number}"
            found = set(dead_letter_routes.forward(name, key, headers))
            assert found <= set(dead_letter_routes.reach(name, None))
            assert dead_letter_routes.has_targets(name, None) == bool(dead_letter_routes.reach(name, None))
            without = {name: value for name, value in headers.items() if name not in ("CC", "BCC")}
            assert (
                set(dead_letter_routes.forward(name, key, without))
                <= set(dead_letter_routes.reach(name, key))
                <= set(dead_letter_routes.reach(name, None))
            )


def test_a_key_narrows_what_is_reached_where_no_headers_are_required() -> None:
    routing = load([exchange(100, name="")], [queue(1), queue(2)], [])
    dead_letter_routes = DeadLetterRoutes(routing, SystemThreads().condition())
    assert set(dead_letter_routes.reach("", "q2")) == {TWO}
    assert set(dead_letter_routes.reach("", None)) == {ONE, TWO}
    assert (dead_letter_routes.forward("", "q1", {"CC": ["q2"]}), dead_letter_routes.forward("", "q1", {})) == (
        (ONE, TWO),
        (ONE,),
    )
    assert dead_letter_routes.forward("", "q1", {"CC": "no array"}) == (ONE,)


def test_what_is_bound_later_is_reached_and_headers_are_not_known_before() -> None:
    routing = load([exchange(100, "headers")], [queue(1), queue(2)], [binding(1, 100, 1, "", {"h": 1})])
    dead_letter_routes = DeadLetterRoutes(routing, SystemThreads().condition())
    assert [set(dead_letter_routes.reach("x100", key)) for key in ("k", None)] == [{ONE}, {ONE}]
    routing.add_binding(binding(2, 100, 2, "", {"h": 2}))
    assert [set(dead_letter_routes.reach("x100", key)) for key in ("k", None)] == [{ONE, TWO}, {ONE, TWO}]
    assert dead_letter_routes.forward("x100", "k", {"h": 2}) == (TWO,)


def test_without_an_exchange_there_is_no_way() -> None:
    dead_letter_routes = DeadLetterRoutes(load([], [queue(1)], []), SystemThreads().condition())
    assert (
        dead_letter_routes.reach("x", None),
        dead_letter_routes.forward("x", "q1", {}),
        dead_letter_routes.has_targets("x", None),
    ) == (frozenset(), (), False)
    assert (
        NO_DEAD_LETTER_ROUTES.reach("", "q1"),
        NO_DEAD_LETTER_ROUTES.forward("", "q1", {}),
        NO_DEAD_LETTER_ROUTES.has_targets("", "q1"),
    ) == (frozenset(), (), False)
