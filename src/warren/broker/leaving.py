"""How messages leave a queue other than by an acknowledgement: they are gone, or dead letters take the way that is set.

    let_go      so many from the head: expired, or over the limit
    reject      some that are in somebody's hands: rejected, or given back too often
    turn_away   some that were to be put, and are refused

All of it is one session with what the targets get. Nothing is moved to a queue that is not held: where the routing has
changed since the locks were taken the message stays, and so does everything behind it, until somebody tries again.

A message whose stored bytes make no sense cannot be a letter. It is set aside: it stays pending and nobody has its tag,
so it is on disk as it is, and out of the way until the next start. An operator is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId
from warren.base.runs import Publication, Slice
from warren.broker.arguments import Address, Overflow, QueueArguments
from warren.broker.dead_letters import DeadLetters, DeadMessages, Departure, letters_of
from warren.broker.expiry import wall_ms
from warren.broker.limits import count_within
from warren.broker.work import RejectedPublish, UnitOfWork, WiderLocksNeeded
from warren.queue_index.why import DequeueReason
from warren.queues.backing import BackingQueue, SetAsideQueue, TagRange
from warren.queues.priority import LEVEL_SHIFT

if TYPE_CHECKING:
    from warren.broker.queue import QueueContext

MOVE_BYTES = 1 << 20  # contents read at once on their way to another queue
REJECT_STEP = 64  # messages looked at together
HOP_HEADER_BYTES = 256  # headers of so many bytes cost about as much as a move: `x-death` grows with each queue


class MessageRemoval:
    """Of one life of a queue."""

    __slots__ = ("_address", "_around", "_backing", "_id", "_name", "_turns_away")

    def __init__(
        self, id_: QueueId, name: str, arguments: QueueArguments, backing: BackingQueue, around: QueueContext
    ) -> None:
        self._id = id_
        self._name = name
        self._backing = backing
        self._around = around
        self._address: Address | None = arguments.dead_letters_to
        self._turns_away = arguments.overflow is Overflow.REJECT_PUBLISH_DLX

    def check_wide(self, work: UnitOfWork) -> None:
        """Before anything has changed."""
        if self._address is not None and not work.is_wide:
            raise WiderLocksNeeded

    def movable(self, head: Slice, work: UnitOfWork) -> int:
        """How many of the slice at the head may go in this session; if they go nowhere, all of them."""
        return min(count_within(head, work.room_bytes), work.room_messages) if self.leads() else len(head)

    def let_go(self, count: int, why: DequeueReason, work: UnitOfWork) -> int:
        """So many from the head; how many it were. Fewer only if the routing has changed."""
        backing, gone = self._backing, 0
        if not self.leads():
            return backing.drop(count, why, work.changes)
        while gone < count:
            try:
                fetched = backing.fetch(count - gone, MOVE_BYTES)
            except Damage as error:  # it cannot be moved: it stays, out of the way, or nobody can have it any more
                gone += self.set_aside(error) or backing.drop(1, why, work.changes)
                continue
            if not fetched:
                break
            for number, each in enumerate(fetched):
                if not self._sent(each.tags, [each.slice], why, work):
                    backing.requeue([other.tags for other in fetched[number:]], work.changes)
                    return gone
                gone += len(each.slice)
        return gone

    def reject(self, tags: Sequence[TagRange], why: DequeueReason, work: UnitOfWork) -> int:
        """Pending messages; how many it were: the first ones, if all would make the session too large. Of a tag that
        is not pending nothing has changed if it is the first."""
        if not self.leads():
            return self._backing.ack(tags, why, work.changes)
        count = 0
        for some in in_pieces(tags, REJECT_STEP):
            if count and work.room_bytes <= 0:
                break
            try:
                done = self._rejected(some, why, work)
            except Misuse:
                if count:  # those before it have left: whoever comes with the others is told
                    break
                raise
            count += done
            if done < some[1] - some[0]:
                break
        return count

    def turn_away(self, publication: Publication, work: UnitOfWork) -> None:
        """What does not fit is dead-lettered at the end of the work, if the queue was asked for that."""
        if self._turns_away and self.leads():
            work.rejected.append(RejectedPublish(self._id, publication))

    def dead_letter(self, publication: Publication, work: UnitOfWork) -> None:
        """A publish that was turned away. If the routing has changed since the locks were taken it waits."""
        if not self.leads():
            return
        dead = DeadMessages(publication.contents, publication.origin, publication.is_persistent, publication.priority)
        letters = self._letters(dead, DequeueReason.OVER_LIMIT, work)
        if letters is None:
            work.rejected.appendleft(RejectedPublish(self._id, publication))
        else:
            _deliver(letters, work)

    def set_aside(self, error: Damage) -> int:
        """What stands at the head and cannot be read; how many it were."""
        backing, head = self._backing, self._backing.head()
        count = backing.set_aside(1) if isinstance(backing, SetAsideQueue) else 0
        if count and head is not None:
            self._tell(head.first, str(error))
        return count

    def leads(self) -> bool:
        """Whether messages that leave come to another queue."""
        return self._address is not None and self._around.ways.leads(*self._address)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _rejected(self, tags: TagRange, why: DequeueReason, work: UnitOfWork) -> int:
        """How many of them. What cannot be read stays as it is, set aside."""
        first, stop = tags
        try:
            found = self._backing.look([tags])
        except Damage as error:
            if stop - first == 1:
                self._tell(first, str(error))
                return 1
            done = 0
            while done < stop - first and self._rejected((first + done, first + done + 1), why, work):
                done += 1
            return done
        return stop - first if self._sent(tags, found, why, work) else 0

    def _sent(self, tags: TagRange, slices: Sequence[Slice], why: DequeueReason, work: UnitOfWork) -> bool:
        """Pending messages, with these tags in turn, leave; False: not now, and nothing has changed."""
        at, all_letters = tags[0], []
        for slice_ in slices:
            assert slice_.contents is not None, "what leaves was fetched, or looked at"
            run = slice_.run
            dead = DeadMessages(slice_.contents, run.origin, run.is_persistent, at >> LEVEL_SHIFT)
            letters = self._letters(dead, why, work)
            if letters is None:
                return False
            all_letters.append((at, slice_, letters))
            at += len(slice_)
        staying: list[int] = []
        for first, slice_, letters in all_letters:
            staying += [first + number for number in letters.broken]
            for number, told in letters.broken.items():
                self._tell(slice_.first + number, told)
            _deliver(letters, work)
        self._backing.ack(list(_without(tags, staying)), why, work.changes)
        return True

    def _letters(self, dead: DeadMessages, why: DequeueReason, work: UnitOfWork) -> DeadLetters | None:
        """None: some would go where nobody is held."""
        assert self._address is not None, "there is a way"
        now_ms = wall_ms(self._around.clock)
        leave = Departure(self._id, self._name, self._address, why, now_ms)
        letters = letters_of(dead, leave, self._around.ways, work.name_of)
        if all(work.knows(target) for letter in letters.letters for target in letter.targets):
            return letters
        work.stop_moving()
        return None

    def _tell(self, number: int, why: str) -> None:
        self._around.tell(f"queue {self._name!r}: message {number} is set aside, it cannot be read: {why}")


def _deliver(letters: DeadLetters, work: UnitOfWork) -> None:
    work.hops += letters.header_bytes // HOP_HEADER_BYTES
    for targets, publication in letters.letters:
        takers = [queue for queue in map(work.queue, targets) if queue is not None]
        if len(takers) < len(targets):  # one is down, or was deleted in this moment
            publication = replace(publication, fan_out=len(takers))
        if takers:
            work.moved_bytes += sum(map(len, publication.contents)) * len(takers)
            work.hops += len(takers)
        for queue in takers:
            queue.accept(publication, work)


def _without(tags: TagRange, staying: Sequence[int]) -> Iterator[TagRange]:
    first = tags[0]
    for tag in [*staying, tags[1]]:
        if first < tag:
            yield first, tag
        first = tag + 1


def in_pieces(tags: Sequence[TagRange], most: int) -> Iterator[TagRange]:
    """The same tags, up to so many in a range."""
    for first, stop in tags:
        for at in range(first, stop, most):
            yield at, min(at + most, stop)


def behind(tags: Sequence[TagRange], count: int) -> list[TagRange]:
    """What is left of the tags without the first so many."""
    left: list[TagRange] = []
    for first, stop in tags:
        passed = min(count, stop - first)
        count -= passed
        if first + passed < stop:
            left.append((first + passed, stop))
    return left
