"""How the benchmark uses a log store: as a program would, through `LogStore` and its sessions.

Default settings but one: compaction does not start automatically, so that each row measures one thing. (The row
`append_while_compacting` is the exception, and says so.) What a store answers is compared with what was written: a
benchmark that is fast and wrong ends here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from tools.bench.run import BenchRun
from tools.bench.workload import LogWorkload
from warren.base.environment import SystemClock, SystemRandom
from warren.base.errors import Damage
from warren.base.ids import StorageId
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.compaction.startup_snapshot import StartupSnapshot
from warren.log.file_record import FileKind, FileState
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.workers.tasks import Progress

STORAGE = StorageId(1)
SETTINGS = replace(LogSettings(), compaction_garbage_ratio=0.0)


@dataclass(frozen=True, slots=True)
class Filled:
    """How an append went, from the first `begin` until its last epoch was durable."""

    entries: int
    seconds: float
    epochs: int

    @property
    def rate(self) -> float:
        return self.entries / self.seconds

    @property
    def epoch_ms(self) -> float:
        return self.seconds * 1000 / max(1, self.epochs)


@contextmanager
def opened(
    room: Path,
    settings: LogSettings = SETTINGS,
    files: LocalFiles | None = None,
    progress: Progress = lambda share: None,
) -> Iterator[LogStore]:
    """The room's store. If the block does not close it, it is left as a killed process would leave it."""
    environment = Environment(files or LocalFiles(), SystemClock(), SystemThreads(), SystemRandom())
    store = LogStore.open(str(room / "log"), settings, environment, progress)
    try:
        yield store
    finally:
        store.abandon()


def fill(run: BenchRun, store: LogStore, workload: LogWorkload) -> Filled:
    """Append everything as columns and wait until all of it is durable; sessions do not wait for each other."""
    epochs_before, start = store.commit.epochs_committed, perf_counter()
    epoch = store.durable
    for number, entries in enumerate(workload.sessions):
        session = store.begin()
        session.put_columns(STORAGE, entries.keys, entries.values)
        epoch = session.end()
        run.reached(number / len(workload.sessions))
    store.wait(epoch)
    return Filled(workload.entries, perf_counter() - start, store.commit.epochs_committed - epochs_before)


def log_bytes(store: LogStore) -> int:
    """Bytes of all log files up to their ends: headers and closing blocks, but not the zeros allocated ahead."""
    sealed = [r.end for r in store.manifest.state.of_state(FileState.SEALED) if r.purpose is FileKind.LOG]
    return sum(sealed) + sum(channel.participant.end for channel in store.channels)


def log_files(room: Path) -> list[Path]:
    return sorted((room / "log").glob("pwal_*"))


def check(snapshot: StartupSnapshot, workload: LogWorkload, is_distinct_exact: bool = True) -> None:
    """Is the newest entry there, and are there as many keys as were written?"""
    key, value = workload.newest
    if snapshot.get(STORAGE, key) != value:
        raise Damage("the newest entry is not what was written")
    if is_distinct_exact and len(snapshot) != workload.distinct:
        raise Damage(f"{workload.distinct} keys were written, {len(snapshot)} are there")
