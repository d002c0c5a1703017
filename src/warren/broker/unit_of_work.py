"""Unit of work: changes to one queue, or to several at once, under their locks and in one session of the log.

    lock, in the order of ids ──▶ decide and change ──▶ end the index batch ──▶ after_commit of each queue ──▶ unlock
                                                                                 │
    waits for the disk: the caller, for `epoch`, without a lock                  └─ may write: the batch ends again

    with UnitOfWork(index.begin, handles, supervisor.failed) as work:
        queue.put(publication, work)

Most work needs the locks of its own queues only. Where a message may move to a dead-letter target, the first attempt
ends in `TargetLocksNeeded` before anything has changed, and is repeated with the locks of all queues that the move may
touch (`Vhost.execute_once`). Locks are taken in the order of queue ids, so there is no deadlock.

Dead-lettering is a worklist, not a recursion: a queue that exceeds its limit, or rejects a publish, is noted, and the
end of the work moves its messages, which may note further queues. Where that is too much for one session, or the
targets are not locked, the rest is in `left_over` and `rejected` for the next unit of work. A publish that was rejected
exists in memory only until then.

An error before anything was touched is a refusal, and is raised as it is. After that memory may be ahead of the log:
the batch is aborted. The queue at fault has failed (queue_handle.QueueSupervisor), and so has every other queue that
was touched, unless its backing queue could undo its publishes and settlements.
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
    from warren.broker.queue import BrokerQueue
    from warren.broker.queue_handle import QueueHandle


_NOTHING = Epoch(0)
HOPS_MAX = 1000  # publishes into dead-letter targets in one unit of work


class TargetLocksNeeded(Exception):
    """Nothing has changed yet: repeat with the locks of the dead-letter targets."""


class RejectedPublish(NamedTuple):
    """Messages that a full queue did not accept and is to dead-letter."""

    queue: QueueId
    publication: Publication


class UnitOfWork(AbstractContextManager["UnitOfWork"]):
    __slots__ = (
        "_batch",
        "_begin_batch",
        "_by_id",
        "_on_failure",
        "_targets",
        "current_queue",
        "epoch",
        "fresh",
        "handles",
        "has_ended",
        "has_target_locks",
        "hops",
        "is_patient",
        "left_over",
        "moved_bytes",
        "over_limit",
        "rejected",
        "touched",
    )

    def __init__(
        self,
        begin_batch: Callable[[], IndexBatch],
        handles: Sequence[QueueHandle],
        on_failure: Callable[[UnitOfWork, BaseException], BaseException],
        targets: Collection[QueueId] | None = None,
        is_patient: bool = True,
    ) -> None:
        """`on_failure`: restarts the queues that failed, and returns the error for the caller. `targets`: queues that
        messages may move to; those that serve are among `handles`. None: nothing may move. Not `is_patient` (the event
        loop): queues that are being restarted are left out instead of waited for."""
        if len(handles) > 1:
            handles = sorted(dict.fromkeys(handles), key=lambda each: each.id)
        self._begin_batch = begin_batch
        self._batch: IndexBatch | None = None
        self.handles = handles
        self._by_id = {each.id: each for each in handles}
        self._on_failure = on_failure
        self._targets = targets or ()
        self.has_target_locks = targets is not None
        self.is_patient = is_patient
        self.touched: dict[BrokerQueue, None] = {}
        self.current_queue: BrokerQueue | None = None  # an error now is this queue's fault
        self.over_limit: list[BrokerQueue] = []  # may hold more than their limit
        self.left_over: list[QueueId] = []  # do hold more: there was too much for one session
        self.rejected: deque[RejectedPublish] = deque()  # not dead-lettered yet
        self.fresh: set[BrokerQueue] = set()  # were empty, had a waiting consumer, and got a message
        self.has_ended = False  # the changes are in the log; an error after that undoes nothing
        self.moved_bytes = 0  # from queue to queue
        self.hops = 0  # the same, in publishes: a small message may go through very many queues
        self.epoch = _NOTHING  # when this epoch is durable, so are all changes

    @property
    def index_batch(self) -> IndexBatch:
        """Begun when it is needed: most fetches change nothing on disk."""
        if self._batch is None:
            self._batch = self._begin_batch()
        return self._batch

    def touch(self, queue: BrokerQueue) -> None:
        """From now on memory of this queue may be ahead of the log."""
        self.current_queue = queue
        self.touched[queue] = None

    # -- queues that messages move to ----------------------------------------------------------------------------

    def can_move_to(self, id_: QueueId) -> bool:
        """Whether the queue is locked, or is known not to serve. Otherwise the routing has changed since the locks were
        taken, or the queue is being restarted: messages for it stay where they are."""
        handle = self._by_id.get(id_)
        return id_ in self._targets if handle is None else not handle.is_starting

    def queue(self, id_: QueueId) -> BrokerQueue | None:
        """The locked queue of this id; None if it does not serve."""
        handle = self._by_id.get(id_)
        return None if handle is None else handle.queue

    def name_of(self, id_: QueueId) -> str:
        """The name of a locked queue, else empty."""
        handle = self._by_id.get(id_)
        return "" if handle is None else handle.name

    @property
    def room_bytes(self) -> int:
        """Bytes that may still move in this session."""
        return STEP_BYTES - self.moved_bytes if self.hops < HOPS_MAX else 0

    @property
    def room_messages(self) -> int:
        """Messages that may still move, each of which may become a publish of its own; at least one."""
        return max(HOPS_MAX - self.hops, 1)

    def stop_moving(self) -> None:
        """Move nothing more in this unit of work: the routing has changed since the locks were taken."""
        self.moved_bytes = max(self.moved_bytes, STEP_BYTES)

    # -- begin and end -------------------------------------------------------------------------------------------

    def __enter__(self) -> UnitOfWork:
        if self.is_patient:
            for handle in self.handles:
                handle.wait_started()
        locked = 0
        try:
            for handle in self.handles:
                handle.lock.__enter__()
                locked += 1
        except BaseException:
            self._unlock(locked)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = self._finish() if error is None else error
        if self.epoch:
            for handle in self.handles:
                handle.epoch = self.epoch
        failed: list[BrokerQueue] = []
        try:
            if failure is not None:
                self._abort_batch()
                failed = [] if isinstance(failure, TargetLocksNeeded) else self._failed_queues()
                for queue in failed:
                    queue.fail(failure)
        finally:
            self._unlock(len(self.handles))
        if failure is not None and failed:
            raise self._on_failure(self, failure) from failure
        if failure is not None and failure is not error:
            raise failure

    def _finish(self) -> BaseException | None:
        try:
            self.end_batch()
            for queue in list(self.touched):
                queue.after_commit(self)
            self.end_batch()  # messages that a getter did not take were requeued
        except BaseException as failure:
            return failure
        return None

    def end_batch(self) -> None:
        self._dead_letter()
        self.current_queue = None
        batch, self._batch = self._batch, None
        if batch is not None:
            self.epoch = max(self.epoch, batch.end())  # a second session that wrote nothing has no epoch
        self.has_ended = True

    def _dead_letter(self) -> None:
        while True:
            if self.over_limit:
                queue = self.over_limit.pop()
                queue.bound(self)
                if queue.is_over():
                    self.left_over.append(queue.id)
            elif self.rejected and self.has_target_locks and self.room_bytes > 0:
                id_, publication = self.rejected.popleft()
                if (rejecting := self.queue(id_)) is not None:
                    self.current_queue = rejecting
                    rejecting.leaving.dead_letter(publication, self)
            else:
                return

    def _failed_queues(self) -> list[BrokerQueue]:
        """After the abort: the queue at fault, and those whose memory is ahead of the log. If the session itself
        failed, all of them."""
        if self.current_queue is None:
            return list(self.touched)
        return [queue for queue in self.touched if queue is self.current_queue or not queue.is_rolled_back()]

    def _abort_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.abort()

    def _unlock(self, count: int) -> None:
        for handle in self.handles[:count]:
            handle.lock.__exit__(None, None, None)
