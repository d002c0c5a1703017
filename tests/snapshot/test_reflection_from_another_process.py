"""The log does not know of reflection: it writes the same bytes, and a puller is attached from outside."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.house.source_tree import SRC, modules_under
from tests.snapshot.database_stage import DIRECTORY, TINY, DatabaseStage, State
from tests.snapshot.test_database import FEEDS, until
from tools.simulator.volatile_store import VolatileStore
from warren.base.ids import Epoch
from warren.files.protocol import join
from warren.log.file_record import LOCK, FileKind, FileState
from warren.log.read.tail import LogTail
from warren.log.store import LogStore
from warren.snapshot.apply import VersionApply
from warren.snapshot.database import LOG
from warren.snapshot.reflection import Mode, PullFeed, Reflection, ReflectionSettings
from warren.snapshot.version_buffer.memory_buffer import MemoryBuffer
from warren.testing.memory_files import MemoryFiles

LOG_DIRECTORY = join(DIRECTORY, LOG)
BELOW = ("log", "durability", "records", "files", "base")
ROOMY = {"step_bytes": 1 << 20, "buffer_bytes": 1 << 20}  # nothing is spilled: names of files are drawn by chance


def history(log: LogStore) -> None:
    """Sessions on two channels, of many shapes, over two rotations; all of them durable."""
    for number in range(30):
        session = log.begin(number % 2)
        for row in range(number % 4 + 1):
            session.put(1, b"key-%d" % (number * row % 7), b"%d" % number * (row + 1))
        if number % 5 == 4:
            session.remove(1, b"key-0")
        if number == 17:
            session.clear_storage(2)
        session.put(2, b"last", b"%d" % number)
        other = log.begin(1 - number % 2)
        other.put(3, b"beside", b"%d" % number)
        other.end()  # both channels have a part in the epoch
        session.commit()
        if number % 12 == 11:
            log.rotate()
    log.witness()


def bytes_of_the_log(disk: MemoryFiles) -> dict[str, bytes]:
    """Every file below the log's directory but the lock, whose text is the process and the time."""
    found: dict[str, bytes] = {}
    waiting = [LOG_DIRECTORY]
    while waiting:
        directory = waiting.pop()
        for name in disk.list(directory):
            path = join(directory, name)
            if disk.stat(path).is_directory:
                waiting.append(path)
            elif name != LOCK:
                found[path] = disk.contents(path)
    return found


def without_reflection() -> tuple[dict[str, bytes], LogStore]:
    stage = DatabaseStage()
    settings = replace(stage.log_settings, keeps_snapshot=False)
    log = LogStore.open(LOG_DIRECTORY, settings, stage.environment())
    history(log)
    return bytes_of_the_log(stage.disk), log


@pytest.mark.parametrize("mode", [*FEEDS, Mode.OFF])
def test_rf_01_rf_04_the_log_writes_the_same_bytes_whether_or_not_it_is_reflected(mode: Mode) -> None:
    """A channel appends to one file of its own in the log's directory; nothing else is done for who pulls."""
    wanted, log = without_reflection()
    active = [r for r in log.manifest.state.files.values() if r.state is FileState.ACTIVE and r.purpose is FileKind.LOG]
    assert sorted(record.channel for record in active) == [0, 1], "one file for each channel"
    log.abandon()
    stage = DatabaseStage(mode, **ROOMY)
    database = stage.open()
    history(database.log)
    database.catch_up()
    assert mode is Mode.OFF or database.store.applied.epoch == database.log.durable
    assert bytes_of_the_log(stage.disk) == wanted
    database.abandon()


class Watched:
    """A log that records which attributes are used."""

    def __init__(self, log: LogStore) -> None:
        self._log = log
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self._log, name)


def test_rf_02_rf_04_an_open_log_is_pulled_into_a_version_buffer_by_any_reader() -> None:
    """Attached from outside, by two calls: what is durable, and a bell. The rest is read from its files."""
    stage = DatabaseStage()
    real = LogStore.open(LOG_DIRECTORY, replace(stage.log_settings, keeps_snapshot=False), stage.environment())
    history(real)
    log: Any = Watched(real)
    environment, timeline = stage.environment(), real.manifest.state.timeline.id
    buffer = MemoryBuffer(environment.files, environment.threads, environment.rng, "buffer", timeline)
    store = VolatileStore(timeline)
    applying = VersionApply(environment.threads, timeline, buffer, store)
    tail = LogTail(environment.files, log.directory, lambda: log.manifest.state, store.applied.epoch)
    feed = PullFeed(tail, applying, 1 << 20)
    assert feed.gather(log.durable) == real.durable
    assert buffer.entries == 140 and not list(store.range(2)), "pulled into the buffer, and not further"
    settings = replace(TINY, flush_seconds=0.0)
    reflection = Reflection(
        environment.threads, environment.clock, settings, feed, applying, store, lambda: Epoch(log.durable)
    )
    log.commit.call_with_parts(reflection.epoch_is_durable)
    history(real)
    until(lambda: store.applied.epoch == real.durable)
    found: State = {(row.storage, row.key): row.value for storage in (1, 2, 3) for row in store.range(storage)}
    assert found[2, b"last"] == found[3, b"beside"] == b"29" and len(found) == 8
    assert log.used == {"directory", "manifest", "durable", "commit"}
    reflection.end()
    real.abandon()


def test_rf_04_the_log_imports_nothing_of_reflection() -> None:
    imported = [
        (module.place, ast.unparse(node))
        for module in modules_under(SRC)
        if module.room in BELOW
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and ("snapshot." in ast.unparse(node).replace("log.snapshot", ""))
    ]
    assert imported == []
    code = (
        "import sys, warren.log.store;"
        "sys.exit(' '.join(n for n in sys.modules if n == 'rocksdict' or n.startswith('warren.snapshot')))"
    )
    used = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert used.stderr.strip() == "", "opening a log drags in no store"


def test_c_12_notify_is_the_default_and_every_mode_comes_to_the_same_state() -> None:
    """C-12: pushes are options, watching is for another process (tests/snapshot/test_watch.py)."""
    assert ReflectionSettings().reflection is Mode.NOTIFY
    assert {Mode.PUSH, Mode.PUSH_THREADED, Mode.WATCH} < set(Mode)
    found: dict[Mode, Any] = {}
    for mode in FEEDS:
        stage = DatabaseStage(mode)
        database = stage.open()
        history(database.log)
        database.catch_up()
        view = database.view()
        rows = [(row.storage, row.key, row.value, row.version) for storage in (1, 2, 3) for row in view.range(storage)]
        found[mode] = (view.applied, rows)
        view.close()
        database.abandon()
    assert found[Mode.NOTIFY] == found[Mode.PUSH] == found[Mode.PUSH_THREADED]
    assert len(found[Mode.NOTIFY][1]) == 8
