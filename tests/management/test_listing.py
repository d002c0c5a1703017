"""Lists: filtered, sorted, cut to pages and columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.management.listing import columns, listed, listed_whole
from warren.management.requests import HttpRefusal

ITEMS = [
    {"name": f"Orders-{number}", "messages": number % 3, "stats": {"publish": 10 - number}} for number in range(10)
]


def names(item: Any) -> list[str]:
    return [item["name"] for item in (item["items"] if isinstance(item, dict) else item)]


def test_without_a_page_everything_is_a_list() -> None:
    assert listed(ITEMS, {}) == ITEMS
    assert listed(ITEMS, {"name": "orders-1"}) == ITEMS, "as in RabbitMQ names are looked for in pages only"


def test_a_list_without_pages_ignores_them_and_needs_no_names() -> None:
    items = [{"vhost": "b", "value": {}}, {"vhost": "a", "value": {}}]
    assert listed_whole(items, {"page": "9", "page_size": "x", "name": "x", "use_regex": "true"}) == items
    assert listed_whole(items, {"sort": "vhost", "columns": "vhost"}) == [{"vhost": "a"}, {"vhost": "b"}]


def test_a_page_has_the_totals_of_its_list() -> None:
    item = listed(ITEMS, {"page": "2", "page_size": "4", "name": "ORDERS"})
    assert names(item) == [f"Orders-{number}" for number in (4, 5, 6, 7)]
    counted = {name: item[name] for name in item if name != "items"}
    assert counted == {
        "filtered_count": 10,
        "item_count": 4,
        "page": 2,
        "page_count": 3,
        "page_size": 4,
        "total_count": 10,
    }


def test_of_nothing_there_is_one_page() -> None:
    assert listed([], {"page": "1"}) | {"items": 0} == listed(ITEMS, {"page": "1", "name": "x"}) | {
        "items": 0,
        "total_count": 0,
    }
    with pytest.raises(HttpRefusal, match="out of range"):
        listed([], {"page": "2"})


def test_names_are_found_by_a_part_or_by_a_pattern() -> None:
    assert names(listed(ITEMS, {"page": "1", "name": "s-3"})) == ["Orders-3"]
    assert names(listed(ITEMS, {"page": "1", "name": "^O.*-[12]$", "use_regex": "true"})) == ["Orders-1", "Orders-2"]
    assert names(listed(ITEMS, {"page": "1", "name": "^O.*-[12]$", "use_regex": "false"})) == []


@pytest.mark.parametrize("pattern", ["(a+)+$", "(", "(.*)*x", "x" * 2000, "(a|a)*b", "[[a]]"])
def test_a_pattern_that_could_take_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(HttpRefusal) as refused:
        listed([{"name": "a" * 255}], {"page": "1", "name": pattern, "use_regex": "true"})
    assert refused.value.status == 400


@pytest.mark.parametrize("query", [{"page": "-1"}, {"page": "1.5"}, {"page": "²"}, {"page": ""}, {"page_size": "x"}])
def test_what_is_no_page_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(HttpRefusal, match="invalid"):
        listed(ITEMS, query)


def test_lists_are_sorted_by_any_field_and_backwards() -> None:
    assert names(listed(ITEMS, {"sort": "stats.publish"})) == [f"Orders-{number}" for number in range(9, -1, -1)]
    assert names(listed(ITEMS, {"sort": "name", "sort_reverse": "true"}))[0] == "Orders-9"
    assert names(listed(ITEMS, {"sort": "nope"})) == names(ITEMS)


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.floats()))
def test_fields_of_any_kind_can_be_sorted_by(values: list[Any]) -> None:
    items = [{"name": str(at), "field": value} for at, value in enumerate(values)]
    assert sorted(names(listed(items, {"sort": "field"}))) == sorted(names(items))


def test_columns_are_those_that_are_there() -> None:
    item = {"name": "a", "policy": None, "stats": {"publish": 1, "ack": 2}}
    assert columns(item, {"columns": "name,nope,policy,stats.publish,stats.nope,name.deep"}) == {
        "name": "a",
        "policy": None,
        "stats": {"publish": 1},
    }
    assert columns(item, {"columns": ""}) == {}
    assert columns(item, {"columns": "stats,stats.ack"})["stats"]["ack"] == 2
