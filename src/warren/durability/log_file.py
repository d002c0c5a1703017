"""A file that takes part in epochs.

    | … blocks of E | closing E | blocks of E+1 being gathered …            <- `end`
                                ^ `start` of the part of E+1

Blocks get their place the moment they are appended, under the gate, so an entry's log sequence number is known before
its bytes leave memory. At the epoch switch the gathered bytes become a `EpochWrite`, which the leader of the group commit
writes and syncs while the next epoch gathers behind it.

Always true: `end` and `running` describe the file as it will be once everything appended so far is written; space is
allocated by whole containers, of which the zeros are written first: a full disk speaks up while little of the epoch is
out, mostly nothing, and the same bytes go to the same place when there is room.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.base.errors import Misuse
from warren.base.ids import Epoch, FileNumber
from warren.files.protocol import Buffer, File
from warren.records.block import BlockDraft, FileIdentity
from warren.records.format import crc32

AT_ONCE_BYTES_MAX = 2 << 20  # a part that is larger is written in pieces of about this size


def run_on(running: int, checksum: int) -> int:
    """The running checksum of a file after one more block."""
    return crc32(checksum.to_bytes(4, "little"), running)


@dataclass(slots=True)  # not frozen, like all that is made for every epoch: freezing costs a microsecond a field
class FileEnd:
    """How far a file reaches, and the running checksum of its blocks up to there."""

    number: FileNumber
    identity: FileIdentity
    end: int
    running: int


@dataclass(slots=True)
class EpochWrite:
    """What one file contributes to one epoch: bytes at a place."""

    participant: LogFile
    start: int
    pieces: list[Buffer]
    reach: FileEnd  # of the file, once this part is written

    @property
    def end(self) -> int:
        return self.reach.end


class LogFile:
    __slots__ = (
        "allocated",
        "blocks_pending",
        "container_bytes",
        "durable_end",
        "end",
        "forgotten",
        "handle",
        "identity",
        "number",
        "pending",
        "running",
        "start",
        "taken",
    )

    def __init__(
        self, number: FileNumber, identity: FileIdentity, end: int, running: int, container_bytes: int
    ) -> None:
        self.number = number
        self.identity = identity
        self.end = end
        self.running = running
        self.container_bytes = container_bytes
        self.handle: File | None = None  # a file about to be created has none yet
        self.allocated = 0
        self.start = end
        self.forgotten = 0  # so far the system was told that nobody reads it soon
        self.pending: list[Buffer] = []
        self.blocks_pending = 0
        self.taken = self.durable_end = self.as_end()  # as of the last epoch switch, as of the last durable epoch

    def append(self, draft: BlockDraft, epoch: Epoch, first: int = 0) -> int:
        """Give a block its place behind everything else; its offset."""
        offset = self.end
        header, checksum = draft.place(self.identity, offset, epoch, first)
        self.pending.append(header)
        self.pending += draft.pieces
        self.end = offset + draft.size_bytes
        self.running = run_on(self.running, checksum)
        self.blocks_pending += 1
        return offset

    def take(self) -> EpochWrite:
        """Everything gathered since the last time."""
        self.taken = self.as_end()
        part = EpochWrite(self, self.start, self.pending, self.taken)
        self.start, self.pending, self.blocks_pending = self.end, [], 0
        return part

    def as_end(self) -> FileEnd:
        return FileEnd(self.number, self.identity, self.end, self.running)

    def attach(self, handle: File, allocated: int) -> None:
        self.handle = handle
        self.allocated = allocated

    def write(self, part: EpochWrite) -> None:
        """Bring a part to the operating system. May be repeated after `OutOfRoom`: same bytes, same place."""
        handle = self._handle()
        if part.end > self.allocated:
            wanted = -(-part.end // self.container_bytes) * self.container_bytes
            handle.allocate(part.end, wanted - part.end)
            _write(handle, part)
            self.allocated = wanted
        else:
            _write(handle, part)

    def write_through(self, part: EpochWrite) -> None:
        """Bring a part to the disk. After a new container everything is synced, its zeros too: from then on parts
        overwrite blocks that the disk has, and need no other sync than their own. May be repeated like `write`."""
        if part.end > self.allocated or part.end - part.start > AT_ONCE_BYTES_MAX:
            self.write(part)
            self.sync()
        else:
            self._handle().write_through(part.start, part.pieces)

    def sync(self) -> None:
        self._handle().sync()

    def forget(self, kept_bytes: int) -> None:
        """Let the system use the memory of what was written longer ago. Any thread, also while the file is closed."""
        handle, stop = self.handle, self.durable_end.end - kept_bytes
        if handle is not None and stop > self.forgotten:
            handle.forget(self.forgotten, stop - self.forgotten)
            self.forgotten = stop

    def _handle(self) -> File:
        if self.handle is None:
            raise Misuse(f"log file {self.number} takes part in an epoch before it was created")
        return self.handle


def _write(handle: File, part: EpochWrite) -> None:
    """What is large goes piece by piece, and the disk begins with the first while we copy the next."""
    if part.end - part.start <= AT_ONCE_BYTES_MAX:
        handle.write_at(part.start, part.pieces)
        return
    at, waiting, waiting_bytes = part.start, list[Buffer](), 0
    for piece in part.pieces:
        waiting.append(piece)
        waiting_bytes += len(piece)
        if waiting_bytes >= AT_ONCE_BYTES_MAX:
            handle.write_at(at, waiting)
            handle.forget(at, waiting_bytes)
            at, waiting, waiting_bytes = at + waiting_bytes, [], 0
    handle.write_at(at, waiting)
