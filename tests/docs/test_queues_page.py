"""The page about queues: its examples run, one behind the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.house.source_tree import DOCS


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (DOCS / "queues.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 7
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example.replace("/var/lib/app", str(tmp_path)), "docs/queues.md", "exec"), names)
