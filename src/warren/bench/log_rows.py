"""`warren bench log`: which rows there are, which scenario makes them, and how they are held against their goals.

Scenarios do not share a store: each fills its own, uses it, and leaves nothing behind. docs/benchmarks.md says what a
row means, bench/goals.toml what it should reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from warren.base.errors import Refused
from warren.bench.goals import Goals, judge
from warren.bench.log_append import columns_rows, compacting_rows, lists_rows, versioned_rows
from warren.bench.log_killed import killed_rows, variable_rows
from warren.bench.log_single import single_rows
from warren.bench.log_stopped import stopped_rows
from warren.bench.measurement import Measurement
from warren.bench.run import Figures, Run

Scenario = Callable[[Run], Figures]

SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    columns_rows: ("append_columns", "epoch_mean", "syncs_per_epoch", "overhead_bytes_per_entry", "append_beside_disk"),
    lists_rows: ("append_lists",),
    versioned_rows: ("overhead_bytes_explicit_versions",),
    compacting_rows: ("append_while_compacting",),
    single_rows: ("single_entry", "single_entry_beside_sqlite"),
    killed_rows: ("rebuild", "rebuild_memory", "rebuild_resident", "compaction_online"),
    variable_rows: ("rebuild_variable_keys", "compaction_variable_keys"),
    stopped_rows: ("stop", "clean_start", "scan_batches", "scan_batches_warm", "get_random", "compaction_offline"),
}
ROWS = tuple(row for rows in SCENARIOS.values() for row in rows)


def measure(run: Run, goals: Goals, only: Collection[str] = ()) -> list[Measurement]:
    """All rows, or only those named, in the order of the table above."""
    wanted = check_rows(only) or set(ROWS)
    made = []
    for scenario, rows in SCENARIOS.items():
        for figure in _figures(scenario(run), wanted & set(rows)):
            measurement = judge(figure, goals)
            run.watcher.measured(measurement)
            made.append(measurement)
    return made


def check_rows(names: Collection[str]) -> set[str]:
    if unknown := sorted(set(names) - set(ROWS)):
        raise Refused(f"there is no row {unknown[0]}", f"rows are {', '.join(ROWS)}")
    return set(names)


def _figures(scenario: Figures, wanted: set[str]) -> Figures:
    """The figures wanted of a scenario, which runs no longer than for them."""
    left = set(wanted)
    with closing(scenario):
        while left:
            figure = next(scenario)
            if figure.name in left:
                left.remove(figure.name)
                yield figure
