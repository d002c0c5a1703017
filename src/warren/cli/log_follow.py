"""`warren log follow DIR`: print entries as they become durable, from beside the process that writes them.

The directory is watched (inotify); nothing is read until something in it has changed. Ends with SIGINT or SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.log_dump import as_line, as_object, rows_of
from warren.cli.output import Credentials, Directory

if TYPE_CHECKING:
    from warren.log.tail import TailBlock


def follow(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per entry, bytes as hex.")] = False,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", min=1, help="Begin with this epoch, not with the next one.")
    ] = None,
    credentials: Credentials = False,
) -> None:
    """Print the entries of a log directory as they become durable. Changes nothing; ends with SIGINT or SIGTERM."""
    from warren.base.ids import Epoch
    from warren.files.local import LocalFiles
    from warren.log.follow import Follower
    from warren.log.watching import changes

    follower = Follower(LocalFiles(), directory, None if from_epoch is None else Epoch(from_epoch - 1))
    with asked_to_end() as ended:
        for _ in changes(directory, ended):
            for block in follower.read():
                for entry in _entries(block, credentials):
                    sys.stdout.write((json.dumps(as_object(entry)) if as_json else as_line(entry)) + "\n")
            sys.stdout.flush()


@contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """An event that is set when somebody wants the process to end."""
    ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: ended.set()) for number in numbers]
    try:
        yield ended
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _entries(block: TailBlock, credentials: bool) -> Iterator[dict[str, Any]]:
    from warren.base.ids import file_of_lsn

    return rows_of(block.columns, f"file {file_of_lsn(block.first)}", credentials)
