"""Processes of a test that end on request, when the test fails, and even when the test run itself is killed.

    with ProcessGroup([python, "-m", …], log) as writer:        a group of its own: everything it starts is in it
        wait_until("ten sessions", lambda: …, writer)           a condition, not a pause; says so if the process ended
        writer.kill()                                           SIGKILL for all of the group

Beside the command stands a guard, in the same group, that reads from a pipe of ours. The pipe ends when we do, however
that comes, and then the guard kills its group. What the processes say goes to a file, whose end is shown on failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 150.0  # for a machine that does much else; a quiet one needs a tenth
_GUARDED = 'exec 3<&0; (read _ <&3; kill -9 0) & exec "$@" </dev/null 3<&-'
_LOOK_AGAIN_SECONDS = 0.05
_SHOWN_BYTES = 4000


class ProcessGroup:
    """A process with all that it starts. The exit code is that of the command."""

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, folder: Path = ROOT
    ) -> None:
        self.log = log
        with log.open("wb") as log_file:
            self._process = subprocess.Popen(
                ["sh", "-c", _GUARDED, "guard", *command],
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=log_file,
                cwd=folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL for the whole group; nothing of it is left afterwards. Harmless if it has ended."""
        with suppress(ProcessLookupError):  # ended, guard and all
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit code of a command that ends on its own."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.log.stem} has not ended after {seconds} s:\n{self.last_words}") from None

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def last_words(self) -> str:
        return self.text[-_SHOWN_BYTES:]


def wait_until(what: str, is_true: Callable[[], bool], *alive: ProcessGroup) -> None:
    """Return when the condition holds. Fail if it does not come, or a process that shall bring it about has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not is_true():
        for group in alive:
            assert group.is_running or is_true(), f"{group.log.stem} ended before {what}:\n{group.last_words}"
        if time.monotonic() > deadline:
            words = "\n".join(group.last_words for group in alive)
            raise AssertionError(f"no {what} within {PATIENCE_SECONDS} s:\n{words}")
        pause.wait(_LOOK_AGAIN_SECONDS)


@contextmanager
def all_killed(groups: Sequence[ProcessGroup]) -> Iterator[None]:
    """Whatever happens, these groups are gone afterwards; the list may grow meanwhile."""
    try:
        yield
    finally:
        for group in reversed(groups):
            group.kill()
