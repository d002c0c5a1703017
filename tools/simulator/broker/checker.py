"""Inspection of a restarted broker through a client, and its comparison with the expected messages.

    inspect           every queue ever declared: is it there, its messages, their order, the redelivered flag
    probe             a message through every exchange and key: in which queues does it arrive
    check_restarted   every confirmed message is in all its queues, once, in order; no certainly settled message is;
                      a rejected message is in its queue or in the dead-letter queue; every answered declaration is
                      there, and no other

`drain` acknowledges everything, publishes a few messages, and returns what the next process must find: only those.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.simulator.broker.client import BrokerClient
from tools.simulator.broker.environment import SimulatedBroker
from tools.simulator.broker.expected_messages import (
    Certainty,
    ExpectedMessages,
    Fate,
    Outcome,
    PlainQueue,
    PublishedMessage,
    QueuedCopy,
)
from tools.simulator.observations import Violation
from warren.amqp import methods
from warren.amqp.methods import Method

Found = list[tuple[bytes, bool]]  # body, redelivered
PROBE_BYTES = 40
OWN = b"inspector-"


@dataclass(slots=True)
class RestartState:
    """Observed state after a restart."""

    queues: dict[str, Found] = field(default_factory=dict)  # those that are there
    exchanges: set[str] = field(default_factory=set)
    probes: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # exchange and key: where it came out

    def bodies(self, queue: str) -> set[bytes]:
        return {body for body, _ in self.queues.get(queue, ())}


class Inspector(BrokerClient):
    """The only client; it takes everything. Its operations are not in the expected messages of the others."""

    def __init__(self, incarnation: SimulatedBroker) -> None:
        super().__init__(incarnation, "inspector", ExpectedMessages(), random.Random(0))
        self.standing = RestartState()
        self._since: list[tuple[str, bytes]] = []  # what came lately, and from which queue

    def inspect(self, expected: ExpectedMessages) -> RestartState:
        counts = {}
        self.open()
        for name in expected.queues:
            declared = self._passively(methods.QueueDeclare(0, name, passive=True))
            if isinstance(declared, methods.QueueDeclareOk):
                counts[name] = declared.message_count
        for name in expected.exchanges:
            if isinstance(self._passively(methods.ExchangeDeclare(0, name, passive=True)), methods.ExchangeDeclareOk):
                self.standing.exchanges.add(name)
        self.standing.queues = {name: [] for name in counts}
        for name in counts:
            self.call(methods.BasicConsume(0, name, name), methods.BasicConsumeOk)
        self.wait_until(lambda: len(self._since) >= sum(counts.values()), "messages that were counted")
        found = Counter(name for name, _ in self._since)
        if found != Counter(counts):
            raise Violation(f"{counts} were counted, and {found} are there")
        return self.standing

    def probe(self, expected: ExpectedMessages) -> None:
        """Once it is confirmed it was delivered, to whichever queues."""
        for exchange, key in dict.fromkeys((exchange, key) for exchange, key, _ in expected.bindings):
            if exchange in self.standing.exchanges:
                self._since.clear()
                sent = self.publish(exchange, key, PROBE_BYTES)
                self.wait_for_confirms()
                self.standing.probes[exchange, key] = {queue for queue, body in self._since if body == sent.body}

    def drain(self) -> dict[str, list[bytes]]:
        """The durable content of each queue at the return."""
        if self._delivery:
            self.send_method(methods.BasicAck(0, True))
        left = {name: [self.publish("", name, PROBE_BYTES).body for _ in range(3)] for name in self.standing.queues}
        self.wait_for_confirms()
        return left

    def own(self, queue: str) -> list[bytes]:
        """Check for exactly the messages that a drain left."""
        return [body for name, body in self._since if name == queue and body.startswith(OWN)]

    def _passively(self, method: Method) -> Method:
        """The answer to a method; if the object does not exist, the channel is closed and opened again."""
        self.send_method(method)
        answer = self._answer()
        if isinstance(answer, methods.ChannelClose):
            if answer.reply_code != 404:
                raise Violation(f"{method}: {answer.reply_text}")
            self.send_method(methods.ChannelCloseOk())
            self.open_channel()
        return answer

    def _delivered(self, delivery: methods.BasicDeliver, body: bytes) -> None:
        self._delivery += 1
        self._since.append((delivery.consumer_tag, body))
        if not body.startswith(OWN):
            self.standing.queues[delivery.consumer_tag].append((body, delivery.redelivered))


def check_restarted(expected: ExpectedMessages, standing: RestartState, is_live: bool = False) -> None:
    """Raise a `Violation` that lists the differences. `is_live`: no restart, so everything must be there, durable or
    not."""
    problems = [*_declarations(expected, standing, is_live), *_bindings(expected, standing)]
    for name, found in standing.queues.items():
        problems += _surprises(expected, expected.queues[name], found)
    for sent in expected.messages.values():
        problems += _losses(expected, sent, standing, is_live)
    if problems:
        raise Violation("; ".join(problems[:5]))


def _declarations(expected: ExpectedMessages, standing: RestartState, is_live: bool) -> Iterator[str]:
    fates = {f"queue {queue.name}": queue.fate for queue in expected.queues.values() if queue.is_durable or is_live}
    fates |= {f"exchange {name}": fate for name, (_, fate) in expected.exchanges.items()}
    found = {f"queue {name}" for name in standing.queues} | {f"exchange {name}" for name in standing.exchanges}
    yield from (f"{name} has gone" for name, fate in fates.items() if fate is Fate.THERE and name not in found)
    yield from (f"{name} is there again" for name in found if fates.get(name, Fate.ABSENT) is Fate.ABSENT)


def _bindings(expected: ExpectedMessages, standing: RestartState) -> Iterator[str]:
    for (exchange, key), arrived in standing.probes.items():
        is_fanout = expected.exchanges[exchange][0] == "fanout"
        fates: dict[str, list[Fate]] = {}
        for (source, bound, queue), fate in expected.bindings.items():
            if source == exchange and (is_fanout or bound == key):
                fates.setdefault(queue, []).append(fate)
        for queue in standing.queues:
            if Fate.THERE in fates.get(queue, ()) and queue not in arrived:
                yield f"{queue} is not bound to {exchange} {key!r} any more"
            if queue in arrived and set(fates.get(queue, ())) <= {Fate.ABSENT}:
                yield f"{queue} is bound to {exchange} {key!r} again"


def _surprises(expected: ExpectedMessages, queue: PlainQueue, found: Found) -> Iterator[str]:
    """Messages that should not be there, or differ."""
    seen: set[bytes] = set()
    newest: dict[str, int] = {}
    for body, is_redelivered in found:
        sent = expected.messages.get(body)
        if sent is None:
            yield f"{queue.name}: {body[:20]!r} was never published"
            continue
        copy = sent.copies.get(queue.name, QueuedCopy())
        if not expected.may_go_to(sent, queue.name):
            yield f"{queue.name}: {sent} was never sent there"
        if body in seen:
            yield f"{queue.name}: {sent} is there twice"
        if Certainty.DURABLE in (copy.settled, copy.moved):
            yield f"{queue.name}: {sent} is there again, though it was durably settled"
        if copy.was_delivered and not is_redelivered:
            yield f"{queue.name}: {sent} was delivered before, and is not flagged"
        if queue.name in sent.surely and sent.number <= newest.get(sent.publisher, 0):
            yield f"{queue.name}: {sent} is not in order"
        seen.add(body)
        if queue.name in sent.surely:
            newest[sent.publisher] = sent.number


def _losses(expected: ExpectedMessages, sent: PublishedMessage, standing: RestartState, is_live: bool) -> Iterator[str]:
    """Missing messages. A rejected one is in its queue or in the dead-letter queue."""
    is_promised = sent.outcome is Outcome.CONFIRMED and (sent.is_persistent or is_live)
    for name, incarnation in sent.surely.items():
        queue = expected.queues[name]
        copy = sent.copies.get(name, QueuedCopy())
        is_here = sent.body in standing.bodies(name)
        is_expected = (
            is_promised
            and (queue.is_durable or is_live)
            and queue.fate is Fate.THERE
            and queue.incarnation == incarnation
        )
        if copy.moved is not Certainty.NOT:
            further = sent.copies.get(queue.dead_letters_to, QueuedCopy())
            is_there = sent.body in standing.bodies(queue.dead_letters_to)
            if is_here and is_there:
                yield f"{sent} is in {name} and among the dead letters"
            if is_expected and not is_here and not is_there and further.settled is Certainty.NOT:
                yield f"{sent} is neither in {name} nor among the dead letters"
        elif is_expected and not is_here and copy.settled is Certainty.NOT and not queue.is_auto_acked:
            yield f"{name}: {sent} is lost, though it was confirmed"
