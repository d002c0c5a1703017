"""Runs the blocks of docs/notebook.md, in order, in a directory of their own: the page is its own script.

python -m tests.docs.notebook_page      as `make notebook`: makes the page's pictures anew in docs/notebook/
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.house.source_tree import DOCS

PAGE = DOCS / "notebook.md"
PICTURES = DOCS / "notebook"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def pictures() -> list[str]:
    """The file names that the page shows."""
    return re.findall(r"!\[[^]]+\]\(notebook/([^)]+)\)", PAGE.read_text(encoding="utf-8"))


def run_page(directory: Path) -> dict[str, Any]:
    """Every block in turn; what they left behind by name, and pictures in the directory."""
    os.environ["MPLBACKEND"] = "Agg"  # draw into files, whatever screen there is
    before, names = Path.cwd(), dict[str, Any]()
    os.chdir(directory)
    try:
        for number, block in enumerate(blocks(), 1):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    finally:
        os.chdir(before)
        sys.modules["matplotlib.pyplot"].close("all")
    return names


def main() -> None:
    from warren.pipeline.session import QUIET, spark_session

    session = spark_session("local[2]", config={**QUIET, "spark.sql.shuffle.partitions": "2"})
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warren-notebook-") as directory:
        run_page(Path(directory))
        for name in pictures():
            shutil.copy(Path(directory, name), PICTURES / name)
    session.stop()


if __name__ == "__main__":
    main()
