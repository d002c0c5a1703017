"""Delta tables, written through delta-rs: tasks write the files, the driver commits them, no jar is needed.

    txn  warren-export           42                 the last epoch in the table …
    txn  warren-export.timeline  7306…              … and its timeline
    add  batch-…31-…42/part-00000.parquet …         relative to the table

Files and position are one commit: either both are in the table or neither is. Delta keeps app transactions through
checkpoints and clean-ups of its log, and refuses a commit if another one of the same application came between: two
writers cannot both continue from one position.

Files that a dead job renamed but did not commit are not part of the table. The next export removes them (their epochs
are after the table's position); those of a snapshot are left to Delta's VACUUM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from warren.base.errors import Refused
from warren.base.ids import Epoch, TimelineId
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.log.compaction.jobs import clear_staging
from warren.pipeline.jobs.parquet import batch_name, last_of_name
from warren.pipeline.jobs.tables import (
    DELTA_LOG,
    LOCK,
    MANIFEST,
    STAGING,
    Position,
    Staging,
    TableBatch,
    TablePart,
    names_in,
    not_ours,
    staging,
    table_schema,
)
from warren.pipeline.schema import TableView
from warren.pipeline.session import INSTALL


class DeltaTableOf:
    """A Delta table written by one Warren application."""

    def __init__(self, environment: Environment, target: str, application: str, view: TableView) -> None:
        if find_spec("deltalake") is None:
            raise Refused("format delta needs deltalake, which is not installed", INSTALL)
        self._clock = environment.clock
        self._files = environment.files
        self._target = target
        self._application = application
        self._view = view

    def position(self) -> Position | None:
        """None if the table does not exist yet."""
        if not is_table(self._files, self._target):
            return None
        with _deltas_errors(self._target):
            table = _load(self._target)
            epoch = table.transaction_version(self._application)
            timeline = table.transaction_version(f"{self._application}.timeline")
        if epoch is None or timeline is None:
            hint = "name an empty directory, or a new one"
            raise Refused(f"the Delta table {self._target} was not made by {self._application}", hint)
        return Position(TimelineId(timeline), Epoch(epoch))

    def commit(self, batch: TableBatch, folder: str, mode: str, metadata: dict[str, Any]) -> None:
        """One transaction: these files of `folder`, added or replacing all others (`mode`), and the new position."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import create_table_with_add_actions

        position, schema = batch.position, Schema.from_arrow(table_schema(self._view))
        properties = CommitProperties(
            custom_metadata={**position.to_json(), **metadata},
            app_transactions=[
                Transaction(self._application, position.epoch),
                Transaction(f"{self._application}.timeline", position.timeline),
            ],
        )
        adds = [self._add(part, folder) for part in batch.parts]
        with _deltas_errors(self._target):
            if not is_table(self._files, self._target):
                create_table_with_add_actions(
                    self._target, schema, adds, name=self._application, commit_properties=properties
                )
            else:
                table = _load(self._target)
                table.create_write_transaction(adds, mode, schema, commit_properties=properties)
            version = _load(self._target).version()
        _sync(self._files, join(self._target, DELTA_LOG), f"{version:020d}.json")

    def _add(self, part: TablePart, folder: str) -> Any:
        from deltalake.transaction import AddAction

        stats: dict[str, Any] = {"numRecords": part.rows}
        if part.first_epoch is not None:
            stats["minValues"], stats["maxValues"] = {"epoch": part.first_epoch}, {"epoch": part.last_epoch}
            stats["nullCount"] = {"epoch": 0}
        made_ms = self._clock.wall_ns() // 10**6
        return AddAction(f"{folder}/{part.name}", part.size_bytes, {}, made_ms, True, json.dumps(stats))


class DeltaSnapshot:
    """A table of which every version is one state."""

    def __init__(self, environment: Environment, target: str) -> None:
        self._environment = environment
        self._files = environment.files
        self._target = target
        self._table = DeltaTableOf(environment, target, "warren-snapshot", TableView.KV)

    def check(self) -> None:
        if not is_table(self._files, self._target):
            _check_empty(self._target, names_in(self._files, self._target), "epoch-", "Delta snapshot")
        self._table.position()

    def admit(self, timeline: Timeline) -> None:
        there = self._table.position()
        if there is not None and not there.is_of(timeline):
            raise Refused(
                f"{self._target} has states of timeline {there.timeline:016x}, which is not in this store's past",
                "a table is of one store: choose another target",
            )

    def position(self) -> Position | None:
        return self._table.position()

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        with staging(self._environment, join(self._target, STAGING)) as made:
            yield made

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None:
        folder = f"epoch-{batch.last:020d}-{made.id}"
        self._files.rename(made.whole, join(self._target, folder))
        self._files.sync_directory(self._target)
        try:
            self._table.commit(batch, folder, "overwrite", metadata)
        except Refused:
            clear_staging(self._files, join(self._target, folder))
            raise


class DeltaExport:
    """A table that grows by a batch with every commit."""

    def __init__(self, environment: Environment, target: str) -> None:
        self._files = environment.files
        self._target = target
        self._table = DeltaTableOf(environment, target, "warren-export", TableView.ENTRIES)

    def check(self) -> None:
        names = names_in(self._files, self._target)
        if not is_table(self._files, self._target):
            _check_empty(self._target, names, "batch-", "Delta export")
            if any(self._files.exists(join(self._target, name, MANIFEST)) for name in names):
                raise Refused(f"{self._target} is a Parquet export", "continue with --format parquet")
        self._table.position()

    def tidy(self) -> None:
        """Remove the files that a dead export renamed but did not commit."""
        there = self._table.position()
        for name in names_in(self._files, self._target):
            last = last_of_name(name)
            if last is not None and (there is None or last > there.epoch):
                clear_staging(self._files, join(self._target, name))

    def position(self) -> Position | None:
        return self._table.position()

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None:
        folder = batch_name(batch.first, batch.last)
        self._files.rename(made.whole, join(self._target, folder))
        self._files.sync_directory(self._target)
        self._table.commit(batch, folder, "append", metadata)


def is_table(files: Files, target: str) -> bool:
    """True if there is a first commit: an interrupted creation may leave an empty log."""
    return any(name[:1].isdigit() for name in names_in(files, join(target, DELTA_LOG)))


def _check_empty(target: str, names: list[str], prefix: str, what: str) -> None:
    """A new table may only contain leftovers of jobs of this kind."""
    left = (f"{STAGING}-", prefix)
    others = [name for name in names if name not in (LOCK, DELTA_LOG) and not name.startswith(left)]
    if others:
        raise not_ours(target, others, what)


def _load(target: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(target)


def _sync(files: Files, folder: str, name: str) -> None:
    """Sync a commit: delta-rs leaves that to the operating system."""
    file = files.open(join(folder, name), writable=True)
    try:
        file.sync()
    finally:
        file.close()
    files.sync_directory(folder)


@contextmanager
def _deltas_errors(target: str) -> Iterator[None]:
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        hint = "another job wrote to it at the same time: run this one again"
        raise Refused(f"the commit to the Delta table {target} failed: {error}", hint) from error
    except (DeltaError, OSError) as error:
        raise Refused(f"the Delta table {target} cannot be used: {error}", "check its _delta_log") from error
