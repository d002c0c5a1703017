"""Child processes: one JSON line per message in both directions. A child ends with its owner.

    owner                                              child: python -m MODULE …
    ChildProcess.send(request)             ──stdin──▶  RequestReader.next()
    ChildProcess.receive()                 ◀─stdout──  send_message(message)
    close_input(), or the owner's death    ──stdin──▶  end of input: the child exits at once

Standard error is inherited. An error crosses the pipe as its family, text and hint, and is raised on the other side as
the same class (`error_to_json`, `error_from_json`); the control socket uses the same mapping.

Elsewhere: tasks run in a child (tasks), the puller process (snapshot/puller).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from warren.base.errors import (
    Damage,
    DiskFailure,
    Gone,
    InternalError,
    Locked,
    Misuse,
    NotFound,
    OutOfRoom,
    Refused,
    SyncFailed,
    WarrenError,
)
from warren.base.threads import Threads

Message = dict[str, Any]

_READ_BYTES = 64 << 10
_FAMILIES: dict[str, type[WarrenError]] = {
    family.__name__: family
    for family in (Misuse, Refused, NotFound, Locked, Gone, OutOfRoom, DiskFailure, SyncFailed, InternalError)
}


# -- owner -------------------------------------------------------------------------------------------------------


class ChildProcess:
    """One `python` process with these arguments, started at once. The caller closes or kills it."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, *arguments]
        variables = {**os.environ, **(environment or {})}
        try:
            process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise DiskFailure(f"no worker process can be started: {error}", "see the limits of this machine") from error
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """As in `subprocess`: None while it runs, negative for a signal."""
        return self._process.returncode

    def send(self, request: Message) -> None:
        with suppress(OSError):  # the child has exited: `receive` reports it
            self._stdin.write(_line(request))
            self._stdin.flush()

    def receive(self) -> Message | None:
        """The next message; empty for a line that is no JSON object; None at the end of output."""
        line = self._stdout.readline()
        return _parsed(line) if line else None

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()  # does nothing once the process was waited for

    def close_input(self) -> None:
        with suppress(OSError):  # unsent bytes, and no reader
            self._stdin.close()

    def wait(self) -> None:
        """Close the output and wait for the exit."""
        self._stdout.close()
        self._process.wait()


# -- child -------------------------------------------------------------------------------------------------------


class RequestReader:
    """Requests from standard input. Its thread exits the process at the end of input, even while a request runs."""

    def __init__(self, threads: Threads) -> None:
        self._arrived = threads.condition()
        self._lines: deque[bytes] = deque()
        threads.start("end-with-owner", self._read)

    def next(self) -> Message:
        """Wait for the next request."""
        with self._arrived:
            while not self._lines:
                self._arrived.wait()
            line = self._lines.popleft()
        request: Message = json.loads(line)
        return request

    def _read(self) -> None:
        """Unbuffered: the lock of a buffered reader would block the interpreter's exit."""
        line = bytearray()
        try:
            while piece := os.read(0, _READ_BYTES):
                *rests, last = piece.split(b"\n")
                for rest in rests:
                    self._add(bytes(line + rest))
                    line.clear()
                line += last
        finally:  # input that cannot be read counts as ended
            os._exit(0)

    def _add(self, line: bytes) -> None:
        with self._arrived:
            self._lines.append(line)
            self._arrived.notify_all()


def send_message(message: Message) -> None:
    """Send one line to the owner: one write, if it is below the buffer of 8 KiB."""
    sys.stdout.buffer.write(_line(message))
    sys.stdout.buffer.flush()


# -- both --------------------------------------------------------------------------------------------------------


def error_to_json(error: BaseException) -> Message:
    if isinstance(error, Damage):
        return {"family": "Damage", "what": error.bare, "hint": error.hint, "path": error.path, "offset": error.offset}
    if isinstance(error, WarrenError):
        return {"family": type(error).__name__, "what": error.what, "hint": error.hint}
    return {"family": "DiskFailure", "what": f"the worker failed: {error!r}", "hint": "see its standard error"}


def error_from_json(raw: Message) -> WarrenError:
    """The inverse of `error_to_json`. A family that is unknown here becomes a `DiskFailure`."""
    family, what, hint = (str(raw.get(name, "")) for name in ("family", "what", "hint"))
    if family == Damage.__name__:
        return Damage(what, raw.get("path", ""), raw.get("offset", 0), hint)
    return _FAMILIES.get(family, DiskFailure)(what, hint)


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _parsed(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError:  # the child was killed in the middle of a line
        return {}
    return message if isinstance(message, dict) else {}
