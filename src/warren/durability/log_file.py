"""Log file: a file that is written in epochs.

    | … blocks of E | closing E | blocks of E+1 being gathered …            <- `end`
                                ^ `start` of the part of E+1

A block gets its offset when it is appended, under the gate, so an entry's log sequence number is known before its bytes
leave memory. At the epoch switch the gathered bytes become an `EpochWrite`, which the leader of the group commit writes
and syncs while the next epoch gathers behind it.

Invariants
* `end` and `running` describe the file as it will be when everything appended so far is written.
* Space is allocated in whole containers, whose zeros are written first. A full disk is thus noticed when little of the
  epoch is written, mostly nothing, and the same bytes go to the same offset when there is room.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.base.errors import Misuse
from warren.base.ids import Epoch, FileNumber, lsn_of
from warren.files.protocol import Buffer, File
from warren.records.block import BlockDraft, FileIdentity
from warren.records.format import crc32

AT_ONCE_BYTES_MAX = 2 << 20  # a part that is larger is written in pieces of about this size


def run_on(running: int, checksum: int) -> int:
    """The running checksum of a file after one more block."""
    return crc32(checksum.to_bytes(4, "little"), running)


@dataclass(slots=True)  # not frozen, like all objects created per epoch: freezing costs a microsecond a field
class FileEnd:
    """The end of a file, and the running checksum of its blocks up to there."""

    number: FileNumber
    identity: FileIdentity
    end: int
    running: int


@dataclass(slots=True)
class EpochWrite:
    """The bytes of one file in one epoch, and their offset."""

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
        "first_lsn",
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
        self.first_lsn = lsn_of(number, 0)  # the block at an offset has this LSN + offset
        self.identity = identity
        self.end = end
        self.running = running
        self.container_bytes = container_bytes
        self.handle: File | None = None  # a file about to be created has none yet
        self.allocated = 0
        self.start = end
        self.forgotten = 0  # up to here the system was advised to drop the page cache
        self.pending: list[Buffer] = []
        self.blocks_pending = 0
        self.taken = self.durable_end = self.as_end()  # as of the last epoch switch, as of the last durable epoch

    def append(self, draft: BlockDraft, epoch: Epoch, first: int = 0) -> int:
        """Place a block at the end; returns its offset."""
        offset = self.end
        header, checksum = draft.place(self.identity, offset, epoch, first)
        self.pending.append(header)
        self.pending += draft.pieces
        self.end = offset + draft.size_bytes
        self.running = run_on(self.running, checksum)
        self.blocks_pending += 1
        return offset

    def take(self) -> EpochWrite:
        """Everything gathered since the last call."""
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
        """Write a part, without a sync. May be repeated after `OutOfRoom`: same bytes, same offset."""
        handle = self._handle()
        if part.end > self.allocated:
            wanted = -(-part.end // self.container_bytes) * self.container_bytes
            handle.allocate(part.end, wanted - part.end)
            _write(handle, part)
            self.allocated = wanted
        else:
            _write(handle, part)

    def write_through(self, part: EpochWrite) -> None:
        """Write and sync a part. After a new container everything is synced, its zeros too: from then on parts
        overwrite allocated blocks of the disk, and need only their own sync. May be repeated like `write`."""
        if part.end > self.allocated or part.end - part.start > AT_ONCE_BYTES_MAX:
            self.write(part)
            self.sync()
        else:
            self._handle().write_through(part.start, part.pieces)

    def sync(self) -> None:
        self._handle().sync()

    def forget(self, kept_bytes: int) -> None:
        """Drop older bytes from the page cache, except for the last `kept_bytes`. Any thread, also while the file is
        closed."""
        handle, stop = self.handle, self.durable_end.end - kept_bytes
        if handle is not None and stop > self.forgotten:
            handle.forget(self.forgotten, stop - self.forgotten)
            self.forgotten = stop

    def _handle(self) -> File:
        if self.handle is None:
            raise Misuse(f"log file {self.number} takes part in an epoch before it was created")
        return self.handle


def _write(handle: File, part: EpochWrite) -> None:
    """Write a large part piece by piece: the disk begins with the first while the next is copied."""
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
