"""docs/notebook.md: its blocks run as they stand, draw every picture that the page shows, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.notebook_page import PAGE, PICTURES, blocks, pictures, run_page

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.spark
@pytest.mark.slow
def test_the_notebook_s_blocks_run_and_draw_its_pictures(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what was alive as of an epoch, and what a stream brings, exactly once."""
    left = run_page(tmp_path)
    left["entries"].unpersist()
    printed = capsys.readouterr().out
    [shown] = re.findall(r"```\n(\+-.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown in printed
    drawn = {path.name: path.read_bytes() for path in tmp_path.glob("*.png")}
    assert set(drawn) == set(pictures()) and len(drawn) == 4
    assert all(raw.startswith(PNG) and len(raw) > 10_000 for raw in drawn.values())
    assert left["alive"]["stock"] == [300] * len(left["epochs"])
    assert left["alive"]["orders"] == sorted(left["alive"]["orders"]) and left["alive"]["orders"][-1] == 512
    assert min(left["alive"]["carts"][15:18]) < 20, "the carts were cleared"
    assert sum(rows for _, rows in left["batches"]) == 5694


def test_every_picture_of_the_notebook_is_there() -> None:
    assert len(blocks()) >= 6
    assert set(pictures()) == {path.name for path in PICTURES.iterdir()}
