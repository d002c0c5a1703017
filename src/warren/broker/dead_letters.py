"""Messages that a queue lets go of and others take: expired, over the limit, rejected, given back too often.

    dequeue here ─┐
                  ├─ one session (DESIGN rule 24): here or there, whenever the power goes
    publish there ┘  into every queue that the dead-letter exchange leads to at this moment

The letter goes by the queue's `x-dead-letter-routing-key`, or by its own key and CC. It carries a note of its deaths,
newest first: in which queue, why, how often. A content of AMQP has it in its headers (death_headers), and its origin
says that it came by the dead-letter exchange. A plain body has no headers: there the note stands in the origin of its
run, in place of the exchange:

    dead-letter:12:expired:1,7:rejected:3            queue 12 let it expire, before that somebody rejected it in 7

A message that goes round in a circle by itself is dropped: the target is among its deaths, and nobody has rejected it
since (or there). Rejections are somebody's decision, so they may go round as often as they like. No death that this
needs is dropped from the note: those since the last rejection stay, so a message is in each queue once. A note that is
too long for an origin ends the message's way, like a cycle.

A letter has no time of its own any more, else it would expire again at once. It keeps its priority (the one in its
properties; of a plain body the level it stood at) and whether it is persistent (a plain body in a queue that is not
durable has become transient there). Where there is no target, or it is full and refuses, the message is gone, for the
reason for which it left. Order is kept: what left together and goes to the same queues is one publication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from warren.amqp.errors import PeerError
from warren.base.errors import Misuse
from warren.base.ids import QueueId
from warren.base.runs import WIRE, Origin, Publication
from warren.broker.arguments import Address
from warren.broker.death_headers import X_DEATH, DeadLetteredProperties, DeathHeaders
from warren.broker.death_headers import DeathEvent as WrittenDeath
from warren.broker.death_headers import is_circle as is_written_circle
from warren.broker.ways import DeadLetterRoutes
from warren.queue_index.why import DequeueReason

PREFIX = "dead-letter:"
OLDER_DEATHS_MAX = 64  # in a note, with those since the last rejection, of which none is dropped
NOTE_BYTES_MAX = 60_000  # an origin has room for 65,535
_WORDS = {
    DequeueReason.EXPIRED: "expired",
    DequeueReason.OVER_LIMIT: "maxlen",
    DequeueReason.REJECTED: "rejected",
    DequeueReason.DELIVERY_LIMIT: "delivery_limit",
}
_REASONS = {word: why for why, word in _WORDS.items()}


class DeathCause(NamedTuple):
    queue: QueueId
    why: DequeueReason
    times: int


@dataclass(frozen=True, slots=True)
class Departure:
    """What is to be known of messages that leave a queue together."""

    queue: QueueId
    name: str
    address: Address
    why: DequeueReason
    now_ms: int


class DeadMessages(NamedTuple):
    """Messages as they were in the queue that lets go of them."""

    contents: Sequence[bytes]
    origin: Origin
    is_persistent: bool
    priority: int


class DeadLetter(NamedTuple):
    """Messages on their way to some queues."""

    targets: tuple[QueueId, ...]
    publication: Publication


class DeadLetters(NamedTuple):
    letters: list[DeadLetter]
    broken: dict[int, str]  # which of the messages cannot be sent, for their bytes make no sense: why
    header_bytes: int = 0  # of headers that were opened and written again


def letters_of(
    dead: DeadMessages, leave: Departure, ways: DeadLetterRoutes, name_of: Callable[[QueueId], str]
) -> DeadLetters:
    """What becomes of messages: letters in the order in which they stood. Those that nobody gets are in none."""
    if dead.origin.content_kind == WIRE:
        return _written(dead, leave, ways, name_of)
    key = _key(dead.origin, leave.address)
    deaths = with_death(deaths_of(dead.origin), leave.queue, leave.why)
    targets = [id_ for id_ in ways.forward(leave.address.exchange, key, {}) if not is_circle(deaths, id_)]
    note = PREFIX + ",".join(f"{each.queue}:{_WORDS[each.why]}:{each.times}" for each in deaths)
    if len(note) > NOTE_BYTES_MAX:
        return DeadLetters([], {})
    origin = dead.origin._replace(exchange=note, routing_key=key)
    publication = Publication(dead.contents, dead.is_persistent, 0, leave.now_ms, dead.priority, origin, len(targets))
    return DeadLetters([DeadLetter(tuple(targets), publication)] if targets else [], {})


# -- contents of AMQP ------------------------------------------------------------------------------------------------


def _written(
    dead: DeadMessages, leave: Departure, ways: DeadLetterRoutes, name_of: Callable[[QueueId], str]
) -> DeadLetters:
    origin, address = dead.origin, leave.address
    reason, seconds = _WORDS[leave.why], leave.now_ms // 1000
    undertaker = DeathHeaders(
        WrittenDeath(leave.name, reason, seconds, origin.exchange, origin.routing_key, address.routing_key)
    )
    key = _key(origin, address)
    known: dict[bytes, tuple[tuple[QueueId, ...], int, bool]] = {}  # by their properties, as they go on
    sent: list[tuple[tuple[tuple[QueueId, ...], int, bool], bytes]] = []
    broken: dict[int, str] = {}
    for number, content in enumerate(dead.contents):
        try:
            written, buried = undertaker.bury(content)
        except (PeerError, Misuse) as error:
            broken[number] = error.what
            continue
        fate = known.get(buried.properties)
        if fate is None:
            targets = _targets(ways.forward(address.exchange, key, buried.headers), buried, name_of)
            fate = known[buried.properties] = targets, buried.priority, buried.is_persistent
        sent.append((fate, written))
    origin = origin._replace(exchange=address.exchange, routing_key=key)
    letters = [
        DeadLetter(
            targets,
            Publication([content for _, content in some], persistent, 0, leave.now_ms, priority, origin, len(targets)),
        )
        for (targets, priority, persistent), some in groupby(sent, key=lambda each: each[0])
        if targets
    ]
    return DeadLetters(letters, broken, sum(map(len, known)))


def _targets(
    found: Sequence[QueueId], buried: DeadLetteredProperties, name_of: Callable[[QueueId], str]
) -> tuple[QueueId, ...]:
    deaths = buried.headers[X_DEATH]
    return tuple(id_ for id_ in found if not is_written_circle(name_of(id_), deaths))


def _key(origin: Origin, address: Address) -> str:
    return origin.routing_key if address.routing_key is None else address.routing_key


# -- the note of plain bodies ----------------------------------------------------------------------------------------


def deaths_of(origin: Origin) -> list[DeathCause]:
    """Newest first; none for what never was dead-lettered."""
    if not origin.exchange.startswith(PREFIX):
        return []
    told = (each.split(":") for each in origin.exchange[len(PREFIX) :].split(","))
    return [DeathCause(QueueId(int(queue)), _REASONS[word], int(count)) for queue, word, count in told]


def with_death(deaths: list[DeathCause], queue: QueueId, why: DequeueReason) -> list[DeathCause]:
    """One more: the same queue and reason are counted, and come first."""
    before = next((each.times for each in deaths if (each.queue, each.why) == (queue, why)), 0)
    others = [each for each in deaths if (each.queue, each.why) != (queue, why)]
    told = [DeathCause(queue, why, before + 1), *others]
    rejected = next((at for at, each in enumerate(told) if each.why is DequeueReason.REJECTED), len(told))
    return told[: max(rejected + 1, OLDER_DEATHS_MAX)]


def is_circle(deaths: list[DeathCause], target: QueueId) -> bool:
    """Whether the target had it before, and it came round by itself. `deaths` has the present one in front."""
    if deaths[0].why is DequeueReason.REJECTED:
        return False
    since = [each.queue for each in deaths].index(target) if any(each.queue == target for each in deaths) else None
    return since is not None and all(each.why is not DequeueReason.REJECTED for each in deaths[: since + 1])
