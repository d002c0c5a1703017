"""Arguments come back as they went, whatever AMQP lets a table hold."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import Damage, Refused
from warren.catalog.rows import DEPTH_MAX, canonical, from_json, to_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("!")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=4)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.integers(0, 1 << 32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_arguments_come_back_as_they_went(arguments: dict[str, Any]) -> None:
    back = from_json(json.loads(canonical(to_json(arguments))))
    assert typed(back) == typed(arguments), "types too: 1 is not 1.0, and neither is True"


def typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), repr(value))


@pytest.mark.parametrize(
    ("value", "image"),
    [
        (b"\0\1", {"!": "bytes", "value": "AAE="}),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), {"!": "time", "value": 1700000000}),
        (Decimal("1.50"), {"!": "decimal", "value": "1.50"}),
        (math.inf, {"!": "float", "value": "inf"}),
        ({"!": 1}, {"!": "table", "value": {"!": 1}}),
        ({"a": [1, "x"]}, {"a": [1, "x"]}),
    ],
)
def test_the_spelling_of_a_value_is_golden(value: object, image: object) -> None:
    assert to_json({"x": value}) == {"x": image}
    assert from_json({"x": image}) == {"x": value}


def test_not_a_number_comes_back() -> None:
    assert math.isnan(from_json(to_json({"x": math.nan}))["x"])


def test_what_no_table_can_hold_is_refused() -> None:
    for value in (object(), {1, 2}, {7: "x"}, "\ud800", datetime(2000, 1, 1)):
        with pytest.raises(Refused):
            to_json({"x": value})


def test_arguments_are_not_nested_without_end() -> None:
    value: Any = 1
    for _ in range(DEPTH_MAX - 1):
        value = [value]
    assert from_json(to_json({"x": value})) == {"x": value}
    with pytest.raises(Refused, match="deeper than 32"):
        to_json({"x": [value]})


@pytest.mark.parametrize("image", [{"!": "what"}, {"!": "table", "value": 3}])
def test_an_unknown_mark_is_damage(image: dict[str, object]) -> None:
    with pytest.raises(Damage):
        from_json({"x": image})
