"""The writer: sessions, group commit, epoch file and rotation of one log directory meet here.

    Session.end ──▶ LogWriter ──▶ LogChannel ──▶ LogFile           one series of log files per channel
                    numbers       places        pending blocks
    GroupCommit ◀── hooks: gather, at_switch, release_reserve, witness

Under the commit's gate the entries of a session get their numbers within the epoch and their places in the channel's
file. Large sessions come as finished drafts. Small ones share the *open block*: a hundred clients with one entry each
make one block, and each session still knows its log sequence number at once, because the place of the open block is
fixed when it is opened, and it is closed before anything is placed behind it.

Back-pressure: more than `max_write_buffers` gathered blocks request a commit. A session that would exceed
`gathered_blocks_max` commits the pending blocks first, or waits for the thread that commits them, so the memory of a
fast writer is bounded by two batches. A program that must not wait sets that limit very high and bounds its writes
otherwise.

The epoch file names every file that the manifest calls active, with its end as of the durable epoch. During a rotation
these are the old and the new files together, until the manifest has sealed the old ones: whichever of the two a power
cut leaves newer, the other can be checked against it. With each of its records, at most ten times a second, the page
cache of older bytes is released. They are read again rarely; pages that were in use are cheaper than new ones, above
all in a virtual machine whose host has to find them first (decision 0022).

Not here: when an epoch is closed (durability/group_commit), which file comes next (log/rotation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from warren.base.environment import Clock, OwningProcess
from warren.base.errors import Refused
from warren.base.ids import ChannelId, Epoch, Lsn, StreamId
from warren.base.threads import Threads
from warren.durability.closing_block import WallMarks
from warren.durability.epoch_file import DurableRecord, EpochFile
from warren.durability.group_commit import GroupCommit
from warren.durability.log_file import LogFile
from warren.files.protocol import Files, join, parent
from warren.log.disk_reserve import DiskReserve
from warren.log.file_record import EPOCH, rotated_epoch_name
from warren.log.log_files import LogFileFactory
from warren.log.manifest import Manifest
from warren.log.rotation import Rotation
from warren.log.session import EntryRows, Session, draft_rows
from warren.log.settings import KV_STREAM, LogSettings
from warren.records.block import BlockDraft

OPEN_BLOCK_BYTES_MAX = 256 << 10
OPEN_BLOCK_ROWS_MAX = 1 << 14


class CommitStart(NamedTuple):
    """Where the log continues after recovery."""

    durable: Epoch
    digest: bytes  # of that epoch
    first_epoch: Epoch  # the next one to be given out
    monotone_ns: int  # wall time of the durable epoch, never moved back


class LogWriter:
    """Numbers and places the entries of sessions, and is the log's side of the group commit (`CommitHooks`)."""

    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        threads: Threads,
        manifest: Manifest,
        log_files: LogFileFactory,
        channels: list[LogChannel],
        epoch_file: EpochFileWriter,
        disk_reserve: DiskReserve,
        settings: LogSettings,
        owner: OwningProcess,
        start: CommitStart,
    ) -> None:
        self.channels = channels
        self.epoch_file = epoch_file
        self._disk_reserve = disk_reserve
        self._owner = owner
        self._manifest = manifest
        self._block_bytes = settings.block_bytes
        self._session_bytes_max = settings.session_bytes_max
        self._page_cache_bytes = settings.page_cache_bytes
        self._buffers_max = max(1, settings.max_write_buffers)
        self._gathered_max = max(self._buffers_max, settings.gathered_blocks_max)
        self._numbering = Epoch(0)  # the epoch that `_next_entry` counts in
        self._next_entry = 0
        self.open_sessions: set[Session] = set()
        self.awaited_sessions: set[Session] = set()  # the answer of a rotation waits for these
        self.flushes = 0  # how often too many buffers were gathered
        marks = WallMarks(clock, start.monotone_ns)
        timeline = manifest.state.timeline.id
        self.commit = GroupCommit(threads, clock, self, timeline, start.durable, start.first_epoch, start.digest, marks)
        self.rotation = Rotation(files, directory, clock, manifest, log_files, self, settings)

    # -- sessions ------------------------------------------------------------------------------------------------

    def begin(self, channel: int = 0, stream: StreamId = KV_STREAM) -> Session:
        """Begin a session on a channel."""
        if not 0 <= channel < len(self.channels):
            raise Refused(f"there is no channel {channel}", f"this store has channels 0 … {len(self.channels) - 1}")
        mixes = stream != KV_STREAM and self._manifest.state.streams[stream].is_referring
        return Session(self, channel, stream, self._block_bytes, self._session_bytes_max, mixes)

    def session_began(self, session: Session) -> None:
        self._owner.check()
        with self.commit.gate:
            self.commit.check()
            self.open_sessions.add(session)

    def session_ended(self, session: Session) -> None:
        if not self._owner.is_this:
            return  # the gate may be held by a thread that the child does not have
        with self.commit.gate:
            self._forget(session)

    def append_rows(self, session: Session, channel: int, stream: StreamId, rows: EntryRows) -> tuple[Epoch, Lsn]:
        self._owner.check()
        if not len(rows):
            return self._append_nothing(session)
        place = self.channels[channel]
        self._throttle(place)
        with self.commit.gate:
            self.commit.check()
            epoch, first = self._number(len(rows))
            session.placed = [place.place_rows(rows, stream, epoch, first)]
            self._forget(session)
        return epoch, session.placed[0].lsn

    def append_drafts(self, session: Session, channel: int, drafts: Sequence[BlockDraft]) -> tuple[Epoch, Lsn]:
        self._owner.check()
        if not drafts:
            return self._append_nothing(session)
        place = self.channels[channel]
        self._throttle(place)
        with self.commit.gate:
            self.commit.check()
            session.placed = []
            for draft in drafts:
                epoch, first = self._number(draft.entries)
                session.placed.append(place.place_draft(draft, epoch, first))
            self._forget(session)
        if place.blocks_gathered >= self._buffers_max:
            self.flushes += 1
            self.commit.request_commit()
        return epoch, session.placed[0].lsn

    def wait(self, epoch: Epoch) -> None:
        """Return when an epoch is durable."""
        self._owner.check()
        self.commit.wait(epoch)

    def _append_nothing(self, session: Session) -> tuple[Epoch, Lsn]:
        """An empty session is as durable as what is durable already."""
        with self.commit.gate:
            self.commit.check()
            self._forget(session)
            return self.commit.durable, Lsn(0)

    def _throttle(self, channel: LogChannel) -> None:
        while channel.blocks_gathered >= self._gathered_max:
            self.commit.commit_pending()

    def _number(self, count: int) -> tuple[Epoch, int]:
        epoch = self.commit.open_epoch
        if epoch != self._numbering:
            self._numbering, self._next_entry = epoch, 0
        first = self._next_entry
        self._next_entry += count
        return epoch, first

    def _forget(self, session: Session) -> None:
        self.open_sessions.discard(session)
        if session in self.awaited_sessions:
            self.awaited_sessions.discard(session)
            self.commit.gate.notify_all()

    # -- hooks of the group commit -------------------------------------------------------------------------------

    def gather(self) -> list[LogFile]:
        epoch = self.commit.open_epoch
        taken = [channel.take_participant(epoch) for channel in self.channels]
        return [participant for participant in taken if participant is not None]

    def at_switch(self) -> Callable[[], None] | None:
        return self.rotation.at_switch()

    def release_reserve(self) -> bool:
        return self._disk_reserve.give_back()

    def witness(self) -> None:
        self.epoch_file.write(self.commit)
        if self._page_cache_bytes:
            for channel in self.channels:
                channel.participant.forget(self._page_cache_bytes)


