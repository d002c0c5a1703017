"""Queues in the API."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.management.stage import ManagementStage
from warren.management.listing import shown


def test_a_list_can_be_cut_to_pages_and_columns(stage: ManagementStage) -> None:
    for number in range(5):
        stage.queue(f"listed-{number}")
    item = stage.get("/api/queues?page=2&page_size=2&name=listed&sort=name&sort_reverse=true&columns=name").json()
    assert item["items"] == [{"name": "listed-2"}, {"name": "listed-1"}]
    assert (item["filtered_count"], item["page_count"]) == (5, 3)


def test_patterns_filter_names(stage: ManagementStage) -> None:
    item = stage.get("/api/queues?page=1&name=%5Eq%5B0-9%5D%24&use_regex=true&columns=name").json()
    assert item["items"] == [{"name": "q1"}]
    refused = stage.get("/api/queues?page=1&name=(a%2B)%2B%24&use_regex=true")
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")


def test_arguments_are_shown_as_they_were_declared(stage: ManagementStage) -> None:
    assert stage.get("/api/queues/%2F/q1").json()["arguments"] == {"x-max-length": 5}
    assert stage.get("/api/queues/%2F/q1?columns=arguments.x-max-length").json() == {"arguments": {"x-max-length": 5}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, (2,)]}, {"a": [1, [2]]}),
        (b"text", "text"),
        (b"\xff\x00", "/wA="),
        (datetime.fromtimestamp(1_700_000_000, UTC), 1_700_000_000),
        (Decimal("1.50"), 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (None, None),
        (True, True),
    ],
)
def test_every_value_of_a_table_can_be_shown_in_json(value: Any, expected: Any) -> None:
    assert shown(value) == expected
