"""Answers that say no, in RabbitMQ's shape: {"error": …, "reason": …}.

    401  not logged in (with a challenge), or not permitted (without: another password would not help)
    404  no such thing        405, 406, 415  asked for in a way that is not offered        408, 413  too slow, too long

RabbitMQ spells it `not_authorized` where the login failed and `not_authorised` everywhere else; clients know both.
"""

from __future__ import annotations

from collections.abc import Mapping

from warren.amqp.errors import PeerError, ReplyCode, reply_text
from warren.base.errors import Refused, WarrenError
from warren.broker.errors import UnknownQueue
from warren.broker.permissions import AccessRefused
from warren.broker.realms import UnknownVhost

CHALLENGE = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


class HttpRefusal(Refused):
    """A status other than 200. An empty error has no body."""

    def __init__(
        self, status: int, error: str = "", reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason or f"HTTP status {status}")
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, str] | None:
        return {"error": self.error, "reason": self.reason} if self.error else None


def not_logged_in() -> HttpRefusal:
    return HttpRefusal(401, headers=CHALLENGE)


def login_failed() -> HttpRefusal:
    return HttpRefusal(401, "not_authorized", "Login failed", CHALLENGE)


def not_permitted(reason: str) -> HttpRefusal:
    return HttpRefusal(401, "not_authorised", reason)


def not_found() -> HttpRefusal:
    return HttpRefusal(404, "Object Not Found", "Not Found")


def bad_request(reason: str, error: str = "bad_request") -> HttpRefusal:
    return HttpRefusal(400, error, reason)


def is_not_permitted(error: WarrenError) -> bool:
    return isinstance(error, AccessRefused) or (isinstance(error, PeerError) and error.code is ReplyCode.ACCESS_REFUSED)


def refusal_of(error: WarrenError) -> HttpRefusal:
    """What the broker refuses, as HTTP says it."""
    match error:
        case HttpRefusal():
            return error
        case UnknownVhost() | UnknownQueue() | PeerError(code=ReplyCode.NOT_FOUND):
            return not_found()
        case AccessRefused():
            return not_permitted(reply_text(ReplyCode.ACCESS_REFUSED, error.what))
        case PeerError(code=ReplyCode.ACCESS_REFUSED):
            return not_permitted(reply_text(error.code, error.explanation))
        case PeerError():
            return bad_request(error.explanation)
        case Refused():
            return bad_request(error.what)
    return HttpRefusal(503, "unavailable", error.what)
