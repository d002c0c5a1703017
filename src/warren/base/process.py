"""Owning process: detects that a store is used in a forked child. A child inherits the memory, but not the threads.

    owner     warren.open ──▶ OwningProcess ──▶ check() passes
      └─ fork ─▶ child       the same object ──▶ check() raises `ForkedProcess`

Parent and child would write to the same offsets of the same files with the same epoch numbers, and the next opening
would find damage. Locks that a thread of the parent held at the fork stay locked in the child forever, so every entry
point checks before it takes a lock.

Destructors also reach the files: RocksDB flushes when its object is destroyed, SQLite removes its write-ahead log.
Objects that own one of them are registered by `call_in_children`; in the child they are never destroyed.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

from warren.base.errors import ForkedProcess


class OwningProcess:
    """The process that created this object; `where` names the directory in the error."""

    __slots__ = ("_pid", "_where")

    def __init__(self, where: str) -> None:
        self._where = where
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise forked_process(self._where, self._pid)


def forked_process(where: str, owner_pid: int) -> ForkedProcess:
    return ForkedProcess(
        f"{where} was opened by process {owner_pid}; process {os.getpid()} is a fork of it and cannot use it",
        "one process owns a store: open it after the fork and in one process only, or run `warren serve` and connect "
        "to it from each process",
    )


class Inherited(Protocol):
    def forked(self) -> None:
        """Called in a forked child before anything else runs there. Changes no file."""
        ...


_inherited: WeakSet[Inherited] = WeakSet()


def call_in_children(inherited: Inherited) -> None:
    """Call `inherited.forked()` in every child that is forked while the object exists."""
    _inherited.add(inherited)


def never_destroy(*objects: object) -> None:
    """Add one reference to each object: it is not destroyed, not even when the interpreter ends."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _after_fork() -> None:
    for each in list(_inherited):
        each.forked()


os.register_at_fork(after_in_child=_after_fork)
