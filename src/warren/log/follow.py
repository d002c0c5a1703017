"""Following the log from another process: what becomes durable, block by block, for as long as somebody asks.

    watch the directory (whoever waits does) ──▶ read ──▶ the blocks of new epochs, up to the witness ──▶ watch …

The owner knows nothing of a follower and does nothing for it: files may be rotated, renamed and purged between two
readings, and each is opened anew under the name it has then. Only what the epoch file witnesses is shown. A follower
that was too slow, whose next epoch has been purged, is told so: never a gap. It holds no pin.

Not here: waiting for a change (log/watching), records of streams.
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.base.ids import Epoch
from warren.files.protocol import Files
from warren.log.pins import check_not_gone
from warren.log.reading import ReadOnlyLog, open_for_reading
from warren.log.tail import Ends, LogTail, TailBlock


class Follower:
    def __init__(self, files: Files, directory: str, after: Epoch | None = None) -> None:
        """Begin behind an epoch; None: with what becomes durable from now on."""
        self._files = files
        self._directory = directory
        self._log = open_for_reading(files, directory)
        begun = self._log.durable if after is None else after
        self._tail = LogTail(files, directory, lambda: self._log.state, begun, self._ends)

    @property
    def after(self) -> Epoch:
        """Everything up to this epoch was shown, or was not wanted."""
        return self._tail.after

    def read(self) -> Iterator[TailBlock]:
        """What became durable since the last time."""
        self._log = self._opened()
        if self._log.durable > self._tail.after:
            yield from self._tail.read(self._log.durable)

    def _ends(self) -> Ends:
        return self._log.durable_ends()

    def _opened(self) -> ReadOnlyLog:
        log = open_for_reading(self._files, self._directory)
        if log.durable > self._tail.after:
            check_not_gone(log.state, Epoch(self._tail.after + 1), ())
        return log
