"""Where sessions meet the epoch: numbering, placing, and holding back who is too fast.

Under the gate a session's entries get their numbers within the epoch and their places in the channel's file. More than
`max_write_buffers` gathered blocks flush by themselves. Whoever brings one more than `gathered_blocks_max` brings the
gathered ones out first, or waits for the one who is at it; so the memory of a fast writer is bounded by two batches. A
program that must not wait sets that very high, and sees to it itself that it does not bring too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warren.base.ids import Epoch, Lsn, StreamId
from warren.base.process import OwningProcess
from warren.durability.group_commit import GroupCommit
from warren.log.channel import LogChannel
from warren.log.rows import EntryRows
from warren.log.settings import LogSettings
from warren.records.block import BlockDraft

if TYPE_CHECKING:
    from warren.log.session import Session


class LogAppender:
    def __init__(
        self, channels: Sequence[LogChannel], commit: GroupCommit, settings: LogSettings, owner: OwningProcess
    ) -> None:
        self.channels = channels
        self._owner = owner
        self._commit = commit
        self._buffers_max = max(1, settings.max_write_buffers)
        self._gathered_max = max(self._buffers_max, settings.gathered_blocks_max)
        self._numbering = Epoch(0)  # the epoch that `_next_entry` counts in
        self._next_entry = 0
        self.open_sessions: set[Session] = set()
        self.awaited_sessions: set[Session] = set()  # a rotation's answer waits for these
        self.flushes = 0  # how often too many buffers were gathered

    def session_began(self, session: Session) -> None:
        self._owner.check()
        with self._commit.gate:
            self._commit.check()
            self.open_sessions.add(session)

    def session_ended(self, session: Session) -> None:
        if not self._owner.is_this:
            return  # the gate may be held by a thread that the child does not have
        with self._commit.gate:
            self._forget(session)

    def append_rows(self, session: Session, channel: int, stream: StreamId, rows: EntryRows) -> tuple[Epoch, Lsn]:
        self._owner.check()
        if not len(rows):
            return self._append_nothing(session)
        place = self._channel(channel)
        self._hold_back(place)
        with self._commit.gate:
            self._commit.check()
            epoch, first = self._number(len(rows))
            session.placed = [place.place_rows(rows, stream, epoch, first)]
            self._forget(session)
        return epoch, session.placed[0].lsn

    def append_drafts(self, session: Session, channel: int, drafts: Sequence[BlockDraft]) -> tuple[Epoch, Lsn]:
        self._owner.check()
        if not drafts:
            return self._append_nothing(session)
        place = self._channel(channel)
        self._hold_back(place)
        with self._commit.gate:
            self._commit.check()
            session.placed = []
            for draft in drafts:
                epoch, first = self._number(draft.entries)
                session.placed.append(place.place_draft(draft, epoch, first))
            self._forget(session)
        if place.blocks_gathered >= self._buffers_max:
            self.flushes += 1
            self._commit.ring()
        return epoch, session.placed[0].lsn

    def wait(self, epoch: Epoch) -> None:
        self._owner.check()
        self._commit.wait(epoch)

    def _append_nothing(self, session: Session) -> tuple[Epoch, Lsn]:
        """An empty session is as durable as what is durable already."""
        with self._commit.gate:
            self._commit.check()
            self._forget(session)
            return self._commit.durable, Lsn(0)

    def _channel(self, index: int) -> LogChannel:
        return self.channels[index]

    def _hold_back(self, channel: LogChannel) -> None:
        while channel.blocks_gathered >= self._gathered_max:
            self._commit.make_room()

    def _number(self, count: int) -> tuple[Epoch, int]:
        epoch = self._commit.open_epoch
        if epoch != self._numbering:
            self._numbering, self._next_entry = epoch, 0
        first = self._next_entry
        self._next_entry += count
        return epoch, first

    def _forget(self, session: Session) -> None:
        self.open_sessions.discard(session)
        if session in self.awaited_sessions:
            self.awaited_sessions.discard(session)
            self._commit.gate.notify_all()
