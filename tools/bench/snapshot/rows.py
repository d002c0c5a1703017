"""`warren bench snapshot`: which rows there are, and which scenario makes them; docs/benchmarks.md says what they mean.

Rows about a number of keys have it in their name, so which rows there are depends on `--entries`. Goals are only
of rows that are always there.
"""

from __future__ import annotations

from tools.bench.run import BenchRun
from tools.bench.snapshot.building import building_rows
from tools.bench.snapshot.growth import disk_row_names, disk_rows, growth_row_names, growth_rows
from tools.bench.snapshot.reads import reading_rows
from tools.bench.snapshot.writing import writing_scenarios
from tools.bench.suite import Suite

ROOM_BYTES_PER_ENTRY = 1600  # four times written: log, store, tables on their way, RocksDB's old files


def snapshot_suite(entries: int) -> Suite[BenchRun]:
    return Suite(
        {
            **writing_scenarios(),
            building_rows: ("rebuild", "apply", "table_write", "table_ingest"),
            reading_rows: (
                *("get", "get_many", "range", "batches"),
                *("get_now", "get_many_now", "range_now", "batches_now"),
            ),
            growth_rows: growth_row_names(entries),
            disk_rows: disk_row_names(entries),
        }
    )
