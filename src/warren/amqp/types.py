"""Field values: the AMQP types on the wire, as RabbitMQ reads and writes them.

    t bool     b i8   B u8   s i16   u u16   I i32   i u32   l i64   (L is read as l)
    f f32      d f64  D decimal: places u8, digits u32       T seconds u64      V nothing
    S string   x bytes       A array: size u32, values       F table: size u32, (name, value) …

A table is a dict of plain Python values. Where plain Python would lose the type, a subclass keeps it: `Short(7)` is an
int that is written as `s`; a plain int is written as `I`, or as `l` if it is larger; a plain float as `d`; str as `S`,
bytes as `x`. Of two entries with the same name the first counts, as in RabbitMQ's look-ups.

Invariants
* Reading deep input takes no more stack than flat input; nesting, the number of values and every size are checked
  before anything is created.
* Values that are read and written again have the same bytes, except for `L`, bools other than 0 and 1, and duplicate
  names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from warren.amqp.errors import Malformed, ReplyCode, Truncated
from warren.base.errors import Misuse

DEPTH_MAX: Final = 32
VALUES_MAX: Final = 65_536  # in one table, including nested ones

Table = Mapping[str, Any]


class Byte(int):
    """i8, written as b."""


class UnsignedByte(int):
    """u8, written as B."""


class Short(int):
    """i16, written as s."""


class UnsignedShort(int):
    """u16, written as u."""


class UnsignedInt(int):
    """u32, written as i."""


class Long(int):
    """i64, always written as l."""


class Timestamp(int):
    """Seconds since 1970, u64, written as T. Not a datetime, which cannot hold all of these values."""


class Float(float):
    """f32, written as f."""


class RawString(bytes):
    """A string (S) that is not UTF-8."""


_NUMBERS: Final[dict[int, tuple[struct.Struct, Callable[[Any], Any]]]] = {
    ord("t"): (struct.Struct(">B"), bool),
    ord("b"): (struct.Struct(">b"), Byte),
    ord("B"): (struct.Struct(">B"), UnsignedByte),
    ord("s"): (struct.Struct(">h"), Short),
    ord("u"): (struct.Struct(">H"), UnsignedShort),
    ord("I"): (struct.Struct(">i"), int),
    ord("i"): (struct.Struct(">I"), UnsignedInt),
    ord("l"): (struct.Struct(">q"), Long),
    ord("L"): (struct.Struct(">q"), Long),
    ord("T"): (struct.Struct(">Q"), Timestamp),
    ord("f"): (struct.Struct(">f"), Float),
    ord("d"): (struct.Struct(">d"), float),
}
_CODES: Final = {kind: bytes((code,)) for code, (_, kind) in _NUMBERS.items() if code != ord("L")}
_PACKERS: Final = {kind: packer for packer, kind in _NUMBERS.values()}
_INT32: Final = range(-(1 << 31), 1 << 31)
_SIZE: Final = struct.Struct(">I")
_DECIMAL: Final = struct.Struct(">BI")
assert _DECIMAL.size == 5

# ---------------------------------------------------------------------------------------------------------- strings


def read_short_string(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Length u8, then UTF-8. Returns the text and its end."""
    if at >= end:
        raise Truncated("a short string is missing", at)
    stop = at + 1 + data[at]
    if stop > end:
        raise Truncated(f"a short string of {data[at]} bytes is cut off", at)
    try:
        return data[at + 1 : stop].decode(), stop
    except UnicodeDecodeError as error:
        raise Malformed("a short string is not UTF-8", at + 1 + error.start, ReplyCode.FRAME_ERROR) from error


