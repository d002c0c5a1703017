"""Epoch file: the durable epoch, as a record on disk.

    slot 0 at byte 0, slot 1 at byte 8192; the one that was not synced last is written:
    | magic u32 | checksum u32 | format u16 | files u16 | 0 u32 | sequence u64 | timeline u64 | durable u64 |
    | manifest edits u64 | wall ns i64 | monotone wall ns i64 | digest 16 bytes |
    | files × ( number u64, incarnation u64, end u64, running u32, 0 u32 ) |

A record states: every epoch up to `durable` was synced; these files had these ends; this many manifest edits were
synced. Files that do not agree with it are damaged, even if they look like a torn tail.

The record for E is written only after the sync of E has returned: other processes read epochs up to here and no
further, so they never see anything that a power cut could undo. It is written and synced in the background, at most
100 ms behind, and at stop. Until then the bytes of E+1 prove that E is durable, because they are not written before
(docs/decisions/0002-the-epoch-file-is-written-in-the-background.md). Until the next sync all records go to the same
slot: whatever a power cut does to it, the other one is whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.log_file import FileEnd
from warren.files.protocol import File, Files
from warren.records.block import FileIdentity
from warren.records.format import crc32

MAGIC = 0x45525257  # "WRRE"
FORMAT_VERSION = 1
SLOT_BYTES = 8192  # room for two files of each of 100 channels: a rotation's old and new ones
FILE_BYTES = 2 * SLOT_BYTES
HEAD = struct.Struct("<IIHHIQQQQqq16s")
assert HEAD.size == 80
END = struct.Struct("<QQQII")
assert END.size == 32
FILES_MAX = (SLOT_BYTES - HEAD.size) // END.size
CHECKED_FROM = 8


@dataclass(frozen=True, slots=True)
class DurableRecord:
    timeline: TimelineId
    durable: Epoch
    digest: bytes
    manifest_edits: int
    wall_ns: int
    monotone_ns: int
    ends: tuple[FileEnd, ...]
    sequence: int = 0


def encode_slot(witness: DurableRecord, sequence: int) -> bytes:
    if len(witness.ends) > FILES_MAX:
        raise Misuse(f"{len(witness.ends)} files take part in epochs, the epoch file has room for {FILES_MAX}")
    ends = b"".join(END.pack(e.number, e.identity.incarnation, e.end, e.running, 0) for e in witness.ends)
    raw = bytearray(
        HEAD.pack(
            MAGIC,
            0,
            FORMAT_VERSION,
            len(witness.ends),
            0,
            sequence,
            witness.timeline,
            witness.durable,
            witness.manifest_edits,
            witness.wall_ns,
            witness.monotone_ns,
            witness.digest,
        )
        + ends
    )
    struct.pack_into("<I", raw, 4, crc32(memoryview(raw)[CHECKED_FROM:]))
    return bytes(raw)


def decode_slot(raw: bytes) -> DurableRecord | None:
    """The record in a slot, or None if there is no whole one."""
    if len(raw) < HEAD.size:
        return None
    magic, checksum, version, count, _, sequence, timeline, durable, edits, wall, monotone, digest = HEAD.unpack_from(
        raw
    )
    size = HEAD.size + count * END.size
    if magic != MAGIC or size > len(raw) or crc32(raw[CHECKED_FROM:size]) != checksum:
        return None
    if version > FORMAT_VERSION:
        raise Refused(
            f"the epoch file has format {version}, this warren reads up to {FORMAT_VERSION}", "use a newer warren"
        )
    ends = tuple(
        FileEnd(FileNumber(number), FileIdentity(TimelineId(timeline), Incarnation(life)), end, running)
        for number, life, end, running, _ in END.iter_unpack(raw[HEAD.size : size])
    )
    return DurableRecord(TimelineId(timeline), Epoch(durable), digest, edits, wall, monotone, ends, sequence)


def read_witness(files: Files, path: str) -> tuple[DurableRecord | None, list[str]]:
    """The newest whole record of the file, and the problems of the other slot, if any."""
    file = files.open(path)
    try:
        raw = file.read_at(0, FILE_BYTES)
    finally:
        file.close()
    return witness_in(raw, path)


def witness_in(raw: bytes, path: str) -> tuple[DurableRecord | None, list[str]]:
    """Like `read_witness`, from the bytes of an epoch file."""
    slots = [raw[:SLOT_BYTES], raw[SLOT_BYTES:]]
    found = [decode_slot(slot) for slot in slots]
    problems = [
        f"{path}: slot {index} is damaged" for index, slot in enumerate(slots) if found[index] is None and any(slot)
    ]
    whole = [witness for witness in found if witness is not None]
    return max(whole, key=lambda witness: witness.sequence, default=None), problems


class EpochFile:
    """The open epoch file of the owner."""

    def __init__(self, file: File, sequence: int, slot: int) -> None:
        """`slot` is written next; the newest record is in the other one."""
        self._file = file
        self._sequence = sequence
        self._slot = slot
        self._is_written = False  # since the last sync

    @classmethod
    def create(cls, files: Files, path: str, witness: DurableRecord) -> EpochFile:
        """Create an epoch file with `witness`, synced; the caller syncs its name. An existing file is continued slot by
        slot, never zeroed: it may contain the only record. It is synced first, since its newest record may be in the
        page cache only."""
        file = files.open(path, writable=True) if files.exists(path) else files.create(path)
        try:
            if file.size() < FILE_BYTES:
                file.allocate(file.size(), FILE_BYTES - file.size())
            else:
                file.sync()
            epoch_file = cls(file, witness.sequence, _older_slot(file))
            epoch_file.write(witness)
            epoch_file.sync()
        except BaseException:  # the caller retries when there is room, and opens it again
            file.close()
            raise
        return epoch_file

    def write(self, witness: DurableRecord) -> None:
        """Write the record to the slot that was not synced last. Not durable before `sync`."""
        self._sequence += 1
        self._file.write_at(self._slot * SLOT_BYTES, [encode_slot(witness, self._sequence)])
        self._is_written = True

    @property
    def sequence(self) -> int:
        return self._sequence

    def sync(self) -> None:
        self._file.sync()
        if self._is_written:
            self._slot, self._is_written = 1 - self._slot, False

    def close(self) -> None:
        self._file.close()


def _older_slot(file: File) -> int:
    found = [decode_slot(file.read_at(index * SLOT_BYTES, SLOT_BYTES)) for index in range(2)]
    first, second = (-1 if witness is None else witness.sequence for witness in found)
    return 0 if first <= second else 1
