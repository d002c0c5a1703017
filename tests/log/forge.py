"""Log files made by hand for the tests of scan, verify and repair, and a small store with everything in it.

A `Forge` appends blocks to one file on a memory disk, good ones and others, and knows what a manifest would say of it.
"""

from __future__ import annotations

from warren.base.environment import Clock
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, StorageId, TimelineId
from warren.base.threads import SystemThreads
from warren.durability.closing_block import NO_DIGEST, Closing, ClosingPart
from warren.durability.log_file import FileEnd, LogFile, run_on
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import (
    FILE_HEADER_BYTES,
    FileHeader,
    FileKind,
    FileRecord,
    FileState,
    Voided,
    active_name,
    is_wal,
    rotated_name,
)
from warren.log.session import EntryRows
from warren.log.settings import EntryKind, LogSettings
from warren.log.store import LogStore
from warren.records.block import FileIdentity
from warren.records.entries import Versions, draft_entries
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

DIRECTORY = "/log"
STORAGE = StorageId(7)
TIMELINE = TimelineId(0x1111)
QUIET = LogSettings(
    channel_count=2,
    container_bytes=1,
    use_worker_process=False,
    compaction_poll_seconds=1e6,
    compaction_garbage_ratio=0,
    snapshot_at_stop=False,
)


class Forge:
    """One log file being made."""

    def __init__(self, files: MemoryFiles, number: int = 1, channel: int = 0, room: int = 8192) -> None:
        self.files = files
        self.number, self.channel = FileNumber(number), ChannelId(channel)
        self.identity = FileIdentity(TIMELINE, Incarnation(0x2222 + number))
        if not files.exists(DIRECTORY):
            files.make_directories(DIRECTORY)
        self.path = join(DIRECTORY, active_name(self.channel))
        self._file = files.create(self.path)
        self._file.allocate(0, room)
        raw, checksum = FileHeader(self.number, self.channel, FileKind.LOG, room, 0).placed(self.identity)
        self._file.write_at(0, [raw])
        self.participant = LogFile(self.number, self.identity, FILE_HEADER_BYTES, run_on(0, checksum), room)
        self.participant.attach(self._file, room)
        self._previous = Epoch(0)

    def entries(self, epoch: int, *keys: bytes) -> int:
        """A block of puts; its offset."""
        rows = EntryRows()
        for key in keys:
            rows.add(EntryKind.PUT, STORAGE, key, b"value of " + key)
        offset = self.participant.append(draft_entries(rows.columns(), versions=Versions.FROM_HEADER), Epoch(epoch))
        self._write()
        return offset

    def close_epoch(self, epoch: int) -> int:
        """A closing block that names this file alone; its offset."""
        file = self.participant
        part = ClosingPart(file.number, self.identity.incarnation, file.end, file.running, 1)
        closing = Closing(Epoch(epoch), self._previous, 0, 0, NO_DIGEST, (part,))
        self._previous = Epoch(epoch)
        return self.append(closing)

    def append(self, closing: Closing) -> int:
        offset = self.participant.append(closing.draft(), closing.epoch)
        self._write()
        return offset

    def epoch(self, epoch: int, *keys: bytes) -> int:
        """A whole epoch; the offset of its first block."""
        offset = self.entries(epoch, *keys)
        self.close_epoch(epoch)
        return offset

    def torn(self, size: int = 40) -> int:
        """The beginning of a block that never got its end; its offset."""
        offset = self.participant.end
        self._file.write_at(offset, [b"WRRN" + b"\x55" * (size - 4)])
        return offset

    def spoil(self, offset: int) -> None:
        """One bit of the byte is the other one."""
        byte = self._file.read_at(offset, 1)[0]
        self._file.write_at(offset, [bytes([byte ^ 1])])

    @property
    def end(self) -> int:
        return self.participant.end

    def witnessed(self) -> FileEnd:
        return self.participant.as_end()

    def active(self, *voided: Voided) -> FileRecord:
        return FileRecord(
            self.number, self.channel, self.identity.timeline, self.identity.incarnation, FileKind.LOG,
            FileState.ACTIVE, active_name(self.channel), voided=voided,
        )  # fmt: skip

    def sealed(self, *voided: Voided) -> FileRecord:
        """Rotate the file as it is now."""
        name = rotated_name(self.channel, self.number)
        self.files.rename(self.path, join(DIRECTORY, name))
        self.path = join(DIRECTORY, name)
        return self.active(*voided).changed(
            state=FileState.SEALED, name=name, end=self.participant.end, running=self.participant.running
        )

    def _write(self) -> None:
        self.participant.write(self.participant.take())


def close_together(forges: list[Forge], epoch: int, before: Closing | None, *, spoilt: bool = False) -> Closing:
    """One epoch closed in several files, linked to the one before. Spoilt: the running checksums are not theirs."""
    parts = tuple(
        ClosingPart(f.number, f.identity.incarnation, f.end, f.participant.running ^ spoilt, 1) for f in forges
    )
    previous, digest = (before.epoch, before.digest(TIMELINE)) if before else (Epoch(0), NO_DIGEST)
    closing = Closing(Epoch(epoch), previous, 0, 0, digest, parts)
    for forge in forges:
        forge.append(closing)
    return closing


def environment(files: MemoryFiles, seed: int = 1, clock: Clock | None = None) -> Environment:
    return Environment(files, clock or ManualClock(), SystemThreads(), SeededRandom(seed))


def put(store: LogStore, key: bytes, channel: int = 0) -> Epoch:
    session = store.begin(channel)
    session.put(STORAGE, key, b"value of " + key)
    return session.commit()


def small_store(is_stopped: bool = True, epochs: int = 8, settings: LogSettings = QUIET) -> MemoryFiles:
    """Two channels; half of the epochs in rotated files, half in active ones; stopped, or dead with its witness
    synced."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, settings, environment(files))
    for number in range(epochs):
        if number == epochs // 2:
            store.rotate()
        put(store, b"key %d" % number, number % settings.channel_count)
    if is_stopped:
        store.close()
    else:
        store.epoch_file.write(store.commit)
        store.abandon()
    return files


def shrink(files: MemoryFiles) -> None:
    """Take away the zeros that were allocated ahead: they are many, and say nothing."""
    for name in files.list(DIRECTORY):
        if is_wal(name):
            contents = files.contents(join(DIRECTORY, name)).rstrip(b"\0")
            files.set_contents(join(DIRECTORY, name), contents + bytes(64 + -len(contents) % 8))


def stored(files: MemoryFiles, settings: LogSettings = QUIET, seed: int = 2) -> dict[bytes, bytes]:
    """What a store opened on this disk serves."""
    store = LogStore.open(DIRECTORY, settings, environment(files, seed))
    try:
        return {row.key: row.value for row in store.snapshot().cursor()}
    finally:
        store.abandon()


EVERYTHING = {b"key %d" % number: b"value of key %d" % number for number in range(8)}
