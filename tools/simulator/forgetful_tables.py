"""Tables for the forgetful store: the same entries that a worker process would write to a file, kept under its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.simulator.forgetful_store import ForgetfulStore
from warren.files.protocol import Files
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns
from warren.snapshot.rocksdb.write_batch import newest_version
from warren.snapshot.tables.tasks import EpochRange, TableFigures, TableResult, TableTask


class ForgetfulTables:
    """Is a `TableMaker`."""

    def __init__(self, files: Files, store: Callable[[], ForgetfulStore]) -> None:
        self._files = files
        self._store = store

    def make(self, task: TableTask) -> Sequence[TableResult]:
        epoch_range = EpochRange(self._files, task)
        entries = list(epoch_range.merged())
        figures = TableFigures(task.path)
        for batch in entries:
            _count(figures, batch)
        if figures.has_file:
            self._store().tables[task.path] = entries
        return [epoch_range.result(figures)]

    def rest(self) -> None:
        """It costs nothing to be ready."""


def _count(figures: TableFigures, batch: EntryColumns) -> None:
    for row in range(batch.count):
        kind = batch.kinds.at(row)
        figures.puts += kind == EntryKind.PUT
        figures.removes += kind == EntryKind.REMOVE
        if kind in CLEARING:
            figures.cleared.add(batch.storages.at(row))
    figures.newest = max(figures.newest, newest_version(batch))