class LogChannel:
    def __init__(self, channel: ChannelId, participant: LogFile) -> None:
        self.id = channel
        self.participant = participant
        self.entries = 0  # in the present file
        self.stream_ends: dict[StreamId, Lsn] = {}  # last LSN of each stream in the present file
        self.first_epoch = Epoch(0)  # first and last epoch with entries in the present file
        self.last_epoch = Epoch(0)
        self.blocks_gathered = 0
        self._open: OpenBlock | None = None

    @property
    def is_empty(self) -> bool:
        """No entry ever went into the present file."""
        return self.entries == 0

    def has_gathered(self) -> bool:
        return self._open is not None or self.participant.blocks_pending > 0

    def place_draft(self, draft: BlockDraft, epoch: Epoch, first: int) -> Placed:
        """Give a finished block its place."""
        self.close_open_block(epoch)
        offset = self.participant.append(draft, epoch, first)
        self.blocks_gathered += 1
        return self._note(draft.stream, offset, 0, draft.entries, epoch)

    def place_rows(self, rows: EntryRows, stream: StreamId, epoch: Epoch, first: int) -> Placed:
        """Let a small session's rows join the open block."""
        block = self._open
        if block is None or block.stream != stream or block.is_full():
            self.close_open_block(epoch)
            block = self._open = OpenBlock(stream, first, self.participant.end)
        index = len(block.minors)
        block.rows.extend(rows)
        block.minors.extend(range(first, first + len(rows)))
        return self._note(stream, block.offset, index, len(rows), epoch)

    def close_open_block(self, epoch: Epoch) -> None:
        block, self._open = self._open, None
        if block is not None:
            self.participant.append(block.draft(), epoch, block.first)
            self.blocks_gathered += 1

    def take_participant(self, epoch: Epoch) -> LogFile | None:
        """At the switch: the file, if it has bytes of this epoch."""
        self.close_open_block(epoch)
        self.blocks_gathered = 0
        return self.participant if self.participant.blocks_pending else None

    def move_to(self, participant: LogFile) -> None:
        """Go on in a new file."""
        assert not self.has_gathered(), "a channel changes its file only between two epochs"
        self.participant = participant
        self.entries = 0
        self.stream_ends = {}
        self.first_epoch = self.last_epoch = Epoch(0)

    def _note(self, stream: StreamId, offset: int, index: int, count: int, epoch: Epoch) -> Placed:
        block = Lsn(self.participant.first_lsn + offset)
        self.entries += count
        self.first_epoch = self.first_epoch or epoch
        self.last_epoch = epoch
        self.stream_ends[stream] = Lsn(block + index + count - 1)
        return Placed(block, index, count)


