"""RocksDB and forked processes. RocksDB starts its background threads once for a process; a forked child has the record
of them, but not the threads: a flush there waits for ever, and the library's own exit handler joins them and crashes.

    check_process   before RocksDB is opened: a child of a process that used RocksDB is refused
    at the fork     the child is set up to skip C exit handlers; Python's own (`atexit`, finalizers) run as always
"""

from __future__ import annotations

import ctypes
import os

from warren.base.errors import ForkedProcess
from warren.base.process import call_in_children


class _Threads:
    """The background threads of RocksDB in this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        call_in_children(self)

    def forked(self) -> None:
        libc = ctypes.CDLL(None)
        on_exit = getattr(libc, "on_exit", None)  # in glibc; called with the exit status, before older handlers
        if on_exit is not None:
            on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


_threads: _Threads | None = None


def check_process(directory: str) -> None:
    """Raise if RocksDB cannot be opened in this process."""
    global _threads  # noqa: PLW0603 - RocksDB's threads are one set for a process too
    if _threads is None:
        _threads = _Threads()
    elif _threads.pid != os.getpid():
        raise ForkedProcess(
            f"{directory} cannot be opened: process {os.getpid()} is a fork of process {_threads.pid}, which has "
            "opened a store before",
            "open no store before the fork, or start the process by multiprocessing's `spawn` or `forkserver`",
        )
