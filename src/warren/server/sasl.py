"""How a client says who it is: the responses of SASL, read into a name and a password.

    PLAIN       [as whom] 0 name 0 password                      bytes, as RFC 4616 has them
    AMQPLAIN    a table without its size: LOGIN, PASSWORD        the standard's own, which old clients use

What is too long or of another shape is the client's fault, and is told as such; whether the password is right is found
out elsewhere (`authentication`). Nobody acts as somebody else: where a name to act as is given, it is the same name.

Not here: ANONYMOUS, which lets everybody in; EXTERNAL, which needs certificates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.types import read_table
from warren.broker.passwords import PASSWORD_BYTES_MAX
from warren.catalog.change import NAME_BYTES_MAX

RESPONSE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Login:
    """Not checked yet. A password is in no `repr`, so that it gets into no log of events."""

    user: str
    password: str = field(repr=False)
    mechanism: str = "PLAIN"


def read_login(mechanism: str, response: bytes, offered: Collection[str]) -> Login:
    """What `connection.start-ok` says. A `PeerError` if it cannot be understood, or was not offered."""
    read = _READERS.get(mechanism)
    if read is None or mechanism not in offered:
        raise PeerError(ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{mechanism[:40]}'")
    if len(response) > RESPONSE_BYTES_MAX:
        raise _bad(mechanism, f"has {len(response)} bytes, at most {RESPONSE_BYTES_MAX} are read")
    user, password = read(response)
    return Login(
        _text(user, "name", NAME_BYTES_MAX, mechanism),
        _text(password, "password", PASSWORD_BYTES_MAX, mechanism),
        mechanism,
    )


def _read_plain(response: bytes) -> tuple[bytes, bytes]:
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise _bad("PLAIN", "is not `0 name 0 password`")
    as_whom, user, password = parts
    if as_whom not in (b"", user):
        raise _bad("PLAIN", "asks to act as another user")
    return user, password


def _read_amqplain(response: bytes) -> tuple[bytes, bytes]:
    sized = len(response).to_bytes(4, "big") + response
    table, _ = read_table(sized, 0, len(sized))
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str | bytes) or not isinstance(password, str | bytes):
        raise _bad("AMQPLAIN", "has no LOGIN or no PASSWORD, as texts")
    return _raw(user), _raw(password)


_READERS: dict[str, Callable[[bytes], tuple[bytes, bytes]]] = {"PLAIN": _read_plain, "AMQPLAIN": _read_amqplain}
MECHANISMS = tuple(_READERS)  # all that there are


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(raw: bytes, what: str, bytes_max: int, mechanism: str) -> str:
    if len(raw) > bytes_max:
        raise _bad(mechanism, f"has a {what} of {len(raw)} bytes, at most {bytes_max} are read")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _bad(mechanism, f"has a {what} that is not UTF-8") from error


def _bad(mechanism: str, why: str) -> PeerError:
    return PeerError(ReplyCode.SYNTAX_ERROR, f"the {mechanism} response {why}")
