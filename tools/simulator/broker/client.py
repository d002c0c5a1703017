"""Client of the simulated broker: AMQP bytes over a simulated socket; every step is recorded in the expected messages.

    client = BrokerClient(broker, "worker", expected)
    client.open()                                  handshake, channel 1, confirms
    client.publish("events", "", 40)               returns at once; `wait_for_confirms` waits
    client.call(QueueDeclare(…), QueueDeclareOk)   waits for the answer

It is strict. Anything that a good client library could not handle is a violation: an unexpected answer, a confirm of an
unknown tag, a damaged body, a message out of order, a closed connection.

Data is received in the server's thread at the moment it is written, and so in the order in which the server writes to
all clients; written data counts as promised, even if the power is cut then. Requests are sent in the client's thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tools.simulator.broker.environment import USER, SimulatedBroker
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
    """A message delivered to this client and not settled."""

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
        self,
        incarnation: SimulatedBroker,
        name: str,
        expected: ExpectedMessages,
        rng: random.Random,
        owns: bool = False,
    ) -> None:
        """`owns`: the transient queues belong to this client."""
        self.name = name
        self.expected = expected
        self.rng = rng
        self.unacked: list[UnackedMessage] = []
        self.consumers: dict[str, Consumption] = {}
        self.waiting: dict[
            int, tuple[PublishedMessage, int]
        ] = {}  # published and not confirmed yet; with the earlier requests
        self.returned: set[bytes] = set()
        self._incarnation = incarnation
        self._owns = owns
        self._settled: list[tuple[QueuedCopy, str]] = []  # requested settlements in order: copy and attribute
        self._tag = self._delivery = 0
        self._buffer = b""
        self._partial: tuple[Method, int, bytes] | None = None  # a method and the received part of its content
        self._answers: list[Method] = []
        self._then: tuple[type[Method], Callable[[], None]] | None = None
        self._getting = ("", False)
        self._discards_deliveries = False  # until the answer, deliveries are not kept as unacked
        self._wire: Wire = incarnation.loop.connect(self._on_data)

    # -- coming and going ----------------------------------------------------------------------------------------

    def open(self) -> None:
        self._wire.send(HEADER)
        self._expect(methods.ConnectionStart)
        self.send_method(methods.ConnectionStartOk({}, "PLAIN", f"\0{USER}\0".encode()), 0)
        self._expect(methods.ConnectionTune)
        self.send_method(methods.ConnectionTuneOk(100, FRAME_MAX, 0), 0)
        self.call(methods.ConnectionOpen("/"), methods.ConnectionOpenOk, 0)
        self.open_channel()

    def open_channel(self) -> None:
        self.call(methods.ChannelOpen(), methods.ChannelOpenOk)
        self.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        self._tag = self._delivery = 0

    def close_channel(self) -> None:
        """Unsettled messages become ready again."""
        self._release()
        self.call(methods.ChannelClose(200, "enough"), methods.ChannelCloseOk)
        self._clear_unacked()

    def hang_up(self) -> None:
        """Reconnect as a new connection."""
        self.leave()
        self._wire = self._incarnation.loop.connect(self._on_data)
        self.open()

    def leave(self) -> None:
        """Close the socket without `connection.close`. Unacked messages may be redelivered once the broker notices."""
        self._release()
        self._wire.hang_up()
        self._discards_deliveries = False
        self._clear_unacked()
        self._buffer, self._partial = b"", None
        self._answers.clear()
        for copy, _ in self._settled:
            copy.doubt()  # it is unknown whether the server read it
        self._settled.clear()

    def _release(self) -> None:
        self._discards_deliveries = True
        for unacked in self.unacked:
            unacked.sent.copy_in(unacked.queue).holder = ""
        self.unacked.clear()

    def _clear_unacked(self) -> None:
        self.unacked.clear()
        self.consumers.clear()
        self.waiting.clear()

    # -- saying --------------------------------------------------------------------------------------------------

    def send_method(self, method: Method, channel: int = CHANNEL) -> None:
        self._wire.send(frames.method_frame(channel, method))

    def call(self, method: Method, answer: type[Expected], channel: int = CHANNEL) -> Expected:
        self.send_method(method, channel)
        return self._expect(answer)

    def change(self, method: Method, answer: type[Expected], then: Callable[[], None]) -> Expected:
        """Send a request that is durable when answered, as are all earlier ones. `then` is called at the answer, also
        if the power is cut before this client reads it."""
        before = len(self._settled)

        def answered() -> None:
            self._surely(before)
            then()

        self._then = answer, answered
        return self.call(method, answer)

    def publish(
        self, exchange: str, key: str, size: int, is_persistent: bool = True, mandatory: bool = False
    ) -> PublishedMessage:
        sent = self.expected.publish(self.name, exchange, key, size, is_persistent, self._owns)
        self._tag += 1
        self.waiting[self._tag] = sent, len(self._settled)
        method = frames.method_frame(CHANNEL, methods.BasicPublish(0, exchange, key, mandatory))
        properties = Properties(delivery_mode=PERSISTENT if is_persistent else TRANSIENT)
        self._wire.send(method + write_content(properties, sent.body, CHANNEL, FRAME_MAX))
        return sent

    def consume(self, queue: str, is_auto_ack: bool = False, prefetch: int = 0) -> None:
        tag = f"{queue}-{self.rng.randrange(1 << 30)}"
        self.call(methods.BasicQos(0, prefetch), methods.BasicQosOk)
        self.consumers[tag] = Consumption(queue, is_auto_ack)
        self.call(methods.BasicConsume(0, queue, tag, no_ack=is_auto_ack), methods.BasicConsumeOk)

    def cancel(self) -> None:
        tag = self.rng.choice(list(self.consumers))
        self.call(methods.BasicCancel(tag), methods.BasicCancelOk)
        del self.consumers[tag]

    def get(self, queue: str, is_auto_ack: bool = False) -> bool:
        """Returns whether there was a message."""
        self._getting = queue, is_auto_ack
        self.send_method(methods.BasicGet(0, queue, is_auto_ack))
        method = self._answer()
        if not isinstance(method, methods.BasicGetOk | methods.BasicGetEmpty):
            raise Violation(f"{self.name}: {method} came instead of a message")
        return isinstance(method, methods.BasicGetOk)

    def settle(self, settlement: str, unacked: UnackedMessage, is_multiple: bool) -> None:
        """One message, or all up to it: "ack", "requeue" or "reject"."""
        going = [each for each in self.unacked if each.tag == unacked.tag or (is_multiple and each.tag < unacked.tag)]
        self.unacked = [each for each in self.unacked if each not in going]
        for each in going:
            copy = each.sent.copy_in(each.queue)
            copy.holder = ""
            what = "moved" if settlement == "reject" and self.expected.queues[each.queue].dead_letters_to else "settled"
            if settlement != "requeue":
                setattr(copy, what, Certainty.ASKED)
                self._settled.append((copy, what))
        if settlement == "ack":
            self.send_method(methods.BasicAck(unacked.tag, is_multiple))
        elif settlement == "reject" and not is_multiple:
            self.send_method(methods.BasicReject(unacked.tag, False))
        else:
            self.send_method(methods.BasicNack(unacked.tag, is_multiple, settlement == "requeue"))

    def recover(self) -> None:
        self._release()
        self.call(methods.BasicRecover(True), methods.BasicRecoverOk)

    # -- hearing -------------------------------------------------------------------------------------------------

    def wait_for_confirms(self) -> None:
        self.wait_until(lambda: not self.waiting, "confirms")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        if not self._wire.wait(is_so, PATIENCE_SECONDS):
            raise Violation(f"{self.name}: {what} never come" + (", it has hung up" if self._wire.is_over else ""))

    def listen(self, is_so: Callable[[], bool]) -> bool:
        """Wait for a short time."""
        return self._wire.wait(is_so, MOMENT_SECONDS)

    def _expect(self, kind: type[Expected]) -> Expected:
        method = self._answer()
        if not isinstance(method, kind):
            raise Violation(f"{self.name}: {kind.__name__} was expected, and {method} came")
        return method

    def _answer(self) -> Method:
        self.wait_until(lambda: bool(self._answers), "answers")
        return self._answers.pop(0)

    def _on_data(self, data: bytes) -> None:
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
                self._on_method(method, b"")
        elif self._partial is not None:
            method, size, body = self._partial
            if frame.kind == frames.HEADER:
                size = HEADER_HEAD.unpack_from(frame.payload)[2]
            else:
                body += frame.payload
            self._partial = method, size, body
            if len(body) == size:
                self._partial = None
                self._on_method(method, body)

    def _on_method(self, method: Method, body: bytes) -> None:
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
                    self._discards_deliveries = False
                if self._then is not None:
                    kind, then = self._then
                    self._then = None
                    if isinstance(method, kind):
                        then()
                self._answers.append(method)

    def _delivered(self, delivery: methods.BasicDeliver, body: bytes) -> None:
        consumption = self.consumers[delivery.consumer_tag]
        self._in_order(consumption, self._took(consumption.queue, consumption.is_auto_ack, delivery, body), delivery)

    def _confirmed(self, tag: int, is_multiple: bool, outcome: Outcome) -> None:
        if tag not in self.waiting:
            raise Violation(f"{self.name}: {outcome.value} is tag {tag}, which is unknown")
        for each in [each for each in self.waiting if each == tag or (is_multiple and each < tag)]:
            sent, before = self.waiting.pop(each)
            sent.outcome = outcome
            queues = self.expected.queues
            if outcome is Outcome.CONFIRMED and sent.is_persistent and any(queues[q].is_durable for q in sent.surely):
                self._surely(before)

    def _surely(self, count: int) -> None:
        for copy, what in self._settled[:count]:
            setattr(copy, what, Certainty.DURABLE)

    def _took(
        self, queue: str, is_auto_ack: bool, delivery: methods.BasicDeliver | methods.BasicGetOk, body: bytes
    ) -> PublishedMessage:
        self._delivery += 1
        if delivery.delivery_tag != self._delivery:
            raise Violation(f"{self.name}: delivery tag {delivery.delivery_tag} comes instead of {self._delivery}")
        if self._discards_deliveries and not is_auto_ack:
            return self.expected.delivered_in_vain(queue, body)
        sent = self.expected.delivered(queue, body, delivery.redelivered, "" if is_auto_ack else self.name)
        if is_auto_ack:
            copy = sent.copy_in(queue)
            copy.settled = Certainty.ASKED
            self._settled.append((copy, "settled"))
        else:
            self.unacked.append(UnackedMessage(delivery.delivery_tag, sent, queue))
        is_dead = queue not in sent.surely and queue not in sent.perhaps
        if not is_dead and (delivery.exchange, delivery.routing_key) != (sent.exchange, sent.key):
            raise Violation(f"{queue}: {sent} comes from {delivery.exchange!r}, {delivery.routing_key!r}")
        return sent

    def _in_order(self, consumption: Consumption, sent: PublishedMessage, delivery: methods.BasicDeliver) -> None:
        """First deliveries come in the order of publishing; dead letters in the order of their death."""
        if delivery.redelivered or consumption.queue not in sent.surely or self._discards_deliveries:
            return
        if sent.number <= consumption.newest.get(sent.publisher, 0):
            raise Violation(f"{consumption.queue}: {sent} comes too late")
        consumption.newest[sent.publisher] = sent.number
