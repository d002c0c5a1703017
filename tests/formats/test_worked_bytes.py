"""The bytes the format pages show are the bytes that are written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.formats.worked import PAGES

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
WORKED = re.compile(r"(## Worked bytes\n.*?```\n)(.*?)(```)", re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_the_worked_bytes_of_a_page_are_golden(name: str) -> None:
    page = FORMATS / f"{name}.md"
    text, made = page.read_text(), PAGES[name]()
    found = WORKED.search(text)
    assert found is not None, f"{page} has no worked bytes"
    if os.environ.get("WARREN_GOLDEN") == "rewrite":
        page.write_text(text[: found.start(2)] + made + text[found.end(2) :])
    else:
        assert found[2] == made
