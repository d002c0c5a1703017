"""The example of docs/amqp.md runs."""

from __future__ import annotations

import re

from tests.house.source_tree import DOCS
from warren.amqp import frames, methods


def test_the_example_of_the_amqp_page_greets() -> None:
    [code] = re.findall(r"```python\n(.*?)```", (DOCS / "amqp.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["out"] == frames.method_frame(0, methods.ConnectionStart())
