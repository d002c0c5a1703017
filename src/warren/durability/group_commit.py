"""Group commit: one epoch is on its way to the disk; what arrives meanwhile is the next epoch. There is no timer.

    gathering E+1 ──switch──▶ closing blocks ──▶ write ──▶ sync all files at once ──▶ E+1 is durable: wake the waiters
                   (gate)                        (no gate: appenders gather E+2 meanwhile)

The first waiter leads the commit in its own thread, without a hand-over; the others wait for it. The background thread
leads only for callers that registered a callback instead of waiting, and it writes and syncs the epoch file, at most
100 ms behind. Any exception in it, a defect too, ends the commit for good: it must not continue with an epoch that is
half written.

Invariants
* No byte of E+1 reaches the operating system before the sync of E has returned.
* `durable` moves only after every file of the epoch is synced, and epochs become durable in order.
* A failed write or sync is final. Only a full disk is retried, until there is room.

Elsewhere: what a batch consists of (log/writer) and rotation (log/rotation); both use the `CommitHooks` protocol.
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
from warren.durability.closing_block import Closing, ClosingPart, WallMarks, digest_of
from warren.durability.log_file import EpochWrite, LogFile
from warren.records.block import draft
from warren.records.format import BlockKind

_LOG = logging.getLogger(__name__)
ROOM_POLL_SECONDS = 0.05
WITNESS_AGE_SECONDS_MAX = 0.1


@dataclass(slots=True)
class CommitBatch:
    """One epoch on its way to the disk. `epoch` is None if there is nothing to write and only `after` is to be
    called."""

    epoch: Epoch | None
    parts: list[EpochWrite]
    after: Callable[[], None] | None = None


class CommitHooks(Protocol):
    """Called at the epoch switch; implemented by the log (log/writer)."""

    def gather(self) -> list[LogFile]:
        """Under the gate: the files that have blocks of the epoch being closed."""
        ...

    def at_switch(self) -> Callable[[], None] | None:
        """Under the gate, after the closing blocks: a call to make when this epoch is durable and before a byte of the
        next one is written (a rotation), or None."""
        ...

    def release_reserve(self) -> bool:
        """The disk is full: release some of the disk reserve. False if nothing is left of it."""
        ...

    def witness(self) -> None:
        """Write the durable epoch to the epoch file, and sync it."""
        ...


class GroupCommit:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        hooks: CommitHooks,
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
        self.out_of_room: OutOfRoom | None = None  # while commits wait for room
        self._threads = threads
        self._clock = clock
        self._hooks = hooks
        self._previous = durable
        self._closing_digest = digest
        self._busy = False
        self._failed: WarrenError | None = None
        self._callbacks: list[Callable[[Epoch], None]] = []
        self._part_callbacks: list[Callable[[Epoch, Sequence[EpochWrite]], None]] = []
        self._bell = threads.condition()
        self._is_requested = False
        self._leaving = False
        self._stopping = False
        self._stale_since_ns: int | None = None  # since when the epoch file is behind
        self._background_sleeps = False
        self._background = threads.start("warren-commit", self._lead_in_background)

    @property
    def is_out_of_room(self) -> bool:
        return self.out_of_room is not None

    @property
    def failure(self) -> WarrenError | None:
        """The error that ended the commit for good, if any."""
        return self._failed

    @property
    def closed(self) -> tuple[Epoch, bytes]:
        """Under the gate: the epoch that was closed last, and its digest."""
        return self._previous, self._closing_digest

    # -- for appenders and waiters -------------------------------------------------------------------------------

    def check(self) -> None:
        """Under the gate: raise the error that ended the commit, if any."""
        if self._failed is not None:
            raise self._failed
        if self._stopping:
            raise Misuse("the log is closed", "open it again")

    def wait(self, epoch: Epoch) -> None:
        """Return when `epoch` is durable; lead the commit if no other thread does."""
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
        """Commit what is gathered, or wait for the commit that is running. Call without the gate; False if there is
        nothing to commit."""
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
        """Call `callback` with each epoch that becomes durable, in order, in the leader's thread: it must be quick."""
        with self.gate:
            self._callbacks.append(callback)

    def call_with_parts(self, callback: Callable[[Epoch, Sequence[EpochWrite]], None]) -> None:
        """Like `call_when_durable`, with the bytes that each file received in the epoch."""
        with self.gate:
            self._part_callbacks.append(callback)

    def request_commit(self) -> None:
        """Make the background thread commit what is gathered. Call without the gate."""
        with self._bell:
            self._is_requested = True
            self._bell.notify_all()

    def stop(self) -> None:
        """Commit what is gathered, sync the epoch file, end the background thread. A full disk is an error now: a log
        that is being closed does not wait for room."""
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
            self._hooks.witness()

    def abandon(self) -> None:
        """End the background thread and leave everything as it is on disk."""
        with self.gate:
            self._leaving = self._stopping = True
            self.gate.notify_all()
        with self._bell:
            self._bell.notify_all()
        self._background.join()

    def fail(self, error: WarrenError) -> None:
        """End the commit for good: no further epoch becomes durable."""
        with self.gate:
            if self._failed is None:
                self._failed = error
            self._busy = False
            self.gate.notify_all()

    # -- the commit itself ---------------------------------------------------------------------------------------

    def _switch(self) -> CommitBatch | None:
        """Under the gate: close the gathered epoch and open the next one. If that fails, entries may be lost, so the
        commit fails for good."""
        try:
            return self._next_batch()
        except BaseException as error:
            self._failed = self._failed or _as_failure(error)
            self.gate.notify_all()
            raise

    def _next_batch(self) -> CommitBatch | None:
        gathered = self._hooks.gather()
        epoch = self._close(gathered) if gathered else None
        parts = [participant.take() for participant in gathered]
        after = self._hooks.at_switch()
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
        closing_draft = draft(BlockKind.CLOSING, [body])
        for participant in gathered:
            participant.append(closing_draft, epoch)
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
                    self.gate.notify_all()  # waiters of this epoch need not wait for the rotation
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
        """Call `write`; on a full disk release the reserve, then retry until there is room. Nothing was synced yet, so
        repeating is safe."""
        while True:
            try:
                write()
            except OutOfRoom as error:
                if self._hooks.release_reserve():
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
                if not self._is_requested and not self._stopping:
                    left = self._witness_seconds_left()
                    self._background_sleeps = left is None
                    if left is None or left > 0:
                        self._bell.wait(left)
                    self._background_sleeps = False
                is_requested, self._is_requested = self._is_requested, False
            if self._stopping or self._failed is not None:
                return
            try:
                if is_requested:
                    self._lead_once()
                left = self._witness_seconds_left()
                if left is not None and left <= 0:
                    self._stale_since_ns = None
                    self._hooks.witness()
            except Exception as error:
                _LOG.critical("background commit failed", exc_info=error, extra={"facts": {"durable": self.durable}})
                self.fail(_as_failure(error))
                return

    def _witness_seconds_left(self) -> float | None:
        """How long the epoch file may still be behind; None if it is current."""
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
