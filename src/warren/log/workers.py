"""Where heavy work runs: in a niced process of its own, over sealed files.

    owner                                     worker
    job (one line of JSON)        ──stdin──▶  reads sealed files, writes staging/<job>/, syncs
    {"progress": 0.4}             ◀─stdout──
    {"result": {…}} | {"error": {…}}          ends

The worker holds no lock and edits nothing: what it hands over is a proposal, which the owner checks and commits
(log/compaction/compaction). It dies with its owner: when its standard input closes, it stops. `InlineWorker` runs the same job in
the caller's thread — the simulator's choice, and a small log's, for which a process would cost more than the job.

The worker's own side: `python -m warren.log.workers` reads one job and answers in lines of JSON.

It is nice to others, holds no lock, and ends with its owner: when its standard input closes, so does it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from warren.base.errors import Damage, DiskFailure, Gone, Misuse, NotFound, OutOfRoom, Refused, SyncFailed, WarrenError
from warren.base.threads import SystemThreads, Threads
from warren.files.local import LocalFiles
from warren.files.protocol import Files
from warren.log.compaction.jobs import Job, run_job

Progress = Callable[[float], None]
# A merge takes and gives back hundreds of megabytes in large pieces. By default each piece is new memory from the
# system, to be zeroed and faulted in; kept, it is used again. The process ends with its job, and its memory with it.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}
_FAMILIES: dict[str, type[WarrenError]] = {
    family.__name__: family for family in (Misuse, Refused, NotFound, Gone, OutOfRoom, DiskFailure, SyncFailed)
}


class MergeWorker(Protocol):
    def run(self, job: Job, progress: Progress) -> dict[str, Any]:
        """Do the job; its proposal. Raises what the job raised."""
        ...

    def stop(self) -> None:
        """Give up the job under way, if that can be done from outside; `run` then raises."""
        ...


class InlineWorker:
    def __init__(self, files: Files, threads: Threads) -> None:
        self._files = files
        self._threads = threads

    def run(self, job: Job, progress: Progress) -> dict[str, Any]:
        return run_job(self._files, self._threads, job, progress)

    def stop(self) -> None:
        """An inline job is the caller's own time: it is short, and ends by itself."""


class SizedWorker:
    """Small jobs inline, large ones in a process."""

    def __init__(self, small: MergeWorker, large: MergeWorker, small_bytes_max: int = 32 << 20) -> None:
        self._small = small
        self._large = large
        self._small_bytes_max = small_bytes_max

    def run(self, job: Job, progress: Progress) -> dict[str, Any]:
        size = sum(record.end for record in job.inputs)
        return (self._small if size <= self._small_bytes_max else self._large).run(job, progress)

    def stop(self) -> None:
        self._small.stop()
        self._large.stop()


class ProcessWorker:
    """One process per job; it starts in a tenth of a second and gives all its memory back."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: Job, progress: Progress) -> dict[str, Any]:
        with _started() as process:
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            with suppress(OSError):  # it died at once: then it has nothing to say either
                process.stdin.write(json.dumps(job.to_json()).encode() + b"\n")
                process.stdin.flush()
            for line in process.stdout:
                told = read_line(line)
                if "progress" in told:
                    progress(told["progress"])
                elif "result" in told:
                    result: dict[str, Any] = told["result"]
                    return result
                elif "error" in told:
                    raise error_from_json(told["error"])
        status = f"killed by signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
        raise DiskFailure(f"the worker process ended before its job did: {status}", "nothing has changed: try again")

    def stop(self) -> None:
        """End a job that is under way: its staging directory is cleared when the log is opened."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


@contextmanager
def _started() -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, which ends with the `with`: its standard input is closed then."""
    command = [sys.executable, "-m", "warren.log.workers"]
    try:
        process = subprocess.Popen(
            command, env={**os.environ, **KEEP_MEMORY}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise DiskFailure(f"no worker process can be started: {error}", "see the limits of this machine") from error
    with process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()


def read_line(line: bytes) -> dict[str, Any]:
    """What the worker says; nothing, if it was killed in the middle of a line."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def error_from_json(told: dict[str, Any]) -> WarrenError:
    """What `error_to_json` has told, as an error again."""
    if told["family"] == Damage.__name__:
        return Damage(told["what"], told["path"], told["offset"], told["hint"])
    return _FAMILIES.get(told["family"], DiskFailure)(told["what"], told["hint"])


NICENESS = 10


def main() -> None:
    os.nice(NICENESS)
    job = Job.from_json(json.loads(sys.stdin.buffer.readline()))
    SystemThreads().start("end-with-owner", _end_with_owner)
    told: dict[str, Any]
    try:
        told = {"result": run_job(LocalFiles(), SystemThreads(), job, lambda share: say({"progress": share}))}
    except Exception as error:
        told = {"error": error_to_json(error)}
    say(told)


def error_to_json(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Damage):
        return {"family": "Damage", "what": error.bare, "hint": error.hint, "path": error.path, "offset": error.offset}
    if isinstance(error, WarrenError):
        return {"family": type(error).__name__, "what": error.what, "hint": error.hint}
    return {"family": "DiskFailure", "what": f"the worker failed: {error!r}", "hint": "see its standard error"}


def _end_with_owner() -> None:
    """Our standard input ends when the owner does. Read without a buffer, whose lock would outlive the job."""
    try:
        while os.read(0, 4096):
            pass
    finally:  # an input that cannot be read is as good as ended
        os._exit(1)


def say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
