"""A channel: one series of log files, written one behind the other.

Large sessions come as finished drafts. Small ones join the *open block*: a hundred clients with one entry each make one
block, and each still knows its log sequence number at once, because the open block's place is fixed when it is opened
and it is closed before anything is placed behind it.

All of it happens under the commit's gate. Not here: when to switch (durability/group_commit), which file comes next
(log/rotation).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from warren.base.ids import ChannelId, Epoch, Lsn, StreamId, lsn_of
from warren.durability.participant import LogFile
from warren.log.rows import EntryRows
from warren.records.block import BlockDraft, draft
from warren.records.format import BlockKind
from warren.records.lists import body_of_rows

OPEN_BLOCK_BYTES_MAX = 256 << 10
OPEN_BLOCK_ROWS_MAX = 1 << 14


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


def draft_rows(rows: EntryRows, stream: StreamId, minors: list[int] | None = None) -> BlockDraft:
    """A block of a few rows, whatever their size; without `minors` they follow one another."""
    body = body_of_rows(rows.kinds, rows.storages, rows.keys, rows.values, rows.undo_prev, rows.undo_next, minors)
    return draft(BlockKind.ENTRIES, list(body), len(rows), stream)


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
        number = self.participant.number
        self.entries += count
        self.first_epoch = self.first_epoch or epoch
        self.last_epoch = epoch
        self.stream_ends[stream] = lsn_of(number, offset, index + count - 1)
        return Placed(lsn_of(number, offset), index, count)
