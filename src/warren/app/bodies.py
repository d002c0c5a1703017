"""Bodies as callers hand them in: checked, and cut into what goes into one session.

Judging a thousand bodies costs a few microseconds: their types and sizes are looked at in bulk, and one by one only to
say which is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from warren.base.errors import Misuse, Refused

_BYTES_ONLY = {bytes}


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
        largest = _largest(bodies, bytes_max)
        if len(bodies) <= count_max and largest * len(bodies) <= piece_bytes_max:
            if bodies:
                yield list(bodies)
            return
    left = iter(bodies)
    while piece := list(islice(left, count_max)):
        if _largest(piece, bytes_max) * len(piece) <= piece_bytes_max:
            yield piece
        else:
            yield from _cut(piece, piece_bytes_max)


def _largest(bodies: list[bytes] | tuple[bytes, ...], bytes_max: int) -> int:
    largest = max(map(len, bodies), default=0) if set(map(type, bodies)) <= _BYTES_ONLY else bytes_max + 1
    if largest > bytes_max:
        for body in bodies:
            checked_body(body, bytes_max)
    return largest


def _cut(bodies: list[bytes], piece_bytes_max: int) -> Iterator[list[bytes]]:
    begin, size_bytes = 0, 0
    for at, body in enumerate(bodies):
        if size_bytes + len(body) > piece_bytes_max and at > begin:
            yield bodies[begin:at]
            begin, size_bytes = at, 0
        size_bytes += len(body)
    yield bodies[begin:]
