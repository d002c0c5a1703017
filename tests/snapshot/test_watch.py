"""Mode `watch`: another process pulls the log into the store, main reads beside it. Real processes, real RocksDB."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.snapshot.database_stage import DatabaseStage
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from tests.snapshot.test_database import log_files
from tests.snapshot.watch_stage import (
    QUICK,
    descriptors,
    has_caught_up,
    is_running,
    opened,
    order,
    puller_client,
    until,
)
from warren.base.errors import Damage, Locked, Misuse
from warren.base.ids import TimelineId
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.snapshot import database as database_module
from warren.snapshot.database import SET_ASIDE, take_store_lock
from warren.snapshot.puller import client as outside_module
from warren.snapshot.puller.client import PullerHandle
from warren.snapshot.puller.process import FAULT, PullerRequest
from warren.snapshot.reflection import Mode
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.version_buffer.memory_buffer import ROCKSDB


@pytest.fixture(autouse=True)
def main_looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_module, "POLL_SECONDS", 0.05)


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        yield Path(place)


@pytest.mark.parametrize("poll_seconds", [0.0, 0.05])
def test_rf_05_what_is_durable_is_pulled_by_another_process_without_a_message(
    directory: Path, poll_seconds: float
) -> None:
    """RF-05, RF-06, RF-07, RF-08, RF-10: it watches the directory by inotify, or polls the files in an endless loop;
    it is the writer of the store, and main reads that as secondary."""
    with opened(directory, replace(QUICK, poll_seconds=poll_seconds)) as db:
        pid = puller_client(db).puller_pid
        assert pid != os.getpid() and is_running(pid)
        first_view = db.database.view()
        for number in range(5):
            db.kv("some")[b"%d" % number] = b"v"
            if number == 2:
                db.database.log.rotate()
            until(partial(has_caught_up, db), "the puller's flush is seen without a request")
        view = db.database.view()
        assert (len(list(view.range(0))), view.applied.epoch) == (1, db.database.log.durable)
        assert list(first_view.range(0)) == [], "a view does not change"
        theirs, ours = descriptors(pid), descriptors(os.getpid())
        assert ("anon_inode:inotify" in theirs) == (poll_seconds == 0)
        assert f"{directory}/store/LOCK" in theirs and f"{directory}/store/LOCK" not in ours
        assert f"{directory}/store.lock" in theirs and f"{directory}/store.lock" not in ours
        assert db.alarms() == []
    assert not is_running(pid)
    assert sorted(path.name for path in directory.iterdir() if path.suffix == ".sock") == []


def test_persist_answers_a_mark_that_is_durable_and_on_disk(directory: Path) -> None:
    """RF-12: through the control socket, from any process."""
    with opened(directory, replace(QUICK, lag_seconds=1e6, flush_seconds=1e6)) as db:
        some = db.kv("some")
        for number in range(20):
            some[b"%d" % number] = b"v"
            db.database.log.witness()
            answer = order(directory, "persist")
            assert answer["flushed"]["epoch"] == db.database.log.durable
        for number in range(10):
            some[b"%d" % number] = b"w"
            assert puller_client(db).catch_up().epoch == db.database.log.durable, (
                "witnessed first: there is no other way to know"
            )
        answer = order(directory, "persist")
        status = order(directory, "status")
        assert (status["mode"], status["pid"], status["failure"]) == ("watch", puller_client(db).puller_pid, None)
        assert status["flushed"] == status["applied"] == answer["flushed"]
        os.kill(puller_client(db).puller_pid, signal.SIGKILL)
        some[b"last"] = b"v"
        assert puller_client(db).catch_up().epoch == db.database.log.durable, "calls the next puller"
        view = db.database.view()
        found = view.get(0, b"some")
        assert found is not None
        assert len(list(view.range(int.from_bytes(found.value, "little")))) == 21


@pytest.mark.slow
def test_a_pause_lets_the_mark_stand_still_also_in_the_next_puller_and_resume_catches_up(directory: Path) -> None:
    """RF-12: pause and resume."""
    with opened(directory) as db:
        some = db.kv("some")
        until(partial(has_caught_up, db), "everything is reflected")
        puller_client(db).pause()
        before = db.database.store.applied
        for number in range(10):
            some[b"%d" % number] = b"v"
        db.database.log.witness()
        first = puller_client(db).puller_pid
        for _ in range(2):
            time.sleep(0.5)  # for what should not happen
            status = order(directory, "status")
            assert status["is_paused"] and status["applied"]["epoch"] == before.epoch < db.database.log.durable
            if status["pid"] == first:
                os.kill(first, signal.SIGKILL)
                until(lambda: puller_client(db).puller_pid != first, "another puller")
        assert status["pid"] != first
        assert puller_client(db).is_paused and db.database.store.applied == before
        assert len(some) == 10, "reads as of now do not need it"
        puller_client(db).resume()
        until(partial(has_caught_up, db), "what was left is reflected")
        assert not order(directory, "status")["is_paused"]


@pytest.mark.slow
def test_log_goes_behind_what_the_puller_has_flushed_and_not_before(directory: Path) -> None:
    """RF-10, C-15: with no retention, nothing that the store has not on its disk goes."""
    with opened(directory, replace(QUICK, buffer=ROCKSDB)) as db:
        log = db.database.log
        some = db.kv("some")
        puller_client(db).catch_up()
        puller_client(db).pause()
        start = order(directory, "status")["flushed"]["epoch"]
        for number in range(4):
            some[b"%d" % number] = b"v"
            log.rotate()
        assert f"{directory}/buffer/LOCK" in descriptors(puller_client(db).puller_pid), (
            "the version buffer that was wanted"
        )
        log.purge()
        assert log_files(db.database) >= 4
        assert log.manifest.state.reflected == start
        puller_client(db).resume()
        until(lambda: log.manifest.state.reflected == log.durable, "the manifest has the mark")
        log.purge()
        assert log_files(db.database) == 0
        assert len(some) == 4
    with opened(directory) as db:
        assert len(db.kv("some")) == 4
        assert not db.database.problems


@pytest.mark.slow
def test_a_puller_that_ends_is_started_again_and_alarms_until_then(directory: Path) -> None:
    """RF-06: killed, or terminated; what it had not flushed it reads from the log again."""
    with opened(directory, replace(QUICK, flush_seconds=1e6, retry_seconds=1e6)) as db:
        some = db.kv("some")
        some[b"a"] = b"v"
        os.kill(puller_client(db).puller_pid, signal.SIGKILL)
        until(lambda: bool(db.alarms()), "an alarm")
        assert "the puller process" in db.alarms()[0] and "signal 9" in db.alarms()[0]
        assert some[b"a"] == b"v", "reads as of now do not need it"
    with opened(directory, replace(QUICK, flush_seconds=1e6)) as db:
        assert dict(db.kv("some").items()) == {b"a": b"v"}
        first = puller_client(db).puller_pid
        db.kv("some")[b"b"] = b"v"
        db.database.log.witness()
        os.kill(first, signal.SIGTERM)
        until(lambda: puller_client(db).puller_pid != first and not db.alarms(), "another puller, and no alarm")
        until(partial(has_caught_up, db), "it flushed when it was terminated")
    with opened(directory, replace(QUICK, reflection=Mode.NOTIFY)) as db:
        assert len(db.kv("some")) == 2


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_reported_through_both_processes_until_it_can(directory: Path) -> None:
    """RF-12: status and alarm say what is wrong in the puller; the log has everything meanwhile."""
    with opened(directory, replace(QUICK, lag_seconds=0.05)) as db:
        some = db.kv("some")
        pid = puller_client(db).puller_pid
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (2000, limits[1]))
        for number in range(20):
            some[b"%d" % number] = os.urandom(2000)
        until(lambda: bool(db.alarms()), "an alarm")
        assert "reflection is stopped" in db.alarms()[0] and "File too large" in db.alarms()[0]
        assert order(directory, "status")["failure"]["hint"]
        assert len(some) == 20
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        until(lambda: has_caught_up(db) and not db.alarms(), "it continues")
        assert puller_client(db).puller_pid == pid


def test_a_store_that_another_process_holds_is_waited_for_and_never_set_aside(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RF-10: the puller of a process that was killed may live a moment longer."""
    with opened(directory) as db:
        db.kv("some")[b"a"] = b"v"
    lock = take_store_lock(Environment.real(), str(directory), "a dying process")
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "take_store_lock", partial(take_store_lock, wait_seconds=0.2))
        with pytest.raises(Locked, match="a dying process"):
            opened(directory)
    assert list((directory / SET_ASIDE).iterdir()) == []
    releasing = threading.Timer(0.3, lock.release)
    releasing.start()
    with opened(directory) as db:
        assert dict(db.kv("some").items()) == {b"a": b"v"}
        assert not db.database.problems
    releasing.join()


def test_a_puller_that_cannot_start_reports_why(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with opened(directory, replace(QUICK, reflection=Mode.OFF)) as db:
        db.kv("some")
    wrong = PullerRequest(str(directory), TimelineId(7), QUICK, SnapshotStoreSettings())
    ends: list[int] = []
    puller = PullerHandle(wrong, SystemThreads(), lambda: ends.append(1))
    with pytest.raises(Damage, match="another timeline"):
        puller.wait_until_ready()
    assert puller.has_ended and ends == [1]
    assert "warren puller: the log in" in capfd.readouterr().err


def test_a_puller_with_a_fault_in_a_thread_ends_and_does_not_look_healthy() -> None:
    code = (
        "from warren.snapshot.puller.process import EndingThreads as T; T().start('reflection', lambda: 1 / 0).join(60)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == FAULT
    assert "reflection failed" in ended.stderr and "ZeroDivisionError" in ended.stderr


def test_watch_without_a_puller_client_is_misuse() -> None:
    with pytest.raises(Misuse, match="needs a puller process"):
        DatabaseStage(Mode.WATCH).open()
