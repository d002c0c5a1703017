"""Warren answers the script of HTTP requests as RabbitMQ does, but for what `explained` has a reason for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.explained import EXPLAINED
from tests.compat.http_script import STEPS
from tests.compat.replay import ask_warren, differences, recorded


@pytest.mark.slow
def test_every_answer_is_rabbitmqs_or_explained(tmp_path: Path) -> None:
    found = list(differences(recorded(), ask_warren(tmp_path)))
    assert not [line for line, reason in found if not reason]
    lines = "\n".join(line for line, _ in found)
    unused = [pattern for pattern in EXPLAINED if not re.search(pattern, lines)]
    assert not unused, "no difference is explained by these any more"


def test_the_script_has_at_least_300_requests_and_an_answer_to_each() -> None:
    assert len(STEPS) >= 300
    assert [answer["step"] for answer in recorded()] == [step.title for step in STEPS]


def test_a_difference_without_a_reason_is_found() -> None:
    theirs = [{"step": "GET /api/x", "status": 200, "kinds": {"a": "text", "b": [{"c": "number"}]}}]
    ours = [{"step": "GET /api/x", "status": 200, "kinds": {"a": "number", "b": [{"d": "number"}]}}]
    assert [line for line, _ in differences(theirs, ours)] == [
        "GET /api/x: field a is number instead of text",
        "GET /api/x: field b[].c is missing",
        "GET /api/x: field b[].d is new",
    ]
    refused = [{"step": "GET /api/x", "status": 404, "refusal": {"error": "e", "reason": "r"}}]
    assert next(line for line, _ in differences(theirs, refused)).startswith("GET /api/x: status 404 instead of 200")
