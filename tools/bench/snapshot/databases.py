"""How the benchmark uses a database: as a program would that calls `warren.open`, with the log and RocksDB on the disk.

    keys     16 random bytes each, 1000 a session, derived from the session number, so they need not be stored
    values   100 random bytes each, sixteen thousand of them in turn

Default settings but one: the log does not compact automatically, with reflection or without, so that both sides of
a ratio do the same but for it. A writer sends sessions and waits for the one eight sessions back: so many commits are
on their way for a program that does not wait for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tools.bench.workload import SEED
from warren.base.ids import Epoch, StorageId
from warren.embedded.database import open_database
from warren.files.environment import Environment
from warren.log.settings import LogSettings
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.workers.tasks import Progress

STORAGE = StorageId(1)
SETTINGS = replace(LogSettings(), compaction_garbage_ratio=0.0)
SESSION_KEYS = 1000
SESSIONS_UNDER_WAY = 8
KEY_BYTES = 16
VALUE_BYTES = 100
LIVE_BYTES = KEY_BYTES + VALUE_BYTES  # of one key and its value
_VALUE_LISTS = 16


@dataclass(frozen=True, slots=True)
class SessionStep:
    """What one session does."""

    puts: Sequence[bytes]
    values: Sequence[bytes]
    removes: Sequence[bytes] = ()

    @property
    def entries(self) -> int:
        return len(self.puts) + len(self.removes)


@contextmanager
def opened_database(
    room: Path,
    mode: Mode = Mode.NOTIFY,
    settings: LogSettings = SETTINGS,
    progress: Progress = lambda share: None,
) -> Iterator[Database]:
    """The room's database. If the block does not close it, nothing more is reflected."""
    reflection = ReflectionSettings(reflection=mode)
    database = open_database(directory_of(room), Environment.real(), settings, reflection, progress)
    try:
        yield database
    finally:
        database.abandon()
        database.store.close()


def directory_of(room: Path) -> str:
    return str(room / "database")


def keys_of(session: int) -> list[bytes]:
    """The keys of a session: the same whenever they are asked for, and of no other session."""
    return _cut(np.random.default_rng((SEED, session)).bytes(SESSION_KEYS * KEY_BYTES), KEY_BYTES)


def value_lists() -> list[list[bytes]]:
    rng = np.random.default_rng(SEED)
    return [_cut(rng.bytes(SESSION_KEYS * VALUE_BYTES), VALUE_BYTES) for _ in range(_VALUE_LISTS)]


def puts(sessions: Iterable[int]) -> Iterator[SessionStep]:
    """Each session puts its own keys, made when its turn comes."""
    values = value_lists()
    for session in sessions:
        yield SessionStep(keys_of(session), values[session % _VALUE_LISTS])


def write(database: Database, steps: Iterable[SessionStep]) -> list[tuple[Epoch, int]]:
    """Send everything, and return when it is durable; of each session its epoch and how many entries it had."""
    sent: list[tuple[Epoch, int]] = []
    under_way: deque[Epoch] = deque()
    for step in steps:
        session = database.begin()
        session.put_many(STORAGE, step.puts, step.values)
        if step.removes:
            session.remove_many(STORAGE, step.removes)
        under_way.append(session.end())
        sent.append((under_way[-1], step.entries))
        if len(under_way) > SESSIONS_UNDER_WAY:
            database.log.wait(under_way.popleft())
    if under_way:
        database.log.wait(under_way[-1])
    return sent


def flush(database: Database) -> None:
    """Reflect and flush everything, as the store does periodically."""
    database.settle()
    database.catch_up()
    assert database.reflection is not None, "reflection is on"
    database.reflection.flush()


def directory_bytes(directory: str) -> int:
    """Bytes that the files below take on the disk, allocated ones included; one that goes meanwhile counts nothing."""
    return sum(_allocated_bytes(path) for path in Path(directory).rglob("*"))


def _allocated_bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]
