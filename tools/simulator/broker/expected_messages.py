"""Reference model of the simulated broker: what its clients know, and so what must be there after a crash.

    topology   absent ─requested─▶ coming ─answered─▶ there ─requested─▶ going ─answered─▶ absent
    message    sent ─▶ confirmed, or refused, or unknown
    copy       of a message in a queue: ready ─▶ unacked by a client ─▶ settled: requested, later certainly durable

Recorded by the clients (`client`) in the order of events: *requested* when the bytes are sent, *answered* when the
answer was written to the socket. No locks: between two seams only one thread runs. `checker` compares it with the state
after a restart.

A settlement becomes *certainly durable* when the same client receives something later that is durable: a confirm of a
persistent message, or an answer to a change of topology.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tools.simulator.observations import Violation


class Fate(Enum):
    ABSENT = "absent"
    COMING = "coming"
    THERE = "there"
    GOING = "going"


class Outcome(Enum):
    UNKNOWN = "unknown"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


class Certainty(Enum):
    NOT = "not"
    PERHAPS = "perhaps"  # requested, then the connection or the process ended
    ASKED = "asked"
    DURABLE = "durable"


@dataclass(slots=True, eq=False)
class PlainQueue:
    """One queue, from declare to delete. Declared again under the same name it is another queue."""

    name: str
    is_durable: bool = True
    dead_letters_to: str = ""
    is_auto_acked: bool = False  # consumers do not acknowledge: delivered messages may be lost
    fate: Fate = Fate.ABSENT
    incarnation: int = 0  # how often it was declared


@dataclass(slots=True, eq=False)
class QueuedCopy:
    """A message in a queue."""

    was_delivered: bool = False
    holder: str = ""  # whose hands it is in
    settled: Certainty = Certainty.NOT
    moved: Certainty = Certainty.NOT  # rejected where dead letters go on

    def doubt(self) -> None:
        if self.settled is Certainty.ASKED:
            self.settled = Certainty.PERHAPS
        if self.moved is Certainty.ASKED:
            self.moved = Certainty.PERHAPS


@dataclass(slots=True, eq=False)
class PublishedMessage:
    body: bytes
    publisher: str
    number: int  # of the publisher's own
    exchange: str
    key: str
    is_persistent: bool
    surely: dict[str, int]  # queues to which it must have gone, in which life of theirs
    perhaps: frozenset[str]  # … and those to which it may have
    outcome: Outcome = Outcome.UNKNOWN
    copies: dict[str, QueuedCopy] = field(default_factory=dict)

    def copy_in(self, queue: str) -> QueuedCopy:
        return self.copies.setdefault(queue, QueuedCopy())

    def __str__(self) -> str:
        return self.body.partition(b"|")[0].decode()


Binding = tuple[str, str, str]  # exchange, key, queue


class ExpectedMessages:
    def __init__(self) -> None:
        self.queues: dict[str, PlainQueue] = {}
        self.exchanges: dict[str, tuple[str, Fate]] = {}  # type
        self.bindings: dict[Binding, Fate] = {}
        self.messages: dict[bytes, PublishedMessage] = {}
        self.fleeting: set[str] = set()  # queues that come and go while others publish
        self._numbers: dict[str, int] = {}

    # -- messages ------------------------------------------------------------------------------------------------

    def publish(
        self, publisher: str, exchange: str, key: str, size: int, is_persistent: bool, owns: bool
    ) -> PublishedMessage:
        """About to be sent. `owns`: fleeting queues are the publisher's own, so it knows whether they are bound."""
        number = self._numbers[publisher] = self._numbers.get(publisher, 0) + 1
        body = b"%s-%d|" % (publisher.encode(), number)
        body += b"." * max(0, size - len(body))
        bound = [name for name in self.queues if self._is_bound(exchange, key, name)]
        surely = [name for name in bound if owns or name not in self.fleeting]
        perhaps = frozenset() if owns or exchange == "" else frozenset(self.fleeting)
        lives = {name: self.queues[name].incarnation for name in surely}
        sent = self.messages[body] = PublishedMessage(
            body, publisher, number, exchange, key, is_persistent, lives, perhaps
        )
        return sent

    def _is_bound(self, exchange: str, key: str, queue: str) -> bool:
        if self.queues[queue].fate is not Fate.THERE:
            return False
        if exchange == "":
            return key == queue
        kind, _ = self.exchanges[exchange]
        keys = [bound for source, bound, target in self.there() if (source, target) == (exchange, queue)]
        return bool(keys) if kind == "fanout" else key in keys

    def there(self) -> list[Binding]:
        return [binding for binding, fate in self.bindings.items() if fate is Fate.THERE]

    def may_go_to(self, sent: PublishedMessage, queue: str) -> bool:
        """Whether this message may be in this queue."""
        if queue in sent.perhaps:
            return True
        if queue in sent.surely:
            return sent.surely[queue] == self.queues[queue].incarnation
        return any(
            copy.moved is not Certainty.NOT and self._moves_to(name) == queue for name, copy in sent.copies.items()
        )

    def _moves_to(self, queue: str) -> str:
        return self.queues[queue].dead_letters_to

    def delivered(self, queue: str, body: bytes, is_redelivered: bool, holder: str) -> PublishedMessage:
        """Delivered from a queue. An empty holder: acknowledged with the delivery."""
        sent = self._known(queue, body)
        copy = sent.copy_in(queue)
        if {copy.settled, copy.moved} & {Certainty.ASKED, Certainty.DURABLE}:
            raise Violation(f"{queue}: {sent} comes again, though it was settled")
        if copy.holder:
            raise Violation(f"{queue}: {sent} comes again, while {copy.holder} has it")
        if copy.was_delivered and not is_redelivered:
            raise Violation(f"{queue}: {sent} comes again, and is not flagged")
        copy.was_delivered = True
        copy.holder = holder
        copy.settled = copy.moved = Certainty.NOT  # so it was not
        return sent

    def delivered_in_vain(self, queue: str, body: bytes) -> PublishedMessage:
        """Delivered to a channel that had closed already: it is ready again, and another client may have it."""
        sent = self._known(queue, body)
        sent.copy_in(queue).was_delivered = True
        return sent

    def _known(self, queue: str, body: bytes) -> PublishedMessage:
        sent = self.messages.get(body)
        if sent is None:
            raise Violation(f"{queue}: {body[:20]!r} was never published")
        if not self.may_go_to(sent, queue):
            raise Violation(f"{queue}: {sent} was never sent there")
        return sent

    # -- topology ------------------------------------------------------------------------------------------------

    def declaring_queue(self, queue: PlainQueue) -> PlainQueue:
        known = self.queues.setdefault(queue.name, queue)
        if known.fate is Fate.ABSENT:
            known.fate = Fate.COMING
            known.incarnation += 1
        return known

    def queue_deleted(self, name: str) -> None:
        self.queues[name].fate = Fate.ABSENT
        self._unbound(2, name)

    def exchange_deleted(self, name: str) -> None:
        self.exchanges[name] = self.exchanges[name][0], Fate.ABSENT
        self._unbound(0, name)

    def _unbound(self, place: int, name: str) -> None:
        for binding in self.bindings:
            if binding[place] == name:
                self.bindings[binding] = Fate.ABSENT

    def restarted(self) -> None:
        """A new process: no copy is unacked, transient messages are gone, and settled copies may reappear unless the
        settlement is certainly durable."""
        for queue in self.queues.values():
            if not queue.is_durable:
                self.queue_deleted(queue.name)
        for sent in self.messages.values():
            if not sent.is_persistent:
                sent.outcome = Outcome.UNKNOWN  # its outcome was that of the former process
            for copy in sent.copies.values():
                copy.holder = ""
                copy.doubt()
