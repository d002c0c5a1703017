"""Start-up snapshot: the state as of opening, sorted by key, on disk.

    ready ─▶ create_snapshot ─▶ merge of: compacted file + rotated files not in it     (the same job as compaction)

At a clean stop the snapshot is written for the next start, which then only maps it. After a crash it is rebuilt. It is
derived: if it is missing, damaged or not of the durable epoch, it is dropped and made again; nothing is lost.

Reading is by key, by range, by cursor, or as batches of columns from the mapped blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.base.environment import Clock
from warren.base.errors import Damage, DiskFailure
from warren.base.ids import Epoch, FileNumber
from warren.base.threads import Condition
from warren.files.protocol import Files, join
from warren.log.compaction.compaction import CompactionCatalog, snapshot_inputs
from warren.log.compaction.jobs import OUTPUT, Job, MergeWorker, OutputSlot, clear_staging, output_record
from warren.log.compaction.sorted_file import SortedFile, SortedFileRow
from warren.log.file_record import SNAPSHOT, STAGING, FileKind, FileRecord, read_file_header, snapshot_name
from warren.log.log_files import LogFileFactory
from warren.log.manifest import Change, Manifest, drop_change, file_change, set_change
from warren.log.settings import LogSettings
from warren.records.columns import EntryColumns
from warren.workers.tasks import Progress


class StartupSnapshot:
    """The state at one epoch. Reads a mapped file: it stays readable when the file's name goes."""

    def __init__(self, epoch: Epoch, rows: SortedFile | None) -> None:
        self.epoch = epoch
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.entries if self._rows else 0

    def get(self, storage: int, key: bytes) -> bytes | None:
        found = self._rows.get(storage, key) if self._rows else None
        return found.value if found else None

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[SortedFileRow]:
        return self._rows.range(storage, low, high, reverse) if self._rows else iter(())

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[SortedFileRow]:
        return self._rows.prefix(storage, start, reverse) if self._rows else iter(())

    def cursor(self) -> Iterator[SortedFileRow]:
        return self._rows.cursor() if self._rows else iter(())

    def batches(self) -> Iterator[EntryColumns]:
        return self._rows.batches() if self._rows else iter(())


class StartupSnapshots:
    """Makes snapshots, keeps the one for the next start."""

    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        upkeep: Condition,
        manifest: Manifest,
        log_files: LogFileFactory,
        worker: MergeWorker,
        settings: LogSettings,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._manifest = manifest
        self._log_files = log_files
        self._worker = worker
        self._settings = settings
        self._upkeep = upkeep  # nothing that is merged goes meanwhile, and one snapshot replaces another, not two one

    def at_start(self, durable: Epoch, worker: MergeWorker, progress: Progress) -> StartupSnapshot:
        """The stored one, if it is of this epoch and whole; else a new one, made by `worker`: the start waits
        for it, so a process of its own would only add what it costs to begin."""
        state = self._manifest.state
        stored = state.files.get(state.snapshot)
        if stored is not None and state.snapshot_epoch == durable and self._is_whole(stored):
            self._remove_others(stored)
            return StartupSnapshot(durable, self._open(stored))
        with self._upkeep:
            return self._make(durable, worker, progress)

    def make(self, epoch: Epoch, progress: Progress = lambda share: None) -> StartupSnapshot:
        """Merge everything sealed into a new snapshot and keep it. The files of `epoch` must be sealed. If a compaction
        has come further meanwhile, so does the snapshot: what it superseded is unknown by then."""
        with self._upkeep:
            return self._make(epoch, self._worker, progress)

    def _make(self, epoch: Epoch, worker: MergeWorker, progress: Progress) -> StartupSnapshot:
        state = self._manifest.state
        inputs = snapshot_inputs(state)
        epoch = max(epoch, CompactionCatalog.of(state).max_epoch)
        changes: list[Change] = [drop_change(state.snapshot)] if state.snapshot else []
        if not inputs:
            self._manifest.commit([*changes, set_change(snapshot=FileNumber(0), snapshot_epoch=epoch)])
            self._remove_others(None)
            return StartupSnapshot(epoch, None)
        record = self._run(inputs, epoch, worker, progress)
        scalars = set_change(snapshot=record.number, snapshot_epoch=epoch, next_file=self._log_files.next_number)
        self._manifest.commit([*changes, file_change(record), scalars])
        self._remove_others(record)
        return StartupSnapshot(epoch, self._open(record))

    def _run(self, inputs: list[FileRecord], epoch: Epoch, worker: MergeWorker, progress: Progress) -> FileRecord:
        number, identity = self._log_files.take_number(), self._log_files.new_identity()
        staging = join(self._directory, STAGING, f"snapshot-{number}")
        job = Job(
            self._directory, staging, number, identity, FileKind.SNAPSHOT, tuple(inputs), epoch, True,
            self._settings.merge_memory_bytes, self._settings.scan_threads, self._clock.wall_ns(),
        )  # fmt: skip
        try:
            figures = worker.run(job, progress)
            self._files.rename(join(staging, OUTPUT), join(self._directory, snapshot_name(number)))
            self._files.sync_directory(join(self._directory, SNAPSHOT))
        finally:
            clear_staging(self._files, staging)
        place, wall_ns = OutputSlot(number, identity), self._clock.wall_ns()
        return output_record(FileKind.SNAPSHOT, inputs, epoch, place, figures, snapshot_name(number), wall_ns)

    def _is_whole(self, record: FileRecord) -> bool:
        """Is it there, and is its index readable? Its blocks are verified as they are touched."""
        path = join(self._directory, record.name)
        if not self._files.exists(path):
            return False
        try:
            self._open(record)
        except (Damage, DiskFailure):
            return False
        return True

    def _open(self, record: FileRecord) -> SortedFile:
        path = join(self._directory, record.name)
        file = self._files.open(path)
        view = file.view()
        file.close()
        header, identity = read_file_header(view, path)
        if header.number != record.number or identity != record.identity:
            raise Damage("the snapshot is not the one the manifest names", path, 0)
        return SortedFile(view, identity, record.index_at, path)

    def _remove_others(self, current: FileRecord | None) -> None:
        """Snapshots that no edit names: derived, so they are simply removed."""
        home = join(self._directory, SNAPSHOT)
        for name in self._files.list(home):
            if current is None or join(SNAPSHOT, name) != current.name:
                self._files.remove(join(home, name))
