"""What a connection tells its server, in the order in which the peer caused it.

Greeted              the peer speaks our protocol: send connection.start
MethodReceived       a method that is legal now: do it, answer it
PublishesReceived    messages with one target and one kind of properties, contents as they came
AcksReceived         acks, rejects or nacks that differ in nothing but their tags
HeartbeatReceived
ChannelViolated      the peer broke a rule: write the bytes, let the channel go; the machine waits for close-ok
ConnectionViolated   write the bytes, let all channels go
Answered             write the bytes; there is nothing else to do
Ended                close the socket: nothing more will be read
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from warren.amqp.kernels import AckRun
from warren.amqp.methods import BasicPublish, ChannelClose, ConnectionClose, Method


@dataclass(frozen=True, slots=True)
class ProtocolHeaderReceived:
    pass


@dataclass(frozen=True, slots=True)
class MethodReceived:
    channel: int
    method: Method


class PublishesReceived(NamedTuple):
    channel: int
    publish: BasicPublish
    frame: bytes  # the method frame: equal frames have equal targets, which makes it a key for what was routed before
    traits: int  # what the properties have in common, see property_walk
    contents: list[bytes]


class AcksReceived(NamedTuple):
    channel: int
    run: AckRun


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    pass


@dataclass(frozen=True, slots=True)
class ChannelViolated:
    channel: int
    close: ChannelClose
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionViolated:
    close: ConnectionClose
    data: bytes


@dataclass(frozen=True, slots=True)
class ResponseReady:
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    reason: str
    was_orderly: bool = False  # by the handshake of close and close-ok; otherwise let the peer wait before it may retry


Event = (
    ProtocolHeaderReceived
    | MethodReceived
    | PublishesReceived
    | AcksReceived
    | HeartbeatReceived
    | ChannelViolated
    | ConnectionViolated
    | ResponseReady
    | ConnectionEnded
)
