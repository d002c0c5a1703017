"""One life of a queue: a backing queue made into what a broker promises (S1, `rabbit_amqqueue_process`).

    check · put ──▶ limits ─┐                        ┌─▶ dropped, and the log says why
    get ──▶ expiry ─────────┼─ what must go, from the head ──┤
    reject ─────────────────┘                        └─▶ moved to the dead-letter target, in the same session

It is the implementation: every method is called with the queue's lock held, by the API (`traffic`), with the `Work`
under way. So operations on one queue come one after another, and queues do not wait for each other (QP-01, QP-02). What
it does is expressed in terms of the backing queue, whichever that is: time (expiry), size (limits), moves
(dead_letters), getters who wait (consumers).

Always true: an expired message is never handed out; nothing is handed out before its session has ended; a queue that
has failed does nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from warren.base.clock import Clock
from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId
from warren.base.runs import Publication, Slice
from warren.broker.arguments import Overflow, QueueArguments
from warren.broker.consumers import Delivery, Getter, Line
from warren.broker.dead_letters import deaths_of, is_circle, moved, with_death
from warren.broker.errors import NotYours, QueueDown, QueueFull
from warren.broker.expiry import STEP_BYTES, STEP_MESSAGES, Use, due_ms, monotonic_ms, wall_ms
from warren.broker.limits import count_fitting, count_over, count_within, is_over
from warren.broker.subscribers import Subscribers
from warren.broker.work import Wider, Work
from warren.queue_index.why import Why
from warren.queues.backing import BackingQueue, Fetched, SetsAside, TagRange

Result = TypeVar("Result")
MOVE_BYTES = 1 << 20  # contents read at once on their way to another queue
REJECT_STEP = 64  # messages looked at together


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a queue tells others about itself."""

    clock: Clock
    at: Callable[[QueueId, int], None]  # look at this queue at this monotonic time, in ms
    takes: Callable[[QueueId, int], None]  # so much memory
    tell: Callable[[str], None] = lambda told: None  # what an operator should know


