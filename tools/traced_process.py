"""Traced process: runs the `warren` command line with a profiler that another process switches on and off.

    python -m tools.traced_process FD serve --data-dir D …

    FD   a Unix socket; each request and each reply is one line
         start   forget all entries and record from now on   ──▶ {}
         stop    stop recording                              ──▶ {"entries": [[file, function, thread, caller, root] …]}
         idle    time since a function was last entered      ──▶ {"seconds": 0.25}
         end of file: the process terminates itself

The profiler is installed before the first module of `warren` is imported, so that every thread has it from its first
call on; Python 3.11 cannot install one in a thread that runs already. Recording is on at the start, until `stop`.

Invariants
* Sources are imported, never compiled modules: a compiled function is invisible to a profiler.
* Functions called while a module is being imported (decorators, tables) are not recorded.
* The only internal name used is the console script, `warren.cli.main:main`.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

PACKAGE = "warren"
_IMPORT = "<import>"
_MODULE = "<module>"


class Entry(NamedTuple):
    """A function of the package was entered."""

    file: str  # relative to the package: log/session.py
    function: str  # qualified name
    thread: str
    caller: str  # file of the nearest frame of the package below it that was entered during the recording; or empty
    root: str  # file:function of the outermost such frame: the callback or request all of it belongs to


class Recorder:
    """Profile function that records which functions of a package are entered, each combination once, in order."""

    def __init__(self, package_directory: Path) -> None:
        self._prefix = f"{package_directory}{os.sep}"
        self._files: dict[CodeType, str] = {}
        self._entries: dict[Entry, None] = {}
        self._roots: dict[int, str] = {}  # by id of a frame that was entered and has not returned
        self._last_ns = time.monotonic_ns()
        self._is_recording = False

    def install(self) -> None:
        """In this thread and in all that start later."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def start(self) -> None:
        self._entries = {}
        self._roots = {}
        self._last_ns = time.monotonic_ns()
        self._is_recording = True

    def stop(self) -> list[Entry]:
        self._is_recording = False
        return list(self._entries)

    @property
    def idle_seconds(self) -> float:
        return (time.monotonic_ns() - self._last_ns) / 1e9

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._is_recording:
            return
        if event == "call":
            if file := self._file(frame.f_code):
                self._entered(frame, file)
        elif event == "return":
            self._roots.pop(id(frame), None)

    def _entered(self, frame: FrameType, file: str) -> None:
        code = frame.f_code
        if code.co_name == _MODULE:
            self._roots[id(frame)] = _IMPORT
            return
        below = self._below(frame)
        root = self._roots.get(id(below)) if below is not None else None
        caller = "" if root is None or below is None else self._file(below.f_code)
        if root is None:
            root = f"{file}:{code.co_qualname}"
        self._roots[id(frame)] = root
        if root == _IMPORT or not code.co_flags & inspect.CO_OPTIMIZED:  # class bodies are no functions
            return
        self._last_ns = time.monotonic_ns()
        self._entries.setdefault(Entry(file, code.co_qualname, threading.current_thread().name, caller, root))

    def _below(self, frame: FrameType) -> FrameType | None:
        """The nearest frame of the package that called this one, through other libraries too."""
        below = frame.f_back
        while below is not None and not self._file(below.f_code):
            below = below.f_back
        return below

    def _file(self, code: CodeType) -> str:
        """Empty: not of the package."""
        file = self._files.get(code)
        if file is None:
            path = code.co_filename
            file = path[len(self._prefix) :] if path.startswith(self._prefix) else ""
            self._files[code] = file
        return file


class SourceFinder:
    """Finds the sources of one package, also where compiled modules lie beside them."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._package and not name.startswith(f"{self._package}."):
            return None
        for directory in sys.path if path is None else path:
            spec = FileFinder(directory or ".", (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            if spec is not None and spec.origin is not None:
                return spec
        return None


def serve_control(recorder: Recorder, control: socket.socket) -> None:
    """Answer requests until the other side closes the socket; then this process is of no use any more."""
    with control, control.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            lines.write(json.dumps(_reply(recorder, line.strip())) + "\n")
            lines.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def _reply(recorder: Recorder, request: str) -> dict[str, Any]:
    match request:
        case "start":
            recorder.start()
            return {}
        case "stop":
            return {"entries": recorder.stop()}
        case "idle":
            return {"seconds": recorder.idle_seconds}
        case _:
            return {"error": f"unknown request {request!r}"}


def main(arguments: Sequence[str]) -> int:
    descriptor = int(arguments[0])
    os.set_inheritable(descriptor, False)  # workers of the broker do not keep the socket open
    sys.meta_path.insert(0, SourceFinder(PACKAGE))
    recorder = Recorder(_package_directory())
    control = socket.socket(fileno=descriptor)
    threading.Thread(target=serve_control, args=(recorder, control), name="trace-control", daemon=True).start()
    recorder.install()
    recorder.start()
    from warren.cli.main import main as warren

    return warren(arguments[1:])


def _package_directory() -> Path:
    spec = SourceFinder(PACKAGE).find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"no sources of {PACKAGE} on the path\n  hint: PYTHONPATH=src, from the root of a checkout")
    return Path(spec.origin).parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
