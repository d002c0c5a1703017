"""The bytes the format pages show are the bytes that are written."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.formats.worked import PAGES
from tests.house.markdown import rows
from warren.durability.epoch_file import FILES_MAX, SLOT_BYTES
from warren.log.file_record import FileRecord
from warren.log.manifest import ManifestState, StreamRecord
from warren.records.format import BLOCK_BYTES_MAX, BLOCK_HEAP_BYTES_MAX, BLOCK_ROWS_MAX

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
WORKED = re.compile(r"(## Worked bytes\n.*?```\n)(.*?)(```)", re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_the_worked_bytes_of_a_page_are_golden(name: str) -> None:
    page = FORMATS / f"{name}.md"
    text, worked = page.read_text(), PAGES[name]()
    found = WORKED.search(text)
    assert found is not None, f"{page} has no worked bytes"
    if os.environ.get("WARREN_GOLDEN") == "rewrite":
        page.write_text(text[: found.start(2)] + worked + text[found.end(2) :])
    else:
        assert found[2] == worked


@pytest.mark.parametrize("said_by", [ManifestState, FileRecord, StreamRecord])
def test_every_field_of_the_manifest_is_explained_on_its_page(said_by: type[Any]) -> None:
    names = {field.name for field in fields(said_by)} - {"files", "streams"}
    page = (FORMATS / "manifest.md").read_text()
    explained = {name.strip() for row in rows(page) for name in row[0].split(",") if len(row) == 2 and row[1]}
    assert names <= explained


def test_the_limits_on_the_pages_are_those_of_the_code() -> None:
    block, epoch_file = ((FORMATS / f"{name}.md").read_text() for name in ("block", "epoch_file"))
    assert f"at most {BLOCK_BYTES_MAX >> 20} MiB" in block
    assert f"at most {BLOCK_ROWS_MAX:,}\nentries and {BLOCK_HEAP_BYTES_MAX >> 20} MiB" in block
    assert f"slot 1 at byte {SLOT_BYTES}:" in epoch_file
    assert f"room for {FILES_MAX} files" in epoch_file.replace("\n", " ")
