"""Queue API: put, get, settle and browse messages from any thread, with plain data in and out.

    put ──▶ epoch                                    to several queues at once: all of them or none, stored once
    publish ──▶ accepted?, epoch                     to several queues at once: each accepts or rejects its copy
    get ──▶ delivery (queue, incarnation, fetched)   at once, or after waiting in line for the first message
    ack · requeue · reject ──▶ number                by the tags of a delivery, in the incarnation that delivered it

A put returns the epoch to wait for, so no thread waits for the disk with a lock held. Acknowledgements are durable a
moment later; one that a crash undoes causes a redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from warren.base.ids import Epoch
from warren.base.messages import Publication
from warren.base.threads import Threads
from warren.broker.consumers import Delivery, Getter, WaitingThread
from warren.broker.dead_letters import behind
from warren.broker.errors import NotYours, QueueFull
from warren.broker.queue import BrokerQueue
from warren.broker.queue_handle import QueueHandle
from warren.broker.unit_of_work import UnitOfWork
from warren.queues.backing_queue import Fetched, TagRange

if TYPE_CHECKING:
    from warren.broker.vhost import Vhost

Result = TypeVar("Result")
Settle = Callable[[BrokerQueue, Sequence[TagRange], UnitOfWork], int]


class SettleCall(NamedTuple):
    """Delivered messages that are settled together."""

    incarnation: int  # of the queue, when it delivered them
    tags: Sequence[TagRange]


class QueueApi:
    def __init__(self, vhost: Vhost, threads: Threads) -> None:
        self.vhost = vhost
        self._threads = threads

    def put(self, publication: Publication, handles: Sequence[QueueHandle]) -> Epoch:
        def act(work: UnitOfWork) -> QueueFull | None:
            queues = [handle.serving() for handle in handles]
            try:
                for queue in queues:
                    queue.check(publication, work)
            except QueueFull as full:
                queue.leaving.refuse(publication, work)
                return full
            for queue in queues:
                queue.put(publication, work)
            return None

        full, epoch = self._put(handles, act)
        if full is not None:
            raise full
        return epoch

    def publish(self, publication: Publication, handles: Sequence[QueueHandle]) -> tuple[bool, Epoch]:
        """As the message of an AMQP client: a full queue rejects its copy, the others accept theirs. Whether all
        accepted; a queue that was deleted after routing does not count."""

        def act(work: UnitOfWork) -> bool:
            is_accepted = True
            for handle in handles:
                queue = handle.queue
                if queue is not None:
                    is_accepted &= queue.accept(publication, work) == len(publication.contents)
                else:
                    is_accepted &= handle.is_deleted
            return is_accepted

        return self._put(handles, act)

    def get(
        self, handle: QueueHandle, count: int, bytes_max: int | None = None, seconds: float | None = 0.0
    ) -> Delivery | None:
        """Up to `count` messages from the head, or None after `seconds` without any (None: no time limit)."""
        delivery = self._get_now(handle, count, bytes_max)
        if delivery is not None or seconds == 0.0:
            return delivery
        waiting = WaitingThread(self._threads, count, bytes_max)
        try:
            self.wait(handle, waiting)
            waiting.sleep(seconds)
        except BaseException:
            self.give_back(handle, waiting.abandon())
            self.stop_waiting(handle, waiting)
            raise
        outcome = waiting.abandon()
        if outcome is None:
            self.stop_waiting(handle, waiting)
        elif isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def wait(self, handle: QueueHandle, getter: Getter) -> None:
        """Add a waiting getter: it is passed messages, or an error."""
        self.vhost.execute([handle], lambda work: handle.serving().wait(getter, work))

    def stop_waiting(self, handle: QueueHandle, getter: Getter) -> None:
        """Remove a waiting getter."""

        def act(work: UnitOfWork) -> None:
            if handle.queue is not None:
                handle.queue.stop_waiting(getter, work)

        self.vhost.execute([handle], act)

    def give_back(self, handle: QueueHandle, outcome: object) -> None:
        """Requeue a delivery whose getter has stopped waiting."""
        if isinstance(outcome, Delivery):
            self.requeue(handle, SettleCall(outcome.incarnation, [each.tags for each in outcome.fetched]))

    def ack(self, handle: QueueHandle, settling: SettleCall) -> int:
        return self._settle(handle, settling, BrokerQueue.ack)

    def requeue(self, handle: QueueHandle, settling: SettleCall) -> int:
        """Ready again, at their old positions."""
        return self._settle(handle, settling, BrokerQueue.requeue)

    def reject(self, handle: QueueHandle, settling: SettleCall) -> int:
        """Drop or dead-letter; very many or very large messages in several sessions."""
        count, remaining = 0, behind(settling.tags, 0)
        while remaining:
            done = self._settle(handle, SettleCall(settling.incarnation, remaining), BrokerQueue.reject)
            count += done
            remaining = behind(remaining, done)  # none may have left, if the routing has just changed
        return count

    def purge(self, handle: QueueHandle) -> tuple[int, Epoch]:
        return self.vhost.execute([handle], lambda work: handle.serving().purge(work))

    def browse(self, handle: QueueHandle) -> Iterator[list[bytes]]:
        """Bodies of the ready messages in order, without removing them: in pieces, with the lock held for one piece.
        Ends early if the queue changes meanwhile."""
        with handle.lock:
            queue = handle.serving()
            slices = queue.browse()
        while True:
            with handle.lock:
                piece = next(slices, None) if handle.queue is queue else None
                queue.use.note()
            if piece is None:
                return
            assert piece.contents is not None, "browsed slices have contents"
            yield piece.contents

    def length(self, handle: QueueHandle) -> int:
        """Number of ready messages."""
        with handle.lock:
            return len(handle.serving().backing)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _put(self, handles: Sequence[QueueHandle], act: Callable[[UnitOfWork], Result]) -> tuple[Result, Epoch]:
        vhost = self.vhost
        vhost.storage.upkeep.throttle()
        result, epoch = vhost.execute(handles, act)
        if vhost.monitor.is_over:
            vhost.storage.log.wait(epoch)  # only durable messages can be paged out
            vhost.monitor.relieve()
        return result, epoch

    def _get_now(self, handle: QueueHandle, count: int, bytes_max: int | None) -> Delivery | None:
        def act(work: UnitOfWork) -> tuple[int, list[Fetched] | None]:
            queue = handle.serving()
            if queue.expire(work):
                return queue.incarnation, None
            return queue.incarnation, queue.get(count, bytes_max, work)

        while True:
            (incarnation, fetched), epoch = self.vhost.execute([handle], act)
            if epoch:
                self.vhost.commit_soon()
            if fetched is not None:
                return Delivery(handle.id, incarnation, fetched) if fetched else None

    def _settle(self, handle: QueueHandle, settling: SettleCall, settle: Settle) -> int:
        def act(work: UnitOfWork) -> int:
            queue = handle.serving()
            if queue.incarnation != settling.incarnation:
                raise NotYours(
                    f"queue {handle.name!r} was restarted after it delivered this message",
                    "the message is ready again: get it again",
                )
            return settle(queue, settling.tags, work)

        count, _ = self.vhost.execute([handle], act)
        self.vhost.commit_soon()
        return count
