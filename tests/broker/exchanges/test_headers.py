from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.broker.exchanges.rows import binding
from warren.amqp.types import Float, Long, RawString, Short, Timestamp
from warren.broker.exchanges.headers import KINDS, Headers, check_arguments
from warren.broker.exchanges.simple import BadBinding


def is_met(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    exchange = Headers()
    exchange.add(binding(1, 100, 1, "", arguments))
    return bool(list(exchange.match("whatever", headers)))


@pytest.mark.parametrize("kind", [{}, {"x-match": "all"}])
def test_all_wants_every_header_and_is_the_default(kind: dict[str, Any]) -> None:
    wanted = {**kind, "a": 1, "b": "two"}
    assert is_met(wanted, {"a": 1, "b": "two", "c": 3})
    assert not is_met(wanted, {"a": 1})
    assert not is_met(wanted, {"a": 1, "b": "three"})


def test_any_wants_one_header_at_least() -> None:
    wanted = {"x-match": "any", "a": 1, "b": 2}
    assert is_met(wanted, {"a": 0, "b": 2})
    assert not is_met(wanted, {"a": 2, "b": 1})
    assert not is_met(wanted, {})


def test_wanting_nothing_is_met_by_everything_for_all_and_by_nothing_for_any() -> None:
    assert is_met({}, {}) and is_met({"x-match": "all-with-x"}, {"a": 1})
    assert not is_met({"x-match": "any"}, {"a": 1}) and not is_met({"x-match": "any-with-x"}, {"a": 1})


def test_names_with_x_count_only_if_requested_and_x_match_never() -> None:
    assert is_met({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2})
    assert not is_met({"x-match": "any", "x-a": 1}, {"x-a": 1})
    assert not is_met({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2})
    assert is_met({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2, "x-a": 1})
    assert is_met({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1})
    assert not is_met({"x-match": "any-with-x", "b": 2}, {"x-match": "any-with-x"})


def test_a_void_value_is_met_by_presence() -> None:
    assert is_met({"a": None}, {"a": 7}) and is_met({"a": None}, {"a": None})
    assert is_met({"x-match": "any", "a": None}, {"a": False})
    assert not is_met({"a": None}, {"b": 7})
    assert not is_met({"a": 7}, {"a": None})


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (1, Short(1)),
        (1, Long(1)),
        (1, 1.0),
        (0.5, Float(0.5)),
        (1, Timestamp(1)),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), Timestamp(1_700_000_000)),
        ("a", b"a"),
        (b"\xff", RawString(b"\xff")),
        ([1, "a", True], [Long(1), "a", True]),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
        (Decimal("1.5"), Decimal("1.5")),
    ],
)
def test_equal_values_of_different_wire_types_are_equal(wanted: Any, sent: Any) -> None:
    assert is_met({"a": wanted}, {"a": sent}) and is_met({"a": sent}, {"a": wanted})


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (1, True),
        (0, False),
        (1, "1"),
        ("a", "A"),
        (Decimal("1.5"), Decimal("1.50")),
        (Decimal(1), 1),
        ([1], [1.0]),
        (["a"], [b"a"]),
        ({"a": True}, {"a": 1}),
        ([1, 2], [2, 1]),
        ([], {}),
    ],
)
def test_similar_values_of_different_meaning_differ(wanted: Any, sent: Any) -> None:
    assert not is_met({"a": wanted}, {"a": sent}) and not is_met({"a": sent}, {"a": wanted})


def test_several_bindings_each_decide_for_themselves() -> None:
    exchange = Headers()
    exchange.add(binding(1, 100, 1, "", {"a": 1}))
    exchange.add(binding(2, 100, 2, "", {"a": 2}))
    exchange.add(binding(3, 100, 3, "", {"a": None}))
    assert sorted(exchange.match("", {"a": 1})) == [(1, None), (3, None)]


def test_bindings_that_come_and_go_match_as_each_would_alone() -> None:
    """The index of several bindings against one binding at a time, over random arguments and messages."""
    rng, exchange, bound = random.Random(1), Headers(), dict[int, dict[str, Any]]()
    values = [0, 1, "x", None, True, 1.0]
    for id_ in range(1, 400):
        arguments = {name: rng.choice(values) for name in ("a", "b", "c", "x-d") if rng.random() < 0.5}
        bound[id_] = {**arguments, "x-match": rng.choice(KINDS)}
        exchange.add(binding(id_, 100, id_, "", bound[id_]))
        if len(bound) > 20:
            gone = rng.choice(list(bound))
            exchange.remove(binding(gone, 100, gone, "", bound.pop(gone)))
        sent = {name: rng.choice(values) for name in ("a", "b", "c", "x-d", "e") if rng.random() < 0.6}
        expected = {id_ for id_, wanted in bound.items() if is_met(wanted, sent)}
        assert {to.queue or to.exchange for to in exchange.match("", sent)} == expected
    for gone, wanted in bound.items():
        exchange.remove(binding(gone, 100, gone, "", wanted))
    assert not exchange._indexed and not exchange._keys and not exchange._always


def test_an_unknown_kind_is_refused_before_it_is_bound_and_counts_as_all_if_it_was() -> None:
    for kind in KINDS:
        check_arguments({"x-match": kind})
    check_arguments({})
    for bad in ("some", "ALL", 1, None, b"all", ["all"]):
        with pytest.raises(BadBinding, match="x-match"):
            check_arguments({"x-match": bad})
    assert is_met({"x-match": "some", "a": 1, "b": 2}, {"a": 1, "b": 2})
    assert not is_met({"x-match": ["any"], "a": 1, "b": 2}, {"a": 1})


def test_what_no_table_can_hold_is_refused() -> None:
    with pytest.raises(BadBinding, match="cannot hold a set"):
        Headers().add(binding(1, 100, 1, "", {"a": {1}}))
