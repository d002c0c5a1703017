"""How a method is written down once: ids, who may send it, fields in order. Reading and writing follow from that.

    @method(60, 80, sender=Sender.BOTH)
    class BasicAck(Method):
        delivery_tag: LongLong = 0
        multiple: Bit = False

    → METHODS[60, 80] = MethodSpec(class_id=60, method_id=80, name="basic.ack", fields=…, …)
    → bytes  00 3c 00 50 | delivery tag u64 | 0000000m          neighbouring bits share an octet, lowest first

Always true: a method that is written reads the same. Bits that no field has are ignored, as RabbitMQ does; bytes left
over, or missing, are a frame error that names the method.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import groupby
from typing import Annotated, Any, ClassVar, Final, TypeVar, dataclass_transform, get_args, get_type_hints

from warren.amqp import types
from warren.amqp.errors import Malformed, PeerError, ReplyCode, Truncated
from warren.base.errors import Misuse

Bit = Annotated[bool, "bit"]
Octet = Annotated[int, "octet"]
ShortInt = Annotated[int, "short"]
LongInt = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortString = Annotated[str, "shortstr"]
LongString = Annotated[bytes, "longstr"]
FieldTable = Annotated[types.Table, "table"]


class Sender(Enum):
    CLIENT = "client"
    SERVER = "server"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class MethodField:
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class MethodSpec:
    class_id: int
    method_id: int
    name: str  # basic.get-ok
    fields: tuple[MethodField, ...]
    sender: Sender
    is_synchronous: bool  # its sender waits for an answer
    has_content: bool  # a content header and a body follow
    made_by: type[Method]
    groups: tuple[tuple[str, int], ...]  # fields of one kind in a row, as (kind, how many)

    @property
    def is_from_client(self) -> bool:
        return self.sender is not Sender.SERVER

    @property
    def is_from_server(self) -> bool:
        return self.sender is not Sender.CLIENT


class Method:
    """A method with its fields; each kind of it is a class of its own."""

    __slots__ = ()
    SPEC: ClassVar[MethodSpec]


M = TypeVar("M", bound=Method)
METHODS: Final[dict[tuple[int, int], MethodSpec]] = {}
_IDS: Final = struct.Struct(">HH")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def method(
    class_id: int,
    method_id: int,
    *,
    sender: Sender,
    is_synchronous: bool = False,
    has_content: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Make a frozen, slotted dataclass of the class, and enter it into the table."""

    def entered(plain: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True)(plain)
        hints = get_type_hints(made, include_extras=True)
        named = tuple(MethodField(each.name, get_args(hints[each.name])[1]) for each in fields(made))  # type: ignore[arg-type]
        name = _name_of(made)
        made.SPEC = MethodSpec(
            class_id, method_id, name, named, sender, is_synchronous, has_content, made, _groups(named)
        )
        assert (class_id, method_id) not in METHODS, f"{name} has ids that are taken"
        METHODS[class_id, method_id] = made.SPEC
        return made

    return entered


def _name_of(made: type[Method]) -> str:
    """BasicGetOk → basic.get-ok."""
    words = [word.lower() for word in re.findall("[A-Z][a-z]*", made.__name__)]
    return f"{words[0]}.{'-'.join(words[1:])}"


def _groups(named: tuple[MethodField, ...]) -> tuple[tuple[str, int], ...]:
    """Of bits never more than an octet's worth, which no method exceeds."""
    return tuple((kind, len(list(some))) for kind, some in groupby(named, lambda each: each.kind))


# ---------------------------------------------------------------------------------------------------------- reading


def decode(payload: bytes) -> Method:
    """The method in the payload of a method frame."""
    return read_fields(spec_of(payload), payload)


def spec_of(payload: bytes) -> MethodSpec:
    """What the first four bytes name."""
    if len(payload) < _IDS.size:
        raise Truncated("the ids of a method are cut off", 0)
    class_id, method_id = _IDS.unpack_from(payload)
    spec = METHODS.get((class_id, method_id))
    if spec is None:
        raise PeerError(
            ReplyCode.COMMAND_INVALID, f"there is no method {method_id} of class {class_id}", class_id, method_id
        )
    return spec


def read_fields(spec: MethodSpec, payload: bytes) -> Method:
    at = _IDS.size
    end = len(payload)
    values: list[Any] = []
    try:
        for kind, count in spec.groups:
            if kind == "bit":
                bits, at = _read_number(payload, at, end, _OCTET)
                values += [bool(bits >> place & 1) for place in range(count)]
            else:
                for _ in range(count):
                    value, at = _READERS[kind](payload, at, end)
                    values.append(value)
        if at != end:
            raise Malformed(f"{end - at} bytes too many", at, ReplyCode.FRAME_ERROR)
    except PeerError as error:
        raise PeerError(error.code, f"{spec.name}: {error.explanation}", spec.class_id, spec.method_id) from error
    return spec.made_by(*values)


def _read_number(data: bytes, at: int, end: int, packed: struct.Struct) -> tuple[int, int]:
    if at + packed.size > end:
        raise Truncated(f"a number of {packed.size} bytes is cut off", at)
    return packed.unpack_from(data, at)[0], at + packed.size


_OCTET: Final = struct.Struct(">B")
_INTEGERS: Final = {
    "octet": _OCTET,
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}


def _reader_of(packed: struct.Struct) -> Callable[[bytes, int, int], tuple[Any, int]]:
    return lambda data, at, end: _read_number(data, at, end, packed)


_READERS: Final[dict[str, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    **{kind: _reader_of(packed) for kind, packed in _INTEGERS.items()},
    "shortstr": types.read_short_string,
    "longstr": types.read_long_string,
    "table": types.read_table,
}

# ---------------------------------------------------------------------------------------------------------- writing


def encode(told: Method) -> bytes:
    """The payload of a method frame."""
    spec = told.SPEC
    values = iter([getattr(told, each.name) for each in spec.fields])
    parts = [_IDS.pack(spec.class_id, spec.method_id)]
    for kind, count in spec.groups:
        some = [next(values) for _ in range(count)]
        if kind == "bit":
            parts.append(bytes((sum(bool(bit) << place for place, bit in enumerate(some)),)))
        else:
            parts += [_written(spec, kind, value) for value in some]
    return b"".join(parts)


def _written(spec: MethodSpec, kind: str, value: Any) -> bytes:
    if packed := _INTEGERS.get(kind):
        try:
            return packed.pack(value)
        except struct.error as error:
            raise Misuse(f"{spec.name}: {value!r} is no {kind} of AMQP") from error
    return _WRITERS[kind](value)


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "shortstr": types.write_short_string,
    "longstr": types.write_long_string,
    "table": types.write_table,
}
