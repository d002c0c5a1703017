"""Lists in RabbitMQ's form: filtered, sorted, paginated and reduced to columns, by the query parameters.

    name, use_regex   only with a page        sort, sort_reverse        page, page_size        columns=name,a.b

A filter pattern has the same budget as permission patterns (`broker.patterns`): a pattern that could take too long is
refused before it is matched. Missing columns are omitted, and a dot selects a member of an object.

`shown` converts the values of AMQP tables, such as arguments of queues and properties of clients, to JSON.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from warren.base.errors import Refused
from warren.broker.auth.patterns import matches
from warren.management.requests import bad_request

PAGE_SIZE = 100
PAGE_SIZE_MAX = 500
COLUMNS_MAX = 100

Item = Mapping[str, Any]
Query = Mapping[str, str]


class Page(NamedTuple):
    number: int
    size: int


def listed(items: Sequence[Item], query: Query) -> Any:
    """The list, or a page of it if the query has one."""
    page = _page(query)
    if page is None:
        return listed_whole(items, query)
    found = _sorted(_filtered(items, query), query)
    page_count = math.ceil(len(found) / page.size)
    if page.number > max(page_count, 1):
        reason = f"Page out of range, page: {page.number} page size: {page.size}, len: {len(found)}"
        raise bad_request(reason, "page_out_of_range")
    first = (page.number - 1) * page.size
    shown = [columns(item, query) for item in found[first : first + page.size]]
    return {
        "filtered_count": len(found),
        "item_count": len(shown),
        "items": shown,
        "page": page.number,
        "page_count": page_count,
        "page_size": page.size,
        "total_count": len(items),
    }


def listed_whole(items: Sequence[Item], query: Query) -> Any:
    """The list, for those that have no pages in RabbitMQ: parameters of pages are ignored."""
    return [columns(item, query) for item in _sorted(items, query)]


def columns(item: Item, query: Query) -> Item:
    """The columns in the query, or all."""
    if "columns" not in query:
        return item
    shown: dict[str, Any] = {}
    for column in query["columns"].split(",")[:COLUMNS_MAX]:
        path = column.split(".")
        value = _at(item, path)
        if value is not None or (len(path) == 1 and column in item):
            _put(shown, path, value)
    return shown


def _page(query: Query) -> Page | None:
    if "page" not in query and "page_size" not in query:
        return None
    texts = query.get("page", "1"), query.get("page_size", str(PAGE_SIZE))
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in texts):
        raise bad_request("Pagination parameters are invalid")
    page = Page(*map(int, texts))
    if not page.number or not 0 < page.size <= PAGE_SIZE_MAX:
        what = f"Invalid pagination parameters: page number {page.number}, page size {page.size}"
        raise bad_request(what, "invalid_pagination_parameters")
    return page


def _filtered(items: Sequence[Item], query: Query) -> Sequence[Item]:
    wanted = query.get("name", "")
    if not wanted:
        return items
    is_match = _by_pattern(wanted) if query.get("use_regex") == "true" else _by_part(wanted)
    return [item for item in items if is_match(str(item["name"]))]


def _by_part(wanted: str) -> Callable[[str], bool]:
    """Matches a substring of the name, case-insensitively."""
    part = wanted.casefold()
    return lambda name: part in name.casefold()


def _by_pattern(wanted: str) -> Callable[[str], bool]:
    try:
        matches(wanted, "")
    except Refused as error:
        raise bad_request(error.what) from error
    return lambda name: matches(wanted, name)


def _sorted(items: Sequence[Item], query: Query) -> Sequence[Item]:
    if not query.get("sort"):
        return items
    path = query["sort"].split(".")
    found = sorted(items, key=lambda item: _rank(_at(item, path)))
    return found[::-1] if query.get("sort_reverse") == "true" else found


def _rank(value: Any) -> tuple[int, Any]:
    """Order of values of different types: missing, numbers, strings, everything else."""
    match value:
        case None:
            return 0, 0
        case bool() | int() | float():
            return 1, value
        case str():
            return 2, value
    return 3, str(value)


def _at(item: Item, path: Sequence[str]) -> Any:
    value: Any = item
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def _put(shown: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for step in path[:-1]:
        inner = shown.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        shown = inner
    shown[path[-1]] = value


def shown(value: Any) -> Any:
    """A value of an AMQP table as JSON; not reversible."""
    match value:
        case Mapping():
            return {str(key): shown(each) for key, each in value.items()}
        case list() | tuple():
            return [shown(each) for each in value]
        case bytes():
            return value.decode() if value.isascii() else base64.b64encode(value).decode()
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value
