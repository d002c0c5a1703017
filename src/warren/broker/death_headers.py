"""Headers of a dead letter, as RabbitMQ writes them.

    x-death                   an array of tables, newest first: count (l), reason, queue, time (T), exchange,
                              routing-keys, and original-expiration if there was one. Deaths of the same queue and
                              reason are one entry with a count, also if they arrived as several. No entry is removed,
                              since cycles are detected by them: there are as many as queues the message died in
    x-first-death-exchange, x-first-death-queue, x-first-death-reason            of the first death

Only the headers are decoded, and the lengths of the other properties, whose bytes are copied. The expiration is
removed, otherwise the message would expire again; so is CC if the dead letter has a routing key of its own. Headers are
sorted by name, as in RabbitMQ. Elements of `x-death` that are no entry of a death (clients may write anything) are kept
behind the others; an `x-death` that is not an array is replaced.

A thousand messages with the same properties are decoded once (`DeathHeaders`). Bytes that are not a content raise
`Malformed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from warren.amqp import frames, types
from warren.amqp.content import HEADER_HEAD, PERSISTENT
from warren.amqp.errors import Malformed, Truncated
from warren.broker.exchanges.routing import OPEN, copies_of
from warren.broker.exchanges.simple import BadCopies

X_DEATH: Final = "x-death"

_HEADERS, _DELIVERY_MODE, _PRIORITY, _EXPIRATION, _TIMESTAMP = 0x2000, 0x1000, 0x0800, 0x0100, 0x0040
_FLAGS: Final = [1 << bit for bit in range(15, 1, -1)]
_MORE: Final = 1
_WORD_BYTES: Final = 2
_PROPERTIES_AT: Final = frames.HEAD.size + HEADER_HEAD.size


class DeathEvent(NamedTuple):
    """The new entry in the headers of messages that die together."""

    queue: str
    reason: str
    time_seconds: int
    exchange: str  # of the message when it was published …
    routing_key: str  # … and its routing key
    new_key: str | None  # of the dead letter; None: its own


class DeadLetteredProperties(NamedTuple):
    """Properties with the new headers, and the values decoded from them."""

    properties: bytes
    headers: Mapping[str, Any]
    priority: int
    is_persistent: bool


class DeathHeaders:
    """Writes the headers of messages that die together."""

    def __init__(self, death: DeathEvent) -> None:
        self._death = death
        self._known: dict[bytes, DeadLetteredProperties] = {}

    def write_death(self, content: bytes) -> tuple[bytes, DeadLetteredProperties]:
        """The content with the new properties; its body frames are unchanged."""
        properties, body_at = _opened(content)
        dead_lettered = self._known.get(properties)
        if dead_lettered is None:
            dead_lettered = self._known[properties] = write_death_properties(properties, self._death)
        size = HEADER_HEAD.size + len(dead_lettered.properties)
        kind, channel, _ = frames.HEAD.unpack_from(content)
        head = frames.HEAD.pack(kind, channel, size) + content[frames.HEAD.size : _PROPERTIES_AT]
        return b"".join((head, dead_lettered.properties, content[body_at - 1 :])), dead_lettered


def write_death_properties(raw: bytes, death: DeathEvent) -> DeadLetteredProperties:
    flags, spans = _spans(raw)
    headers: dict[str, Any] = {}
    if span := spans.get(_HEADERS):
        headers, _ = types.read_table(raw, *span)
    expiration = raw[slice(*spans[_EXPIRATION])][1:] if _EXPIRATION in spans else None
    headers = with_death(headers, death, expiration)
    fields = {flag: raw[start:stop] for flag, (start, stop) in spans.items() if flag != _EXPIRATION}
    fields[_HEADERS] = types.write_table(headers)
    flags = (flags | _HEADERS) & ~_EXPIRATION
    properties = b"".join((flags.to_bytes(_WORD_BYTES), *(fields[flag] for flag in _FLAGS if flag in fields)))
    mode, priority = fields.get(_DELIVERY_MODE, b"\0"), fields.get(_PRIORITY, b"\0")
    return DeadLetteredProperties(properties, headers, priority[0], mode[0] == PERSISTENT)


def with_death(headers: Mapping[str, Any], death: DeathEvent, expiration: bytes | None) -> dict[str, Any]:
    """The headers with this death added."""
    updated = dict(headers)
    before = updated.get(X_DEATH)
    entry = _entry(updated, death, expiration)
    if before is None:
        updated |= {
            "x-first-death-exchange": death.exchange,
            "x-first-death-queue": death.queue,
            "x-first-death-reason": death.reason,
        }
    if isinstance(before, list):
        updated[X_DEATH] = _counted(before, entry)
    else:
        updated[X_DEATH] = [entry]
    if death.new_key is not None:
        updated.pop(OPEN, None)
    return dict(sorted(updated.items()))


def is_circle(queue: str, deaths: object) -> bool:
    """Whether a message with this `x-death` died in this queue before, without a rejection since and without an element
    that a client has written. The current death is in front."""
    if not isinstance(deaths, list) or not deaths or _field(deaths[0], "reason") == "rejected":
        return False
    for each in deaths:
        if not isinstance(each, Mapping) or _field(each, "reason") == "rejected":
            return False
        if _field(each, "queue") == queue:
            return True
    return False


def _entry(headers: Mapping[str, Any], death: DeathEvent, expiration: bytes | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "count": types.Long(1),
        "reason": death.reason,
        "queue": death.queue,
        "time": types.Timestamp(death.time_seconds),
        "exchange": death.exchange,
        "routing-keys": [death.routing_key, *_copies(headers)],
    }
    if expiration is not None:
        entry["original-expiration"] = types.RawString(expiration)
    return entry


def _counted(before: list[Any], entry: dict[str, Any]) -> list[Any]:
    """With one more entry in front. An entry of the same queue and reason keeps its fields except for the count."""
    before, same = _merged(before), _key(entry)
    found = next((each for each in before if _key(each) == same), None)
    if found is not None:
        count = found.get("count")
        entry = found | {"count": types.Long(count + 1 if _is_count(count) else 1)}
    return [dict(sorted(entry.items())), *(each for each in before if each is not found)]


def _merged(deaths: list[Any]) -> list[Any]:
    """Several entries of one queue and reason, as old brokers and clients write them, become the first of them. If it
    has no count, it gets their number. A single entry is not changed, as in RabbitMQ."""
    if len(deaths) < 2:
        return deaths
    times = Counter(map(_key, deaths))
    merged: list[Any] = []
    for each in deaths:
        key = _key(each)
        if key is None:
            merged.append(each)
        elif count := times.pop(key, 0):
            merged.append(each if "count" in each else {"count": types.Long(count), **each})
    return merged


def _key(entry: object) -> tuple[str | bytes, str | bytes] | None:
    """None if it is not an entry of a death."""
    queue, reason = _field(entry, "queue"), _field(entry, "reason")
    return (queue, reason) if isinstance(queue, str | bytes) and isinstance(reason, str | bytes) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < (1 << 62)


def _field(entry: object, name: str) -> object:
    return entry.get(name) if isinstance(entry, Mapping) else None


def _copies(headers: Mapping[str, Any]) -> Sequence[str]:
    try:
        return copies_of(headers).open
    except BadCopies:
        return ()


# -- bytes -----------------------------------------------------------------------------------------------------------


def _opened(content: bytes) -> tuple[bytes, int]:
    """The properties of a content, and where its body frames begin."""
    if len(content) < _PROPERTIES_AT + _WORD_BYTES + 1 or content[0] != frames.HEADER:
        raise Truncated("a content does not start with a header frame", 0)
    end = frames.HEAD.size + frames.HEAD.unpack_from(content)[2]
    if not _PROPERTIES_AT + _WORD_BYTES <= end < len(content) or content[end] != frames.FRAME_END:
        raise Malformed("the header frame of a content has a wrong size", 3)
    return content[_PROPERTIES_AT:end], end + 1


def _spans(raw: bytes) -> tuple[int, dict[int, tuple[int, int]]]:
    """The flags, and the span of each property that is present. Further words of flags must be empty."""
    flags, at = _word(raw, 0)
    more = flags & _MORE
    while more:
        further, at = _word(raw, at)
        if further & ~_MORE:
            raise Malformed("unknown property flag", at - 2)
        more = further
    flags &= ~3
    spans: dict[int, tuple[int, int]] = {}
    for flag in _FLAGS:
        if flags & flag:
            spans[flag] = at, at + _size(raw, at, flag)
            at = spans[flag][1]
    if at != len(raw):
        raise Malformed("the properties have a wrong size", min(at, len(raw)))
    return flags, spans


def _word(raw: bytes, at: int) -> tuple[int, int]:
    if at + _WORD_BYTES > len(raw):
        raise Truncated("the flags of the properties are cut off", at)
    return int.from_bytes(raw[at : at + _WORD_BYTES]), at + _WORD_BYTES


def _size(raw: bytes, at: int, flag: int) -> int:
    if flag in (_DELIVERY_MODE, _PRIORITY):
        return 1
    if flag == _TIMESTAMP:
        return 8
    if flag == _HEADERS:
        if at + 4 > len(raw):
            raise Truncated("the size of the headers is cut off", at)
        return 4 + int.from_bytes(raw[at : at + 4])
    if at >= len(raw):
        raise Truncated("a property is missing", at)
    return 1 + raw[at]
