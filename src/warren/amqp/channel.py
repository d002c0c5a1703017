"""A channel on the server side: which methods are legal, and how a content is assembled.

    UNOPENED ──channel.open──▶ OPEN ──channel.close──▶ CLOSE_RECEIVED ──we send close-ok──▶ UNOPENED
                                └──we send channel.close──▶ CLOSE_SENT ──close-ok──▶ UNOPENED

Independent of that state is the content: a basic.publish is followed by a header frame and body frames, and no other
frame of this channel may come between. That holds on a closing channel too, where the content is discarded.

Invariant: whatever is not in the tables has one answer, by state. Every answer is RabbitMQ 3.10's, except where it
answers only after the content has arrived (a publish on a channel that is not open): here the answer is immediate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from warren.amqp import content, frames, methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import METHODS, BasicPublish, ChannelClose, ChannelCloseOk, ChannelOpen, Method


class ChannelState(Enum):
    UNOPENED = auto()
    OPEN = auto()
    CLOSE_SENT = auto()
    CLOSE_RECEIVED = auto()


class MethodVerdict(Enum):
    ACCEPTED = auto()  # pass it to the server
    IGNORED = auto()
    CROSSED = auto()  # both sides close: answer close-ok, and wait for the peer's close-ok


_Moves = dict[type[Method], ChannelState]
_WORK: Final[_Moves] = {  # methods of a client on an open channel
    spec.made_by: ChannelState.OPEN for (number, _), spec in METHODS.items() if number > 10 and spec.is_from_client
}
_NOT_CLIENTS: Final = (methods.ChannelFlowOk, methods.BasicCancelOk, ChannelCloseOk, ChannelOpen)

RECEIVED: Final[dict[ChannelState, _Moves]] = {
    ChannelState.UNOPENED: {ChannelOpen: ChannelState.OPEN},
    ChannelState.OPEN: {
        **{kind: state for kind, state in _WORK.items() if kind not in _NOT_CLIENTS},
        ChannelClose: ChannelState.CLOSE_RECEIVED,
    },
    ChannelState.CLOSE_SENT: {
        ChannelClose: ChannelState.CLOSE_SENT,
        ChannelCloseOk: ChannelState.UNOPENED,
    },
    ChannelState.CLOSE_RECEIVED: {},
}
_SENDABLE: Final[_Moves] = {
    spec.made_by: ChannelState.OPEN for (number, _), spec in METHODS.items() if number > 10 and spec.is_from_server
}
SENT: Final[dict[ChannelState, _Moves]] = {
    ChannelState.UNOPENED: {},
    ChannelState.OPEN: {
        **{kind: state for kind, state in _SENDABLE.items() if kind is not ChannelCloseOk},
        ChannelClose: ChannelState.CLOSE_SENT,
    },
    ChannelState.CLOSE_SENT: {},
    ChannelState.CLOSE_RECEIVED: {
        **{kind: ChannelState.CLOSE_RECEIVED for kind in _SENDABLE if kind is not ChannelClose},
        ChannelCloseOk: ChannelState.UNOPENED,
    },
}

_Refusal = tuple[ReplyCode, str]
_SECOND_OPEN: Final[_Refusal] = (ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen")
ILLEGAL: Final[dict[ChannelState, _Refusal | None]] = {  # None: ignored
    ChannelState.UNOPENED: (ReplyCode.CHANNEL_ERROR, "expected 'channel.open'"),
    ChannelState.OPEN: (ReplyCode.COMMAND_INVALID, "unimplemented method"),
    ChannelState.CLOSE_SENT: None,
    ChannelState.CLOSE_RECEIVED: None,
}
ILLEGAL_PAIRS: Final[dict[tuple[ChannelState, type[Method]], _Refusal]] = {
    (state, ChannelOpen): _SECOND_OPEN for state in ChannelState if state is not ChannelState.UNOPENED
}


@dataclass(slots=True)
class _Assembly:
    """A content being assembled: the publish, then the header, then the body."""

    frame: bytes  # of the method
    header: content.ContentHeader | None
    left: int
    pieces: list[bytes]  # frames as received; empty if the content is discarded


@dataclass(frozen=True, slots=True)
class Content:
    """A complete publish."""

    frame: bytes
    header: content.ContentHeader
    wire: bytes


class ChannelProtocol:
    __slots__ = ("_assembly", "_state", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._state = ChannelState.UNOPENED
        self._assembly: _Assembly | None = None

    @property
    def state(self) -> ChannelState:
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state is ChannelState.OPEN

    @property
    def is_ready(self) -> bool:
        """Open, and between two contents: every client method is legal."""
        return self._state is ChannelState.OPEN and self._assembly is None

    @property
    def is_assembling(self) -> bool:
        return self._assembly is not None

    # ----------------------------------------------------------------------------------------------------- methods

    def received(self, kind: type[Method]) -> MethodVerdict:
        """Change the state for a received method; raises a `PeerError` if it is not legal."""
        spec = kind.SPEC
        if self._assembly is not None:
            raise self._unexpected(f"got {spec.name} instead")
        after = RECEIVED[self._state].get(kind)
        if after is None:
            refusal = ILLEGAL_PAIRS.get((self._state, kind), ILLEGAL[self._state])
            if refusal is None:
                return MethodVerdict.IGNORED
            raise PeerError(*refusal, spec.class_id, spec.method_id)
        is_crossed = self._state is ChannelState.CLOSE_SENT and kind is ChannelClose
        self._state = after
        return MethodVerdict.CROSSED if is_crossed else MethodVerdict.ACCEPTED

    def may_send(self, kind: type[Method]) -> bool:
        return kind in SENT[self._state]

    def sent(self, kind: type[Method]) -> None:
        self._state = SENT[self._state][kind]

    # ----------------------------------------------------------------------------------------------------- content

    def expect_content(self, frame: bytes) -> None:
        """Start a content after a basic.publish."""
        self._assembly = _Assembly(frame, None, 0, [])

    def header_frame(self, frame: frames.Frame, wire: bytes, body_bytes_max: int) -> Content | None:
        """Add the header; returns the content if it has no body."""
        assembly = self._assembly
        if assembly is None:
            raise _not_a_method()
        if assembly.header is not None:
            raise self._unexpected("got a content header instead")
        header = content.read_header(frame.payload)
        if header.class_id != content.BASIC:
            raise self._unexpected(f"got one for class {header.class_id} instead")
        assembly.header, assembly.left = header, header.body_bytes
        if header.body_bytes > body_bytes_max and self.is_open:
            raise PeerError(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {header.body_bytes} is larger than configured max size {body_bytes_max}",
                *_ids(BasicPublish),
            )
        self._keep(assembly, wire)
        return self._finished(assembly, header)

    def body_frame(self, frame: frames.Frame, wire: bytes) -> Content | None:
        """Add a piece of the body; returns the content after the last one. Empty pieces are legal, and dropped."""
        assembly = self._assembly
        if assembly is None:
            raise _not_a_method()
        if assembly.header is None:
            raise self._unexpected("got non content header frame instead")
        if len(frame.payload) > assembly.left:
            raise PeerError(
                ReplyCode.FRAME_ERROR, "content body frame exceeds remaining content size", *_ids(BasicPublish)
            )
        assembly.left -= len(frame.payload)
        if frame.payload:
            self._keep(assembly, wire)
        return self._finished(assembly, assembly.header)

    def _keep(self, assembly: _Assembly, wire: bytes) -> None:
        if self.is_open:
            assembly.pieces.append(wire)
        else:
            assembly.pieces.clear()

    def _finished(self, assembly: _Assembly, header: content.ContentHeader) -> Content | None:
        if assembly.left:
            return None
        self._assembly = None
        return Content(assembly.frame, header, b"".join(assembly.pieces)) if self.is_open else None

    def _unexpected(self, received: str) -> PeerError:
        due = "content body" if self._assembly and self._assembly.header else "content header for class 60"
        return PeerError(ReplyCode.UNEXPECTED_FRAME, f"expected {due}, {received}", *_ids(BasicPublish))


def _ids(kind: type[Method]) -> tuple[int, int]:
    return kind.SPEC.class_id, kind.SPEC.method_id


def _not_a_method() -> PeerError:
    return PeerError(ReplyCode.UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
