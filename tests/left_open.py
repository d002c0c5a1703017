"""Stores that a stage has opened for a module of tests. Those that were not closed are released when all of them are
over, as when a machine is switched off: their threads end, and nothing more is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from warren.log.store import LogStore
from warren.snapshot.database import Database
from warren.testing.memory_files import PowerCut

Store = TypeVar("Store", LogStore, Database)
_MANY = 50  # some tests open thousands

_opened: list[LogStore | Database] = []
_closings: list[Callable[[], None]] = []


def remembered(store: Store) -> Store:
    if len(_opened) > _MANY:
        _opened[:] = [each for each in _opened if _is_open(each)]
    _opened.append(store)
    return store


def forget(store: LogStore | Database) -> None:
    """Release it: its test needs the directory unlocked."""
    _opened[:] = [each for each in _opened if each is not store]


def close_at_the_end(close: Callable[[], None]) -> None:
    """Of something that may be closed twice."""
    _closings.append(close)


def switch_off_machines() -> None:
    while _closings:
        _closings.pop()()
    while _opened:
        store = _opened.pop()
        if _is_open(store):
            with suppress(PowerCut):  # it was off already
                store.abandon()


def _is_open(store: LogStore | Database) -> bool:
    log = store.log if isinstance(store, Database) else store
    return log._is_open
