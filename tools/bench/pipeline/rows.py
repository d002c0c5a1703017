"""`warren bench pipeline`: which rows there are, and which scenario makes them; docs/benchmarks.md says what they mean.

A row `…_cpu` has the CPU seconds of the row before it.
"""

from __future__ import annotations

from tools.bench.pipeline.compaction import compaction_rows, growth_rows, variable_rows
from tools.bench.pipeline.reads import reading_rows, writing_rows
from tools.bench.pipeline.run import SparkRun
from tools.bench.pipeline.sync import sync_rows, visible_rows
from tools.bench.suite import Suite


def _with_cpu(*rows: str) -> tuple[str, ...]:
    return tuple(name for row in rows for name in (row, f"{row}_cpu"))


PIPELINE: Suite[SparkRun] = Suite(
    {
        growth_rows: (  # first: a worker keeps the memory of what it did before
            *_with_cpu("compaction_small", "compaction_large"),
            "compaction_growth",
            "compaction_memory",
        ),
        reading_rows: _with_cpu("entries_all", "entries_one_column", "kv"),
        writing_rows: _with_cpu("snapshot", "export", "verify"),
        compaction_rows: (
            *_with_cpu("jvm_group_by", "compaction"),
            "compaction_beside_jvm",
            *_with_cpu("compaction_inprocess"),
        ),
        variable_rows: _with_cpu("compaction_variable_keys"),
        sync_rows: _with_cpu("sync", "sync_filled"),
        visible_rows: ("sync_visible",),
    }
)
