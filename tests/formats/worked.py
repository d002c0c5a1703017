"""The worked bytes of docs/formats, made by the product: field by field, with what each says.

A page shows them between ``` fences; `tests/formats/test_worked_bytes.py` compares, `make golden` rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.queue_index.worked_rows import ROWS as QUEUE_INDEX_ROWS
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, Lsn, QueueId, SequenceId, TimelineId, lsn_of
from warren.catalog.rows import RowKind, encode, key_of
from warren.durability.closing_block import Closing, ClosingPart
from warren.durability.epoch_file import DurableRecord, encode_slot
from warren.durability.log_file import FileEnd
from warren.log.file_record import FileHeader, FileKind
from warren.log.manifest import set_change
from warren.log.session import EntryRows
from warren.message_store.body_format import (
    Body,
    BodyPlace,
    RecordKey,
    RecordKind,
    Reference,
    encode_key,
    encode_stored,
)
from warren.message_store.index import row_key
from warren.records.block import BlockDraft, FileIdentity, draft
from warren.records.entries import Versions, draft_entries
from warren.records.format import BlockKind

IDENTITY = FileIdentity(TimelineId(0x11), Incarnation(0x22))
Field = tuple[int, str]  # bytes, what they say

HEADER_FIELDS: tuple[Field, ...] = (
    (4, "magic"),
    (4, "checksum over the body, then the header from 0008"),
    (4, "kind, flags 0, format 1"),
    (4, "body bytes"),
    (8, "entries, stream"),
    (8, "timeline"),
    (8, "incarnation"),
    (8, "own offset"),
    (8, "epoch"),
    (8, "first"),
)


def placed(draft: BlockDraft, offset: int, epoch: int, first: int = 0) -> bytes:
    header, _ = draft.place(IDENTITY, offset, Epoch(epoch), first)
    return header + b"".join(draft.pieces)


def shown(raw: bytes, fields: Iterable[Field]) -> str:
    """The bytes, a field a line."""
    lines, at = [], 0
    for size, what in fields:
        part = raw[at : at + size]
        lines.append(f"{at:04x}  {part.hex(' '):48} {what}".rstrip())
        at += size
    assert at == len(raw), (at, len(raw))
    return "\n".join(lines) + "\n"


def block() -> str:
    rows = EntryRows()
    rows.add(1, 3, b"ant", b"six legs")
    rows.add(1, 3, b"bee", b"wings")
    raw = placed(draft_entries(rows.columns(), versions=Versions.FROM_HEADER), 96, 5)
    columns = (
        "KIND: constant 1",
        "STORAGE: constant 3",
        "KEY_OFFSETS: sequence from 0",
        "VALUE_OFFSETS: base 0 + data",
    )
    return shown(
        raw,
        (
            *HEADER_FIELDS,
            (8, "4 columns, heap at 0x58 of the body"),
            *((16, f"{what} (tag, encoding, width, 0, data bytes, base)") for what in columns),
            (8, "step of KEY_OFFSETS: 3"),
            (8, "VALUE_OFFSETS: 0, 8, 13, padded"),
            (6, "keys: ant, bee"),
            (13, "values: six legs, wings"),
            (5, "zeros to a multiple of 8"),
        ),
    )


def closing() -> str:
    part = ClosingPart(FileNumber(1), IDENTITY.incarnation, 272, 0xAABBCCDD, 1)
    raw = placed(Closing(Epoch(5), Epoch(4), 7, 8, bytes(range(16)), (part,)).draft(), 272, 5)
    return shown(
        raw,
        (
            *HEADER_FIELDS,
            (8, "previous epoch 4"),
            (8, "wall time, ns"),
            (8, "monotone wall time, ns"),
            (16, "digest of epoch 4"),
            (8, "1 part, 0"),
            (8, "part: file 1"),
            (8, "its incarnation"),
            (8, "its end, where this closing block begins"),
            (8, "running checksum, blocks of the epoch"),
        ),
    )


def epoch_file() -> str:
    end = FileEnd(FileNumber(1), IDENTITY, 416, 0xAABBCCDD)
    raw = encode_slot(DurableRecord(IDENTITY.timeline, Epoch(5), bytes(range(16)), 3, 7, 8, (end,)), 9)
    return shown(
        raw,
        (
            (4, "magic"),
            (4, "checksum from 0008 on"),
            (8, "format 1, 1 file, 0"),
            (8, "sequence 9"),
            (8, "timeline"),
            (8, "durable epoch 5"),
            (8, "manifest edits 3"),
            (8, "wall time, ns"),
            (8, "monotone wall time, ns"),
            (16, "digest of epoch 5"),
            (8, "file 1"),
            (8, "its incarnation"),
            (8, "its end at epoch 5"),
            (8, "running checksum, 0"),
        ),
    )


def file_header() -> str:
    raw, _ = FileHeader(FileNumber(1), ChannelId(0), FileKind.LOG, 1 << 20, 7).placed(IDENTITY)
    return shown(
        raw,
        (
            *HEADER_FIELDS,
            (8, "number 1"),
            (8, "channel 0, purpose 1: log"),
            (8, "container bytes"),
            (8, "created, wall ns"),
        ),
    )


def manifest() -> str:
    body = b'[["set",{"horizon":4}]]'
    assert set_change(horizon=4) == ["set", {"horizon": 4}]
    raw = placed(draft(BlockKind.EDIT, [body]), 2048, 0, 3)
    return shown(raw, (*HEADER_FIELDS, (len(body), body.decode()), (1, "zeros to a multiple of 8")))


def catalog_rows() -> str:
    image = {"vhost_id": 4294967300, "name": "orders", "durable": True, "exclusive": False, "auto_delete": False}
    key, value = key_of(RowKind.QUEUE, 4294967392), encode(image | {"arguments": {"x-max-length": 7}})
    lines = [value[at : at + 16] for at in range(1, len(value), 16)]
    return shown(
        key + value,
        (
            (1, "key: kind Q"),
            (8, "id, big-endian"),
            (1, "value: format 1"),
            *((len(line), line.decode()) for line in lines),
        ),
    )


def queue_index() -> str:
    return "\n".join(f"{title}\n{shown(raw, fields)}" for title, raw, fields in QUEUE_INDEX_ROWS)


def message_store() -> str:
    holders = (Reference(QueueId(0x1000000060), 0, SequenceId(5)), Reference(QueueId(0x1000000070), 0, SequenceId(9)))
    key = encode_key(RecordKey(RecordKind.START, 0, Lsn(0), holders))
    old, new = BodyPlace(lsn_of(FileNumber(7), 96), 0), BodyPlace(lsn_of(FileNumber(9), 160), 2)
    stored = encode_stored([Body(old.lsn, 7, 0, 2, (old,), 0b11)])
    moved = row_key(old.lsn) + encode_stored([Body(old.lsn, 4, 0, 2, (new,), 0b10)])
    holder = ((8, "queue"), (8, "first sequence id"), (1, "level 0"))
    words = (
        (4, "format 1, 0"),
        (4, "1 unit"),
        (4, "chunk bytes"),
        (8, "unit id: file 7, position 96"),
        (8, "bytes"),
        (8, "first message 0, 2 messages"),
        (4, "1 place"),
    )
    rows = (
        (
            "record key",
            key,
            ((4, "format 1, kind 1: start"), (4, "chunk 0"), (8, "unit: its own LSN"), *holder, *holder),
        ),
        ("stored", stored, (*words, (4, "all are kept"), (8, "block: file 7, byte 96"), (4, "entry 0"))),
        (
            "row of storage 3, key and value",
            moved,
            (
                (8, "unit id, big-endian"),
                *words,
                (4, "1 byte of bitmap"),
                (8, "block: file 9, byte 160"),
                (4, "entry 2"),
                (1, "kept: message 1"),
            ),
        ),
    )
    return "\n".join(f"{title}\n{shown(raw, fields)}" for title, raw, fields in rows)


PAGES = {
    "block": block,
    "catalog_rows": catalog_rows,
    "closing": closing,
    "epoch_file": epoch_file,
    "file_header": file_header,
    "manifest": manifest,
    "message_store": message_store,
    "queue_index": queue_index,
}
