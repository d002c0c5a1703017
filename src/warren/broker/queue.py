"""One incarnation of a queue: a backing queue with the semantics of a broker (S1, `rabbit_amqqueue_process`).

    check · put ──▶ limits ───────┐                                ┌─▶ dropped, with the reason in the log
    get ──▶ expiry ───────────────┼─ removed from the head ────────┤
    reject · requeue too often ───┘                                └─▶ dead-lettered, in the same session

Every method is called with the queue's lock held and with the present `UnitOfWork`: by request batches (AMQP) and by
`queue_api` (programs). So operations on one queue are serial, and queues do not wait for each other (QP-01, QP-02). The
queue uses any backing queue: it adds time (expiry), size (limits), moves (dead_letters), getters and consumers.

Requeues are counted in quorum queues, and where redeliveries are limited (`x-delivery-limit`):

    limit 2     delivered · back · delivered · back · delivered · back ──▶ dead-lettered, or dropped
    header                       x-delivery-count 1          2

Counts are kept by tag, which a message keeps as long as it is in the queue, and are written with the requeue. A message
that was never requeued takes no room. A stop or crash of the broker is no requeue: counts stay as they were.

Invariants
* An expired message is never delivered, except a message with a TTL of 0 that arrives at an empty queue with a waiting
  consumer.
* A getter gets nothing before the session has ended.
* A queue that has failed does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from warren.base.environment import Clock, monotonic_ms, wall_ms
from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId, SequenceId
from warren.base.messages import Publication, QueuePlace, Run, Slice, sizes_of
from warren.broker.consumers import Consumers, Delivery, Getter, WaitingGetters
from warren.broker.dead_letters import NO_DEAD_LETTER_ROUTES, DeadLetterRoutes, MessageRemoval, behind
from warren.broker.errors import NotYours, QueueDown, QueueFull
from warren.broker.queue_arguments import (
    STEP_MESSAGES,
    Overflow,
    QueueArguments,
    QueueUse,
    count_fitting,
    count_over,
    due_ms,
    is_over,
    is_refusing,
)
from warren.broker.unit_of_work import UnitOfWork
from warren.catalog.queues import QueueRow
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import LEVEL_SHIFT, BackingQueue, Fetched, RollbackQueue, TagRange


class DeliveryCounts:
    """How often each message was requeued, by tag."""

    __slots__ = ("_back", "_limit", "_stored", "is_on")

    def __init__(self, limit: int | None, is_on: bool = False) -> None:
        self._limit = limit
        self.is_on = is_on or limit is not None
        self._back: dict[int, int] = {}
        self._stored: set[int] = set()  # those with a row in the index

    def set_limit(self, limit: int | None, is_on: bool = False) -> None:
        """Counts so far stay, until their messages are gone."""
        self._limit = limit
        self.is_on = is_on or limit is not None

    def __len__(self) -> int:
        return len(self._back)

    def split(self, tags: Sequence[TagRange]) -> tuple[list[TagRange], list[TagRange]]:
        """Tags that have reached the limit, and the others."""
        limit = self._limit
        if limit is None:
            return [], list(tags)
        over = [tag for tag in _each(tags) if self._back.get(tag, 0) >= limit]
        return _ranges(over), _ranges(tag for tag in _each(tags) if self._back.get(tag, 0) < limit)

    def of(self, tag: int) -> int:
        return self._back.get(tag, 0)

    def load(self, level: int, requeues: Mapping[SequenceId, int]) -> None:
        """From the rows of a sub-queue."""
        counts = {level << LEVEL_SHIFT | message: count for message, count in requeues.items()}
        self._back |= counts
        self._stored.update(counts)

    def note(self, back: Sequence[TagRange], gone: Sequence[TagRange]) -> tuple[dict[int, int], list[int]]:
        """Count a requeue of `back`; forget `gone`, except tags that are in both. Returns the new counts, and forgotten
        tags that have a row."""
        if not self.is_on:
            return {}, []
        counts = {tag: self._back.get(tag, 0) + 1 for tag in _each(back)}
        forgotten = [tag for tag in self.forget(gone) if tag not in counts]
        self._back |= counts
        return counts, forgotten

    def stored(self, tags: Iterable[int]) -> None:
        """These have a row now."""
        self._stored.update(tags)

    def forget(self, tags: Sequence[TagRange]) -> list[int]:
        """Returns those that have a row."""
        if not self._back:
            return []
        forgotten = [tag for tag in _each(tags) if self._back.pop(tag, 0) and tag in self._stored]
        self._stored.difference_update(forgotten)
        return forgotten

    def clear(self) -> list[int]:
        """Returns those that have a row."""
        stored, self._stored, self._back = list(self._stored), set(), {}
        return stored


def _each(tags: Sequence[TagRange]) -> Iterator[int]:
    for first, stop in tags:
        yield from range(first, stop)


def _ranges(tags: Iterator[int] | Sequence[int]) -> list[TagRange]:
    ranges: list[TagRange] = []
    for tag in tags:
        if ranges and ranges[-1][1] == tag:
            ranges[-1] = ranges[-1][0], tag + 1
        else:
            ranges.append((tag, tag + 1))
    return ranges


Result = TypeVar("Result")
TAG_OF_LEVEL = (1 << LEVEL_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class QueueContext:
    """The vhost, as a queue uses it."""

    clock: Clock
    set_timer: Callable[[QueueId, int], None]  # call `Vhost.check_queue` at this monotonic time, in ms
    memory_changed: Callable[[QueueId, int], None]  # bytes of its messages in memory
    report_problem: Callable[[str], None] = lambda problem: None  # for the operator
    on_ready: Callable[[QueueId], None] = lambda queue: None  # schedule a delivery: a consumer has room
    dead_letter_routes: DeadLetterRoutes = NO_DEAD_LETTER_ROUTES
    # the arguments in effect: its own, merged with those of the policies that apply to it
    arguments_of: Callable[[QueueRow], QueueArguments] = lambda row: QueueArguments.from_table(row.arguments)


class BrokerQueue:
    """Made by `QueueStarter`, one for each incarnation."""

    __slots__ = (
        "_auto_acked",
        "_context",
        "_may_expire",
        "_ram_bytes",
        "_timer_ms",
        "arguments",
        "backing",
        "consumers",
        "delivery_counts",
        "failure",
        "getters",
        "id",
        "incarnation",
        "leaving",
        "name",
        "use",
    )

    def __init__(
        self,
        id_: QueueId,
        name: str,
        arguments: QueueArguments,
        backing: BackingQueue,
        incarnation: int,
        context: QueueContext,
    ) -> None:
        self.id = id_
        self.name = name
        self.arguments = arguments
        self.backing = backing
        self.incarnation = incarnation
        self.leaving = MessageRemoval(id_, name, arguments, backing, context)
        self.delivery_counts = DeliveryCounts(arguments.delivery_limit, arguments.counts_deliveries)
        self.getters = WaitingGetters()
        self.consumers = Consumers()  # replaced by those of the handle as soon as it serves
        self.use = QueueUse(context.clock, arguments)
        self.failure: BaseException | None = None
        self._context = context
        self._auto_acked: list[TagRange] = []  # in this unit of work; their counts are needed for the delivery
        self._timer_ms: int | None = None  # of the next expiry check
        self._ram_bytes = -1
        self._may_expire = arguments.message_ttl_ms is not None or len(backing) > 0  # recovered messages may have a TTL

    def set_arguments(self, arguments: QueueArguments, work: UnitOfWork) -> None:
        """The policies of a running queue have changed. Nothing is written: messages over a new limit leave in the
        units of work that follow. The end of this one sets the timer. A new `expires` counts from now."""
        work.touch(self)
        self.arguments = arguments
        self.leaving.set_arguments(arguments)
        self.delivery_counts.set_limit(arguments.delivery_limit, arguments.counts_deliveries)
        self.use.set_arguments(arguments)
        self._may_expire = self._may_expire or arguments.message_ttl_ms is not None
        self.check_limit(work)

    def check_limit(self, work: UnitOfWork) -> None:
        """If it exceeds its limit, have the units of work that follow bring it back within."""
        if self.is_over():
            work.left_over.append(self.id)

    def check_limit_soon(self) -> None:
        """At a start: its limit may be newer than its messages, if the broker was killed when a policy had changed."""
        if self.is_over():
            self._set_timer(monotonic_ms(self._context.clock))

    # -- publish ------------------------------------------------------------------------------------------------

    def check(self, publication: Publication, work: UnitOfWork) -> None:
        """Before anything has changed: refuses a put that does not fit, or asks for the locks of targets."""
        arguments = self.arguments
        if not arguments.is_bounded:
            return
        count, size_bytes = len(publication.contents), sum(map(len, publication.contents))
        if not self._would_be_over(count, size_bytes):
            return
        self.leaving.check_target_locks(work)
        if arguments.overflow is not Overflow.DROP_HEAD:
            most = f"{arguments.max_length} messages" if arguments.max_length is not None else ""
            most_bytes = f"{arguments.max_length_bytes} bytes" if arguments.max_length_bytes is not None else ""
            limits = " and ".join(each for each in (most, most_bytes) if each)
            raise QueueFull(
                f"queue {self.name!r} may hold {limits}: {count} more messages of {size_bytes} bytes do not fit",
                "get and acknowledge some first, or put fewer",
            )

    def put(self, publication: Publication, work: UnitOfWork) -> None:
        work.touch(self)
        if publication.expires_ms:
            self._may_expire = True
        if self._may_expire and not len(self.backing) and (len(self.getters) or len(self.consumers)):
            work.fresh.add(self)
        self.backing.publish(publication, work.index_batch)
        if self.arguments.is_bounded:
            work.over_limit.append(self)

    def accept(self, publication: Publication, work: UnitOfWork) -> int:
        """Put the first messages that fit; returns how many. All fit, unless the queue rejects publishes over its
        limit; those may be dead-lettered."""
        count = len(publication.contents)
        fits = count if not is_refusing(self.arguments) else self._fitting(publication)
        if fits == count:
            self.put(publication, work)
            return count
        if fits:
            self.put(replace(publication, contents=publication.contents[:fits]), work)
        self.leaving.refuse(replace(publication, contents=publication.contents[fits:]), work)
        return fits

    def bound(self, work: UnitOfWork) -> None:
        """Drop or dead-letter messages over the limit, oldest first. What would make the session too large is left for
        the next unit of work: see `is_over`."""
        backing, arguments = self.backing, self.arguments
        work.touch(self)
        if not work.has_target_locks and self.leaving.has_targets():
            return
        while self.is_over() and work.room_bytes > 0 and (head := backing.head()) is not None:
            over = count_over(arguments, len(backing), backing.ready_bytes, head)
            self.leaving.release(min(over, self.leaving.movable(head, work)), DequeueReason.OVER_LIMIT, work)

    def shrink(self, work: UnitOfWork) -> None:
        """Continue that."""
        self.leaving.check_target_locks(work)
        work.over_limit.append(self)

    def is_over(self) -> bool:
        """Whether it exceeds its limit: a large move takes several sessions. A queue that rejects publishes drops
        nothing: requeued messages may exceed its limit, as in RabbitMQ."""
        if is_refusing(self.arguments):
            return False
        return is_over(self.arguments, len(self.backing), self.backing.ready_bytes)

    # -- get and settle -----------------------------------------------------------------------------------------

    def get(self, count: int, bytes_max: int | None, work: UnitOfWork) -> list[Fetched]:
        """From the head; empty if nothing is ready. Call `expire` first."""
        if len(self.getters):  # they come first
            return []
        try:
            return self._fetched(count, bytes_max, work)
        finally:
            self.use.note()

    def is_ready_for_get(self, work: UnitOfWork) -> bool:
        """In a batch, before a get: consumers with room are served first, and messages over the limit are removed.
        False if that is too much for one session."""
        self.serve(work)
        if self.arguments.is_bounded and self.is_over():
            self.leaving.check_target_locks(work)
            self.bound(work)
        return not (self.arguments.is_bounded and self.is_over())

    def wait(self, getter: Getter, work: UnitOfWork) -> None:
        """Deliver to this getter as soon as a message is ready."""
        self.use.note()
        work.touch(self)
        self.getters.add(getter)

    def stop_waiting(self, getter: Getter, work: UnitOfWork) -> None:
        if self.getters.remove(getter):
            self.use.note()
            work.touch(self)

    def ack(self, tags: Sequence[TagRange], work: UnitOfWork) -> int:
        count = self._settle(lambda: self.backing.ack(tags, DequeueReason.ACKED, work.index_batch), work)
        self._forget_counts(tags, work)
        return count

    def requeue(self, tags: Sequence[TagRange], work: UnitOfWork) -> int:
        """Ready again, in their old positions; dropped or dead-lettered if they reached the delivery limit."""
        if not self.delivery_counts.is_on:
            return self._settle(lambda: self.backing.requeue(tags, work.index_batch), work)
        over, back = self.delivery_counts.split(tags)
        if over:
            self.leaving.check_target_locks(work)
        if over and back:
            self._refusing(
                lambda: self.backing.read_pending(back), work
            )  # whether they are pending, before anything changes
        gone = self._settle(lambda: self.leaving.reject(over, DequeueReason.DELIVERY_LIMIT, work), work) if over else 0
        back += behind(over, gone)  # too much for one session: they are removed at the next requeue
        count = gone + self._settle(lambda: self.backing.requeue(back, work.index_batch), work)
        self._count_requeues(back, over, work)
        return count

    def reject(self, tags: Sequence[TagRange], work: UnitOfWork) -> int:
        """Drop pending messages, or dead-letter them if there is a target. Returns how many: the first ones, if all
        would make the session too large."""
        self.leaving.check_target_locks(work)
        count = self._settle(lambda: self.leaving.reject(tags, DequeueReason.REJECTED, work), work)
        self._forget_counts(tags, work)
        return count

    # -- time ----------------------------------------------------------------------------------------------------

    def expire(self, work: UnitOfWork) -> bool:
        """Remove expired messages at the head, up to a limit; whether there may be more."""
        if not self._may_expire:
            return False
        count = 0
        while (head := self.backing.head()) is not None and self._is_due(head, work):
            if count >= STEP_MESSAGES or work.room_bytes <= 0:
                return True
            self.leaving.check_target_locks(work)
            work.touch(self)
            step = min(self.leaving.movable(head, work), STEP_MESSAGES - count)
            count += self.leaving.release(step, DequeueReason.EXPIRED, work)
        return False

    def is_unused(self) -> bool:
        due = self.use.due_ms()
        is_used = len(self.getters) or len(self.consumers)
        return due is not None and not is_used and monotonic_ms(self._context.clock) >= due

    def last_consumer_removed(self) -> None:
        """`x-expires` counts from here. While there were consumers it had no timer."""
        self.use.note()
        self._set_timer(self.use.due_ms())

    # -- whole queue --------------------------------------------------------------------------------------------

    def purge(self, work: UnitOfWork) -> int:
        work.touch(self)
        return self.backing.purge(work.index_batch)

    def browse(self) -> Iterator[Slice]:
        return self.backing.browse()

    def stop(self, work: UnitOfWork) -> None:
        work.touch(self)
        self.backing.stop(work.index_batch)

    def delete(self, work: UnitOfWork) -> int:
        """How many messages went with it."""
        count = len(self.backing) + self.backing.pending_count
        work.touch(self)
        self.delivery_counts.clear()  # their rows are removed with the others
        self.backing.delete(work.index_batch)
        return count

    def is_rolled_back(self) -> bool:
        """Whether it is as before, now that the session was aborted: it needs no restart."""
        return isinstance(self.backing, RollbackQueue) and not self.backing.has_diverged

    def fail(self, error: BaseException) -> None:
        """Stop serving; waiting getters get an error."""
        if self.failure is None:
            self.failure = error
            self.getters.fail(QueueDown(f"queue {self.name!r} failed: {error}", "it is restarted: try again"))

    # -- after each unit of work ---------------------------------------------------------------------------------

    def after_commit(self, work: UnitOfWork) -> None:
        """The session has ended: serve getters, set the timer, report memory."""
        work.touch(self)
        if len(self.getters):
            self._serve_getters(work)
        if len(self.backing):
            self.schedule_delivery()
        self._update_timer()
        if self._auto_acked:
            auto_acked, self._auto_acked = self._auto_acked, []
            self._forget_counts(auto_acked, work)
        if len(self.delivery_counts) and not len(self.backing) + self.backing.pending_count:
            self._remove_count_rows(self.delivery_counts.clear(), work)
        ram_bytes = self.backing.ram_bytes
        if ram_bytes != self._ram_bytes:
            self._ram_bytes = ram_bytes
            self._context.memory_changed(self.id, ram_bytes)

    def serve(self, work: UnitOfWork) -> None:
        """Deliver ready messages to consumers with room. In a batch, before its session ends: automatic acks are in
        the same session. Call `expire` first."""
        if not len(self.getters) and len(self.consumers) and (count := len(self.backing)):
            self.consumers.serve(self.incarnation, count, partial(self._fetch_for_consumer, work))

    def _fetch_for_consumer(self, work: UnitOfWork, count: int, bytes_max: int, is_auto_ack: bool) -> list[Fetched]:
        if self._may_expire:
            head = self.backing.head()
            if head is None or self._is_due(head, work):
                return []
            count = min(count, len(head))  # the next run is checked when it is the head
        fetched = self._fetched(count, bytes_max, work)
        self.use.note()
        if is_auto_ack and fetched:
            tags = [each.tags for each in fetched]
            self.backing.ack(tags, DequeueReason.ACKED, work.index_batch)
            if len(self.delivery_counts):
                self._auto_acked += tags
        return fetched

    def schedule_delivery(self) -> None:
        """In a request batch, if a consumer has room. Any thread."""
        if len(self.consumers) and self.consumers.has_room():
            self._context.on_ready(self.id)

    def timer_fired(self) -> None:
        self._timer_ms = None

    def _serve_getters(self, work: UnitOfWork) -> None:
        backing = self.backing
        while len(self.getters) and (head := backing.head()) is not None and not self._is_due(head, work):
            getter = self.getters.pop()
            self.use.note()
            try:
                fetched = self._fetched(getter.count, getter.bytes_max, work)
            except Damage as error:
                getter.deliver(error)
                return
            if not fetched:
                self.getters.add_first(getter)
            elif not getter.deliver(Delivery(self.id, self.incarnation, fetched)):
                backing.requeue([each.tags for each in fetched], work.index_batch)

    def _update_timer(self) -> None:
        head = self.backing.head() if self._may_expire else None
        message_due = None if head is None else due_ms(head.run, self.arguments)
        due = None if len(self.getters) or len(self.consumers) else self.use.due_ms()
        if message_due is not None:
            clock = self._context.clock
            at = monotonic_ms(clock) + max(message_due - wall_ms(clock), 0)
            due = at if due is None else min(at, due)
        self._set_timer(due)

    def _set_timer(self, due: int | None) -> None:
        if due is not None and (self._timer_ms is None or due < self._timer_ms):
            self._timer_ms = due
            self._context.set_timer(self.id, due)

    # -- delivery counts -----------------------------------------------------------------------------------------

    def _count_requeues(self, back: Sequence[TagRange], gone: Sequence[TagRange], work: UnitOfWork) -> None:
        by_level: dict[int, dict[int, int]] = {}
        counts_of_tags, forgotten = self.delivery_counts.note(back, gone)
        self._remove_count_rows(forgotten, work)
        for tag, count in counts_of_tags.items():
            by_level.setdefault(tag >> LEVEL_SHIFT, {})[tag & TAG_OF_LEVEL] = count
        for level, counts in by_level.items():
            rows = work.index_batch.count_requeues(QueuePlace(self.id, level), counts)
            self.delivery_counts.stored(level << LEVEL_SHIFT | message for message in rows)

    def _forget_counts(self, tags: Sequence[TagRange], work: UnitOfWork) -> None:
        if len(self.delivery_counts):
            self._remove_count_rows(self.delivery_counts.forget(tags), work)

    def _remove_count_rows(self, tags: Sequence[int], work: UnitOfWork) -> None:
        for tag in tags:
            place = QueuePlace(self.id, tag >> LEVEL_SHIFT)
            work.index_batch.forget_requeues(place, (tag & TAG_OF_LEVEL,))

    # -- helpers -------------------------------------------------------------------------------------------------

    def _would_be_over(self, count: int, size_bytes: int) -> bool:
        return is_over(self.arguments, len(self.backing) + count, self.backing.ready_bytes + size_bytes)

    def _fitting(self, publication: Publication) -> int:
        count = len(publication.contents)
        coming = Slice(Run(SequenceId(0), count, sizes_of(publication.contents)), 0, count, None)
        return count_fitting(self.arguments, len(self.backing), self.backing.ready_bytes, coming)

    def _is_due(self, head: Slice, work: UnitOfWork) -> bool:
        """Not a message that has just arrived for a waiting consumer: a TTL of 0 means now or never."""
        due = due_ms(head.run, self.arguments)
        return due is not None and self not in work.fresh and due <= wall_ms(self._context.clock)

    def _fetched(self, count: int, bytes_max: int | None, work: UnitOfWork) -> list[Fetched]:
        """Messages that cannot be read are set aside and reported, and the next ones are served. If the backing queue
        cannot set them aside, nothing has changed and the error is raised."""
        while True:
            try:
                fetched = self.backing.fetch(count, bytes_max)
            except Damage as error:
                if not self.leaving.set_aside(error):
                    raise
                work.touch(self)
                continue
            except BaseException:
                work.touch(self)
                raise
            work.touch(self)
            return fetched

    def _settle(self, settle: Callable[[], int], work: UnitOfWork) -> int:
        count = self._refusing(settle, work)
        work.touch(self)
        return count

    def _refusing(self, action: Callable[[], Result], work: UnitOfWork) -> Result:
        """For tags that are not pending: nothing has changed, the caller gets the error, and the queue continues."""
        try:
            return action()
        except Misuse as error:
            what = f"queue {self.name!r}: {error.what}"
            raise NotYours(what, "each message is acknowledged or rejected once, by the queue it came from") from error
        except Damage:  # of messages to be read: they stay pending
            raise
        except BaseException:
            work.touch(self)
            raise
