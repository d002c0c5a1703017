"""Dead letters: messages that leave a queue without an acknowledgement are dropped, or dead-lettered to other queues.

    MessageRemoval.release       a number of messages from the head: expired, or over the limit
    MessageRemoval.reject        pending messages: rejected, or over the delivery limit
    MessageRemoval.refuse        publishes that a full queue refuses
    DeadLetterRoutes.reach       before the work: queues that a dead letter may reach, so that they can be locked
    DeadLetterRoutes.forward     during the work, with those locks: the targets of one message

    dequeue from the source ──┐
                              ├─ one session (DESIGN rule 24): after a power cut the message is here or there
    publish to the targets  ──┘  every queue that the dead-letter exchange routes to at this moment

Routing: a dead letter has the queue's `x-dead-letter-routing-key`, or its own key and CC. A message moves only to
queues whose locks are held. If the routing has changed since the locks were taken, the message and everything behind it
stay where they are, and are tried again with other locks. Without a target, or if the target is full and refuses, the
message is gone, for the reason for which it left the source. Messages that leave together for the same queues are one
publication, so their order is preserved.

Deaths: a dead letter carries its deaths, newest first: queue, reason, count. An AMQP content has them in its headers
(death_headers), and its origin names the dead-letter exchange. A plain body has no headers: its deaths are a note in
the origin of its run, in place of the exchange:

    dead-letter:12:expired:1,7:rejected:3            expired in queue 12, before that rejected three times in queue 7

Cycles: a message is dropped if the target is among its deaths and there was no rejection since (or there): this is an
automatic cycle. A rejection is a client's decision, so messages may cycle by rejections without limit. The deaths since
the last rejection are never removed from the note, so a message passes each queue once. A note that is too long for an
origin ends the message like a cycle.

Properties: a dead letter has no expiration, otherwise it would expire again at once. It keeps its priority (from its
properties; of a plain body the level of its sub-queue) and its persistence (a plain body from a queue that is not
durable has become transient there).

Damage: a message whose stored bytes cannot be decoded is set aside instead: it stays pending without a consumer, so it
is on disk unchanged and out of the way until the next start. An alarm reports it.

Invariants
* Removal and delivery to the targets are in one session.
* `has_targets` and `forward` are called with locks of queues held, and wait for no lock of a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from warren.amqp.errors import PeerError
from warren.amqp.types import Table
from warren.base.environment import wall_ms
from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId
from warren.base.messages import WIRE, Origin, Publication, Slice
from warren.base.threads import Condition
from warren.broker.death_headers import X_DEATH, DeadLetteredProperties, DeathHeaders
from warren.broker.death_headers import DeathEvent as WrittenDeath
from warren.broker.death_headers import is_circle as is_written_circle
from warren.broker.exchanges.routing import OPEN, Routing
from warren.broker.exchanges.simple import BadCopies
from warren.broker.queue_arguments import Address, Overflow, QueueArguments, count_within
from warren.broker.unit_of_work import RejectedPublish, TargetLocksNeeded, UnitOfWork
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import LEVEL_SHIFT, BackingQueue, SetAsideQueue, TagRange

if TYPE_CHECKING:
    from warren.broker.queue import QueueContext


class DeadLetterRoutes:
    """Targets of dead letters, by the exchanges of a vhost. Without a routing there are none."""

    def __init__(self, routing: Routing | None = None, lock: Condition | None = None) -> None:
        self._routing = routing or Routing()
        self._lock: AbstractContextManager[object] = nullcontext() if lock is None else lock

    def reach(self, exchange: str, routing_key: str | None) -> Collection[QueueId]:
        """The queues that a message may reach with this routing key, or with any key (None). Empty if the exchange does
        not exist."""
        with self._lock:
            row = self._routing.exchange(exchange)
            return frozenset() if row is None else self._routing.reachable(row.id, routing_key)

    def has_targets(self, exchange: str, routing_key: str | None) -> bool:
        """Whether a message may reach a queue."""
        return bool(self.reach(exchange, routing_key))

    def forward(self, exchange: str, routing_key: str, headers: Table) -> Sequence[QueueId]:
        """The queues that a message is routed to now. Empty if the exchange does not exist."""
        with self._lock:
            row = self._routing.exchange(exchange)
            if row is None:
                return ()
            try:
                return self._routing.forward(row.id, routing_key, headers).queues
            except BadCopies:  # publishes with such a header are refused before
                return self._routing.forward(row.id, routing_key, _without_copies(headers)).queues


NO_DEAD_LETTER_ROUTES = DeadLetterRoutes()  # for a queue outside a vhost


def _without_copies(headers: Table) -> Table:
    return {name: value for name, value in headers.items() if name != OPEN}


PREFIX = "dead-letter:"
OLDER_DEATHS_MAX = 64  # in a note; deaths since the last rejection are never removed
NOTE_BYTES_MAX = 60_000  # an origin has room for 65,535
_WORDS = {
    DequeueReason.EXPIRED: "expired",
    DequeueReason.OVER_LIMIT: "maxlen",
    DequeueReason.REJECTED: "rejected",
    DequeueReason.DELIVERY_LIMIT: "delivery_limit",
}
_REASONS = {word: reason for reason, word in _WORDS.items()}


class DeathCause(NamedTuple):
    queue: QueueId
    reason: DequeueReason
    times: int


@dataclass(frozen=True, slots=True)
class Departure:
    """Source, reason and time of messages that leave a queue together."""

    queue: QueueId
    name: str
    address: Address
    reason: DequeueReason
    now_ms: int


class DeadMessages(NamedTuple):
    """Messages as they were in the queue that they leave."""

    contents: Sequence[bytes]
    origin: Origin
    is_persistent: bool
    priority: int


class DeadLetter(NamedTuple):
    """Messages with the same targets."""

    targets: tuple[QueueId, ...]
    publication: Publication


class DeadLetters(NamedTuple):
    dead_letters: list[DeadLetter]
    broken: dict[int, str]  # by number: messages that cannot be decoded, and the error
    header_bytes: int = 0  # of headers that were decoded and written again


def dead_letters_of(
    dead: DeadMessages, departure: Departure, dead_letter_routes: DeadLetterRoutes, name_of: Callable[[QueueId], str]
) -> DeadLetters:
    """Dead letters of these messages, in their order. Messages without a target are in none."""
    if dead.origin.content_kind == WIRE:
        return _written(dead, departure, dead_letter_routes, name_of)
    key = _key(dead.origin, departure.address)
    deaths = with_death(deaths_of(dead.origin), departure.queue, departure.reason)
    targets = [
        id_ for id_ in dead_letter_routes.forward(departure.address.exchange, key, {}) if not is_circle(deaths, id_)
    ]
    note = PREFIX + ",".join(f"{each.queue}:{_WORDS[each.reason]}:{each.times}" for each in deaths)
    if len(note) > NOTE_BYTES_MAX:
        return DeadLetters([], {})
    origin = dead.origin._replace(exchange=note, routing_key=key)
    publication = Publication(
        dead.contents, dead.is_persistent, 0, departure.now_ms, dead.priority, origin, len(targets)
    )
    return DeadLetters([DeadLetter(tuple(targets), publication)] if targets else [], {})


# -- contents of AMQP ------------------------------------------------------------------------------------------------


def _written(
    dead: DeadMessages, departure: Departure, dead_letter_routes: DeadLetterRoutes, name_of: Callable[[QueueId], str]
) -> DeadLetters:
    origin, address = dead.origin, departure.address
    reason, seconds = _WORDS[departure.reason], departure.now_ms // 1000
    death_headers = DeathHeaders(
        WrittenDeath(departure.name, reason, seconds, origin.exchange, origin.routing_key, address.routing_key)
    )
    key = _key(origin, address)
    known: dict[bytes, tuple[tuple[QueueId, ...], int, bool]] = {}  # by their new properties
    sent: list[tuple[tuple[tuple[QueueId, ...], int, bool], bytes]] = []
    broken: dict[int, str] = {}
    for number, content in enumerate(dead.contents):
        try:
            written, dead_lettered = death_headers.write_death(content)
        except (PeerError, Misuse) as error:
            broken[number] = error.what
            continue
        fate = known.get(dead_lettered.properties)
        if fate is None:
            targets = _targets(
                dead_letter_routes.forward(address.exchange, key, dead_lettered.headers), dead_lettered, name_of
            )
            fate = known[dead_lettered.properties] = targets, dead_lettered.priority, dead_lettered.is_persistent
        sent.append((fate, written))
    origin = origin._replace(exchange=address.exchange, routing_key=key)
    dead_letters = [
        DeadLetter(
            targets,
            Publication(
                [content for _, content in some], persistent, 0, departure.now_ms, priority, origin, len(targets)
            ),
        )
        for (targets, priority, persistent), some in groupby(sent, key=lambda each: each[0])
        if targets
    ]
    return DeadLetters(dead_letters, broken, sum(map(len, known)))


def _targets(
    routed: Sequence[QueueId], dead_lettered: DeadLetteredProperties, name_of: Callable[[QueueId], str]
) -> tuple[QueueId, ...]:
    deaths = dead_lettered.headers[X_DEATH]
    return tuple(id_ for id_ in routed if not is_written_circle(name_of(id_), deaths))


def _key(origin: Origin, address: Address) -> str:
    return origin.routing_key if address.routing_key is None else address.routing_key


# -- the note of plain bodies ----------------------------------------------------------------------------------------


def deaths_of(origin: Origin) -> list[DeathCause]:
    """Newest first; empty for a message that was never dead-lettered."""
    if not origin.exchange.startswith(PREFIX):
        return []
    entries = (each.split(":") for each in origin.exchange[len(PREFIX) :].split(","))
    return [DeathCause(QueueId(int(queue)), _REASONS[word], int(count)) for queue, word, count in entries]


def with_death(deaths: list[DeathCause], queue: QueueId, reason: DequeueReason) -> list[DeathCause]:
    """With one more death in front; deaths of the same queue and reason are one entry with a count."""
    before = next((each.times for each in deaths if (each.queue, each.reason) == (queue, reason)), 0)
    others = [each for each in deaths if (each.queue, each.reason) != (queue, reason)]
    updated = [DeathCause(queue, reason, before + 1), *others]
    rejected = next((at for at, each in enumerate(updated) if each.reason is DequeueReason.REJECTED), len(updated))
    return updated[: max(rejected + 1, OLDER_DEATHS_MAX)]


def is_circle(deaths: list[DeathCause], target: QueueId) -> bool:
    """Whether the message has died in the target before, without a rejection since. The current death is in front."""
    if deaths[0].reason is DequeueReason.REJECTED:
        return False
    since = [each.queue for each in deaths].index(target) if any(each.queue == target for each in deaths) else None
    return since is not None and all(each.reason is not DequeueReason.REJECTED for each in deaths[: since + 1])


MOVE_BYTES = 1 << 20  # of contents read at once for a move to another queue
REJECT_STEP = 64  # messages read together
HOP_HEADER_BYTES = 256  # headers of so many bytes cost about as much as a move: `x-death` grows with each queue


class MessageRemoval:
    """Of one incarnation of a queue."""

    __slots__ = ("_address", "_backing", "_context", "_dead_letters_rejected", "_id", "_name")

    def __init__(
        self, id_: QueueId, name: str, arguments: QueueArguments, backing: BackingQueue, context: QueueContext
    ) -> None:
        self._id = id_
        self._name = name
        self._backing = backing
        self._context = context
        self._address: Address | None = None
        self._dead_letters_rejected = False
        self.set_arguments(arguments)

    def set_arguments(self, arguments: QueueArguments) -> None:
        self._address = arguments.dead_letters_to
        self._dead_letters_rejected = arguments.overflow is Overflow.REJECT_PUBLISH_DLX

    def check_target_locks(self, work: UnitOfWork) -> None:
        """Called before any change."""
        if self._address is not None and not work.has_target_locks:
            raise TargetLocksNeeded

    def movable(self, head: Slice, work: UnitOfWork) -> int:
        """How many messages of the slice at the head fit into this session; all of them if there are no targets."""
        return min(count_within(head, work.room_bytes), work.room_messages) if self.has_targets() else len(head)

    def release(self, count: int, reason: DequeueReason, work: UnitOfWork) -> int:
        """Remove `count` messages from the head; returns the number, which is lower only if the routing has changed."""
        backing, gone = self._backing, 0
        if not self.has_targets():
            return backing.drop(count, reason, work.index_batch)
        while gone < count:
            try:
                fetched = backing.fetch(count - gone, MOVE_BYTES)
            except Damage as error:  # it cannot be moved: it is set aside, or dropped where that is not possible
                gone += self.set_aside(error) or backing.drop(1, reason, work.index_batch)
                continue
            if not fetched:
                break
            for number, each in enumerate(fetched):
                if not self._sent(each.tags, [each.slice], reason, work):
                    backing.requeue([other.tags for other in fetched[number:]], work.index_batch)
                    return gone
                gone += len(each.slice)
        return gone

    def reject(self, tags: Sequence[TagRange], reason: DequeueReason, work: UnitOfWork) -> int:
        """Remove pending messages; returns the number: only the first ones if all would make the session too large. If
        the first tag is not pending, nothing has changed."""
        if not self.has_targets():
            return self._backing.ack(tags, reason, work.index_batch)
        count = 0
        for some in in_pieces(tags, REJECT_STEP):
            if count and work.room_bytes <= 0:
                break
            try:
                done = self._rejected(some, reason, work)
            except Misuse:
                if count:  # those before it have left: the call with the others raises
                    break
                raise
            count += done
            if done < some[1] - some[0]:
                break
        return count

    def refuse(self, publication: Publication, work: UnitOfWork) -> None:
        """With `reject-publish-dlx`, what does not fit is dead-lettered at the end of the work."""
        if self._dead_letters_rejected and self.has_targets():
            work.rejected.append(RejectedPublish(self._id, publication))

    def dead_letter(self, publication: Publication, work: UnitOfWork) -> None:
        """Dead-letter a refused publish. If the routing has changed since the locks were taken, it waits."""
        if not self.has_targets():
            return
        dead = DeadMessages(publication.contents, publication.origin, publication.is_persistent, publication.priority)
        dead_letters = self._dead_letters(dead, DequeueReason.OVER_LIMIT, work)
        if dead_letters is None:
            work.rejected.appendleft(RejectedPublish(self._id, publication))
        else:
            _deliver(dead_letters, work)

    def set_aside(self, error: Damage) -> int:
        """Set aside the unreadable message at the head; returns the number of messages."""
        backing, head = self._backing, self._backing.head()
        count = backing.set_aside(1) if isinstance(backing, SetAsideQueue) else 0
        if count and head is not None:
            self._report_damage(head.first, str(error))
        return count

    def has_targets(self) -> bool:
        """Whether messages that leave may reach another queue."""
        return self._address is not None and self._context.dead_letter_routes.has_targets(*self._address)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _rejected(self, tags: TagRange, reason: DequeueReason, work: UnitOfWork) -> int:
        """Returns the number of messages. Unreadable messages are set aside."""
        first, stop = tags
        try:
            found = self._backing.read_pending([tags])
        except Damage as error:
            if stop - first == 1:
                self._report_damage(first, str(error))
                return 1
            done = 0
            while done < stop - first and self._rejected((first + done, first + done + 1), reason, work):
                done += 1
            return done
        return stop - first if self._sent(tags, found, reason, work) else 0

    def _sent(self, tags: TagRange, slices: Sequence[Slice], reason: DequeueReason, work: UnitOfWork) -> bool:
        """Dead-letter pending messages with these tags; False: not possible now, and nothing has changed."""
        at, all_dead_letters = tags[0], []
        for slice_ in slices:
            assert slice_.contents is not None, "slices that leave have contents"
            run = slice_.run
            dead = DeadMessages(slice_.contents, run.origin, run.is_persistent, at >> LEVEL_SHIFT)
            dead_letters = self._dead_letters(dead, reason, work)
            if dead_letters is None:
                return False
            all_dead_letters.append((at, slice_, dead_letters))
            at += len(slice_)
        staying: list[int] = []
        for first, slice_, dead_letters in all_dead_letters:
            staying += [first + number for number in dead_letters.broken]
            for number, problem in dead_letters.broken.items():
                self._report_damage(slice_.first + number, problem)
            _deliver(dead_letters, work)
        self._backing.ack(list(_without(tags, staying)), reason, work.index_batch)
        return True

    def _dead_letters(self, dead: DeadMessages, reason: DequeueReason, work: UnitOfWork) -> DeadLetters | None:
        """None: the lock of some target is not held."""
        assert self._address is not None, "the queue has a dead-letter address"
        now_ms = wall_ms(self._context.clock)
        departure = Departure(self._id, self._name, self._address, reason, now_ms)
        dead_letters = dead_letters_of(dead, departure, self._context.dead_letter_routes, work.name_of)
        if all(work.can_move_to(target) for dead_letter in dead_letters.dead_letters for target in dead_letter.targets):
            return dead_letters
        work.stop_moving()
        return None

    def _report_damage(self, number: int, reason: str) -> None:
        self._context.report_problem(
            f"queue {self._name!r}: message {number} is set aside because it cannot be read: {reason}"
        )


def _deliver(dead_letters: DeadLetters, work: UnitOfWork) -> None:
    work.hops += dead_letters.header_bytes // HOP_HEADER_BYTES
    for targets, publication in dead_letters.dead_letters:
        queues = [queue for queue in map(work.queue, targets) if queue is not None]
        if len(queues) < len(targets):  # a queue is down, or was just deleted
            publication = replace(publication, fan_out=len(queues))
        if queues:
            work.moved_bytes += sum(map(len, publication.contents)) * len(queues)
            work.hops += len(queues)
        for queue in queues:
            queue.accept(publication, work)


def _without(tags: TagRange, staying: Sequence[int]) -> Iterator[TagRange]:
    first = tags[0]
    for tag in [*staying, tags[1]]:
        if first < tag:
            yield first, tag
        first = tag + 1


def in_pieces(tags: Sequence[TagRange], most: int) -> Iterator[TagRange]:
    """The same tags, in ranges of at most `most`."""
    for first, stop in tags:
        for at in range(first, stop, most):
            yield at, min(at + most, stop)


def behind(tags: Sequence[TagRange], count: int) -> list[TagRange]:
    """The tags without the first `count`."""
    remaining: list[TagRange] = []
    for first, stop in tags:
        passed = min(count, stop - first)
        count -= passed
        if first + passed < stop:
            remaining.append((first + passed, stop))
    return remaining
