"""Rows about the safe snapshot store filled by Spark, through `warren pipeline sync`'s own path.

    sync           a stopped database whose store is empty: opened, tables made by tasks, ingested, closed
    sync_filled    the same, with as many new keys, into the store that the first has filled
    sync_visible   a running owner (`reflection = spark`) and a following driver: from `begin` to seen in the store

Keys and values are those of `warren bench snapshot`. The owner of the last row runs in this process, and so does the
driver that follows; each change is a session of one key, made when the one before it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.pipeline.reads import check
from tools.bench.pipeline.run import WARM_UP_ENTRIES, SparkRun, rates, timed
from tools.bench.run import Figures
from tools.bench.snapshot.databases import SESSION_KEYS, SETTINGS, STORAGE, directory_of, puts, write
from warren.base.errors import Damage
from warren.embedded.database import Warren, open_embedded
from warren.snapshot.reflection import Mode, ReflectionSettings

SEEN_TIMES = 21
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.001


def sync_rows(run: SparkRun) -> Figures:
    sessions = max(1, run.entries // SESSION_KEYS)
    with run.room() as room:
        run.began("sync")
        _warm_up(run, room)
        for row, first in (("sync", 0), ("sync_filled", sessions)):
            run.began(row)
            _fill(room, range(first, first + sessions))
            took = timed(lambda: _sync(run, room, sessions * SESSION_KEYS))
            yield from rates(row, sessions * SESSION_KEYS, took)


def visible_rows(run: SparkRun) -> Figures:
    run.began("sync_visible")
    with run.room() as room, _opened(room, Mode.SPARK) as owner, _followed(run, room):
        seconds = []
        for number in range(-2, SEEN_TIMES):  # two to warm up
            seconds.append(_seen_after(owner, b"key %d" % number))
            run.reached(max(0, number) / SEEN_TIMES)
    yield Figure("sync_visible", median(seconds[2:]), "s")


def _warm_up(run: SparkRun, room: Path) -> None:
    small = room / "small"
    small.mkdir()
    sessions = max(1, min(run.entries, WARM_UP_ENTRIES) // SESSION_KEYS)
    _fill(small, range(sessions))
    _sync(run, small, sessions * SESSION_KEYS)


def _fill(room: Path, sessions: range) -> None:
    with _opened(room, Mode.OFF) as owner:
        write(owner.database, puts(sessions))


def _sync(run: SparkRun, room: Path, entries: int) -> None:
    from warren.pipeline.jobs.sync import sync

    done = sync(run.session, directory_of(room))
    check("entries in tables", done["entries"], entries)
    check("epochs", done["epoch"], done["durable"])


@contextmanager
def _opened(room: Path, mode: Mode) -> Iterator[Warren]:
    with open_embedded(directory_of(room), SETTINGS, ReflectionSettings(reflection=mode)) as owner:
        yield owner


@contextmanager
def _followed(run: SparkRun, room: Path) -> Iterator[None]:
    """A driver that follows the log, like `warren pipeline sync --follow`."""
    from warren.pipeline.jobs.sync import Sync

    ended, syncing = Event(), Sync(run.session, directory_of(room))
    following = Thread(target=lambda: syncing.follow(ended, lambda done: None), daemon=True)
    following.start()
    try:
        yield
    finally:
        ended.set()
        following.join()


def _seen_after(owner: Warren, key: bytes) -> float:
    """Time from the begin of a change until the store has it, without a request to flush."""
    database, pause, begun = owner.database, Event(), perf_counter()
    session = database.begin()
    session.put(STORAGE, key, key)
    epoch = session.commit()
    while database.store.applied.epoch < epoch:
        pause.wait(_POLL_SECONDS)
        if perf_counter() - begun > PATIENCE_SECONDS:
            raise Damage(f"epoch {epoch} was not seen in the store within {PATIENCE_SECONDS:g} s", database.directory)
    seconds = perf_counter() - begun
    view = database.view()
    found = view.get(STORAGE, key)
    view.close()
    check("bytes of the value", len(found.value) if found else 0, len(key))
    return seconds
