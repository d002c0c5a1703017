"""The simplest server on top of a connection: it agrees to everything and records the events."""

from __future__ import annotations

from collections.abc import Callable

from tests.amqp.pairs import CHALLENGING
from warren.amqp import connection as events
from warren.amqp import frames, methods
from warren.amqp.connection import DEFAULT_LIMITS, ConnectionProtocol, ProtocolLimits, Tuning, offered
from warren.amqp.errors import ReplyCode
from warren.amqp.methods import Method

OFFER = Tuning(channel_max=100, frame_max=131072, heartbeat=60)

_ANSWERS: dict[type[Method], Callable[[], Method]] = {
    methods.ConnectionSecureOk: lambda: offered(OFFER),
    methods.ConnectionOpen: methods.ConnectionOpenOk,
    methods.ConnectionClose: methods.ConnectionCloseOk,
    methods.ConnectionUpdateSecret: methods.ConnectionUpdateSecretOk,
    methods.ChannelOpen: methods.ChannelOpenOk,
    methods.ChannelClose: methods.ChannelCloseOk,
    methods.BasicQos: methods.BasicQosOk,
}


class PlainServer:
    def __init__(self, limits: ProtocolLimits = DEFAULT_LIMITS) -> None:
        self.connection = ConnectionProtocol(OFFER, limits)
        self.received: list[events.Event] = []
        self.out = b""

    def feed(self, data: bytes) -> list[events.Event]:
        """What came of these bytes."""
        before = len(self.received)
        for event in self.connection.receive(data):
            self.received.append(event)
            self._act(event)
        return self.received[before:]

    def sent(self) -> list[Method]:
        """The methods that were written since the last call."""
        found: list[Method] = []
        at = 0
        while read := frames.read_frame(self.out, at, 0):
            frame, at = read
            found.append(methods.decode(frame.payload))
        self.out = self.out[at:]
        return found

    def _act(self, event: events.Event) -> None:
        match event:
            case events.ProtocolHeaderReceived():
                self.send(0, methods.ConnectionStart())
            case events.MethodReceived(0, methods.ConnectionStartOk(mechanism=mechanism)):
                self.send(0, methods.ConnectionSecure() if mechanism == CHALLENGING else offered(OFFER))
            case events.MethodReceived(channel, methods.QueueDeclare(queue="no such queue")):
                self.send(channel, methods.ChannelClose(ReplyCode.NOT_FOUND, "NOT_FOUND"))
            case events.MethodReceived(channel, method) if type(method) in _ANSWERS:
                self.send(channel, _ANSWERS[type(method)]())
            case events.ResponseReady() | events.ConnectionViolated() | events.ChannelViolated():
                self.out += event.data
            case _:
                pass

    def send(self, channel: int, method: Method) -> None:
        self.out += self.connection.send(channel, method)
