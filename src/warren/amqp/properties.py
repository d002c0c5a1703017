"""The fourteen properties of a message, and the flag words that say which of them are there.

    | flags u16 | properties whose flag is set, in order |         bit 15: content-type … bit 2: cluster-id
                                                                   bit 0: one more word of flags follows
Absent and empty are two things: None is not written. A property that this table does not have is refused, for nobody
can tell how long it is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any, Final

from warren.amqp import types
from warren.amqp.errors import Malformed, Truncated
from warren.base.errors import Misuse

_KINDS: Final[dict[str, str]] = {
    "content_type": "shortstr",
    "content_encoding": "shortstr",
    "headers": "table",
    "delivery_mode": "octet",
    "priority": "octet",
    "correlation_id": "shortstr",
    "reply_to": "shortstr",
    "expiration": "shortstr",
    "message_id": "shortstr",
    "timestamp": "longlong",
    "type": "shortstr",
    "user_id": "shortstr",
    "app_id": "shortstr",
    "cluster_id": "shortstr",
}
_FLAGS: Final = struct.Struct(">H")
_TIME: Final = struct.Struct(">Q")
_MORE: Final = 1
_UNUSED: Final = 2

TRANSIENT: Final = 1
PERSISTENT: Final = 2


@dataclass(frozen=True, slots=True)
class Properties:
    content_type: str | None = None
    content_encoding: str | None = None
    headers: types.Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @property
    def is_persistent(self) -> bool:
        return self.delivery_mode == PERSISTENT


_ORDER: Final = tuple((each.name, _KINDS[each.name], 1 << 15 - place) for place, each in enumerate(fields(Properties)))
assert [name for name, _, _ in _ORDER] == list(_KINDS)


def read_properties(data: bytes, at: int, end: int) -> Properties:
    """All that stands between; bytes left over are refused."""
    flags, at = _read_flags(data, at, end)
    told: dict[str, Any] = {}
    for name, kind, flag in _ORDER:
        if flags & flag:
            told[name], at = _read(kind, data, at, end)
    if at != end:
        raise Malformed(f"{end - at} bytes too many behind the properties", at)
    return Properties(**told)


def write_properties(properties: Properties) -> bytes:
    flags = 0
    parts = [b""]
    for name, kind, flag in _ORDER:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            parts.append(_written(name, kind, value))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _read_flags(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The first word; more words may follow as long as they are empty. The bit that nothing uses is ignored."""
    flags, at = _read_word(data, at, end)
    more = flags & _MORE
    while more:
        further, at = _read_word(data, at, end)
        if further & ~_MORE:
            raise Malformed("a flag of a property that is not known", at - 2)
        more = further
    return flags & ~(_MORE | _UNUSED), at


def _read_word(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise Truncated("the flags of the properties are cut off", at)
    return _FLAGS.unpack_from(data, at)[0], at + 2


def _read(kind: str, data: bytes, at: int, end: int) -> tuple[Any, int]:
    if kind == "shortstr":
        return types.read_short_string(data, at, end)
    if kind == "table":
        return types.read_table(data, at, end)
    size = 1 if kind == "octet" else _TIME.size
    if at + size > end:
        raise Truncated(f"a property of {size} bytes is cut off", at)
    return (data[at] if size == 1 else _TIME.unpack_from(data, at)[0]), at + size


def _written(name: str, kind: str, value: Any) -> bytes:
    if kind == "shortstr":
        return types.write_short_string(value)
    if kind == "table":
        return types.write_table(value)
    try:
        return bytes((value,)) if kind == "octet" else _TIME.pack(value)
    except (ValueError, struct.error) as error:
        raise Misuse(f"{value!r} is no {name} of a message") from error
