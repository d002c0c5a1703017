"""A slice of `make fuzz`: requests made from the OpenAPI document, by a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.http import fuzz


@pytest.mark.slow
def test_generated_requests_get_documented_answers_and_no_server_error(tmp_path: Path) -> None:
    result = fuzz(tmp_path, seed=1, seconds=40, examples_max=10)
    assert "Test cases:" in result.output, result.output
    assert result.exit_code == 0, result.output
    assert "request failed" not in result.log
