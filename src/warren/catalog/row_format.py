"""The rows of the catalog as the log holds them: a key, and the full image of a row.

    key      | kind 1 byte | id u64, big-endian |      9 bytes: rows of one kind lie together, oldest first
    value    | format u8 | a JSON object, UTF-8 |      names in order, no spaces: equal rows are equal bytes

One row of kind L, with id 0, goes with every change: its version in the log is the epoch of the catalog's last change,
and its image says how many rows of each kind there are and the highest id that was given out.

Always true: what this version does not know stays. A field that a newer one added is kept beside the others and written
again (`rows`); rows of an unknown kind are left alone, and so is their count. A newer one that must not be mended by an
older one raises the format byte of the row L, which everybody reads first. Bytes: docs/formats/catalog_rows.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import StorageId
from warren.records.format import ENTRY_BYTES_MAX

CATALOG = StorageId(1)  # the storage of all of it; numbers given by the log begin far above
FORMAT = 1

KEY = struct.Struct(">cQ")
assert KEY.size == 9

Image = dict[str, Any]  # what JSON can say


class RowKind(Enum):
    """The letters are on disk: never change one, only add."""

    VHOST = b"V"
    EXCHANGE = b"E"
    QUEUE = b"Q"
    BINDING = b"B"
    USER = b"U"
    PERMISSION = b"A"
    TOPIC_PERMISSION = b"T"


LAST_CHANGE = KEY.pack(b"L", 0)


def key_of(kind: RowKind, id_: int) -> bytes:
    return KEY.pack(kind.value, id_)


def id_of(key: bytes) -> int:
    if len(key) != KEY.size:
        raise Damage(f"a row of the catalog has the key {key.hex()}, which is not {KEY.size} bytes long")
    return int(KEY.unpack(key)[1])


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: object) -> str:
    """JSON in one spelling only."""
    return _ENCODER.encode(value)


def encode(image: Mapping[str, Any]) -> bytes:
    raw = bytes([FORMAT]) + canonical(image).encode()
    if len(raw) + KEY.size > ENTRY_BYTES_MAX:
        raise Refused(
            f"this takes {len(raw)} bytes in the catalog, at most {ENTRY_BYTES_MAX} go", "give it fewer arguments"
        )
    return raw


def decode(key: bytes, value: bytes) -> Image:
    what = f"row {key[:1].decode('latin-1')} {key[1:].hex()} of the catalog"
    if not value or value[0] != FORMAT:
        told = value[0] if value else "none"
        raise Refused(
            f"{what} is of format {told}, this version of warren reads {FORMAT}", "use the version that wrote it"
        )
    try:
        image = json.loads(value[1:])
    except (ValueError, RecursionError) as error:
        raise Damage(f"{what} is not JSON: {error}") from error
    if not isinstance(image, dict):
        raise Damage(f"{what} is no JSON object")
    return image


@dataclass(frozen=True, slots=True)
class LastChange:
    """The row L: what goes with every change."""

    rows: Mapping[str, int] = field(default_factory=dict)  # by the letter of their kind
    last_id: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def with_rows(self, kind: RowKind, more: int) -> LastChange:
        letter = kind.value.decode()
        return replace(self, rows={**self.rows, letter: self.count(kind) + more})

    def count(self, kind: RowKind) -> int:
        return self.rows.get(kind.value.decode(), 0)

    def encode(self) -> bytes:
        return encode({**self.extra, "rows": dict(self.rows), "last_id": self.last_id})

    @classmethod
    def decode(cls, value: bytes) -> LastChange:
        image = decode(LAST_CHANGE, value)
        try:
            rows = {str(letter): int(count) for letter, count in image.pop("rows").items()}
            return cls(rows, int(image.pop("last_id")), image)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise Damage(f"the row of the catalog's last change does not say what it must: {error!r}") from error
