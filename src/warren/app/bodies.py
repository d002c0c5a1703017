"""Bodies as callers hand them in: checked, and cut into what goes into one session; and as they get them out.

Judging a thousand bodies costs a few microseconds: their types and sizes are looked at in bulk, and one by one only to
say which is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from warren.amqp.content import body_of
from warren.base.errors import Misuse, Refused
from warren.base.runs import RAW, Slice


def plain_bodies(slice_: Slice) -> list[bytes]:
    """What a program gets: of a message that came by AMQP only its body."""
    assert slice_.contents is not None, "what is fetched has contents"
    if slice_.run.origin.content_kind == RAW:
        return slice_.contents
    return [body_of(content) for content in slice_.contents]


def checked_body(body: bytes, bytes_max: int) -> bytes:
    if not isinstance(body, bytes):
        raise Misuse(f"a message is bytes, not {type(body).__name__}", "encode it: text.encode()")
    if len(body) > bytes_max:
        raise Refused(
            f"a message of {len(body)} bytes: at most {bytes_max} are taken",
            "put its parts, or raise `max_message_size` (MessageStoreSettings)",
        )
    return body


def pieces(bodies: Iterable[bytes], bytes_max: int, count_max: int, piece_bytes_max: int) -> Iterator[list[bytes]]:
    """Up to so many messages of so many bytes, or one that is larger. A list is checked as a whole before any of it is
    handed on; what comes from an iterator as far as it was read."""
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise Misuse("many messages are a list of bytes, not one of them", "use put() for one")
    if isinstance(bodies, list | tuple):
        bodies = list(bodies)  # whatever the caller does with his own meanwhile
        if _checked_bytes(bodies, bytes_max) <= piece_bytes_max and len(bodies) <= count_max:
            if bodies:
                yield bodies
            return
    left = iter(bodies)
    while piece := list(islice(left, count_max)):
        if _checked_bytes(piece, bytes_max) <= piece_bytes_max:
            yield piece
        else:
            yield from _cut(piece, piece_bytes_max)


def _checked_bytes(bodies: list[bytes], bytes_max: int) -> int:
    """How many bytes they have together; if those are few, so are the bytes of each."""
    size_bytes = sum(list(map(len, bodies))) if list(map(type, bodies)).count(bytes) == len(bodies) else bytes_max + 1
    if size_bytes > bytes_max:
        for body in bodies:
            checked_body(body, bytes_max)
        size_bytes = sum(map(len, bodies))
    return size_bytes


def _cut(bodies: list[bytes], piece_bytes_max: int) -> Iterator[list[bytes]]:
    begin, size_bytes = 0, 0
    for at, body in enumerate(bodies):
        if size_bytes + len(body) > piece_bytes_max and at > begin:
            yield bodies[begin:at]
            begin, size_bytes = at, 0
        size_bytes += len(body)
    yield bodies[begin:]
