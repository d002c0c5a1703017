"""Rows as the log holds them: their bytes, for good, and what is done with those of other versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.catalog.catalog_stage import CatalogStage, check, home, names, rows_in_log
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch
from warren.catalog import vhosts
from warren.catalog.rows import (
    CATALOG,
    LAST_CHANGE,
    LastChange,
    RowKind,
    decode,
    encode,
    id_of,
    image_of,
    key_of,
    row_of,
)

VHOST = {"name": "/", "description": "", "tags": ["a"]}
QUEUE = {"vhost_id": 7, "name": "ö", "durable": True, "exclusive": False, "auto_delete": False, "arguments": {"x": 1}}
EXCHANGE = {"vhost_id": 7, "name": "e", "type": "topic", "durable": True, "auto_delete": False, "internal": False}
BINDING = {"vhost_id": 7, "source_id": 8, "queue_id": 9, "exchange_id": None, "routing_key": "k"}
USER: dict[str, Any] = {"name": "u", "password_hash": "aa==", "hashing_algorithm": "x", "tags": ["monitoring"]}
USER |= {"limits": {"max-channels": 3}}
PERMISSION = {"user_id": 5, "vhost_id": 7, "configure": "", "write": "^a", "read": ".*"}
TOPIC_PERMISSION = {"user_id": 5, "vhost_id": 7, "exchange": "amq.topic", "write": "^a", "read": ".*"}

GOLDEN: list[tuple[RowKind, dict[str, Any], bytes]] = [
    (RowKind.VHOST, VHOST, b'\x01{"description":"","name":"/","tags":["a"]}'),
    (
        RowKind.QUEUE,
        QUEUE,
        b'\x01{"arguments":{"x":1},"auto_delete":false,"durable":true,"exclusive":false,'
        b'"name":"\xc3\xb6","vhost_id":7}',
    ),
    (
        RowKind.EXCHANGE,
        EXCHANGE,
        b'\x01{"auto_delete":false,"durable":true,"internal":false,"name":"e","type":"topic","vhost_id":7}',
    ),
    (
        RowKind.BINDING,
        BINDING,
        b'\x01{"exchange_id":null,"queue_id":9,"routing_key":"k","source_id":8,"vhost_id":7}',
    ),
    (
        RowKind.USER,
        USER,
        b'\x01{"hashing_algorithm":"x","limits":{"max-channels":3},"name":"u","password_hash":"aa==","tags":["monitoring"]}',
    ),
    (RowKind.PERMISSION, PERMISSION, b'\x01{"configure":"","read":".*","user_id":5,"vhost_id":7,"write":"^a"}'),
    (
        RowKind.TOPIC_PERMISSION,
        TOPIC_PERMISSION,
        b'\x01{"exchange":"amq.topic","read":".*","user_id":5,"vhost_id":7,"write":"^a"}',
    ),
]


@pytest.mark.parametrize(("kind", "image", "raw"), GOLDEN)
def test_the_bytes_of_a_row_are_golden(kind: RowKind, image: dict[str, object], raw: bytes) -> None:
    assert encode(image) == raw
    assert decode(key_of(kind, 1), raw) == image


def test_the_bytes_of_the_last_change_are_golden() -> None:
    raw = b'\x01{"colour":"red","last_id":258,"rows":{"Q":2,"Z":3}}'
    assert b"L" + bytes(8) == LAST_CHANGE
    assert LastChange.decode(raw) == LastChange({"Q": 2, "Z": 3}, 258, {"colour": "red"})
    assert LastChange.decode(raw).encode() == raw


def test_keys_lie_by_kind_and_by_age() -> None:
    assert key_of(RowKind.QUEUE, 0x0102) == b"Q" + bytes(6) + b"\x01\x02"
    assert id_of(key_of(RowKind.BINDING, (1 << 63) - 1)) == (1 << 63) - 1
    keys = [key_of(RowKind.QUEUE, id_) for id_ in (1, 255, 256, 1 << 40)]
    assert keys == sorted(keys)
    assert [kind.value for kind in RowKind] == [b"V", b"E", b"Q", b"B", b"U", b"A", b"T", b"P"]
    assert CATALOG == 1
    with pytest.raises(Damage):
        id_of(b"Q12")


@pytest.mark.parametrize("raw", [b"", b"\x02{}", b"\x00{}"])
def test_a_row_of_another_format_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(Refused, match=r"row Q 0000000000000007 of the catalog is of format .*, this version"):
        decode(key_of(RowKind.QUEUE, 7), raw)


@pytest.mark.parametrize("raw", [b"\x01", b"\x01{", b"\x01[]", b"\x01\xff", b"\x01" + b"[" * 100_000])
def test_a_row_that_is_no_object_is_damage(raw: bytes) -> None:
    with pytest.raises(Damage):
        decode(key_of(RowKind.QUEUE, 7), raw)


@pytest.mark.parametrize("image", [{}, {"rows": 3, "last_id": 1}, {"rows": {"Q": "x"}, "last_id": 1}, {"rows": {}}])
def test_a_last_change_that_is_too_short_is_damage(image: dict[str, object]) -> None:
    with pytest.raises(Damage, match="does not say what it must"):
        LastChange.decode(encode(image))


@pytest.mark.parametrize(("kind", "image", "_"), GOLDEN)
def test_an_image_comes_back_from_sql_with_unknown_fields(kind: RowKind, image: dict[str, object], _: bytes) -> None:
    newer = image | {"colour": {"of": ["red"]}, "arguments_too": 1}
    back = image_of(kind, row_of(kind, 5, newer))
    assert {name: back[name] for name in newer} == newer


def test_a_field_that_an_older_version_did_not_write_gets_its_default() -> None:
    row = row_of(RowKind.QUEUE, 5, {"vhost_id": 7, "name": "q"})
    assert (row["durable"], row["exclusive"], row["auto_delete"], row["arguments"]) == (True, False, False, "{}")
    with pytest.raises(Damage, match="queue 5 has no name"):
        row_of(RowKind.QUEUE, 5, {"vhost_id": 7})


def test_what_a_newer_version_wrote_survives_a_change_by_this_one() -> None:
    """Unknown fields of a row, of the last change, and rows of an unknown kind."""
    stage = CatalogStage()
    here = home(stage.begin())
    image = rows_in_log(stage.database)[RowKind.VHOST, here.id] | {"quota": {"queues": 5}}
    last = LastChange({"V": 1, "E": 7, "Z": 1}, here.id + 100, {"owner": "later"})
    stage.catalog.close()
    session = stage.database.begin()
    session.put(CATALOG, key_of(RowKind.VHOST, here.id), encode(image))
    session.put(CATALOG, b"Z" + bytes(8), b"\x09 not ours")
    session.put(CATALOG, LAST_CHANGE, last.encode())
    session.commit()
    catalog = stage.again_without_catalog()
    catalog.change(lambda writer: vhosts.describe(writer, here.id, "shop"))
    check(catalog, stage.database)
    assert rows_in_log(stage.database)[RowKind.VHOST, here.id] == image | {"description": "shop"}
    view = stage.database.view_now()
    found = view.get(CATALOG, LAST_CHANGE)
    assert found is not None and LastChange.decode(found.value) == last
    assert view.get(CATALOG, b"Z" + bytes(8)) is not None
    view.close()
    assert names(catalog) == []
    stage.stop()


def test_a_catalog_whose_last_change_is_of_a_newer_format_is_refused() -> None:
    stage = CatalogStage()
    home(stage.begin())
    stage.catalog.close()
    session = stage.database.begin()
    session.put(CATALOG, LAST_CHANGE, b"\x02" + json.dumps({}).encode())
    assert session.commit() > Epoch(0)
    with pytest.raises(Refused, match="format 2, this version of warren reads 1"):
        stage.again_without_catalog()
    stage.database.close()
