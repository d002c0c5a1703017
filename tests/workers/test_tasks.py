"""Tasks in worker processes: niced, answering with a result or an error, killed without harm."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.log.test_retention_file_lifecycle import log_file
from tests.log.upkeep_stage import QUIET, of_storage, put, rows, sealed
from warren.base.errors import Damage, DiskFailure, Gone, Misuse, OutOfRoom, Refused, SyncFailed, WarrenError
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.log.compaction.jobs import InlineWorker, Job, MergeWorker, ProcessWorker, SizedWorker, run_job
from warren.log.file_record import FileKind, FileRecord
from warren.log.store import LogStore
from warren.records.block import FileIdentity
from warren.workers.process import error_from_json, error_to_json
from warren.workers.tasks import NICENESS

SECONDS_MAX = 20


@contextmanager
def store_with(directory: Path, count: int = 1) -> Iterator[LogStore]:
    """A store on the machine's disk whose large jobs go to a process, with sealed files."""
    with LogStore.open(str(directory), QUIET) as store:
        for number in range(count):
            put(store, {b"%d" % key: b"%d" % number for key in range(100)})
            store.rotate()
        store.compaction._worker = store._snapshots._worker = store._worker = ProcessWorker()
        yield store


def job_of(store: LogStore, name: str) -> Job:
    staging = f"{store.directory}/staging/{name}"
    return new_job(store.directory, staging, tuple(sealed(store)), store.durable)


def new_job(directory: str, staging: str, inputs: tuple[FileRecord, ...], epoch: Epoch) -> Job:
    identity = FileIdentity(TimelineId(1), Incarnation(7))
    figures = {"memory_bytes": 1 << 20, "worker_count": 1, "created_ns": 1_700_000_000}
    return Job(directory, staging, FileNumber(99), identity, FileKind.COMPACTED, inputs, epoch, True, **figures)


def pid_of(worker: ProcessWorker) -> int:
    """The process of the worker, once it has one."""
    wait_until(lambda: worker.pid is not None)
    assert worker.pid is not None
    return worker.pid


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.005)


@contextmanager
def blocked_at(path: Path) -> Iterator[None]:
    """Opening the file blocks for ever: a pipe without a writer is in its place."""
    aside = path.with_name("aside")
    path.rename(aside)
    os.mkfifo(path)
    try:
        yield
    finally:
        aside.replace(path)


# -- what it does ----------------------------------------------------------------------------------------------------


def test_the_process_makes_the_same_proposal_and_the_same_bytes_as_the_inline_worker(tmp_path: Path) -> None:
    with store_with(tmp_path, 3) as store:
        inline, apart = job_of(store, "inline"), job_of(store, "apart")
        shares: list[float] = []
        proposals = [
            InlineWorker(LocalFiles(), SystemThreads()).run(inline, lambda share: None),
            ProcessWorker().run(apart, shares.append),
        ]
        assert proposals[0] == proposals[1]
        assert (proposals[0]["entries_in"], proposals[0]["entries"]) == (300, 100)
        outputs = [Path(job.staging, "output").read_bytes() for job in (inline, apart)]
        assert outputs[0] == outputs[1]
        assert shares and shares == sorted(shares) and 0 < shares[-1] <= 1


def test_it_is_a_process_of_its_own_with_a_lower_priority(tmp_path: Path) -> None:
    with store_with(tmp_path) as store:
        worker = ProcessWorker()
        seen: list[tuple[int, int]] = []

        def note_priority(share: float) -> None:
            pid = pid_of(worker)
            seen.append((pid, os.getpriority(os.PRIO_PROCESS, pid)))

        worker.run(job_of(store, "job"), note_priority)
        [(pid, priority)] = set(seen)
        assert pid != os.getpid()
        assert NICENESS >= 5
        assert priority == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def test_compaction_and_snapshots_of_a_store_can_run_in_it(tmp_path: Path) -> None:
    with store_with(tmp_path, 3) as store:
        wanted = of_storage({b"%d" % key: b"2" for key in range(100)})
        assert store.compact()["entries"] == 100
        assert rows(store.refresh()) == wanted
        assert os.listdir(tmp_path / "staging") == []
    with LogStore.open(str(tmp_path), QUIET) as store:
        assert rows(store.snapshot()) == wanted


