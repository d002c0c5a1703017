"""Main's hold on one puller process: start it, ask it, notice its end.

    starting ──{"status": "ok"}──▶ ready ──end of its standard output──▶ ended
        └──────{"status": "failed", …}, or its end────────────────────────▲

A thread waits for its line and for its end, so nobody has to look. Its standard input is ours to hold open: when this
process ends, however it ends, so does the puller. What it has to complain about it says on our standard error.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from warren.base.errors import DiskFailure
from warren.base.process import call_in_children, never_destroy
from warren.base.threads import Threads
from warren.files.protocol import join
from warren.snapshot.control_socket import Message, call, failure_told
from warren.snapshot.layout import REFLECTION_SOCKET
from warren.snapshot.puller import PullerRequest

_LOG = logging.getLogger(__name__)
READY_SECONDS = 120.0  # only something broken takes so long
STOP_SECONDS = 60.0


class PullerHandle:
    def __init__(self, order: PullerRequest, threads: Threads, on_end: Callable[[], None]) -> None:
        self._path = join(order.directory, REFLECTION_SOCKET)
        self._changed = threads.condition()
        self._on_end = on_end
        self._told: Message | None = None
        self._has_ended = False
        command = [sys.executable, "-m", "warren.snapshot.puller"]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise DiskFailure(f"no puller can be started: {error}", "see the limits of this machine") from error
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        with suppress(OSError):  # it died at once: that is noticed below
            self._stdin.write(json.dumps(order.to_json()).encode() + b"\n")
            self._stdin.flush()
        self._listening = threads.start("warren-puller", self._listen)
        call_in_children(self)

    def forked(self) -> None:
        """Close the child's copy of the pipe: the puller ends when the parent does."""
        never_destroy(self)
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def wait_until_ready(self) -> None:
        """Return when it serves. If it can not, it is ended, and the error says why."""
        with self._changed:
            if self._told is None and not self._has_ended:
                self._changed.wait(READY_SECONDS)
            told = self._told
        if told is not None and told.get("status") == "ok":
            return
        self.kill()
        raise failure_told(told) if told is not None else self.how_it_ended()

    def ask(self, request: Message, timeout: float) -> Message:
        return call(self._path, request, timeout)

    def stop(self) -> None:
        """Let it reflect, flush and end; if it does not, end it: what it has not flushed is in the log."""
        if not self._has_ended:
            self._process.terminate()
            self._listening.join(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        if not self._has_ended:
            self._process.kill()
        self._listening.join()

    def how_it_ended(self) -> DiskFailure:
        code = self._process.returncode
        how = "did not get ready" if code is None else f"signal {-code}" if code < 0 else f"status {code}"
        hint = "it is started again by itself; what it had not flushed is in the log"
        return DiskFailure(f"the puller process {self.pid} has ended: {how}", hint)

    def _listen(self) -> None:
        """Until the process has ended. One whose output cannot be read is killed: it could fail unnoticed."""
        try:
            self._read_lines()
        except Exception as error:
            _LOG.error("puller output failed", exc_info=error, extra={"facts": {"pid": self.pid}})
            self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._on_end()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                with self._changed:
                    with suppress(ValueError):  # it was killed in the middle of a line
                        self._told = self._told or json.loads(line)
                    self._changed.notify_all()
