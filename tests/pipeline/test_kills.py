"""A stream beside an owner at work, and both are killed: the driver twice, the writer once, each with SIGKILL and all
that it started (kill_driver, kill_writer). What came out at the end is compared with two witnesses:

    acknowledged   what the writer wrote down after `commit` had returned: all of it must have come, in that epoch
    the state      what opening the log shows: nothing else may have come, and all of it must have

Every session is checked as a whole, since its keys say which it is and its values how many parts it has.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.kill_writer import NEWEST_STORAGE, SESSION_STORAGE, SETTINGS
from tests.pipeline.process_group import ProcessGroup, wait_until
from tests.pipeline.streaming import committed, planned
from warren.files.local import LocalFiles
from warren.log.read.read_only import open_for_reading
from warren.log.store import LogStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # every wait in it has its own limit
Session = tuple[int, int, int]  # run, thread, number


class Scene:
    """The folder that writer, driver and we share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"

    def writer(self, run: int) -> ProcessGroup:
        return self._start(f"writer-{run}", "tests.pipeline.kill_writer", str(run))

    def driver(self, name: str, mode: str = "going") -> ProcessGroup:
        return self._start(name, "tests.pipeline.kill_driver", mode)

    def _start(self, name: str, module: str, word: str) -> ProcessGroup:
        command = [sys.executable, "-m", module, str(self.folder), word]
        return ProcessGroup(command, self.folder / f"{name}.log")

    def acknowledged(self) -> dict[Session, tuple[int, int]]:
        """Sessions with (parts, epoch). A line that a kill cut off acknowledges nothing."""
        path = self.folder / "acknowledged"
        *lines, _ = (path.read_text(encoding="ascii") if path.exists() else "").split("\n")
        fields = [tuple(map(int, line.split())) for line in lines]
        return {(run, thread, number): (parts, epoch) for run, thread, number, parts, epoch in fields}

    def acknowledged_in(self, run: int) -> int:
        return sum(session[0] == run for session in self.acknowledged())

    def held(self) -> str:
        """The batch that is written and waits before its commit; empty if there is none."""
        path = self.folder / "held"
        return path.read_text(encoding="ascii").strip() if path.exists() else ""

    def attempts(self) -> Counter[str]:
        path = self.folder / "attempts"
        return Counter(path.read_text(encoding="ascii").splitlines() if path.exists() else [])

    def sink(self) -> list[tuple[int, int, int, str, str]]:
        """Every row that came, of all batches."""
        files = self.folder.glob("sink/*/*.json")
        return [tuple(row) for file in files for row in json.loads(file.read_text(encoding="utf-8"))]

    def newest_in_sink(self) -> int:
        return max(row[0] for row in self.sink())

    def horizon(self) -> int:
        return open_for_reading(LocalFiles(), str(self.folder / "log")).state.horizon

    def state(self) -> dict[str, str]:
        """The sessions' entries that are durable, as the next owner sees them."""
        with LogStore.open(str(self.folder / "log"), SETTINGS) as store:
            return {row.key.decode(): row.value.decode() for row in store.snapshot().range(SESSION_STORAGE)}


def test_a_stream_is_exactly_once_though_driver_and_writer_are_killed(tmp_path: Path) -> None:
    """X-11, RF-06: a writer appends, rotates, compacts and purges; the driver is killed in a batch, and again between
    a batch's output and its commit; the writer is killed and restarts. Every acknowledged session came whole and once,
    and what else came is durable in the log."""
    scene = Scene(tmp_path)
    play(scene)
    rows = scene.sink()
    assert len({row[1] for row in rows}) == len(rows), "no entry came twice"
    came = {row[3]: row[4] for row in rows if row[2] == SESSION_STORAGE}
    assert came == scene.state(), "all that is durable came, and nothing else"
    sessions = whole_sessions(rows)
    acknowledged = scene.acknowledged()
    assert {session: sessions.get(session) for session in acknowledged} == acknowledged
    for run, thread in {session[:2] for session in sessions}:
        numbers = sorted(session[2] for session in sessions if session[:2] == (run, thread))
        assert numbers == list(range(len(numbers))), "no gap"
    assert scene.attempts()[scene.held()] == 2, "the batch whose output was there already was done again"


def play(scene: Scene) -> None:
    """All that happens, up to the end of the stream."""
    with scene.writer(1) as writer:
        wait_until("first sessions", lambda: scene.acknowledged_in(1) >= 20, writer)
        with scene.driver("driver-1") as driver:
            wait_until("two batches", lambda: len(committed(scene.checkpoint)) >= 2, driver, writer)
            wait_until("a batch under way", lambda: is_under_way(scene), driver, writer)
            driver.kill()
        assert any(epoch > scene.newest_in_sink() for _, epoch in scene.acknowledged().values()), "more was to come"
        with scene.driver("driver-2") as driver:
            done = len(committed(scene.checkpoint))
            wait_until("two batches more", lambda: len(committed(scene.checkpoint)) >= done + 2, driver, writer)
            wait_until("purge of what was read", lambda: scene.horizon() > 0, driver, writer)
            writer.kill()
            kill_after_output(scene, driver)
    with scene.driver("driver-3", "to-the-end") as driver:
        assert driver.ended() == 0, driver.last_words


def kill_after_output(scene: Scene, driver: ProcessGroup) -> None:
    """The writer's second run, and in it a driver that is killed when a batch is written and not yet committed."""
    with scene.writer(2) as writer:
        wait_until("sessions of the second run", lambda: scene.acknowledged_in(2) >= 20, writer, driver)
        (scene.folder / "hold").touch()
        wait_until("output that is not committed", lambda: bool(scene.held()), driver, writer)
        driver.kill()
        assert int(scene.held().split()[1]) not in committed(scene.checkpoint)
        (scene.folder / "hold").unlink()
        more = scene.acknowledged_in(2) + 5
        wait_until("unread sessions", lambda: scene.acknowledged_in(2) >= more, writer)
        (scene.folder / "stop").touch()
        assert writer.ended() == 0, writer.last_words


def is_under_way(scene: Scene) -> bool:
    return bool(planned(scene.checkpoint) - committed(scene.checkpoint))


def whole_sessions(rows: list[tuple[int, int, int, str, str]]) -> dict[Session, tuple[int, int]]:
    """Each session with (parts, epoch), after a look that it is there whole, in a single epoch, with its last entry."""
    found: dict[Session, list[tuple[int, int, int]]] = {}
    newest = Counter[Session]()
    for epoch, _, storage, key, value in rows:
        if storage == NEWEST_STORAGE:
            newest[session_of(value)] += 1
        else:
            name, _, part = key.rpartition("/")
            found.setdefault(session_of(name), []).append((int(part), int(value), epoch))
    assert newest == Counter(dict.fromkeys(found, 1)), "a session's last entry comes with it"
    for session, entries in found.items():
        parts, epoch = entries[0][1:]
        assert sorted(entries) == [(part, parts, epoch) for part in range(parts)], f"session {session} is not whole"
    return {session: entries[0][1:] for session, entries in found.items()}


def session_of(name: str) -> Session:
    run, thread, number = map(int, name.split("/"))
    return run, thread, number