class Placed(NamedTuple):
    """Where a session's entries, or some of them, stand: `entries` of a block, from its `entry`-th on."""

    block: Lsn  # of the block's first entry: file and offset
    entry: int
    entries: int

    @property
    def lsn(self) -> Lsn:
        return Lsn(self.block + self.entry)


@dataclass(slots=True)
class OpenBlock:
    """Rows of small sessions, waiting to become one block."""

    stream: StreamId
    first: int
    offset: int
    rows: EntryRows = field(default_factory=EntryRows)
    minors: list[int] = field(default_factory=list)

    def is_full(self) -> bool:
        return self.rows.size_bytes > OPEN_BLOCK_BYTES_MAX or len(self.minors) > OPEN_BLOCK_ROWS_MAX

    def draft(self) -> BlockDraft:
        is_consecutive = self.minors[-1] - self.first == len(self.minors) - 1
        return draft_rows(self.rows, self.stream, None if is_consecutive else self.minors)


class EpochFileWriter:
    """The epoch file in use, and the files it names."""

    def __init__(self, files: Files, directory: str, threads: Threads, manifest: Manifest, sequence: int) -> None:
        self._files = files
        self._path = join(directory, EPOCH)
        self._manifest = manifest
        self._lock = threads.condition()
        self._file: EpochFile | None = None
        self._sequence = sequence
        self._named: list[LogFile] = []

    def add_files(self, files: Iterable[LogFile]) -> None:
        with self._lock:
            self._named += [file for file in files if file not in self._named]

    def remove_file(self, participant: LogFile) -> None:
        with self._lock:
            self._named.remove(participant)

    def write(self, commit: GroupCommit) -> None:
        """Say what is durable now, and sync it."""
        with self._lock:
            if self._file is not None:
                self._file.write(self._witness(commit))
                self._file.sync()

    def create(self, commit: GroupCommit) -> None:
        """A new epoch file, whose name the caller syncs."""
        with self._lock:
            self._file = EpochFile.create(self._files, self._path, self._witness(commit))

    def rename(self, durable: Epoch) -> None:
        """Rotate the epoch file away under its epoch's name. May be repeated."""
        with self._lock:
            if self._file is not None:
                self._sequence = self._file.sequence
                self._file.close()
                self._file = None
            if self._files.exists(self._path):
                self._files.rename(self._path, join(parent(self._path), rotated_epoch_name(durable)))

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _witness(self, commit: GroupCommit) -> DurableRecord:
        edits = self._manifest.state.edits
        with commit.gate:  # an epoch and the ends it gave the files belong together
            ends = tuple(participant.durable_end for participant in self._named)
            durable, digest, marks = commit.durable, commit.digest, commit.marks
            wall, monotone = marks.wall_ns, marks.monotone_ns
        return DurableRecord(commit.timeline, durable, digest, edits, wall, monotone, ends, self._sequence)