def read_long_string(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Length u32, then bytes."""
    if at + 4 > end:
        raise Truncated("the size of a string is missing", at)
    stop = at + 4 + _SIZE.unpack_from(data, at)[0]
    if stop > end:
        raise Truncated(f"a string of {stop - at - 4} bytes is cut off", at)
    return data[at + 4 : stop], stop


def write_short_string(text: str) -> bytes:
    raw = _encoded(text)
    if len(raw) > 255:
        raise Misuse(f"a short string holds 255 bytes, {text[:40]!r}… has {len(raw)}")
    return bytes((len(raw),)) + raw


def write_long_string(value: bytes | str) -> bytes:
    raw = _encoded(value) if isinstance(value, str) else bytes(value)
    return _SIZE.pack(len(raw)) + raw


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Misuse(f"{text!r} cannot be written in UTF-8") from error


# ----------------------------------------------------------------------------------------------------------- tables


def read_table(data: bytes, at: int, end: int) -> tuple[dict[str, Any], int]:
    """A table with its size prefix. Returns it and its end."""
    stop = _container_end(data, at, end)
    return _TableReader(data).table(at + 4, stop), stop


def write_table(table: Table) -> bytes:
    return _framed(table, 1)


class _TableReader:
    """Reads one table with a stack of open containers, instead of recursion."""

    __slots__ = ("_count", "_data", "_open")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[tuple[dict[str, Any] | list[Any], int]] = []
        self._count = 0

    def table(self, at: int, end: int) -> dict[str, Any]:
        root: dict[str, Any] = {}
        self._open.append((root, end))
        while self._open:
            container, end = self._open[-1]
            if at == end:
                self._open.pop()
                continue
            at = self._entry(container, at, end)
        return root

    def _entry(self, container: dict[str, Any] | list[Any], at: int, end: int) -> int:
        self._count += 1
        if self._count > VALUES_MAX:
            raise Malformed(f"a table holds more than {VALUES_MAX} values", at, ReplyCode.RESOURCE_ERROR)
        name = ""
        if isinstance(container, dict):
            name, at = _read_name(self._data, at, end)
        value, at = self._value(at, end)
        if isinstance(container, dict):
            container.setdefault(name, value)
        else:
            container.append(value)
        return at

    def _value(self, at: int, end: int) -> tuple[Any, int]:
        """A value and the next offset: behind it, or inside it if it is a table or an array."""
        data = self._data
        if at >= end:
            raise Truncated("a value is missing", at)
        code = data[at]
        if number := _NUMBERS.get(code):
            packed, kind = number
            if at + 1 + packed.size > end:
                raise Truncated(f"a value of type {chr(code)!r} is cut off", at)
            return kind(packed.unpack_from(data, at + 1)[0]), at + 1 + packed.size
        match code:
            case 0x53:  # S
                raw, at = read_long_string(data, at + 1, end)
                return _text_or_raw(raw), at
            case 0x46 | 0x41:  # F, A
                return self._opened({} if code == 0x46 else [], at, end)
            case 0x56:  # V
                return None, at + 1
            case 0x78:  # x
                return read_long_string(data, at + 1, end)
            case 0x44:  # D
                return _read_decimal(data, at, end)
        raise Malformed(f"{bytes((code,))!r} is no type of a table's value", at)

    def _opened(self, container: dict[str, Any] | list[Any], at: int, end: int) -> tuple[Any, int]:
        stop = _container_end(self._data, at + 1, end)
        if len(self._open) >= DEPTH_MAX:
            raise Malformed(f"a table is nested deeper than {DEPTH_MAX}", at, ReplyCode.RESOURCE_ERROR)
        self._open.append((container, stop))
        return container, at + 5


def _container_end(data: bytes, at: int, end: int) -> int:
    if at + 4 > end:
        raise Truncated("the size of a table or array is missing", at)
    stop: int = at + 4 + _SIZE.unpack_from(data, at)[0]
    if stop > end:
        raise Truncated(f"a table or array of {stop - at - 4} bytes is cut off", at)
    return stop


def _read_name(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Unlike other short strings a name may be any bytes, as RabbitMQ does not check it; they are preserved."""
    stop = at + 1 + data[at]
    if stop > end:
        raise Truncated("the name of a value is cut off", at)
    return data[at + 1 : stop].decode("utf-8", "surrogateescape"), stop


def _text_or_raw(raw: bytes) -> str | RawString:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return RawString(raw)


def _read_decimal(data: bytes, at: int, end: int) -> tuple[Decimal, int]:
    if at + 6 > end:
        raise Truncated("a decimal is cut off", at)
    places, digits = _DECIMAL.unpack_from(data, at + 1)
    return Decimal((0, tuple(map(int, str(digits))), -places)), at + 6


# ---------------------------------------------------------------------------------------------------------- writing


def _framed(container: Table | list[Any] | tuple[Any, ...], depth: int) -> bytes:
    """Recursive: values to write are Warren's own, and no deeper than values that can be read."""
    if depth > DEPTH_MAX:
        raise Misuse(f"a table is nested deeper than {DEPTH_MAX}")
    if isinstance(container, Mapping):
        parts = [write_short_string(name) + _written(value, depth) for name, value in container.items()]
    else:
        parts = [_written(value, depth) for value in container]
    body = b"".join(parts)
    return _SIZE.pack(len(body)) + body


def _written(value: Any, depth: int) -> bytes:
    kind = type(value)
    if kind is int:
        kind = int if value in _INT32 else Long
    if kind in _CODES:
        try:
            return _CODES[kind] + _PACKERS[kind].pack(value)
        except (struct.error, OverflowError) as error:
            raise Misuse(f"{value!r} does not fit into the type {kind.__name__}") from error
    match value:
        case None:
            return b"V"
        case str() | RawString():
            return b"S" + write_long_string(value)
        case bytes() | bytearray() | memoryview():
            return b"x" + write_long_string(bytes(value))
        case Mapping():
            return b"F" + _framed(value, depth + 1)
        case list() | tuple():
            return b"A" + _framed(value, depth + 1)
        case Decimal():
            return b"D" + _written_decimal(value)
    raise Misuse(f"a table cannot hold a {kind.__name__}")


def _written_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or sign or not -255 <= exponent <= 0:
        raise Misuse(f"{value} is no decimal of AMQP: not negative, up to 255 places")
    number = int("".join(map(str, digits)) or "0")
    if number >> 32:
        raise Misuse(f"{value} has more digits than 32 bits hold")
    return _DECIMAL.pack(-exponent, number)
