"""Noticing that something in a log directory has changed, from beside the process that writes it.

    for _ in changes(directory, ended):        inotify, through watchfiles: changes close to one another come as one
        …read what is new (log/follow, snapshot/puller)

The owner knows nothing of it. A change says no more than "look": what is durable stands in the epoch file, and writing
that is such a change. The first turn comes when the watch is set up: nothing falls between looking and watching.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

QUIET_MS = 20  # changes that come closer together than this are looked at together
SETTLED_MS = 100


class WatchEnded(Protocol):
    """Something that is set, from any thread, when nobody wants to watch any more. A `threading.Event` is one."""

    def is_set(self) -> bool: ...


def changes(directory: str, ended: WatchEnded) -> Iterator[None]:
    """Once at the beginning, and then whenever something in the directory has changed."""
    from watchfiles import watch

    watching = watch(
        directory,
        watch_filter=None,
        debounce=SETTLED_MS,
        step=QUIET_MS,
        stop_event=ended,
        recursive=False,
        yield_on_timeout=True,
        rust_timeout=QUIET_MS,
        raise_interrupt=False,
    )
    is_first = True
    for seen in watching:
        if seen or is_first:
            is_first = False
            yield
