# mypyc: compile
"""Step over the properties of a message without making anything of them: are they in order, and what kind are they?

    traits   | user-id? | expiration? | headers? | priority u8 | delivery mode u8 |

Messages with equal traits need no second look, or all need the same one: a run of publishes has one value for all its
messages. Texts are stepped over. A table of headers is walked to its last value, bounds, types and depth, because
nobody else may open it before a consumer does, and that one should not be the first to find it broken.

Negative means: only the plain decoder can tell. It then refuses, or knows something that this one does not.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

HAS_HEADERS: Final = 1 << 16
HAS_EXPIRATION: Final = 1 << 17
HAS_USER_ID: Final = 1 << 18

# As in types, and said again: a constant of another module would be folded in, and grow stale. A test compares.
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 65_536

_UNKNOWN: Final[i64] = -1
_STRING: Final = 100
_CONTAINER: Final = 101
_NO_TYPE: Final = 102
_ARRAY: Final[i64] = 0x41
_WIDTH_OF: Final = {
    "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "l": 8, "L": 8, "d": 8, "T": 8, "D": 5, "V": 0,
    "S": _STRING, "x": _STRING, "F": _CONTAINER, "A": _CONTAINER,
}  # fmt: skip
_WIDTHS: Final[bytes] = bytes([_WIDTH_OF.get(chr(code), _NO_TYPE) for code in range(256)])


def traits_of(properties: bytes) -> int:
    """The traits of properties, flags first."""
    end: i64 = len(properties)
    return walk_properties(properties, 0, end)


def walk_properties(data: bytes, at: i64, end: i64) -> i64:
    if end - at < 2:
        return _UNKNOWN
    flags: i64 = i64(read_i16_be(data, at)) & 0xFFFF
    at += 2
    traits: i64 = 0
    if flags == 0:
        return traits if at == end else _UNKNOWN
    if flags & 1:
        return _UNKNOWN
    if flags & 0xC000:  # content-type, content-encoding
        at = _over_texts(data, at, end, flags, 0x8000, 0x4000)
    if flags & 0x2000:  # headers
        at = _over_table(data, at, end)
        traits = HAS_HEADERS
    if flags & 0x1000:  # delivery-mode
        traits |= i64(data[at]) if at < end else 0
        at += 1
    if flags & 0x0800:  # priority
        traits |= i64(data[at]) << 8 if at < end else 0
        at += 1
    if flags & 0x0700:  # correlation-id, reply-to, expiration
        at = _over_texts(data, at, end, flags, 0x0400, 0x0100)
        if flags & 0x0100:
            traits |= HAS_EXPIRATION
    if flags & 0x0080:  # message-id
        at = _over_texts(data, at, end, flags, 0x0080, 0x0080)
    if flags & 0x0040:  # timestamp
        at += 8
    if flags & 0x003C:  # type, user-id, app-id, cluster-id
        at = _over_texts(data, at, end, flags, 0x0020, 0x0004)
        if flags & 0x0010:
            traits |= HAS_USER_ID
    return traits if at == end else _UNKNOWN


def _over_texts(data: bytes, at: i64, end: i64, flags: i64, first: i64, last: i64) -> i64:
    """Behind the short strings whose flags are set; beyond the end, and there to stay, if one does not fit."""
    flag: i64 = first
    while flag >= last:
        if flags & flag:
            at = at + 1 + i64(data[at]) if at < end else end + 1
        flag >>= 1
    return at


def _over_table(data: bytes, at: i64, end: i64) -> i64:
    """Behind the table with its size in front; beyond the end if it is not in order."""
    if end - at < 4:
        return end + 1
    size: i64 = i64(read_i32_be(data, at))
    if size < 0 or size > end - at - 4 or not is_table(data, at + 4, at + 4 + size):
        return end + 1
    return at + 4 + size


def is_table(data: bytes, at: i64, end: i64) -> bool:
    """Whether the bytes between are the entries of a table that the plain decoder would read."""
    ends: list[int] = []  # of the containers around this one
    are_arrays: list[bool] = []
    is_array = False
    left: i64 = VALUES_MAX
    while True:
        if at == end:
            if not ends:
                return True
            end = ends.pop()
            is_array = are_arrays.pop()
            continue
        left -= 1
        if not is_array:
            at += 1 + i64(data[at])
        if left < 0 or at >= end:
            return False
        code: i64 = i64(data[at])
        width: i64 = i64(_WIDTHS[code])
        at += 1
        if width >= _STRING:
            size: i64 = i64(read_i32_be(data, at)) if end - at >= 4 else -1
            if width == _NO_TYPE or size < 0 or size > end - at - 4:
                return False
            if width == _CONTAINER:
                if len(ends) + 1 >= DEPTH_MAX:
                    return False
                ends.append(end)
                are_arrays.append(is_array)
                is_array = code == _ARRAY
                end = at + 4 + size
                size = 0
            at += 4 + size
        else:
            at += width
            if at > end:
                return False
