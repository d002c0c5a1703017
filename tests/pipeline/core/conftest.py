"""The core suite: what must be right on every kind of Spark. A test is a plain function that takes `spark`, the session
of the kind that was chosen, and if it must know, `kind`; `store` is an open store that only this test uses.

WARREN_SPARK=connect .venv/bin/python -m pytest tests/pipeline/core        local, standalone or connect
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.ten_epochs import ten_epochs
from warren.log.store import LogStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with ten_epochs(str(tmp_path / "log")) as store:
        yield store
