"""All methods of AMQP 0-9-1 and of RabbitMQ's extensions, declared once, and the codec that follows from the table.

    10 connection   20 channel   30 access   40 exchange   50 queue   60 basic   85 confirm   90 tx

    @method(60, 80, sender=Sender.BOTH)
    class BasicAck(Method):
        delivery_tag: LongLong = 0
        multiple: Bit = False

    → METHODS[60, 80] = MethodSpec(class_id=60, method_id=80, name="basic.ack", fields=…, …)
    → bytes  00 3c 00 50 | delivery tag u64 | 0000000m          adjacent bits share an octet, lowest first

RabbitMQ's extensions: connection.blocked, unblocked and update-secret; exchange.bind and unbind (its unbind-ok has the
number 51, out of sequence, as in RabbitMQ); basic.nack and confirm. basic.cancel goes both ways, since a server may
cancel a consumer.

Invariants: decoding an encoded method gives the same method. Unused bits are ignored, as in RabbitMQ; extra or missing
bytes are a frame error that names the method.
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
    groups: tuple[tuple[str, int], ...]  # consecutive fields of one kind, as (kind, count)

    @property
    def is_from_client(self) -> bool:
        return self.sender is not Sender.SERVER

    @property
    def is_from_server(self) -> bool:
        return self.sender is not Sender.CLIENT


class Method:
    """A method with its fields; the base class of all methods."""

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
    """Turn the class into a frozen, slotted dataclass, and register it in the table."""

    def entered(plain: type[M]) -> type[M]:
        method_type = dataclass(frozen=True, slots=True)(plain)
        hints = get_type_hints(method_type, include_extras=True)
        named = tuple(MethodField(each.name, get_args(hints[each.name])[1]) for each in fields(method_type))  # type: ignore[arg-type]
        name = _name_of(method_type)
        method_type.SPEC = MethodSpec(
            class_id, method_id, name, named, sender, is_synchronous, has_content, method_type, _groups(named)
        )
        assert (class_id, method_id) not in METHODS, f"{name} has ids that are taken"
        METHODS[class_id, method_id] = method_type.SPEC
        return method_type

    return entered


def _name_of(method_type: type[Method]) -> str:
    """BasicGetOk → basic.get-ok."""
    words = [word.lower() for word in re.findall("[A-Z][a-z]*", method_type.__name__)]
    return f"{words[0]}.{'-'.join(words[1:])}"


def _groups(named: tuple[MethodField, ...]) -> tuple[tuple[str, int], ...]:
    """Groups of consecutive fields of one kind. No method has more than eight bits in a row."""
    return tuple((kind, len(list(some))) for kind, some in groupby(named, lambda each: each.kind))


# ---------------------------------------------------------------------------------------------------------- reading


def decode(payload: bytes) -> Method:
    """The method in the payload of a method frame."""
    return read_fields(spec_of(payload), payload)


def spec_of(payload: bytes) -> MethodSpec:
    """The method named by the first four bytes."""
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


def encode(method: Method) -> bytes:
    """The payload of a method frame."""
    spec = method.SPEC
    values = iter([getattr(method, each.name) for each in spec.fields])
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


@method(10, 10, sender=Sender.SERVER, is_synchronous=True)
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable = field(default_factory=dict)
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


@method(10, 11, sender=Sender.CLIENT)
class ConnectionStartOk(Method):
    client_properties: FieldTable = field(default_factory=dict)
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


@method(10, 20, sender=Sender.SERVER, is_synchronous=True)
class ConnectionSecure(Method):
    challenge: LongString = b""


@method(10, 21, sender=Sender.CLIENT)
class ConnectionSecureOk(Method):
    response: LongString = b""


@method(10, 30, sender=Sender.SERVER, is_synchronous=True)
class ConnectionTune(Method):
    channel_max: ShortInt = 0
    frame_max: LongInt = 0
    heartbeat: ShortInt = 0


@method(10, 31, sender=Sender.CLIENT)
class ConnectionTuneOk(Method):
    channel_max: ShortInt = 0
    frame_max: LongInt = 0
    heartbeat: ShortInt = 0


@method(10, 40, sender=Sender.CLIENT, is_synchronous=True)
class ConnectionOpen(Method):
    virtual_host: ShortString = "/"
    capabilities: ShortString = ""
    insist: Bit = False


@method(10, 41, sender=Sender.SERVER)
class ConnectionOpenOk(Method):
    known_hosts: ShortString = ""


@method(10, 50, sender=Sender.BOTH, is_synchronous=True)
class ConnectionClose(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    class_id: ShortInt = 0
    method_id: ShortInt = 0


@method(10, 51, sender=Sender.BOTH)
class ConnectionCloseOk(Method):
    pass


@method(10, 60, sender=Sender.SERVER)
class ConnectionBlocked(Method):
    reason: ShortString = ""


@method(10, 61, sender=Sender.SERVER)
class ConnectionUnblocked(Method):
    pass


@method(10, 70, sender=Sender.CLIENT, is_synchronous=True)
class ConnectionUpdateSecret(Method):
    new_secret: LongString = b""
    reason: ShortString = ""


@method(10, 71, sender=Sender.SERVER)
class ConnectionUpdateSecretOk(Method):
    pass


@method(20, 10, sender=Sender.CLIENT, is_synchronous=True)
class ChannelOpen(Method):
    out_of_band: ShortString = ""


@method(20, 11, sender=Sender.SERVER)
class ChannelOpenOk(Method):
    channel_id: LongString = b""


@method(20, 20, sender=Sender.BOTH, is_synchronous=True)
class ChannelFlow(Method):
    active: Bit = False


@method(20, 21, sender=Sender.BOTH)
class ChannelFlowOk(Method):
    active: Bit = False


@method(20, 40, sender=Sender.BOTH, is_synchronous=True)
class ChannelClose(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    class_id: ShortInt = 0
    method_id: ShortInt = 0


@method(20, 41, sender=Sender.BOTH)
class ChannelCloseOk(Method):
    pass


@method(30, 10, sender=Sender.CLIENT, is_synchronous=True)
class AccessRequest(Method):
    vhost: ShortString = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@method(30, 11, sender=Sender.SERVER)
class AccessRequestOk(Method):
    ticket: ShortInt = 1


@method(40, 10, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeDeclare(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    type: ShortString = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 11, sender=Sender.SERVER)
class ExchangeDeclareOk(Method):
    pass


@method(40, 20, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeDelete(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21, sender=Sender.SERVER)
class ExchangeDeleteOk(Method):
    pass


@method(40, 30, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeBind(Method):
    ticket: ShortInt = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 31, sender=Sender.SERVER)
class ExchangeBindOk(Method):
    pass


@method(40, 40, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeUnbind(Method):
    ticket: ShortInt = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 51, sender=Sender.SERVER)
class ExchangeUnbindOk(Method):
    pass


@method(50, 10, sender=Sender.CLIENT, is_synchronous=True)
class QueueDeclare(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(50, 11, sender=Sender.SERVER)
class QueueDeclareOk(Method):
    queue: ShortString = ""
    message_count: LongInt = 0
    consumer_count: LongInt = 0


@method(50, 20, sender=Sender.CLIENT, is_synchronous=True)
class QueueBind(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(50, 21, sender=Sender.SERVER)
class QueueBindOk(Method):
    pass


@method(50, 30, sender=Sender.CLIENT, is_synchronous=True)
class QueuePurge(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    no_wait: Bit = False


@method(50, 31, sender=Sender.SERVER)
class QueuePurgeOk(Method):
    message_count: LongInt = 0


@method(50, 40, sender=Sender.CLIENT, is_synchronous=True)
class QueueDelete(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41, sender=Sender.SERVER)
class QueueDeleteOk(Method):
    message_count: LongInt = 0


@method(50, 50, sender=Sender.CLIENT, is_synchronous=True)
class QueueUnbind(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: FieldTable = field(default_factory=dict)


@method(50, 51, sender=Sender.SERVER)
class QueueUnbindOk(Method):
    pass


@method(60, 10, sender=Sender.CLIENT, is_synchronous=True)
class BasicQos(Method):
    prefetch_size: LongInt = 0
    prefetch_count: ShortInt = 0
    is_global: Bit = False


@method(60, 11, sender=Sender.SERVER)
class BasicQosOk(Method):
    pass


@method(60, 20, sender=Sender.CLIENT, is_synchronous=True)
class BasicConsume(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(60, 21, sender=Sender.SERVER)
class BasicConsumeOk(Method):
    consumer_tag: ShortString = ""


@method(60, 30, sender=Sender.BOTH, is_synchronous=True)
class BasicCancel(Method):
    consumer_tag: ShortString = ""
    no_wait: Bit = False


@method(60, 31, sender=Sender.BOTH)
class BasicCancelOk(Method):
    consumer_tag: ShortString = ""


@method(60, 40, sender=Sender.CLIENT, has_content=True)
class BasicPublish(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    routing_key: ShortString = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50, sender=Sender.SERVER, has_content=True)
class BasicReturn(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""


@method(60, 60, sender=Sender.SERVER, has_content=True)
class BasicDeliver(Method):
    consumer_tag: ShortString = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""


@method(60, 70, sender=Sender.CLIENT, is_synchronous=True)
class BasicGet(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    no_ack: Bit = False


@method(60, 71, sender=Sender.SERVER, has_content=True)
class BasicGetOk(Method):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""
    message_count: LongInt = 0


@method(60, 72, sender=Sender.SERVER)
class BasicGetEmpty(Method):
    cluster_id: ShortString = ""


@method(60, 80, sender=Sender.BOTH)
class BasicAck(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False


@method(60, 90, sender=Sender.CLIENT)
class BasicReject(Method):
    delivery_tag: LongLong = 0
    requeue: Bit = True


@method(60, 100, sender=Sender.CLIENT)
class BasicRecoverAsync(Method):
    requeue: Bit = False


@method(60, 110, sender=Sender.CLIENT, is_synchronous=True)
class BasicRecover(Method):
    requeue: Bit = False


@method(60, 111, sender=Sender.SERVER)
class BasicRecoverOk(Method):
    pass


@method(60, 120, sender=Sender.BOTH)
class BasicNack(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@method(85, 10, sender=Sender.CLIENT, is_synchronous=True)
class ConfirmSelect(Method):
    no_wait: Bit = False


@method(85, 11, sender=Sender.SERVER)
class ConfirmSelectOk(Method):
    pass


@method(90, 10, sender=Sender.CLIENT, is_synchronous=True)
class TxSelect(Method):
    pass


@method(90, 11, sender=Sender.SERVER)
class TxSelectOk(Method):
    pass


@method(90, 20, sender=Sender.CLIENT, is_synchronous=True)
class TxCommit(Method):
    pass


@method(90, 21, sender=Sender.SERVER)
class TxCommitOk(Method):
    pass


@method(90, 30, sender=Sender.CLIENT, is_synchronous=True)
class TxRollback(Method):
    pass


@method(90, 31, sender=Sender.SERVER)
class TxRollbackOk(Method):
    pass
