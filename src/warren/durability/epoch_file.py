"""The epoch file: the durable witness.

    slot 0 at byte 0, slot 1 at byte 8192; the one that was not synced last is written:
    | magic u32 | checksum u32 | format u16 | files u16 | 0 u32 | sequence u64 | timeline u64 | durable u64 |
    | manifest edits u64 | wall ns i64 | monotone wall ns i64 | digest 16 bytes |
    | files × ( number u64, incarnation u64, end u64, running u32, 0 u32 ) |

It says: every epoch up to `durable` was synced; these files reached this far then; this many manifest edits were
synced. What does not agree with it is damage, however much it looks like a torn tail.

A slot for E is written only after the sync of E has returned, so that other processes, which read epochs up to here
and no further, are never shown what a power cut could take back. It is written and synced in the background, at most
100 ms behind, and at stop: until then E+1's own bytes stand witness for E, for they were not written before E was
durable (docs/decisions/0002-the-epoch-file-is-written-in-the-background.md). Until the next sync all witnesses go to
one and the same slot: whatever a power cut makes of it, the other one is whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from warren.base.checksum import crc32
from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.log_file import FileEnd
from warren.files.protocol import File, Files
from warren.records.block import FileIdentity

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
    """The witness in a slot, or None where no whole one stands."""
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
    """The newest whole witness of the file, and what was wrong with the other slot, if anything was."""
    file = files.open(path)
    try:
        raw = file.read_at(0, FILE_BYTES)
    finally:
        file.close()
    return witness_in(raw, path)


def witness_in(raw: bytes, path: str) -> tuple[DurableRecord | None, list[str]]:
    """The same of the bytes of an epoch file."""
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
        """`slot` is the one that may be lost: not the one in which the newest witness stands."""
        self._file = file
        self._sequence = sequence
        self._slot = slot
        self._is_written = False  # since the last sync

    @classmethod
    def create(cls, files: Files, path: str, witness: DurableRecord) -> EpochFile:
        """An epoch file that says `witness`, synced; its name is the caller's to sync. If there is one already it is
        written on, slot by slot, never zeroed: it may hold the only witness there is. It is synced first, since its
        newest witness may be in the page cache only."""
        file = files.open(path, writable=True) if files.exists(path) else files.create(path)
        try:
            if file.size() < FILE_BYTES:
                file.allocate(file.size(), FILE_BYTES - file.size())
            else:
                file.sync()
            epoch_file = cls(file, witness.sequence, _older_slot(file))
            epoch_file.write(witness)
            epoch_file.sync()
        except BaseException:  # whoever waits for room tries again, and opens it again
            file.close()
            raise
        return epoch_file

    def write(self, witness: DurableRecord) -> None:
        """Put the witness into the slot that was not synced last. Not durable before `sync`."""
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
