"""A client of the simulated broker: AMQP in bytes, over a wire that is none, each word written into the ledger.

    client = BrokerClient(life, "worker", ledger)
    client.open()                                  handshake, channel 1, confirms
    client.publish("events", "", 40)               goes on at once; `wait_for_confirms` does not
    client.ask(QueueDeclare(…), QueueDeclareOk)    waits for the answer

It is strict: what a good client library could not cope with is a violation: an answer that was not asked for, a confirm
of a tag that nobody waits for, a damaged body, a message out of order, a connection that is closed.

It hears in the server's thread, the moment something is written to it, and so in the order in which the server tells
all its clients; what was written was promised, even if the power goes then. What it does is done in its own thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tools.simulator.broker.environment import USER, BrokerLife
from tools.simulator.broker.expected_messages import Certainty, ExpectedMessages, Outcome, PublishedMessage, QueuedCopy
from tools.simulator.broker.loop import Wire
from tools.simulator.observations import Violation
from warren.amqp import frames, methods
from warren.amqp.content import HEADER_HEAD, PERSISTENT, TRANSIENT, Properties, write_content
from warren.amqp.errors import ReplyCode
from warren.amqp.methods import Method

HEADER = b"AMQP\x00\x00\x09\x01"
PATIENCE_SECONDS = 60.0  # of simulated time: an answer that takes longer never comes
MOMENT_SECONDS = 0.01
FRAME_MAX = 4096
CHANNEL = 1
Expected = TypeVar("Expected", bound=Method)


class UnackedMessage(NamedTuple):
    """A message in this client's hands."""

    tag: int
    sent: PublishedMessage
    queue: str


@dataclass(slots=True)
class Consumption:
    queue: str
    is_auto_ack: bool
    newest: dict[str, int] = field(default_factory=dict)  # of each publisher: the last number that came


