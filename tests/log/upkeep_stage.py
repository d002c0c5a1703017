"""A store on a memory disk for the tests of upkeep: compaction, snapshots, purge, pins, cuts, streams.

    stage = Stage(retention_seconds=60.0)      a disk, a clock, settings; containers of 4 KiB, so that files stay small
    store = stage.open()                       ordinary threads, which sleep unless they are called
    stage.play(seed, body)                     threads that take turns: one seed is one run, steps can be cut

Nothing runs automatically: the compaction thread polls every million seconds, nothing is kept at a stop, and what
is free may go at once, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from tests.left_open import remembered
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.ids import ChannelId, Epoch, FileNumber, StreamId, TimelineId
from warren.base.threads import SystemThreads, Threads
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.log.compaction.jobs import Job, MergeWorker
from warren.log.compaction.startup_snapshot import StartupSnapshot
from warren.log.file_record import DIRECTORIES, FileKind, FileRecord, FileState
from warren.log.manifest import Manifest, ManifestState, StreamRecord
from warren.log.retention import FileLifecycle, lifecycle_states
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import CrashModel, MemoryFiles
from warren.workers.tasks import Progress

DIRECTORY = "log"
CONTAINER_BYTES = 4096
NEVER_SECONDS = 1e6
State = dict[tuple[int, bytes], bytes]  # (storage, key) → value
Result = TypeVar("Result")

QUIET = LogSettings(
    use_worker_process=False,
    compaction_garbage_ratio=0.0,
    compaction_poll_seconds=NEVER_SECONDS,
    snapshot_at_stop=False,
    retention_seconds=0.0,
    retention_bytes=0,
)


class Stage:
    def __init__(self, disk: MemoryFiles | None = None, seed: int = 1, **settings: Any) -> None:
        self.disk = disk or laid_out()
        self.clock = ManualClock()
        self.rng = SeededRandom(seed)
        self.settings = replace(QUIET, **settings)

    def environment(self, files: Files | None = None, threads: Threads | None = None) -> Environment:
        return Environment(files or self.disk, self.clock, threads or SystemThreads(), self.rng)

    def open(self, files: Files | None = None, **settings: Any) -> LogStore:
        return remembered(LogStore.open(DIRECTORY, replace(self.settings, **settings), self.environment(files)))

    @contextmanager
    def store(self, files: Files | None = None, **settings: Any) -> Iterator[LogStore]:
        """An open store that is closed if the test succeeds and abandoned if it does not."""
        store = self.open(files, **settings)
        try:
            yield store
        except BaseException:
            store.abandon()
            raise
        store.close()

    def play(self, seed: int, body: Callable[[LogStore], Result], files: FaultyFiles | None = None) -> Result:
        """Open the store among threads that take turns and run `body`; whatever it leaves open is killed."""
        disk = files or FaultyFiles(self.disk)
        threads = SteppedThreads(seed, self.clock)
        disk.pause, disk.on_cut = threads.pause, threads.cut_power
        environment = self.environment(disk, threads)
        try:
            return threads.run(lambda: body(LogStore.open(DIRECTORY, self.settings, environment)))
        finally:
            disk.pause = disk.on_cut = None
            self.disk.forget_locks()

    def crashed(self, model: CrashModel, seed: int = 0) -> Stage:
        """A machine that starts again with what a power cut left."""
        other = Stage(self.disk.crash(model, SeededRandom(seed)), seed)
        other.settings, other.clock = self.settings, self.clock
        return other

    def advance(self, seconds: float) -> None:
        self.clock.advance_ns(int(seconds * 1e9))


def laid_out(disk: MemoryFiles | None = None, directory: str = DIRECTORY) -> MemoryFiles:
    """A new store whose containers are smaller than any setting would allow."""
    created = disk or MemoryFiles()
    for name in DIRECTORIES:
        created.make_directories(join(directory, name))
    streams = {StreamId(0): StreamRecord(StreamId(0), "kv", ChannelId(0), is_records=False)}
    state = ManifestState(Timeline(TimelineId(1)), CONTAINER_BYTES, 2, is_clean=True, streams=streams)
    Manifest(created, directory, SystemThreads(), SeededRandom(0), state).close()
    return created


def put(store: LogStore, pairs: Mapping[bytes, bytes], storage: int = 1, channel: int = 0) -> Epoch:
    """One durable session of puts; its epoch."""
    session = store.begin(channel)
    for key, value in pairs.items():
        session.put(storage, key, value)
    return session.commit()


def remove(store: LogStore, *keys: bytes, storage: int = 1, channel: int = 0) -> Epoch:
    session = store.begin(channel)
    for key in keys:
        session.remove(storage, key)
    return session.commit()


def rows(snapshot: StartupSnapshot) -> State:
    return {(row.storage, row.key): row.value for row in snapshot.cursor()}


def of_storage(pairs: Mapping[bytes, bytes], storage: int = 1) -> State:
    return {(storage, key): value for key, value in pairs.items()}


def sealed(store: LogStore, purpose: FileKind = FileKind.LOG) -> list[FileRecord]:
    return [record for record in store.manifest.state.of_state(FileState.SEALED) if record.purpose is purpose]


def life_of(store: LogStore, record: FileRecord) -> FileLifecycle:
    settings, now = store.settings, store.environment.clock.wall_ns()
    found = lifecycle_states(
        store.manifest.state, store.pins.live(), now, settings.retention_seconds, settings.retention_bytes
    )
    return found[record.number]


def numbers(records: list[FileRecord]) -> list[FileNumber]:
    return [record.number for record in records]


def names(files: Files, directory: str = DIRECTORY) -> list[str]:
    """The files in a directory, without the directories in it."""
    return [name for name in files.list(directory) if not files.stat(join(directory, name)).is_directory]


class Watched:
    """A worker that keeps each job it is given, and lets something happen while the job runs."""

    def __init__(self, inner: MergeWorker, meanwhile: Callable[[Job], None]) -> None:
        self._inner = inner
        self.meanwhile = meanwhile
        self.jobs: list[Job] = []

    def run(self, job: Job, progress: Progress) -> dict[str, Any]:
        self.jobs.append(job)
        self.meanwhile(job)
        return self._inner.run(job, progress)

    def stop(self) -> None:
        self._inner.stop()

    @property
    def inputs(self) -> list[FileNumber]:
        """Of the last job."""
        return [record.number for record in self.jobs[-1].inputs]


def watch(store: LogStore, meanwhile: Callable[[Job], None] = lambda job: None) -> Watched:
    watched = Watched(store.compaction._worker, meanwhile)
    store.compaction._worker = store._snapshots._worker = watched
    return watched