def test_small_jobs_stay_here_and_large_ones_go_there() -> None:
    class Noting:
        def __init__(self) -> None:
            self.ran: list[int] = []
            self.stops = 0

        def run(self, job: Job, progress: Callable[[float], None]) -> dict[str, object]:
            self.ran.append(sum(record.end for record in job.inputs))
            return {}

        def stop(self) -> None:
            self.stops += 1

    small, large = Noting(), Noting()
    worker: MergeWorker = SizedWorker(small, large, small_bytes_max=1000)
    for sizes in ([1000], [1001], [500, 500], [500, 501], []):
        worker.run(job_with(sizes), lambda share: None)
    assert (small.ran, large.ran) == ([1000, 1000, 0], [1001, 1001])
    worker.stop()
    assert (small.stops, large.stops) == (1, 1)


def job_with(sizes: list[int]) -> Job:
    records: list[FileRecord] = [log_file(number, 1).changed(end=size) for number, size in enumerate(sizes, 1)]
    return new_job("d", "d/s", tuple(records), Epoch(1))


def test_a_job_survives_the_pipe() -> None:
    job = job_with([10, 20])
    assert Job.from_json(job.to_json()) == job


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Misuse, Refused, Gone, OutOfRoom, DiskFailure, SyncFailed])
def test_an_error_crosses_the_pipe_with_its_family_and_its_hint(family: type[WarrenError]) -> None:
    error = family("what happened", "what to do")
    found = error_from_json(error_to_json(error))
    assert type(found) is family
    assert (found.what, found.hint, str(found)) == (error.what, error.hint, str(error))


def test_damage_crosses_the_pipe_with_its_place() -> None:
    error = Damage("a block is bad", "log/pwal_0000", 4711, "repair it")
    found = error_from_json(error_to_json(error))
    assert isinstance(found, Damage)
    assert (found.path, found.offset, found.hint, str(found)) == (error.path, error.offset, error.hint, str(error))


def test_an_unexpected_error_crosses_the_pipe_as_a_disk_failure() -> None:
    found = error_from_json(error_to_json(ZeroDivisionError("oh")))
    assert type(found) is DiskFailure
    assert found.what == "the worker failed: ZeroDivisionError('oh')"


def test_damage_found_by_the_process_is_reported_as_by_the_inline_worker(tmp_path: Path) -> None:
    with store_with(tmp_path) as store:
        path = tmp_path / sealed(store)[0].name
        raw = bytearray(path.read_bytes())
        raw[200] ^= 1
        path.write_bytes(raw)
        raised: list[WarrenError] = []
        workers: list[MergeWorker] = [InlineWorker(LocalFiles(), SystemThreads()), ProcessWorker()]
        for worker in workers:
            with pytest.raises(Damage) as caught:
                worker.run(job_of(store, "job"), lambda share: None)
            raised.append(caught.value)
        assert [str(error) for error in raised] == [str(raised[0])] * 2
        assert isinstance(raised[1], Damage) and raised[1].path == str(path) and 0 < raised[1].offset <= 200


def test_a_missing_input_is_refused_by_name(tmp_path: Path) -> None:
    with store_with(tmp_path) as store:
        path = tmp_path / sealed(store)[0].name
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(WarrenError, match=str(path)) as raised:
            ProcessWorker().run(job_of(store, "job"), lambda share: None)
        assert raised.value.hint
        (tmp_path / "elsewhere").rename(path)


# -- dying -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_in_the_middle_of_its_job_ends_the_job_and_not_the_store(tmp_path: Path) -> None:
    with store_with(tmp_path, 2) as store:
        worker = store.compaction._worker
        assert isinstance(worker, ProcessWorker)
        before = store.manifest.state.compacted
        with blocked_at(tmp_path / sealed(store)[0].name):
            thread = threading.Thread(target=lambda: kill_in_the_middle(worker, tmp_path / "staging"))
            thread.start()
            with pytest.raises(DiskFailure, match="ended before its job did: killed by signal 9") as raised:
                store.compact()
            thread.join()
        assert raised.value.hint == "nothing has changed: try again"
        assert store.manifest.state.compacted == before
        assert os.listdir(tmp_path / "staging") == [], "what it left behind is cleared at once"
        put(store, {b"after": b"x"})
        assert store.compact()["entries"] == 101