class BrokerClient:
    def __init__(
        self, incarnation: BrokerLife, name: str, ledger: ExpectedMessages, rng: random.Random, owns: bool = False
    ) -> None:
        """`owns`: the fleeting queues are this client's."""
        self.name = name
        self.ledger = ledger
        self.rng = rng
        self.held: list[UnackedMessage] = []
        self.consumers: dict[str, Consumption] = {}
        self.waiting: dict[
            int, tuple[PublishedMessage, int]
        ] = {}  # published: not confirmed yet, and what was asked before
        self.returned: set[bytes] = set()
        self._incarnation = incarnation
        self._owns = owns
        self._settled: list[tuple[QueuedCopy, str]] = []  # asked for, in order: which, and what of it
        self._tag = self._delivery = 0
        self._buffer = b""
        self._partial: tuple[Method, int, bytes] | None = None  # a method, and what is there of its content
        self._answers: list[Method] = []
        self._then: tuple[type[Method], Callable[[], None]] | None = None
        self._getting = ("", False)
        self._is_letting_go = False  # what comes until that is answered is not held any more
        self._wire: Wire = incarnation.loop.connect(self._hear)

    # -- coming and going ----------------------------------------------------------------------------------------

    def open(self) -> None:
        self._wire.send(HEADER)
        self._expect(methods.ConnectionStart)
        self.say(methods.ConnectionStartOk({}, "PLAIN", f"\0{USER}\0".encode()), 0)
        self._expect(methods.ConnectionTune)
        self.say(methods.ConnectionTuneOk(100, FRAME_MAX, 0), 0)
        self.ask(methods.ConnectionOpen("/"), methods.ConnectionOpenOk, 0)
        self.open_channel()

    def open_channel(self) -> None:
        self.ask(methods.ChannelOpen(), methods.ChannelOpenOk)
        self.ask(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        self._tag = self._delivery = 0

    def close_channel(self) -> None:
        """What was not settled is ready again, for anybody."""
        self._release()
        self.ask(methods.ChannelClose(200, "enough"), methods.ChannelCloseOk)
        self._forget()

    def hang_up(self) -> None:
        """And come again, as another."""
        self.leave()
        self._wire = self._incarnation.loop.connect(self._hear)
        self.open()

    def leave(self) -> None:
        """Without a word. What it held is anybody's from the moment on when the broker may notice."""
        self._release()
        self._wire.hang_up()
        self._is_letting_go = False
        self._forget()
        self._buffer, self._partial = b"", None
        self._answers.clear()
        for copy, _ in self._settled:
            copy.doubt()  # whether it was read, nobody knows
        self._settled.clear()

    def _release(self) -> None:
        self._is_letting_go = True
        for held in self.held:
            held.sent.copy_in(held.queue).holder = ""
        self.held.clear()

    def _forget(self) -> None:
        self.held.clear()
        self.consumers.clear()
        self.waiting.clear()

    # -- saying --------------------------------------------------------------------------------------------------

    def say(self, method: Method, channel: int = CHANNEL) -> None:
        self._wire.send(frames.method_frame(channel, method))

    def ask(self, method: Method, answer: type[Expected], channel: int = CHANNEL) -> Expected:
        self.say(method, channel)
        return self._expect(answer)

    def change(self, method: Method, answer: type[Expected], then: Callable[[], None]) -> Expected:
        """Ask for something that is durable when it is answered, and so is all that was asked for before. `then`: it
        was answered, also if the power goes before this client comes to read it."""
        before = len(self._settled)

        def answered() -> None:
            self._surely(before)
            then()

        self._then = answer, answered
        return self.ask(method, answer)

    def publish(
        self, exchange: str, key: str, size: int, is_persistent: bool = True, mandatory: bool = False
    ) -> PublishedMessage:
        sent = self.ledger.publish(self.name, exchange, key, size, is_persistent, self._owns)
        self._tag += 1
        self.waiting[self._tag] = sent, len(self._settled)
        method = frames.method_frame(CHANNEL, methods.BasicPublish(0, exchange, key, mandatory))
        properties = Properties(delivery_mode=PERSISTENT if is_persistent else TRANSIENT)
        self._wire.send(method + write_content(properties, sent.body, CHANNEL, FRAME_MAX))
        return sent

    def consume(self, queue: str, is_auto_ack: bool = False, prefetch: int = 0) -> None:
        tag = f"{queue}-{self.rng.randrange(1 << 30)}"
        self.ask(methods.BasicQos(0, prefetch), methods.BasicQosOk)
        self.consumers[tag] = Consumption(queue, is_auto_ack)
        self.ask(methods.BasicConsume(0, queue, tag, no_ack=is_auto_ack), methods.BasicConsumeOk)

    def cancel(self) -> None:
        tag = self.rng.choice(list(self.consumers))
        self.ask(methods.BasicCancel(tag), methods.BasicCancelOk)
        del self.consumers[tag]

    def get(self, queue: str, is_auto_ack: bool = False) -> bool:
        """Whether there was one."""
        self._getting = queue, is_auto_ack
        self.say(methods.BasicGet(0, queue, is_auto_ack))
        method = self._answer()
        if not isinstance(method, methods.BasicGetOk | methods.BasicGetEmpty):
            raise Violation(f"{self.name}: a message was asked for, and {method} came")
        return isinstance(method, methods.BasicGetOk)

    def settle(self, settlement: str, held: UnackedMessage, is_multiple: bool) -> None:
        """One message, or all up to it: "ack", "requeue" or "reject"."""
        going = [each for each in self.held if each.tag == held.tag or (is_multiple and each.tag < held.tag)]
        self.held = [each for each in self.held if each not in going]
        for each in going:
            copy = each.sent.copy_in(each.queue)
            copy.holder = ""
            what = "moved" if settlement == "reject" and self.ledger.queues[each.queue].dead_letters_to else "settled"
            if settlement != "requeue":
                setattr(copy, what, Certainty.ASKED)
                self._settled.append((copy, what))
        if settlement == "ack":
            self.say(methods.BasicAck(held.tag, is_multiple))
        elif settlement == "reject" and not is_multiple:
            self.say(methods.BasicReject(held.tag, False))
        else:
            self.say(methods.BasicNack(held.tag, is_multiple, settlement == "requeue"))

    def recover(self) -> None:
        self._release()
        self.ask(methods.BasicRecover(True), methods.BasicRecoverOk)

    # -- hearing -------------------------------------------------------------------------------------------------

    def wait_for_confirms(self) -> None:
        self.wait_until(lambda: not self.waiting, "confirms")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        if not self._wire.wait(is_so, PATIENCE_SECONDS):
            raise Violation(f"{self.name}: {what} never come" + (", it has hung up" if self._wire.is_over else ""))

    def listen(self, is_so: Callable[[], bool]) -> bool:
        """For a moment."""
        return self._wire.wait(is_so, MOMENT_SECONDS)

    def _expect(self, kind: type[Expected]) -> Expected:
        method = self._answer()
        if not isinstance(method, kind):
            raise Violation(f"{self.name}: {kind.__name__} was expected, and {method} came")
        return method

    def _answer(self) -> Method:
        self.wait_until(lambda: bool(self._answers), "answers")
        return self._answers.pop(0)

    def _hear(self, data: bytes) -> None:
        """In the server's thread."""
        self._buffer += data
        at = 0
        while (read := frames.read_frame(self._buffer, at, 0)) is not None:
            frame, at = read
            self._frame(frame)
        self._buffer = self._buffer[at:]

    def _frame(self, frame: frames.Frame) -> None:
        if frame.kind == frames.METHOD:
            method = methods.read_fields(methods.spec_of(frame.payload), frame.payload)
            if method.SPEC.has_content:
                self._partial = method, -1, b""
            else:
                self._heard(method, b"")
        elif self._partial is not None:
            method, size, body = self._partial
            if frame.kind == frames.HEADER:
                size = HEADER_HEAD.unpack_from(frame.payload)[2]
            else:
                body += frame.payload
            self._partial = method, size, body
            if len(body) == size:
                self._partial = None
                self._heard(method, body)

    def _heard(self, method: Method, body: bytes) -> None:
        match method:
            case methods.BasicAck():
                self._confirmed(method.delivery_tag, method.multiple, Outcome.CONFIRMED)
            case methods.BasicNack():
                self._confirmed(method.delivery_tag, method.multiple, Outcome.REFUSED)
            case methods.BasicReturn():
                self.returned.add(body)
            case methods.BasicDeliver():
                self._delivered(method, body)
            case methods.ConnectionClose():
                if method.reply_code != ReplyCode.CONNECTION_FORCED:  # the broker stops
                    raise Violation(f"{self.name}: {method.reply_text}")
            case _:
                if isinstance(method, methods.BasicGetOk):
                    self._took(*self._getting, method, body)
                elif isinstance(method, methods.BasicRecoverOk | methods.ChannelCloseOk):
                    self._is_letting_go = False
                if self._then is not None:
                    kind, then = self._then
                    self._then = None
                    if isinstance(method, kind):
                        then()
                self._answers.append(method)

    def _delivered(self, told: methods.BasicDeliver, body: bytes) -> None:
        consumption = self.consumers[told.consumer_tag]
        self._in_order(consumption, self._took(consumption.queue, consumption.is_auto_ack, told, body), told)

    def _confirmed(self, tag: int, is_multiple: bool, outcome: Outcome) -> None:
        if tag not in self.waiting:
            raise Violation(f"{self.name}: {outcome.value} is tag {tag}, for which nobody waits")
        for each in [each for each in self.waiting if each == tag or (is_multiple and each < tag)]:
            sent, before = self.waiting.pop(each)
            sent.outcome = outcome
            queues = self.ledger.queues
            if outcome is Outcome.CONFIRMED and sent.is_persistent and any(queues[q].is_durable for q in sent.surely):
                self._surely(before)

    def _surely(self, count: int) -> None:
        for copy, what in self._settled[:count]:
            setattr(copy, what, Certainty.DURABLE)

    def _took(
        self, queue: str, is_auto_ack: bool, told: methods.BasicDeliver | methods.BasicGetOk, body: bytes
    ) -> PublishedMessage:
        self._delivery += 1
        if told.delivery_tag != self._delivery:
            raise Violation(f"{self.name}: delivery tag {told.delivery_tag} comes instead of {self._delivery}")
        if self._is_letting_go and not is_auto_ack:
            return self.ledger.delivered_in_vain(queue, body)
        sent = self.ledger.delivered(queue, body, told.redelivered, "" if is_auto_ack else self.name)
        if is_auto_ack:
            copy = sent.copy_in(queue)
            copy.settled = Certainty.ASKED
            self._settled.append((copy, "settled"))
        else:
            self.held.append(UnackedMessage(told.delivery_tag, sent, queue))
        is_dead = queue not in sent.surely and queue not in sent.perhaps
        if not is_dead and (told.exchange, told.routing_key) != (sent.exchange, sent.key):
            raise Violation(f"{queue}: {sent} comes from {told.exchange!r}, {told.routing_key!r}")
        return sent

    def _in_order(self, consumption: Consumption, sent: PublishedMessage, told: methods.BasicDeliver) -> None:
        """What comes for the first time comes in the order in which it was published; dead letters as they die."""
        if told.redelivered or consumption.queue not in sent.surely or self._is_letting_go:
            return
        if sent.number <= consumption.newest.get(sent.publisher, 0):
            raise Violation(f"{consumption.queue}: {sent} comes too late")
        consumption.newest[sent.publisher] = sent.number
