"""The compaction thread: one, from the end of opening to the stop, requested by a file and answering by a file."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import left_open
from tests.log.upkeep_stage import DIRECTORY, QUIET, Stage, of_storage, put, rows, sealed, watch
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Refused
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.compaction.control import RESULT, RESULT_ALIAS, START, CompactionThread, answered
from warren.log.compaction.jobs import InlineWorker, Job, run_job
from warren.log.disk_reserve import DiskReserve
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import MemoryFiles

HOME = f"{DIRECTORY}/ctrl"
NAME = "warren-compaction"


def compaction_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def ask(files: MemoryFiles | FaultyFiles, name: str = START) -> None:
    files.create(join(HOME, name)).close()


def reported(files: MemoryFiles, name: str = RESULT) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files.contents(join(HOME, name)))
    return found


class Orders:
    """Compaction elsewhere: records its requests."""

    def __init__(self) -> None:
        self.requested: list[object] = []
        self.is_busy = False

    def order(self, places: int, seconds: float) -> None:
        self.requested.append((places, seconds))

    def accept(self, name: str, created: Sequence[dict[str, Any]]) -> dict[str, Any]:
        self.requested.append((name, created))
        return {"entries": len(created)}

    def cancel(self, name: str) -> None:
        self.requested.append(name)

    def is_active(self) -> bool:
        return self.is_busy


class Kept:
    """Something to be maintained: counts what is done to it."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.compactions = self.purges = self.running = self.most = 0
        self.is_due = self.is_short = False
        self.handover = Orders()
        self.disk_reserve = DiskReserve(MemoryFiles(), DIRECTORY, SystemThreads(), 0)

    def compact(self) -> dict[str, Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.compactions += 1
        self.meanwhile()
        self.running -= 1
        return {"entries": self.compactions}

    def is_compaction_due(self) -> bool:
        return self.is_due

    def purge(self) -> object:
        self.purges += 1
        return None

    def is_short_of_room(self) -> bool:
        return self.is_short


def maintained(remaining: Kept, body: Callable[[SteppedThreads, CompactionThread], None], files: MemoryFiles) -> None:
    """Run a body beside a compaction thread that polls every second of a clock that advances automatically."""
    clock = ManualClock()
    threads = SteppedThreads(1, clock)

    def run() -> None:
        thread = CompactionThread(files, DIRECTORY, clock, threads, remaining, 1.0)
        body(threads, thread)
        thread.stop()
        assert not thread.is_alive

    threads.run(run)


def sleep(threads: SteppedThreads, seconds: float) -> None:
    bell = threads.condition()
    with bell:
        bell.wait(seconds)


@pytest.fixture
def disk() -> MemoryFiles:
    created = MemoryFiles()
    created.make_directories(DIRECTORY)
    return created


# -- its life --------------------------------------------------------------------------------------------------------


def test_there_is_one_compaction_thread_from_the_end_of_opening_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """TG-01: while the start-up snapshot is made there is none yet, when open returns there is one."""
    before = len(compaction_threads())
    seen: list[int] = []

    def run(self: InlineWorker, job: Job, progress: Callable[[float], None]) -> dict[str, Any]:
        seen.append(len(compaction_threads()) - before)
        return run_job(self._files, self._threads, job, progress)

    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
    monkeypatch.setattr(InlineWorker, "run", run)
    with stage.store():
        assert seen == [0]
        assert len(compaction_threads()) - before == 1


def test_the_thread_ends_with_the_store() -> None:
    """TG-02: close returns when it has ended."""
    before = compaction_threads()
    with Stage().store() as store:
        thread = store._compaction_thread
        assert thread is not None
        is_alive = [thread.is_alive]
    assert [*is_alive, thread.is_alive] == [True, False]
    assert compaction_threads() == before


def test_the_thread_of_an_abandoned_store_ends_too() -> None:
    """TG-03: else it would take requests away from the next opener."""
    before = compaction_threads()
    stage = Stage()
    store = stage.open()
    store.abandon()
    assert compaction_threads() == before
    with stage.store():
        assert len(compaction_threads()) == len(before) + 1


def test_the_thread_ends_when_the_store_is_not_referenced_any_more() -> None:
    """TG-03: destruction without a stop."""
    before = compaction_threads()
    store = Stage(compaction_poll_seconds=0.01).open()
    [thread] = [thread for thread in compaction_threads() if thread not in before]
    commit = store.commit
    left_open.forget(store)
    del store
    for _ in range(100):  # a look that is under way holds the store; the next round finds it then
        gc.collect()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert not thread.is_alive()
    commit.abandon()


def test_a_stop_while_a_compaction_runs_waits_for_it(disk: MemoryFiles) -> None:
    remaining = Kept()

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        remaining.meanwhile = lambda: sleep(threads, 5)
        ask(disk)
        sleep(threads, 2)
        assert remaining.running == 1
        thread.stop()
        assert remaining.running == 0 and remaining.compactions == 1

    maintained(remaining, body, disk)
    assert reported(disk)["status"] == "ok"


def test_the_ctrl_directory_is_made_if_it_is_missing(disk: MemoryFiles) -> None:
    """TG-04."""
    assert not disk.exists(HOME)
    maintained(Kept(), lambda threads, thread: None, disk)
    assert disk.stat(HOME).is_directory
    stage = Stage()
    stage.disk.remove_directory(HOME)
    with stage.store():
        assert stage.disk.stat(HOME).is_directory


# -- requests and answers --------------------------------------------------------------------------------------------


def test_the_start_file_starts_a_compaction_whose_result_is_written() -> None:
    """TG-05, TG-07: within one poll; the result is one JSON object."""
    stage = Stage(compaction_poll_seconds=1.0)

    def body(store: LogStore) -> None:
        put(store, {b"a": b"1"})
        put(store, {b"a": b"2"})
        assert isinstance(store.environment.threads, SteppedThreads)
        sleep(store.environment.threads, 3)
        assert not stage.disk.exists(join(HOME, RESULT)), "there was no request"
        ask(stage.disk)
        sleep(store.environment.threads, 1.5)
        result = reported(stage.disk)
        assert (result["status"], result["compacted"], result["entries_in"], result["entries"]) == ("ok", 1, 2, 1)
        assert result["epoch"] == store.durable
        assert stage.disk.exists(join(DIRECTORY, result["file"]))
        assert result["finished_ns"] <= stage.clock.wall_ns()
        assert not sealed(store), "free files are purged along with it"
        assert rows(store.refresh()) == of_storage({b"a": b"2"})

    stage.play(1, body)


def test_the_start_file_is_deleted_when_it_is_seen(disk: MemoryFiles) -> None:
    """TG-06: before the compaction begins."""
    seen: list[bool] = []
    remaining = Kept(lambda: seen.append(disk.exists(join(HOME, START))))

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        ask(disk)
        sleep(threads, 2)

    maintained(remaining, body, disk)
    assert seen == [False]


def test_a_request_made_during_a_run_starts_another_run(disk: MemoryFiles) -> None:
    """C-23: deleted first, so that it can be made again; and only in ctrl/."""
    remaining = Kept()

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        remaining.meanwhile = lambda: ask(disk) if remaining.compactions == 1 else None
        ask(disk)
        sleep(threads, 10)
        assert remaining.compactions == 2
        assert reported(disk)["entries"] == 2
        disk.create(join(DIRECTORY, START)).close()
        sleep(threads, 10)
        assert remaining.compactions == 2, "the log directory itself is not polled"

    maintained(remaining, body, disk)


def test_compactions_cannot_run_at_the_same_time(disk: MemoryFiles) -> None:
    """TG-08: one thread does them, however many requests there are, also when one is due anyway."""
    remaining = Kept()

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        remaining.meanwhile = lambda: sleep(threads, 2)
        remaining.is_due = True
        for _ in range(6):
            if not disk.exists(join(HOME, START)):
                ask(disk)
            sleep(threads, 1)
        sleep(threads, 20)

    maintained(remaining, body, disk)
    assert remaining.most == 1
    assert remaining.compactions > 4


def test_a_compaction_by_request_and_one_by_call_do_not_run_at_the_same_time() -> None:
    """TG-08."""
    stage = Stage(compaction_poll_seconds=1.0)

    def body(store: LogStore) -> tuple[int, int]:
        running, most = [0], [0]
        threads = store.environment.threads
        assert isinstance(threads, SteppedThreads)

        def meanwhile(job: Job) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            sleep(threads, 3)
            put(store, {b"a": b"again"})
            running[0] -= 1

        watched = watch(store, meanwhile)
        put(store, {b"a": b"1"})
        ask(stage.disk)
        sleep(threads, 2)
        store.compact()
        sleep(threads, 5)
        return most[0], len(watched.jobs)

    assert stage.play(2, body) == (1, 2)


def test_the_seed_s_spelling_of_the_result_is_a_link_to_it(disk: MemoryFiles) -> None:
    """C-22: `comaction_result`, after every run."""
    remaining = Kept()

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        for run in (1, 2, 3):
            ask(disk)
            sleep(threads, 2)
            assert disk.stat(join(HOME, RESULT_ALIAS)).inode == disk.stat(join(HOME, RESULT)).inode
            assert reported(disk, RESULT_ALIAS)["entries"] == run
            assert disk.list(HOME) == [RESULT_ALIAS, RESULT]

    maintained(remaining, body, disk)
    assert (RESULT, RESULT_ALIAS) == ("compaction_result", "comaction_result")


def test_a_compaction_that_fails_says_why_and_the_next_one_is_tried(disk: MemoryFiles) -> None:
    remaining = Kept()

    def fail() -> None:
        remaining.running -= 1
        if remaining.compactions == 1:
            raise Refused("the proposal is stale", "compact again")
        if remaining.compactions == 2:
            raise ZeroDivisionError("a fault of ours")
        remaining.running += 1

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        remaining.meanwhile = fail
        wanted = [
            ("failed", "the proposal is stale", "compact again"),
            ("failed", "ZeroDivisionError('a fault of ours')", "this is a fault of warren: please report it"),
            ("ok", None, None),
        ]
        for status, error, hint in wanted:
            ask(disk)
            sleep(threads, 2)
            result = reported(disk)
            assert (result["status"], result.get("error"), result.get("hint")) == (status, error, hint)
        assert thread.is_alive

    maintained(remaining, body, disk)


@pytest.mark.parametrize("error", [Refused("no", "hint"), MemoryError("a merge"), KeyError("a fault of ours")])
def test_the_thread_survives_whatever_a_look_meets(disk: MemoryFiles, error: Exception) -> None:
    remaining = Kept()

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        def fail() -> None:
            remaining.running -= 1
            if remaining.compactions <= 15:
                raise error
            remaining.running += 1

        remaining.meanwhile, remaining.is_due = fail, True
        sleep(threads, 20)
        assert thread.is_alive
        assert remaining.compactions < 15, "polls that fail come less and less often"
        assert len(thread.alarms()) == 1
        sleep(threads, 400)
        assert thread.alarms() == [], "the next good poll clears the alarm"
        assert remaining.purges > 0

    maintained(remaining, body, disk)


def test_what_is_free_is_purged_at_every_look_without_a_compaction(disk: MemoryFiles) -> None:
    """A stream that moves its base frees files, though nothing is due to be compacted."""
    remaining = Kept()
    maintained(remaining, lambda threads, thread: sleep(threads, 5.5), disk)
    assert (remaining.compactions, remaining.purges) == (0, 5)


def test_a_disk_that_is_full_for_the_result_does_not_end_the_thread() -> None:
    stage = Stage(compaction_poll_seconds=1.0)
    files = FaultyFiles(stage.disk)

    def body(store: LogStore) -> None:
        threads, thread = store.environment.threads, store._compaction_thread
        assert isinstance(threads, SteppedThreads) and thread is not None
        files.faults.append(Fault(FaultKind.NO_SPACE, "create", "*/compaction_result*"))
        ask(stage.disk)
        sleep(threads, 2)
        assert len(thread.alarms()) == 1
        assert "free some space" in store.alarms()[0]
        ask(stage.disk)
        sleep(threads, 2)
        assert reported(stage.disk)["status"] == "ok"
        assert store.alarms() == [], "there is room again: no reason to be alarmed"

    stage.play(1, body, files)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_makes_the_start_file_and_shows_the_result_of_a_running_store(tmp_path: Path) -> None:
    """TG-09: `warren compact --data-dir D`, from a process of its own."""
    directory = str(tmp_path / "data")
    settings = {**{name: getattr(QUIET, name) for name in QUIET.__slots__}, "compaction_poll_seconds": 0.05}
    with LogStore.open(directory, type(QUIET)(**settings)) as store:
        for value in (b"1", b"2", b"3"):
            put(store, {b"a": value})
        command = [sys.executable, "-m", "warren.cli.main", "compact", "--data-dir", directory, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["status"], result["entries_in"], result["entries"]) == ("ok", 3, 1)
        assert result == json.loads((tmp_path / "data/ctrl/compaction_result").read_text())
        assert store.manifest.state.compacted
        assert rows(store.refresh()) == of_storage({b"a": b"3"})


def test_on_a_real_disk_and_clock_a_request_is_taken_up(tmp_path: Path) -> None:
    """TG-05."""
    files, remaining = LocalFiles(), Kept()
    thread = CompactionThread(files, str(tmp_path), ManualClock(), SystemThreads(), remaining, 0.01)
    (tmp_path / "ctrl" / START).touch()
    deadline = time.monotonic() + 10
    while not (tmp_path / "ctrl" / RESULT_ALIAS).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    assert json.loads((tmp_path / "ctrl" / RESULT).read_text())["entries"] == 1
    assert (tmp_path / "ctrl" / RESULT_ALIAS).samefile(tmp_path / "ctrl" / RESULT)


def test_a_request_may_order_accept_or_cancel_and_gets_its_name_back() -> None:
    remaining = Kept()
    orders = remaining.handover
    ordered = answered(remaining, b'{"request": "r1", "order": {"places": 4, "seconds": 60}}')
    assert (ordered["status"], ordered["request"], ordered["message"]) == ("ok", "r1", "nothing to compact")
    assert answered(remaining, b'{"request": "r2", "accept": {"name": "o", "made": [{}]}}') == {
        "status": "ok", "request": "r2", "entries": 1,
    }  # fmt: skip
    assert answered(remaining, b'{"cancel": {"name": "o"}}')["status"] == "ok"
    assert orders.requested == [(4, 60), ("o", [{}]), "o"]
    assert (remaining.compactions, remaining.purges) == (0, 1)
    assert answered(remaining, b'{"request": "r3"}')["request"] == "r3"
    assert remaining.compactions == 1


@pytest.mark.parametrize("raw", [b"{", b"[]", b'"x"', b'{"order": 7}', b'{"accept": {"name": "o"}}', b"[" * 100_000])
def test_a_request_that_makes_no_sense_is_refused_and_nothing_is_done(raw: bytes) -> None:
    remaining = Kept()
    reported = answered(remaining, raw)
    assert reported["status"] == "failed"
    assert reported["hint"]
    assert (remaining.compactions, remaining.purges, remaining.handover.requested) == (0, 0, [])


def test_compaction_does_not_start_automatically_while_an_order_is_out() -> None:
    remaining = Kept()
    remaining.is_due = remaining.handover.is_busy = True

    def body(threads: SteppedThreads, thread: CompactionThread) -> None:
        sleep(threads, 3.5)
        assert (remaining.compactions, remaining.purges) == (0, 3)
        remaining.handover.is_busy = False
        sleep(threads, 1)
        assert remaining.compactions == 1

    maintained(remaining, body, MemoryFiles())
