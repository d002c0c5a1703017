"""The control socket: a process sends a command to another one on the same machine, and gets an answer.

    {"command": "persist"}                                     ──▶  the handler of that name; a line, at most 64 KiB
    {"status": "ok", …}                                        ◀──  what it returned; a line, at most 16 MiB
    {"status": "failed", "error": …, "hint": …, "family": …}   ◀──  or why it failed

A Unix socket, mode 0600: the owner of the directory may send commands. One connection is one command. One thread runs
them one after another, so handlers never run concurrently; a long command delays the next one. A client that connects
and sends nothing, or does not read, is disconnected after some seconds. A command that fails by a defect is an alarm
until a later one succeeds (base/threads).

The name of a socket outlives its process. A name without a listener is replaced, one with a listener is not (`Locked`),
unless the caller holds a lock that makes the name its own. A path longer than the system accepts (107 bytes) is reached
through the open directory, /proc/self/fd/<n>/<name>.

Invariants: no more than the limit of a request is held in memory; each command is answered, or the connection ends.
Elsewhere: what the commands do (snapshot/puller, embedded/database).
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from warren.base.environment import Clock, SystemClock
from warren.base.errors import DiskFailure, Locked, Misuse, Refused, WarrenError
from warren.base.threads import Background, SystemThreads, Threads
from warren.files.local import translated
from warren.files.protocol import base_name, parent
from warren.workers.process import Message, error_from_json

REQUEST_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 16 << 20
PATIENCE_SECONDS = 5.0
_PATH_BYTES_MAX = 107
_PIECE_BYTES = 64 << 10
_WAITING_MAX = 16
_PAUSE_SECONDS = 0.1
Handler = Callable[[Message], Message]


class NotListening(Refused):
    """There is no socket, or no process behind it."""


class NoAnswer(Refused):
    """It did not come in time. The command may still run."""


class ControlServer:
    """Listens from its creation until `close`."""

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler],
        threads: Threads | None = None,
        clock: Clock | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        takes_over: bool = False,
        background: Background | None = None,
    ) -> None:
        """`takes_over`: the caller holds a lock for the name, so that a present listener is replaced."""
        self.path = path
        self._handlers = dict(handlers)
        self._clock = clock or SystemClock()
        self._patience_seconds = patience_seconds
        self._task = (background or Background()).task("control-socket", "a control command is not answered")
        threads = threads or SystemThreads()
        self._pausing = threads.condition()
        self._is_closing = False
        with translated("listen at", path):
            self._listener, self._inode = listener_at(path, takes_over)
        self._thread = threads.start("warren-control", self._run)

    def close(self) -> None:
        """Stop listening; the running command is answered first. Not from a handler."""
        with self._pausing:
            self._is_closing = True
            self._pausing.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._thread.join()
        self._listener.close()
        with suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                with self._pausing:
                    if not self._is_closing:  # perhaps too many open files, which passes
                        self._pausing.wait(_PAUSE_SECONDS)
                    if self._is_closing:
                        return
                continue
            with connection:
                self._task.run(partial(self._answer_if_connected, connection))

    def _answer_if_connected(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client has disconnected
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(self._patience_seconds * 1e9)
        try:
            line = _read_line(connection, REQUEST_BYTES_MAX, deadline_ns, self._clock)
            answer = self._done(_object(line, "a request"))
        except WarrenError as error:
            answer = failure_to_json(error)
        connection.settimeout(self._patience_seconds)
        connection.sendall(_answer_line(answer))

    def _done(self, request: Message) -> Message:
        handler = self._handlers.get(str(request.get("command")))
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            raise Refused(f"there is no command {request.get('command')!r} here", f"known are: {known}")
        try:
            return {"status": "ok", **handler(request)}
        except WarrenError:
            raise
        except Exception as error:
            what = f"{request['command']} failed: {error!r}"
            raise DiskFailure(what, "this is a defect of Warren: please report it") from error


def call(path: str, request: Mapping[str, Any], timeout: float, clock: Clock | None = None) -> Message:
    """Send a command; its answer. Raises what the handler raised, `NotListening` or `NoAnswer`."""
    clock = clock or SystemClock()
    line = _line(dict(request))
    if len(line) > REQUEST_BYTES_MAX:
        raise Misuse(f"a request of {len(line)} bytes; at most {REQUEST_BYTES_MAX} are taken")
    deadline_ns = clock.monotonic_ns() + int(timeout * 1e9)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            with reachable(path) as near:
                connection.connect(near)
            connection.sendall(line)
            answer = _object(_read_line(connection, ANSWER_BYTES_MAX, deadline_ns, clock), "an answer")
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotListening(f"no process listens at {path}", "the process that serves it does not run") from error
    except (TimeoutError, BlockingIOError) as error:
        raise NoAnswer(f"no answer from {path} within {timeout:g} seconds", "it may be busy: try again") from error
    except ConnectionError as error:
        raise NotListening(f"the process that listened at {path} has ended", "it ended before it answered") from error
    except OSError as error:
        with translated("send a command to", path):
            raise error
    if answer.get("status") == "ok":
        return answer
    raise failure_from_json(answer)


# -- lines -------------------------------------------------------------------------------------------------------


def _read_line(connection: socket.socket, bytes_max: int, deadline_ns: int, clock: Clock) -> bytes:
    """Read up to the newline, at most so many bytes, until the deadline."""
    line = bytearray()
    while not line.endswith(b"\n"):
        left = (deadline_ns - clock.monotonic_ns()) / 1e9
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        piece = connection.recv(min(_PIECE_BYTES, bytes_max + 1 - len(line)))
        if not piece:
            raise ConnectionResetError("the connection ended within a line")
        line += piece
        if len(line) > bytes_max:
            raise Refused(f"a line of more than {bytes_max} bytes", "ask for less")
    return bytes(line)


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _answer_line(answer: Message) -> bytes:
    line = _line(answer)
    if len(line) <= ANSWER_BYTES_MAX:
        return line
    what = f"an answer of {len(line)} bytes; at most {ANSWER_BYTES_MAX} are sent"
    return _line(failure_to_json(Refused(what, "ask for less")))


def _object(line: bytes, what: str) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is one line of JSON, this one is not: {error}") from error
    if not isinstance(message, dict):
        raise Refused(f"{what} is a JSON object, not {type(message).__name__}")
    return message


def failure_to_json(error: WarrenError) -> Message:
    """An error as an answer; `failure_from_json` raises it with the same family."""
    return {"status": "failed", "error": error.what, "hint": error.hint, "family": type(error).__name__}


def failure_from_json(answer: Message) -> WarrenError:
    """The inverse of `failure_to_json`."""
    return error_from_json({**answer, "what": answer.get("error", "")})


# -- names -------------------------------------------------------------------------------------------------------


def listener_at(path: str, takes_over: bool) -> tuple[socket.socket, int]:
    """A socket that listens there, and the inode of its name, to remove only that one."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as near:
            _remove_stale(path, near, takes_over)
            listener.bind(near)
        os.chmod(path, 0o600)  # before clients can connect, which they can from `listen` on
        inode = os.stat(path).st_ino
        listener.listen(_WAITING_MAX)
    except BaseException:
        listener.close()
        raise
    return listener, inode


def _remove_stale(path: str, near: str, takes_over: bool) -> None:
    """Remove the name of a socket whose process has ended, or has no right to it."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"{path} is not a socket", "move it away: the control socket needs this name")
    if takes_over:
        os.unlink(path)
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(near)
        except BlockingIOError:
            pass  # it listens, but is busy
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Locked(f"another process listens at {path}", "stop that one first")


@contextmanager
def reachable(path: str) -> Iterator[str]:
    """A name for the path that is short enough for the system, valid within the `with`."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield path
        return
    directory = os.open(parent(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        near = f"/proc/self/fd/{directory}/{base_name(path)}"
        if len(os.fsencode(near)) > _PATH_BYTES_MAX:
            raise Refused(f"the name of a socket is too long: {base_name(path)}", "choose a shorter one")
        yield near
    finally:
        os.close(directory)
