"""Natural group commit: one batch on its way to the disk; what arrives meanwhile is the next. No timer.

    gathering E+1 ──switch──▶ closing blocks ──▶ write ──▶ sync all files at once ──▶ E+1 is durable: tell who waits
                   (gate)                        (no gate: appenders go on gathering E+2)

Whoever waits for durability and finds nobody at it does it himself, in his own thread, with no hand-over; the others
sleep until he is done. The background thread leads only for those who asked for a callback instead of waiting, and
writes and syncs the witness, at most 100 ms behind. Any exception in it, a defect too, ends the commit for good: it
must not go on with an epoch that is half written.

Always true
* no byte of E+1 reaches the operating system before the sync of E has returned;
* `durable` moves only after every participant of the epoch is synced, and epochs become durable in order;
* a write or sync that fails ends it all: nothing is retried but a full disk, which waits until there is room.

Not here: what a batch consists of (log/channels), rotation (log/rotation): both join through the `CommitHooks` protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from warren.base.environment import Clock
from warren.base.errors import Misuse, OutOfRoom, SyncFailed, WarrenError
from warren.base.ids import Epoch, TimelineId
from warren.base.threads import Threads
from warren.durability.closing_block import Closing, ClosingPart, digest_of
from warren.durability.log_file import EpochWrite, LogFile
from warren.durability.timeline import WallMarks
from warren.records.block import draft
from warren.records.format import BlockKind

_LOG = logging.getLogger(__name__)
ROOM_POLL_SECONDS = 0.05
WITNESS_AGE_SECONDS_MAX = 0.1


@dataclass(slots=True)
class CommitBatch:
    """One epoch on its way to the disk. `epoch` is None if there was nothing to write and only `after` matters."""

    epoch: Epoch | None
    parts: list[EpochWrite]
    after: Callable[[], None] | None = None


class CommitHooks(Protocol):
    """What the log does at the epoch switch."""

    def gather(self) -> list[LogFile]:
        """Under the gate: the files that have blocks of the epoch being closed."""
        ...

    def at_switch(self) -> Callable[[], None] | None:
        """Under the gate, behind the closing blocks: what must happen once this epoch is durable and before a byte of
        the next one is written (a rotation), or None."""
        ...

    def commit_pending(self) -> bool:
        """The disk is full: give back what was kept for this moment. False: nothing is left of it."""
        ...

    def witness(self) -> None:
        """Write down which epoch is durable, and sync that."""
        ...


class GroupCommit:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        turn: CommitHooks,
        timeline: TimelineId,
        durable: Epoch,
        first: Epoch,
        digest: bytes,
        marks: WallMarks,
    ) -> None:
        self.gate = threads.condition()
        self.timeline = timeline
        self.durable = durable
        self.open_epoch = first  # the epoch that is being gathered
        self.digest = digest  # of the newest durable epoch
        self.marks = marks
        self.epochs_committed = 0
        self.syncs = 0
        self.out_of_room: OutOfRoom | None = None  # why everybody waits at the moment
        self._threads = threads
        self._clock = clock
        self._turn = turn
        self._previous = durable
        self._closing_digest = digest
        self._busy = False
        self._failed: WarrenError | None = None
        self._callbacks: list[Callable[[Epoch], None]] = []
        self._part_callbacks: list[Callable[[Epoch, Sequence[EpochWrite]], None]] = []
        self._bell = threads.condition()
        self._rung = False
        self._leaving = False
        self._stopping = False
        self._stale_since_ns: int | None = None  # since when the witness is behind
        self._background_sleeps = False
        self._background = threads.start("warren-commit", self._lead_in_background)

    @property
    def is_out_of_room(self) -> bool:
        return self.out_of_room is not None

    @property
    def failure(self) -> WarrenError | None:
        """What ended it all, if something did."""
        return self._failed

    @property
    def closed(self) -> tuple[Epoch, bytes]:
        """Under the gate: the epoch that was closed last, and the chain's digest at it."""
        return self._previous, self._closing_digest

    # -- for those who append ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Under the gate: raise what ended the commit, if something did."""
        if self._failed is not None:
            raise self._failed
        if self._stopping:
            raise Misuse("the log is closed", "open it again")

    def wait(self, epoch: Epoch) -> None:
        """Return when `epoch` is durable; lead the commit if nobody does."""
        while True:
            with self.gate:
                while self._busy and self.durable < epoch and self._failed is None:
                    self.gate.wait()
                if self.durable >= epoch:
                    return
                if self._failed is not None:
                    raise self._failed
                batch = self._switch()
            if batch is None:
                raise Misuse(
                    f"epoch {epoch} holds nothing and will not become durable", "wait for an epoch that `end` returned"
                )
            self._commit(batch)

    def commit_pending(self) -> bool:
        """Too much is gathered: bring it out, or wait for who is at it. Call without the gate; False if there is
        nothing to bring out."""
        with self.gate:
            if self._busy and self._failed is None:
                self.gate.wait()
                return True
            self.check()
            batch = self._switch()
        if batch is not None:
            self._commit(batch)
        return batch is not None

    def call_when_durable(self, callback: Callable[[Epoch], None]) -> None:
        """Call back with every epoch that becomes durable, in order, from the leader's thread: be quick."""
        with self.gate:
            self._callbacks.append(callback)

    def call_with_parts(self, callback: Callable[[Epoch, Sequence[EpochWrite]], None]) -> None:
        """The same, with what each file contributed to the epoch, for whoever goes on with the bytes."""
        with self.gate:
            self._part_callbacks.append(callback)

    def ring(self) -> None:
        """Ask the background thread to commit what is gathered. Call without the gate."""
        with self._bell:
            self._rung = True
            self._bell.notify_all()

    def stop(self) -> None:
        """Commit what is gathered, sync the witness, end the background thread. A full disk is an error now: nobody
        waits for room in a log that is being closed."""
        with self.gate:
            self._leaving = True
            self.gate.notify_all()
        try:
            while self.commit_pending():
                pass
        finally:
            with self.gate:
                self._stopping = True
                self.gate.notify_all()
            with self._bell:
                self._bell.notify_all()
            self._background.join()
        if self._failed is None:
            self._turn.witness()

    def abandon(self) -> None:
        """End the background thread and leave everything as it is on disk."""
        with self.gate:
            self._leaving = self._stopping = True
            self.gate.notify_all()
        with self._bell:
            self._bell.notify_all()
        self._background.join()

    def fail(self, error: WarrenError) -> None:
        """Stop confirming, for good."""
        with self.gate:
            if self._failed is None:
                self._failed = error
            self._busy = False
            self.gate.notify_all()

    # -- the commit itself ---------------------------------------------------------------------------------------

    def _switch(self) -> CommitBatch | None:
        """Under the gate: close the gathered epoch and open the next one. Where that fails entries may be lost on the
        way, so that no epoch is confirmed any more."""
        try:
            return self._next_batch()
        except BaseException as error:
            self._failed = self._failed or _as_failure(error)
            self.gate.notify_all()
            raise

    def _next_batch(self) -> CommitBatch | None:
        gathered = self._turn.gather()
        epoch = self._close(gathered) if gathered else None
        parts = [participant.take() for participant in gathered]
        after = self._turn.at_switch()
        if epoch is None and after is None:
            return None
        self._busy = True
        return CommitBatch(epoch, parts, after)

    def _close(self, gathered: list[LogFile]) -> Epoch:
        epoch = self.open_epoch
        wall_ns, monotone_ns = self.marks.next_mark()
        parts = tuple(
            ClosingPart(p.number, p.identity.incarnation, p.end, p.running, p.blocks_pending) for p in gathered
        )
        closing = Closing(epoch, self._previous, wall_ns, monotone_ns, self._closing_digest, parts)
        body = closing.body()
        made = draft(BlockKind.CLOSING, [body])
        for participant in gathered:
            participant.append(made, epoch)
        self._previous = epoch
        self._closing_digest = digest_of(self.timeline, epoch, body)
        self.open_epoch = Epoch(epoch + 1)
        return epoch

    def _commit(self, batch: CommitBatch) -> None:
        try:
            if batch.epoch is not None:
                self._write_and_sync(batch.parts)
                self._declare_durable(batch.epoch, batch.parts)
            if batch.after is not None:
                with self.gate:
                    self.gate.notify_all()  # whose epoch is durable need not wait until files have changed
                self._wait_for_room(batch.after)
        except BaseException as error:
            self.fail(_as_failure(error))
            raise
        with self.gate:
            self._busy = False
            self.gate.notify_all()

    def _write_and_sync(self, parts: list[EpochWrite]) -> None:
        if len(parts) == 1:
            self._wait_for_room(partial(parts[0].participant.write_through, parts[0]))
        else:
            for part in parts:
                self._wait_for_room(partial(part.participant.write, part))
            self._threads.together([part.participant.sync for part in parts])
        self.syncs += len(parts)

    def _declare_durable(self, epoch: Epoch, parts: list[EpochWrite]) -> None:
        with self.gate:
            for part in parts:
                part.participant.durable_end = part.reach
            self.durable = epoch
            self.digest = self._closing_digest
            self.epochs_committed += 1
            if self._stale_since_ns is None:
                self._stale_since_ns = self._clock.monotonic_ns()
        for callback in self._callbacks:
            callback(epoch)
        for with_parts in self._part_callbacks:
            with_parts(epoch, parts)
        with self._bell:
            if self._background_sleeps:
                self._bell.notify_all()

    def _wait_for_room(self, write: Callable[[], None]) -> None:
        """Do it; on a full disk with the room that was kept for that, then keep trying until there is some. Nothing was
        synced yet, so nothing is believed."""
        while True:
            try:
                write()
            except OutOfRoom as error:
                if self._turn.commit_pending():
                    continue
                with self.gate:
                    self.out_of_room = error
                    if self._leaving:
                        raise
                    self.gate.wait(ROOM_POLL_SECONDS)
                continue
            self.out_of_room = None
            return

    # -- the background thread -----------------------------------------------------------------------------------

    def _lead_in_background(self) -> None:
        while True:
            with self._bell:
                if not self._rung and not self._stopping:
                    left = self._witness_seconds_left()
                    self._background_sleeps = left is None
                    if left is None or left > 0:
                        self._bell.wait(left)
                    self._background_sleeps = False
                rung, self._rung = self._rung, False
            if self._stopping or self._failed is not None:
                return
            try:
                if rung:
                    self._lead_once()
                left = self._witness_seconds_left()
                if left is not None and left <= 0:
                    self._stale_since_ns = None
                    self._turn.witness()
            except Exception as error:
                _LOG.critical("background commit failed", exc_info=error, extra={"facts": {"durable": self.durable}})
                self.fail(_as_failure(error))
                return

    def _witness_seconds_left(self) -> float | None:
        """How long the witness may still stay behind; None if it is not."""
        since = self._stale_since_ns
        if since is None:
            return None
        return WITNESS_AGE_SECONDS_MAX - (self._clock.monotonic_ns() - since) / 1e9

    def _lead_once(self) -> None:
        with self.gate:
            while self._busy and self._failed is None:
                self.gate.wait()
            if self._failed is not None or self._stopping:
                return
            batch = self._switch()
        if batch is not None:
            self._commit(batch)


def _as_failure(error: BaseException) -> WarrenError:
    if isinstance(error, WarrenError):
        return error
    failure = SyncFailed(f"the commit ended with {error!r}", "stop and restart: what was not confirmed may be lost")
    failure.__cause__ = error
    return failure
