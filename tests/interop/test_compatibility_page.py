"""docs/compatibility.md says how many tests each client has; this counts them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"


def tests_in(pattern: str) -> int:
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for file in HERE.glob(pattern)
        for node in ast.parse(file.read_text(encoding="utf-8")).body
    )


@pytest.mark.parametrize(
    ("client", "pattern"),
    [
        ("pika", "test_pika_*.py"),
        ("aio-pika", "test_aio_pika.py"),
        ("kombu", "test_kombu.py"),
        ("amqpstorm", "test_amqpstorm.py"),
    ],
)
def test_the_page_counts_the_tests_of_each_client(client: str, pattern: str) -> None:
    row = re.search(rf"^\| {client} \| [\d.]+ \| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None and int(row[1]) == tests_in(pattern)
