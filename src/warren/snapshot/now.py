"""Reads as of now: everything that is durable, whether or not the store has taken it.

    store        up to its mark ─────────────┐
    log                     behind the mark ─┴─ read once, block by block, and kept as an overlay ──▶ NowView

Usually the store takes what is durable when somebody asks, and its own view is the answer. It can not if the version of
an entry is still to come, if reflection is off, paused or broken down, or if another process applies. Then the rest is
read from the log's files and laid over what the store shows. The overlay is kept and grows by what became durable since
the last question; what the store has taken meanwhile is dropped from it. If it would come to more than `overlay_bytes`,
whoever applies is asked to do so first, if anybody can be asked; what is left then is overlaid, however much it is.

A database has a second one that only overlays, for readers that must not apply anything, such as the event loop.

Always true: a view shows every epoch that was durable when it was asked for, whole. Files of the log may go while they
are read only if the store has what was in them on its disk (`reflected`): if that has come past the view's mark, the
reading may have missed something, and is done again with a newer view.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.log.tail import LogTail
from warren.snapshot.applied import Applied
from warren.snapshot.now_view import LatestView
from warren.snapshot.overlay import LogOverlay, rows_behind
from warren.snapshot.snapshot_store import ReadView, StoreView

# A view of the store, and an epoch up to which the store was offered every entry: those of them that are not above the
# view's version are in it. 0: nothing is known but the mark.
Look = Callable[[], tuple[StoreView, Epoch]]


class LatestReader:
    """Any thread may ask."""

    def __init__(
        self,
        threads: Threads,
        tail: LogTail,
        durable: Callable[[], Epoch],
        look: Look,
        overlay_bytes: int,
        catch_up: Callable[[], object] | None = None,
    ) -> None:
        self._tail = tail  # of its own: nobody else reads by it
        self._durable = durable
        self._look = look
        self._overlay_bytes = overlay_bytes
        self._catch_up = catch_up
        self._lock = threads.condition()
        self._overlay = LogOverlay()
        self._mark: Applied | None = None  # the overlay is what lies between this mark and where the tail has come to
        self._offered = Epoch(0)
        self._asked = Epoch(0)  # whoever applies was last asked at this epoch

    def view(self) -> ReadView:
        with self._lock:
            while True:
                durable = self._durable()
                base, offered = self._look()
                if base.applied.epoch >= durable:
                    return base
                try:
                    view = self._overlaid(base, offered)
                except BaseException:
                    base.close()
                    raise
                if view is not None:
                    return view
                base.close()

    def _overlaid(self, base: StoreView, offered: Epoch) -> ReadView | None:
        """The base, and over it everything that is durable; None: it has to be another base."""
        durable = self._durable()  # asked again: nothing in the base is newer than this
        self._go_to(base.applied, offered)
        try:
            if self._tail.after < durable:
                if self._has_asked_for_less(durable):
                    return None
                self._read(base.applied, durable)
        except WarrenError:
            if self._tail.reflected <= base.applied.epoch:
                raise
        if self._tail.reflected > base.applied.epoch:
            self._mark = None  # begin anew: what was read may have been bytes of a file that is used again
            return None
        return LatestView(base, self._overlay)

    def _go_to(self, mark: Applied, offered: Epoch) -> None:
        """Drop from the overlay what a store with this mark holds."""
        old = self._mark
        is_ahead = old is not None and mark.epoch >= old.epoch and mark.version >= old.version
        if is_ahead and offered >= self._offered:
            self._overlay = self._overlay.behind(mark.epoch, offered, mark.version)
            self._tail.after = max(self._tail.after, mark.epoch)
        else:  # the first time, or the store went back to what was on its disk
            self._overlay = LogOverlay()
            self._tail.rewind(mark.epoch)
        self._mark, self._offered = mark, offered

    def _has_asked_for_less(self, durable: Epoch) -> bool:
        """Whether there was too much, and whoever applies has had its turn; once for each durable epoch."""
        if self._catch_up is None or self._asked >= durable:
            return False
        room = max(self._overlay_bytes - self._overlay.size_bytes, 0)
        if self._tail.waiting_bytes(durable, room) <= room:
            return False
        self._asked = durable
        with suppress(WarrenError):  # then it is overlaid, however much it is
            self._catch_up()
        return True

    def _read(self, mark: Applied, durable: Epoch) -> None:
        blocks = [block.columns for block in self._tail.read(durable)]
        behind = [rows_behind(block, mark.epoch, self._offered, mark.version) for block in blocks]
        self._overlay = self._overlay.extended(behind)