def kill_in_the_middle(worker: ProcessWorker, staging: Path) -> None:
    """As soon as it has begun to write."""
    wait_until(lambda: any(staging.glob("*/output")))
    os.kill(pid_of(worker), signal.SIGKILL)


def test_a_stop_ends_the_job_under_way(tmp_path: Path) -> None:
    with store_with(tmp_path) as store:
        worker = store.compaction._worker
        assert isinstance(worker, ProcessWorker)

        def stop() -> None:
            wait_until(lambda: any((tmp_path / "staging").glob("*/output")))
            worker.stop()

        with blocked_at(tmp_path / sealed(store)[0].name):
            thread = threading.Thread(target=stop)
            thread.start()
            with pytest.raises(DiskFailure, match="signal 9"):
                store.compact()
            thread.join()
        worker.stop()  # nothing is under way: nothing happens


OWNER = """
import os, sys, threading, time
from tests.log.test_retention_file_lifecycle import log_file
from tests.log.upkeep_stage import QUIET, put
from warren.log.store import LogStore
from warren.log.compaction.jobs import ProcessWorker

store = LogStore.open(sys.argv[1], QUIET)
put(store, {b"a": b"1"})
record = store.rotate().rotated[0]
path = os.path.join(sys.argv[1], record.name)
os.rename(path, path + ".aside")
os.mkfifo(path)
worker = store.compaction._worker = ProcessWorker()

def report():
    while worker.pid is None or not any(os.listdir(os.path.join(sys.argv[1], "staging"))):
        time.sleep(0.005)
    print(worker.pid, path, flush=True)

threading.Thread(target=report, daemon=True).start()
store.compact()
"""


def test_the_worker_dies_with_its_owner_and_the_next_opener_clears_what_both_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    root = Path(__file__).parents[2]  # where the script finds the stage
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as owner:
        assert owner.stdout is not None
        pid, path = owner.stdout.readline().split()
        assert is_running(int(pid))
        owner.kill()
    wait_until(lambda: not is_running(int(pid)))
    assert os.listdir(tmp_path / "staging")
    os.replace(f"{path}.aside", path)
    with LogStore.open(str(tmp_path), QUIET) as store:
        assert os.listdir(tmp_path / "staging") == []
        assert rows(store.snapshot()) == of_storage({b"a": b"1"})
        assert store.compact()["entries"] == 1


def is_running(pid: int) -> bool:
    """Not ended, and not only waiting for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


WORKERS_THAT_MISBEHAVE = {
    "dies before it reads": "import sys; sys.exit(3)",
    "dies in the middle of a line": "import sys; sys.stdin.readline(); print('{\"progress\": 0.', end='', flush=True)",
    "talks nonsense": "import sys; sys.stdin.readline(); print('hello\\n[1]\\nnull')",
}


@pytest.mark.parametrize("script", WORKERS_THAT_MISBEHAVE.values(), ids=WORKERS_THAT_MISBEHAVE)
def test_a_worker_that_ends_without_an_answer_is_an_error_of_ours(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it leaves in the pipe: no traceback of a broken pipe or of half a line."""
    start = subprocess.Popen
    monkeypatch.setattr(
        "warren.workers.process.subprocess.Popen", lambda command, **how: start([sys.executable, "-c", script], **how)
    )
    job = job_with([10] * 5000)  # more than a pipe holds
    with pytest.raises(DiskFailure, match="ended before its job did: status"):
        ProcessWorker().run(job, lambda share: None)


def test_a_machine_that_starts_no_process_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*what: object, **how: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("warren.workers.process.subprocess.Popen", refuse)
    with pytest.raises(DiskFailure, match=r"no worker process can be started: .*unavailable"):
        ProcessWorker().run(job_with([]), lambda share: None)


def test_a_job_that_is_run_again_begins_with_an_empty_staging_directory(tmp_path: Path) -> None:
    """What an earlier run left there is not taken for its own."""
    with store_with(tmp_path) as store:
        job = job_of(store, "job")
        spills = Path(job.staging, "spills")
        spills.mkdir(parents=True)
        (spills / "left").write_bytes(b"x")
        Path(job.staging, "output").write_bytes(b"x" * 10_000)
        figures = run_job(LocalFiles(), SystemThreads(), job, lambda share: None)
        assert figures["entries"] == 100
        assert Path(job.staging, "output").stat().st_size == figures["end"]
        assert not (spills / "left").exists()
