"""The compaction thread and its `ctrl` directory.

    ctrl/start_compaction    whoever makes this file asks for a compaction; it is deleted when it is seen, so that one
                             made during a run starts another run
    ctrl/compaction_result   what came of it, one JSON object (`comaction_result`, the seed's spelling, is a link to it)

One thread, made when opening ends and ended by `close`: so two compactions never run at once. It also starts one by
itself when too much of the log may be superseded, and purges what nobody holds any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.base.threads import Threads
from warren.files import atomic
from warren.files.protocol import Files, join
from warren.log.layout import CTRL

START = "start_compaction"
RESULT = "compaction_result"
RESULT_ALIAS = "comaction_result"


class Maintained(Protocol):
    """What the thread calls."""

    def compact(self) -> dict[str, Any]: ...

    def is_compaction_due(self) -> bool: ...

    def purge(self) -> object: ...


class CompactionThread:
    def __init__(
        self, files: Files, directory: str, clock: Clock, threads: Threads, maintained: Maintained, poll_seconds: float
    ) -> None:
        self._files = files
        self._home = join(directory, CTRL)
        self._clock = clock
        self._maintained = maintained
        self._poll_seconds = poll_seconds
        self._bell = threads.condition()
        self._is_stopping = False
        self.failures: list[WarrenError] = []
        files.make_directories(self._home)
        self._thread = threads.start("warren-compaction", self._run)

    def stop(self, give_up: Callable[[], None] = lambda: None) -> None:
        """End the thread; `give_up` ends the job it may be waiting for."""
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        give_up()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_stopping:
                    self._bell.wait(self._poll_seconds)
                if self._is_stopping:
                    return
            self._guarded(self._look)

    def _look(self) -> None:
        start = join(self._home, START)
        if self._files.exists(start):
            self._files.remove(start)
            self._write_result(self._compacted())
            return
        if self._maintained.is_compaction_due():
            self._maintained.compact()
        self._maintained.purge()

    def _compacted(self) -> dict[str, Any]:
        try:
            result = {"status": "ok", **self._maintained.compact()}
            self._maintained.purge()
            return result
        except WarrenError as error:
            return {"status": "failed", "error": error.what, "hint": error.hint}

    def _write_result(self, result: dict[str, Any]) -> None:
        told = {"finished_ns": self._clock.wall_ns(), **result}
        path, alias = join(self._home, RESULT), join(self._home, RESULT_ALIAS)
        atomic.replace(self._files, path, [json.dumps(told).encode() + b"\n"])
        if self._files.exists(alias):
            self._files.remove(alias)
        self._files.link(path, alias)

    def _guarded(self, work: Callable[[], None]) -> None:
        """A failed look is kept for whoever asks; the next poll tries anew."""
        try:
            work()
        except WarrenError as error:
            self.failures = [*self.failures[-9:], error]
