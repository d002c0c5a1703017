"""A Celery worker as users start it: the command, in a process group of its own, with its log in a file.

    with Worker(broker, results="rpc://", queue="tasks", directory=tmp_path, options=("--concurrency=2",)) as worker:
        worker.task("add").delay(2, 2).get(timeout=10)

It is ready when it answers a ping through the broker. It ends with the block, and then nothing of it is left, whether
it was shut down, killed, or left alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.interop.celery_app.tasks import build

ROOT = Path(__file__).parents[3]
READY_SECONDS_MAX = 30
END_SECONDS_MAX = 20
ANSWER_SECONDS_MAX = 60  # one worker is asked, so its answer ends the wait


class Worker:
    def __init__(
        self,
        broker: str,
        *,
        results: str,
        queue: str,
        directory: Path,
        name: str = "",
        options: Sequence[str] = (),
        queue_type: str = "classic",
    ) -> None:
        self.app = build(broker, results, queue, queue_type)
        self.queue = queue
        self.name = f"{name or queue}@localhost"
        self._log = directory / f"{self.name}.log"
        self._environment = {"INTEROP_BROKER": broker, "INTEROP_RESULTS": results}
        self._environment |= {"INTEROP_QUEUE": queue, "INTEROP_TYPE": queue_type}
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        command = [sys.executable, "-m", "celery", "-A", "tests.interop.celery_app.app", "worker", "-n", self.name]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--loglevel=INFO", *self._options],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._await_ping()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS_MAX)
        self.kill()
        results: Any = getattr(self.app.backend, "result_consumer", None)
        if getattr(results, "_connection", None):
            with suppress(OSError):  # the broker closes silent connections
                results.stop()  # closing the application leaves the connection open by which results came
        self.app.close()

    def task(self, name: str) -> Any:
        return self.app.tasks[name]

    def inspect(self) -> Any:
        return self.app.control.inspect(destination=[self.name], timeout=ANSWER_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL to the worker and its children: no goodbye to the broker, only sockets that end."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_SECONDS_MAX)

    def exit_code(self) -> int:
        """What it ended with; it must be about to end."""
        assert self._process is not None
        return self._process.wait(END_SECONDS_MAX)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _await_ping(self) -> None:
        assert self._process is not None
        until = time.monotonic() + READY_SECONDS_MAX
        while not self.app.control.ping(destination=[self.name], timeout=0.5):
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{self.name} does not answer:\n{self.log()}")
