"""Work on queues: what is done to one of them, or to several at once, under their locks and in one session.

    lock, in the order of ids ──▶ decide and change ──▶ end the session ──▶ hand out, note times ──▶ unlock ──▶ wait?

Nobody waits for the disk in here: whoever wants to know that it is durable waits for `epoch` afterwards.

Most work needs one lock. Where a message may move on to another queue the first try ends in `WiderLocksNeeded`, before anything
has changed, and is made again with the locks of all queues that the move may touch. Locks are always taken in the
order of queue ids, so that nobody waits in a circle.

Dead-lettering is a worklist, not a recursion: a queue that goes over its limit, or rejects a publish, is noted, and the
end of the work moves what it has to move, which may note further queues. Where that is too much for one session, or the
targets are not held, the rest is in `left_over` and `rejected` for the next unit of work. A publish that was rejected
exists in memory only until then.

An error before anything was touched is a refusal, and passes. Once something was touched memory may be ahead of the
log: the session is given up. The queue at fault has failed (supervisor), and so has every other one that was touched,
unless its backing queue could undo what was published to it and settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from warren.base.ids import Epoch, QueueId
from warren.base.messages import Publication
from warren.broker.queue_arguments import STEP_BYTES
from warren.queue_index.batch import IndexBatch

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.broker.queue_handle import QueueHandle


_NOTHING = Epoch(0)
HOPS_MAX = 1000  # publishes into dead-letter targets in one unit of work


class WiderLocksNeeded(Exception):
    """Nothing has changed yet: try again with the queues that messages may move to."""


class RejectedPublish(NamedTuple):
    """Messages that a full queue did not accept, and that are to be dead-lettered by it."""

    queue: QueueId
    publication: Publication


class UnitOfWork:
    """With the locks of some queues held."""

    __slots__ = (
        "_begin",
        "_by_id",
        "_changes",
        "_reached",
        "at_work",
        "epoch",
        "fresh",
        "has_ended",
        "held",
        "hops",
        "is_wide",
        "left_over",
        "moved_bytes",
        "over",
        "rejected",
        "touched",
    )

    def __init__(
        self,
        begin: Callable[[], IndexBatch],
        held: Sequence[QueueHandle],
        is_wide: bool,
        reached: Collection[QueueId] = (),
    ) -> None:
        self._begin = begin
        self._changes: IndexBatch | None = None
        self.held = held
        self._by_id = {each.id: each for each in held}
        self._reached = reached  # queues that messages may move to, whether they can be held or not
        self.is_wide = is_wide  # everything that messages may move to is held
        self.touched: dict[Queue, None] = {}
        self.at_work: Queue | None = None  # whose code runs: what goes wrong now is its fault
        self.over: list[Queue] = []  # they may hold more than they should
        self.left_over: list[QueueId] = []  # they do: there was too much for one session
        self.rejected: deque[RejectedPublish] = deque()  # not dead-lettered yet
        self.fresh: set[Queue] = set()  # they were empty, somebody waited, and something came
        self.has_ended = False  # what was done is in the log; an error after that undoes nothing
        self.moved_bytes = 0  # from queue to queue
        self.hops = 0  # the same, in publishes: a small message may go through very many queues
        self.epoch = _NOTHING  # when this is durable, so is everything that was done

    @property
    def changes(self) -> IndexBatch:
        """Begun when it is needed: most that is fetched changes nothing on disk."""
        if self._changes is None:
            self._changes = self._begin()
        return self._changes

    def touch(self, queue: Queue) -> None:
        """Its memory may be ahead of the log from now on."""
        self.at_work = queue
        self.touched[queue] = None

    # -- queues that messages move to ----------------------------------------------------------------------------

    def knows(self, id_: QueueId) -> bool:
        """Whether it is held, or is known to serve nobody; else the routing has changed since the locks were taken, or
        it is being restarted: messages for it stay where they are."""
        handle = self._by_id.get(id_)
        return id_ in self._reached if handle is None else not handle.is_starting

    def queue(self, id_: QueueId) -> Queue | None:
        """The queue of this id, among those that are held; None if it does not serve."""
        handle = self._by_id.get(id_)
        return None if handle is None else handle.queue

    def name_of(self, id_: QueueId) -> str:
        """Of a queue that is held; else empty."""
        handle = self._by_id.get(id_)
        return "" if handle is None else handle.name

    @property
    def room_bytes(self) -> int:
        """How much may still move: what is more is left for another session."""
        return STEP_BYTES - self.moved_bytes if self.hops < HOPS_MAX else 0

    @property
    def room_messages(self) -> int:
        """The same in messages, each of which may become a publish of its own; one at least."""
        return max(HOPS_MAX - self.hops, 1)

    def stop_moving(self) -> None:
        """Nothing more in this piece of work: the routing is not any more what the locks were taken for."""
        self.moved_bytes = max(self.moved_bytes, STEP_BYTES)

    # -- its end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        self._dead_letter()
        self.at_work = None
        changes, self._changes = self._changes, None
        if changes is not None:
            self.epoch = max(self.epoch, changes.end())  # of a second session that wrote nothing there is no epoch
        self.has_ended = True

    def _dead_letter(self) -> None:
        while True:
            if self.over:
                queue = self.over.pop()
                queue.bound(self)
                if queue.is_over():
                    self.left_over.append(queue.id)
            elif self.rejected and self.is_wide and self.room_bytes > 0:
                id_, publication = self.rejected.popleft()
                if (rejecting := self.queue(id_)) is not None:
                    self.at_work = rejecting
                    rejecting.leaving.dead_letter(publication, self)
            else:
                return

    def failed(self) -> list[Queue]:
        """After `abort`: the queue at fault, and those whose memory is ahead of the log. If the session itself failed,
        all of them."""
        if self.at_work is None:
            return list(self.touched)
        return [queue for queue in self.touched if queue is self.at_work or not queue.is_rolled_back()]

    def abort(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.abort()


class OpenUnitOfWork(AbstractContextManager[UnitOfWork]):
    """`with Working(…) as work:` takes the locks, and ends the session before it lets go of them."""

    def __init__(
        self,
        begin: Callable[[], IndexBatch],
        handles: Sequence[QueueHandle],
        failed: Callable[[UnitOfWork, BaseException], BaseException],
        is_wide: bool = False,
        reached: Collection[QueueId] = (),
        is_patient: bool = True,
    ) -> None:
        """`is_patient`: wait for queues that are being restarted; else they serve nobody in this work."""
        if len(handles) > 1:
            handles = sorted(dict.fromkeys(handles), key=lambda each: each.id)
        self._held = handles
        self._work = UnitOfWork(begin, handles, is_wide, reached)
        self._failed = failed
        self._is_patient = is_patient

    def __enter__(self) -> UnitOfWork:
        taken = 0
        if self._is_patient:
            for handle in self._held:
                handle.come_up()
        try:
            for handle in self._held:
                handle.lock.__enter__()
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
                for queue in list(work.touched):
                    queue.attend(work)
                work.end()  # what could not be handed over was requeued
        except BaseException as failure:
            own = failure
        if work.epoch:
            for handle in self._held:
                handle.epoch = work.epoch
        failed: list[Queue] = []
        try:
            if own is not None:
                work.abort()
                failed = [] if isinstance(own, WiderLocksNeeded) else work.failed()
                for queue in failed:
                    queue.fail(own)
        finally:
            self._unlock(len(self._held))
        if own is not None and failed:
            raise self._failed(work, own) from own
        if own is not error and own is not None:
            raise own

    def _unlock(self, count: int) -> None:
        for handle in self._held[:count]:
            handle.lock.__exit__(None, None, None)
