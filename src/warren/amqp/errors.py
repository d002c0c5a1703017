"""Protocol errors of the peer, and their reply codes.

    soft   closes the channel        311 … 313, 403 … 406
    hard   closes the connection     320, 402, 501 … 506, 530, 540, 541

A `PeerError` is raised where the error is found and answered by `channel` or `connection`; it does not leave this
package from a call that receives bytes of the network, except for the plain codec functions, which only `channel`,
`connection` and tests call.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from warren.base.errors import WarrenError

REPLY_TEXT_BYTES_MAX: Final = 255


class ReplyCode(IntEnum):
    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


SOFT: Final = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)


def is_hard(code: ReplyCode) -> bool:
    """Whether it closes the connection, not only the channel."""
    return code not in SOFT and code is not ReplyCode.SUCCESS


def reply_text(code: ReplyCode, explanation: str) -> str:
    """`FRAME_ERROR - what happened`, truncated to a short string."""
    text = f"{code.name} - {explanation}" if explanation else code.name
    raw = text.encode("utf-8", "replace")
    if len(raw) <= REPLY_TEXT_BYTES_MAX:
        return raw.decode()
    return raw[: REPLY_TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."


class PeerError(WarrenError):
    """The peer broke the protocol: close the channel or connection with the reply code."""

    def __init__(self, code: ReplyCode, explanation: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(f"{int(code)} {reply_text(code, explanation)}")
        self.code = code
        self.explanation = explanation
        self.class_id = class_id
        self.method_id = method_id


class Malformed(PeerError):
    """Bytes that are not a value of the expected type; names the byte offset."""

    def __init__(self, explanation: str, at: int, code: ReplyCode = ReplyCode.SYNTAX_ERROR) -> None:
        super().__init__(code, f"{explanation} at byte {at}")
        self.at = at


class Truncated(Malformed):
    """The bytes end before the value does."""

    def __init__(self, explanation: str, at: int) -> None:
        super().__init__(explanation, at, ReplyCode.FRAME_ERROR)