class Queue:
    """Made by `prequeue`; a new one for each life."""

    __slots__ = (
        "_around",
        "_may_expire",
        "_noted_ms",
        "_ram_bytes",
        "arguments",
        "backing",
        "failure",
        "id",
        "life",
        "line",
        "name",
        "subscribers",
        "use",
    )

    def __init__(
        self,
        id_: QueueId,
        name: str,
        arguments: QueueArguments,
        backing: BackingQueue,
        life: int,
        around: Surroundings,
    ) -> None:
        self.id = id_
        self.name = name
        self.arguments = arguments
        self.backing = backing
        self.life = life
        self.line = Line()
        self.subscribers = Subscribers()  # those of all its lives, as soon as it serves
        self.use = Use(around.clock, arguments)
        self.failure: BaseException | None = None
        self._around = around
        self._noted_ms: int | None = None  # when we are looked at next
        self._ram_bytes = -1
        self._may_expire = arguments.message_ttl_ms is not None or len(backing) > 0  # who knows what was recovered

    # -- putting -------------------------------------------------------------------------------------------------

    def check(self, publication: Publication, work: Work) -> None:
        """Before anything has changed: whether a put would be refused, or moves something elsewhere."""
        arguments = self.arguments
        if not arguments.is_bounded:
            return
        count, size_bytes = len(publication.contents), sum(map(len, publication.contents))
        if not self._would_be_over(count, size_bytes):
            return
        if arguments.overflow is Overflow.REJECT_PUBLISH:
            most = f"{arguments.max_length} messages" if arguments.max_length is not None else ""
            most_bytes = f"{arguments.max_length_bytes} bytes" if arguments.max_length_bytes is not None else ""
            told = " and ".join(each for each in (most, most_bytes) if each)
            raise QueueFull(
                f"queue {self.name!r} may hold {told}: {count} more messages of {size_bytes} bytes do not fit",
                "get and acknowledge some first, or put fewer",
            )
        self._check_wide(work)

    def put(self, publication: Publication, work: Work) -> None:
        work.touch(self)
        if publication.expires_ms:
            self._may_expire = True
        self.backing.publish(publication, work.changes)
        if self.arguments.is_bounded:
            work.over.append(self)

    def bound(self, work: Work) -> None:
        """Let go of what is over the limit, oldest first. What would make the session too large is left for the next
        piece of work: see `is_over`."""
        backing, arguments = self.backing, self.arguments
        work.touch(self)
        while self.is_over() and work.moved_bytes < STEP_BYTES and (head := backing.head()) is not None:
            over = count_over(arguments, len(backing), backing.ready_bytes, head)
            self._let_go(min(over, self._movable(head, work)), Why.OVER_LIMIT, work)

    def shrink(self, work: Work) -> None:
        """Go on with that."""
        self._check_wide(work)
        work.over.append(self)

    def is_over(self) -> bool:
        """Whether it holds more than it should: a large move takes several sessions."""
        return is_over(self.arguments, len(self.backing), self.backing.ready_bytes)

    # -- getting and settling ------------------------------------------------------------------------------------

    def get(self, count: int, bytes_max: int | None, work: Work) -> list[Fetched]:
        """From the head; nothing if nothing is ready. Expired ones must have gone: see `expire`."""
        if len(self.line):  # they were here before
            return []
        try:
            return self._fetched(count, bytes_max, work)
        finally:
            self.use.note()

    def stand(self, getter: Getter, work: Work) -> None:
        """Wait in line, and be served as soon as there is something."""
        self.use.note()
        work.touch(self)
        self.line.join(getter)

    def leave(self, getter: Getter, work: Work) -> None:
        if self.line.leave(getter):
            self.use.note()
            work.touch(self)

    def ack(self, tags: Sequence[TagRange], work: Work) -> int:
        return self._settle(lambda: self.backing.ack(tags, Why.ACKED, work.changes), work)

    def requeue(self, tags: Sequence[TagRange], work: Work) -> int:
        return self._settle(lambda: self.backing.requeue(tags, work.changes), work)

    def reject(self, tags: Sequence[TagRange], work: Work) -> int:
        """Let go of pending messages that nobody wants: to the dead-letter target, if there is one. How many it were:
        the first ones, if all would make the session too large."""
        self._check_wide(work)
        target = self._target(work)
        if target is None:
            return self._settle(lambda: self.backing.ack(tags, Why.REJECTED, work.changes), work)
        count = 0
        for some in in_pieces(tags, REJECT_STEP):
            found = self._refusing(lambda: self.backing.look([some]), work)  # noqa: B023 - called at once
            count += self._settle(lambda: self.backing.ack([some], Why.REJECTED, work.changes), work)  # noqa: B023
            for each in found:
                self._publish_there(each, Why.REJECTED, target, work)
            if work.moved_bytes >= STEP_BYTES:
                break
        return count

    # -- time ----------------------------------------------------------------------------------------------------

    def expire(self, work: Work) -> bool:
        """Let go of what has expired at the head, up to a number of messages; whether there may be more."""
        count = 0
        while (head := self.backing.head()) is not None and self._is_due(head):
            if count >= STEP_MESSAGES or work.moved_bytes >= STEP_BYTES:
                return True
            self._check_wide(work)
            work.touch(self)
            step = min(self._movable(head, work), STEP_MESSAGES - count)
            self._let_go(step, Why.EXPIRED, work)
            count += step
        return False

    def is_unused(self) -> bool:
        due = self.use.due_ms()
        is_used = len(self.line) or len(self.subscribers)
        return due is not None and not is_used and monotonic_ms(self._around.clock) >= due

    # -- all of it -----------------------------------------------------------------------------------------------

    def purge(self, work: Work) -> int:
        work.touch(self)
        return self.backing.purge(work.changes)

    def browse(self) -> Iterator[Slice]:
        return self.backing.browse()

    def stop(self, work: Work) -> None:
        work.touch(self)
        self.backing.stop(work.changes)

    def delete(self, work: Work) -> int:
        """How many messages went with it."""
        count = len(self.backing) + self.backing.pending_count
        work.touch(self)
        self.backing.delete(work.changes)
        return count

    def fail(self, error: BaseException) -> None:
        """Do nothing any more, and tell whoever waits."""
        if self.failure is None:
            self.failure = error
            self.line.tell(QueueDown(f"queue {self.name!r} failed: {error}", "it is made again: ask once more"))

    # -- after each piece of work --------------------------------------------------------------------------------

    def attend(self, work: Work) -> None:
        """Serve who waits, and tell others what they should know. The session has ended."""
        work.touch(self)
        if len(self.line):
            self._serve(work)
        if len(self.subscribers) and len(self.backing):
            self.subscribers.wake_if_able()
        self._note_time()
        ram_bytes = self.backing.ram_bytes
        if ram_bytes != self._ram_bytes:
            self._ram_bytes = ram_bytes
            self._around.takes(self.id, ram_bytes)

    def serve(self, work: Work) -> None:
        """Hand what is ready to the consumers who have room for it. In a turn, before its session ends: what is
        acknowledged with that is in the same session. Expired ones must have gone."""
        if not len(self.line) and len(self.subscribers) and (count := len(self.backing)):
            self.subscribers.serve(self.life, count, partial(self._handed, work))

    def _handed(self, work: Work, count: int, bytes_max: int, is_auto_ack: bool) -> list[Fetched]:
        head = self.backing.head()
        if head is None or self._is_due(head):
            return []
        if self._may_expire:  # what stands behind it is judged when it is the head
            count = min(count, len(head))
        fetched = self._fetched(count, bytes_max, work)
        self.use.note()
        if is_auto_ack and fetched:
            self.backing.ack([each.tags for each in fetched], Why.ACKED, work.changes)
        return fetched

    def looked_at(self) -> None:
        """The time that was noted has come."""
        self._noted_ms = None

    def _serve(self, work: Work) -> None:
        backing = self.backing
        while len(self.line) and (head := backing.head()) is not None and not self._is_due(head):
            getter = self.line.pop()
            self.use.note()
            try:
                fetched = self._fetched(getter.count, getter.bytes_max, work)
            except Damage as error:
                getter.hand(error)
                return
            if not fetched:
                self.line.join_first(getter)
            elif not getter.hand(Delivery(self.id, self.life, fetched)):
                backing.requeue([each.tags for each in fetched], work.changes)

    def _note_time(self) -> None:
        head = self.backing.head()
        message_due = None if head is None else due_ms(head.run, self.arguments)
        due = None if len(self.line) or len(self.subscribers) else self.use.due_ms()
        if message_due is not None:
            clock = self._around.clock
            at = monotonic_ms(clock) + max(message_due - wall_ms(clock), 0)
            due = at if due is None else min(at, due)
        if due is not None and (self._noted_ms is None or due < self._noted_ms):
            self._noted_ms = due
            self._around.at(self.id, due)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _would_be_over(self, count: int, size_bytes: int) -> bool:
        return is_over(self.arguments, len(self.backing) + count, self.backing.ready_bytes + size_bytes)

    def _is_due(self, head: Slice) -> bool:
        due = due_ms(head.run, self.arguments)
        return due is not None and due <= wall_ms(self._around.clock)

    def _check_wide(self, work: Work) -> None:
        if self.arguments.dead_letter is not None and not work.is_wide:
            raise Wider

    def _target(self, work: Work) -> Queue | None:
        name = self.arguments.dead_letter
        return None if name is None else work.named(name)

    def _movable(self, head: Slice, work: Work) -> int:
        """How many of the slice at the head may go in this session; if they go nowhere, all of them."""
        return len(head) if self._target(work) is None else count_within(head, STEP_BYTES - work.moved_bytes)

    def _let_go(self, count: int, why: Why, work: Work) -> None:
        """So many from the head."""
        target = self._target(work)
        if target is None:
            self.backing.drop(count, why, work.changes)
            return
        while count > 0:
            try:
                fetched = self.backing.fetch(count, MOVE_BYTES)
            except Damage as error:  # it cannot be moved: it stays, out of the way, or nobody can have it any more
                count -= self._set_aside(error) or self.backing.drop(1, why, work.changes)
                continue
            for each in fetched:
                self._publish_there(each.slice, why, target, work)
            count -= self.backing.ack([each.tags for each in fetched], why, work.changes)

    def _publish_there(self, slice_: Slice, why: Why, target: Queue | None, work: Work) -> None:
        """Unless it goes round in a circle, or the target takes no more."""
        deaths = with_death(deaths_of(slice_.run.origin), self.id, why)
        if target is None or is_circle(deaths, target.id):
            return
        if target.arguments.overflow is Overflow.REJECT_PUBLISH:
            fits = count_fitting(target.arguments, len(target.backing), target.backing.ready_bytes, slice_)
            if not fits:
                return
            slice_ = slice_.split(fits)[0] if fits < len(slice_) else slice_
        work.moved_bytes += slice_.size_bytes
        target.put(moved(slice_, deaths, target.name, wall_ms(self._around.clock)), work)

    def _fetched(self, count: int, bytes_max: int | None, work: Work) -> list[Fetched]:
        """What cannot be read is set aside and told, and what stands behind it is served. If the backing queue cannot
        set it aside, nothing has changed and whoever asked is told."""
        while True:
            try:
                fetched = self.backing.fetch(count, bytes_max)
            except Damage as error:
                if not self._set_aside(error):
                    raise
                work.touch(self)
                continue
            except BaseException:
                work.touch(self)
                raise
            work.touch(self)
            return fetched

    def _set_aside(self, error: Damage) -> int:
        backing, head = self.backing, self.backing.head()
        count = backing.set_aside(1) if isinstance(backing, SetsAside) else 0
        if count and head is not None:
            self._around.tell(f"queue {self.name!r}: message {head.first} is set aside, it cannot be read: {error}")
        return count

    def _settle(self, settle: Callable[[], int], work: Work) -> int:
        count = self._refusing(settle, work)
        work.touch(self)
        return count

    def _refusing(self, ask: Callable[[], Result], work: Work) -> Result:
        """Of tags that are not pending nothing has changed: whoever asked is told, and the queue goes on."""
        try:
            return ask()
        except Misuse as error:
            what = f"queue {self.name!r}: {error.what}"
            raise NotYours(what, "each message is acknowledged or rejected once, by the queue it came from") from error
        except Damage:  # of what was to be looked at: it stays pending
            raise
        except BaseException:
            work.touch(self)
            raise


def in_pieces(tags: Sequence[TagRange], most: int) -> Iterator[TagRange]:
    """The same tags, up to so many in a range."""
    for first, stop in tags:
        for at in range(first, stop, most):
            yield at, min(at + most, stop)
