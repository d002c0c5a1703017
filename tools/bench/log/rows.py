"""`warren bench log`: which rows there are, and which scenario makes them.

Scenarios do not share a store: each fills its own, uses it, and leaves nothing behind. docs/benchmarks.md says what a
row means, tools/bench/goals.toml what it should reach.
"""

from __future__ import annotations

from tools.bench.log.append import columns_rows, compacting_rows, lists_rows, versioned_rows
from tools.bench.log.killed import killed_rows, variable_rows
from tools.bench.log.single import single_rows
from tools.bench.log.stopped import stopped_rows
from tools.bench.run import BenchRun
from tools.bench.suite import Suite

LOG: Suite[BenchRun] = Suite(
    {
        columns_rows: (
            "append_columns",
            "epoch_mean",
            "syncs_per_epoch",
            "overhead_bytes_per_entry",
            "append_beside_disk",
        ),
        lists_rows: ("append_lists",),
        versioned_rows: ("overhead_bytes_explicit_versions",),
        compacting_rows: ("append_while_compacting",),
        single_rows: ("single_entry", "single_entry_beside_sqlite"),
        killed_rows: ("rebuild", "rebuild_memory", "rebuild_resident", "compaction_online"),
        variable_rows: ("rebuild_variable_keys", "compaction_variable_keys"),
        stopped_rows: ("stop", "clean_start", "scan_batches", "scan_batches_warm", "get_random", "compaction_offline"),
    }
)
