"""A log store on a memory disk for the tests of this package, and its contents as plain rows.

The rows are read from the blocks, file by file as the manifest names them: what is tested here is what lies in the
log, whatever snapshots make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from tests.left_open import remembered
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.environment import Clock
from warren.base.ids import ChannelId, Epoch, Lsn, StorageId, TimelineId, lsn_of
from warren.base.threads import SystemThreads, Threads
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.log.file_record import DIRECTORIES, FileKind, FileRecord, FileState
from warren.log.log_files import open_by_name
from warren.log.manifest import Manifest, ManifestState, StreamRecord, read_manifest
from warren.log.read.blocks import walk
from warren.log.settings import KV_STREAM, LogSettings
from warren.log.store import LogStore
from warren.records.block import Header
from warren.records.entries import read_entries
from warren.records.format import BlockKind
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

DIRECTORY = "/data/log"
STORAGE = StorageId(7)
QUIET = LogSettings(
    container_bytes=1,  # rounded up to the smallest
    use_worker_process=False,
    compaction_poll_seconds=1e6,
    snapshot_at_stop=False,
    compaction_garbage_ratio=0,
)
Result = TypeVar("Result")


class Row(NamedTuple):
    epoch: int
    kind: int
    storage: int
    key: bytes
    value: bytes
    version: tuple[int, int]
    lsn: Lsn
    undo: tuple[int, int]
    stream: int


def memory_machine(
    files: Files | None = None, seed: int = 1, threads: Threads | None = None, clock: Clock | None = None
) -> Environment:
    return Environment(files or MemoryFiles(), clock or ManualClock(), threads or SystemThreads(), SeededRandom(seed))


def opened(files: Files, seed: int = 1, settings: LogSettings = QUIET) -> LogStore:
    return remembered(LogStore.open(DIRECTORY, settings, memory_machine(files, seed)))


def quiet(**changes: object) -> LogSettings:
    return replace(QUIET, **changes)  # type: ignore[arg-type]


def put(store: LogStore, key: bytes, value: bytes = b"value", channel: int = 0) -> Epoch:
    """One durable entry."""
    session = store.begin(channel)
    session.put(STORAGE, key, value)
    return session.commit()


def stepped(
    seed: int, body: Callable[[SteppedThreads, Environment], Result], files: MemoryFiles | None = None
) -> Result:
    """Run a body whose threads, and whose disk, take turns by a seed."""
    threads = SteppedThreads(seed)
    disk = files or MemoryFiles()
    environment = memory_machine(disk, seed, threads, threads.clock)

    def run() -> Result:
        disk.pause = threads.pause
        try:
            return body(threads, environment)
        finally:
            disk.pause = None

    return threads.run(run)


def small_disk() -> MemoryFiles:
    """A disk with a new log on it whose containers are 4 KiB: no option allows that, but many runs are quick."""
    files = MemoryFiles()
    for name in DIRECTORIES:
        files.make_directories(join(DIRECTORY, name))
    streams = {KV_STREAM: StreamRecord(KV_STREAM, "kv", ChannelId(0), is_records=False)}
    state = ManifestState(Timeline(TimelineId(0xABCD)), 4096, 2, is_clean=True, streams=streams)
    Manifest(files, DIRECTORY, SystemThreads(), SeededRandom(7), state).close()
    files.sync_directory(DIRECTORY)
    return files


def log_records(files: Files, directory: str = DIRECTORY) -> list[FileRecord]:
    """Every log file of the store, oldest first."""
    records = read_manifest(files, directory).files
    return [r for _, r in sorted(records.items()) if r.purpose is FileKind.LOG and r.state is not FileState.DOOMED]


def view_of(files: Files, record: FileRecord, directory: str = DIRECTORY) -> memoryview:
    return open_by_name(files, directory, record).map()[0]


def headers_of(files: Files, record: FileRecord, directory: str = DIRECTORY) -> list[Header]:
    """Good blocks of one file, up to where the manifest says that it ends."""
    stop = record.end if record.state is FileState.SEALED else None
    return walk(view_of(files, record, directory), record.identity, 0, stop).headers


def rows_of_file(files: Files, record: FileRecord, directory: str = DIRECTORY) -> list[Row]:
    view = view_of(files, record, directory)
    found: list[Row] = []
    for header in headers_of(files, record, directory):
        if header.kind == BlockKind.ENTRIES:
            found += _rows(view, header, record)
    return found


def rows_of(files: Files, durable: int | None = None, directory: str = DIRECTORY) -> list[Row]:
    """All entries in the log, file by file; only those up to `durable`, if it is given."""
    records = log_records(files, directory)
    found = [row for record in records for row in rows_of_file(files, record, directory)]
    return [row for row in found if durable is None or row.epoch <= durable]


def state_of(rows: Iterable[Row]) -> dict[tuple[int, bytes], bytes]:
    """The merge rule, said again as plainly as possible: the newest version of a key wins."""
    state: dict[tuple[int, bytes], bytes] = {}
    for row in sorted(rows, key=lambda row: row.version):
        if row.kind == 1:
            state[row.storage, row.key] = row.value
        elif row.kind == 2:
            state.pop((row.storage, row.key), None)
        elif row.kind in (3, 5):
            state = {place: value for place, value in state.items() if place[0] != row.storage}
    return state


def names_in(files: Files, directory: str = DIRECTORY) -> list[str]:
    return [name for name in files.list(directory) if not files.stat(join(directory, name)).is_directory]


def _rows(view: memoryview, header: Header, record: FileRecord) -> list[Row]:
    entries = read_entries(view, header)
    versions = zip(entries.majors.array().tolist(), entries.minors.array().tolist(), strict=True)
    undos = zip(entries.undo_prev.array().tolist(), entries.undo_next.array().tolist(), strict=True)
    columns = zip(
        entries.kinds.array().tolist(),
        entries.storages.array().tolist(),
        entries.keys.to_list(),
        entries.values.to_list(),
        versions,
        undos,
        strict=True,
    )
    return [
        Row(
            header.epoch,
            kind,
            storage,
            key,
            value,
            version,
            lsn_of(record.number, header.offset, i),
            undo,
            header.stream,
        )
        for i, (kind, storage, key, value, version, undo) in enumerate(columns)
    ]
