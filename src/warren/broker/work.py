"""Work on queues: what is done to one of them, or to several at once, under their locks and in one session.

    lock, in the order of ids ──▶ decide and change ──▶ end the session ──▶ hand out, note times ──▶ unlock ──▶ wait?

Nobody waits for the disk in here: whoever wants to know that it is durable waits for `epoch` afterwards.

Most work needs one lock. Where a message may move on to another queue the first try ends in `Wider`, before anything
has changed, and is made again with the locks of all queues that the move may touch. Locks are always taken in the
order of queue ids, so that nobody waits in a circle.

An error before anything was touched is a refusal, and passes. Once something was touched memory may be ahead of the
log: the session is given up, and every queue that was touched has failed (supervisor).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from warren.base.ids import Epoch
from warren.queue_index.changes import Changes

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.broker.supervisor import Supervised

_NOTHING = Epoch(0)


class Wider(Exception):
    """Nothing has changed yet: try again with the queues that messages may move to."""


class Work:
    """With the locks of some queues held."""

    __slots__ = (
        "_begin",
        "_changes",
        "at_work",
        "epoch",
        "held",
        "is_wide",
        "moved_bytes",
        "over",
        "touched",
    )

    def __init__(self, begin: Callable[[], Changes], held: Sequence[Supervised], is_wide: bool) -> None:
        self._begin = begin
        self._changes: Changes | None = None
        self.held = held
        self.is_wide = is_wide  # everything that messages may move to is held
        self.touched: list[Queue] = []
        self.at_work: Queue | None = None  # whose code runs: what goes wrong now is its fault
        self.over: list[Queue] = []  # they may hold more than they should
        self.moved_bytes = 0  # from queue to queue
        self.epoch = _NOTHING  # when this is durable, so is everything that was done

    @property
    def changes(self) -> Changes:
        """Begun when it is needed: most that is fetched changes nothing on disk."""
        if self._changes is None:
            self._changes = self._begin()
        return self._changes

    def touch(self, queue: Queue) -> None:
        """Its memory may be ahead of the log from now on."""
        self.at_work = queue
        if queue not in self.touched:
            self.touched.append(queue)

    def named(self, name: str) -> Queue | None:
        """The queue of this name, among those that are held; None if there is none that serves."""
        return next((each.queue for each in self.held if each.name == name and each.queue is not None), None)

    def end(self) -> None:
        while self.over:
            self.over.pop().bound(self)
        self.at_work = None
        changes, self._changes = self._changes, None
        if changes is not None:
            self.epoch = max(self.epoch, changes.end())  # of a second session that wrote nothing there is no epoch

    def abort(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.abort()


class Working(AbstractContextManager[Work]):
    """`with Working(…) as work:` takes the locks, and ends the session before it lets go of them."""

    def __init__(
        self,
        begin: Callable[[], Changes],
        children: Sequence[Supervised],
        failed: Callable[[Work, BaseException], BaseException],
        is_wide: bool = False,
    ) -> None:
        if len(children) > 1:
            children = sorted(dict.fromkeys(children), key=lambda each: each.id)
        self._held = children
        self._work = Work(begin, children, is_wide)
        self._failed = failed

    def __enter__(self) -> Work:
        taken = 0
        for child in self._held:
            child.come_up()
        try:
            for child in self._held:
                child.lock.__enter__()
                taken += 1
        except BaseException:
            self._unlock(taken)
            raise
        return self._work

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work, own = self._work, error
        try:
            if error is None:
                work.end()
                for queue in work.touched:
                    queue.attend(work)
                work.end()  # what could not be handed over was requeued
                if work.epoch:
                    for child in self._held:
                        child.epoch = work.epoch
        except BaseException as failure:
            own = failure
        failed = [] if isinstance(own, Wider) else work.touched
        try:
            if own is not None:
                work.abort()
                for queue in failed:
                    queue.fail(own)
        finally:
            self._unlock(len(self._held))
        if own is not None and failed:
            raise self._failed(work, own) from own
        if own is not error and own is not None:
            raise own

    def _unlock(self, count: int) -> None:
        for child in self._held[:count]:
            child.lock.__exit__(None, None, None)
