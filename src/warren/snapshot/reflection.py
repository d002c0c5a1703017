"""Reflection: entries that became durable in the log are applied to the safe snapshot store.

    commit ──▶ feed (notify | push | push-threaded) ──▶ version buffer ──▶ store, in version order ──▶ flush ──▶ purge
                a large backlog: ──▶ table worker (tables/bulk) ──▶ ingest ────────────────────────────────────▶ purge

    notify          the commit wakes the reflection thread, which reads the new blocks from the files       (LogTail)
    push            the leader of the commit adds the epoch's blocks to the buffer before the commit returns
    push-threaded   it leaves the epoch's bytes in a queue, and the reflection thread adds them
    watch           another process watches the log's directory and reads the files; no feed here           (puller)
    spark           tables are made by Spark on request (tables/bulk); pulled only where a read needs the latest state

Pulling couples least: the log calls one wake-up, and the bytes wait in the page cache. Pushing reads nothing, and holds
the bytes of an epoch in memory until they are added. All feeds deliver the same blocks (a test compares).

One thread, whatever the feed: it gathers, applies up to the safe snapshot version (apply), and flushes at times. The
safe snapshot version follows the durable epoch; a caller that gives versions of its own may move it (`advance`).

Writers never wait for reflection: what is not reflected yet stays in the log, on disk. A little lag is intended, since
what is removed meanwhile never reaches the store. Log files may be purged only after a flush (`on_flushed`). If a round
fails (the store's disk failed or is full, a block is damaged, a defect), `failure` says why, the log grows, and the
round is repeated after `retry_seconds`, however many epochs become durable meanwhile (base/threads).

Invariants
* applied <= durable.
* `gather` returns an epoch up to which every entry is in the buffer. Nothing enters it before it is durable: the commit
  calls only then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from warren.base.environment import Clock
from warren.base.errors import WarrenError
from warren.base.ids import ChannelId, Epoch, StreamId
from warren.base.threads import Background, Condition, Threads
from warren.durability.log_file import EpochWrite
from warren.log.read.tail import LogTail, blocks_of_part
from warren.snapshot.apply import VersionApply
from warren.snapshot.store import MINOR_MAX, Applied, SnapshotStore, StoreView, Version
from warren.snapshot.tables.bulk import BulkLoader

_LOG = logging.getLogger(__name__)
ChannelOf = Callable[[EpochWrite], ChannelId]


class Mode(StrEnum):
    NOTIFY = "notify"
    PUSH = "push"
    PUSH_THREADED = "push-threaded"
    WATCH = "watch"
    SPARK = "spark"
    OFF = "off"


APPLIED_HERE = frozenset({Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED})  # by a thread of this process, unrequested


class Feed(Protocol):
    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """Called in the thread of the commit leader."""
        ...

    def gather(self, durable: Epoch) -> Epoch:
        """Called in the reflection thread: add the next step to the buffer; the epoch up to which all is in it."""
        ...

    def rewind(self, after: Epoch) -> None:
        """The store fell back to this epoch: read what follows it again, from the files."""
        ...

    @property
    def may_skip(self) -> bool:
        """Whether tables may replace the next step: no epoch of it was pushed, or will be. Pushed entries that are
        applied after a table that covers them bring removed keys back, until the log is read to the table's end."""
        ...


class PullFeed:
    def __init__(
        self, tail: LogTail, applying: VersionApply, step_bytes: int, breathe: Callable[[], None] = lambda: None
    ) -> None:
        self._tail = tail
        self._applying = applying
        self._step_bytes = step_bytes
        self._breathe = breathe  # between two blocks: a commit goes first

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """Nothing to do: the reflection wakes its thread."""

    def gather(self, durable: Epoch) -> Epoch:
        up_to = self._tail.epoch_within(durable, self._step_bytes)
        for block in self._tail.read(up_to):
            self._applying.add(block)
            self._breathe()
        return up_to

    def rewind(self, after: Epoch) -> None:
        self._tail.rewind(after)

    @property
    def may_skip(self) -> bool:
        return True

    @property
    def after(self) -> Epoch:
        """The epoch up to which the log was read, or covered by tables."""
        return self._tail.after

    @property
    def referring(self) -> frozenset[StreamId]:
        return self._tail.referring


class PushFeed:
    """Blocks pushed by the commit; the rest is pulled.

    Pulled are epochs from before the feed existed, epochs that the buffer had no room for (a commit does not fail for
    that), and what exceeds `room_bytes` between two gatherings: a large backlog is better made into tables (bulk). From
    the first epoch that is not pushed on, all are pulled, until the pull has reached the newest."""

    def __init__(
        self,
        threads: Threads,
        applying: VersionApply,
        channel_of: ChannelOf,
        pull: PullFeed,
        begun: Epoch,
        room_bytes: int,
    ) -> None:
        self._lock = threads.condition()
        self._applying = applying
        self._channel_of = channel_of
        self._pull = pull
        self._newest = begun  # the last epoch that became durable
        self._room_bytes = room_bytes  # 0: without limit
        self._bytes = 0  # pushed since the last `gather`
        self._from: Epoch | None = None  # after this epoch nothing is pushed
        self._is_pulling = False
        self._pulled = Epoch(0)  # the log was read up to here: pushing these epochs again would apply them out of order

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        with self._lock:
            self._bytes += size_of_parts(parts)
            if self._room_bytes and self._bytes > self._room_bytes:
                self._stop_pushing()
            try:
                for part in parts if self._from is None and epoch > self._pulled else ():
                    for block in blocks_of_part(self._channel_of(part), part, self._pull.referring):
                        self._applying.add(block)
            except Exception as error:  # the commit must not fail: the pull raises the same error, if it lasts
                _LOG.warning("epoch not pushed: read from the log", exc_info=error, extra={"facts": {"epoch": epoch}})
                self._stop_pushing()
            self._newest = epoch

    def epoch_was_released(self, epoch: Epoch) -> None:
        """It became durable, and its bytes were dropped."""
        with self._lock:
            self._stop_pushing()
            self._newest = epoch

    def gather(self, durable: Epoch) -> Epoch:
        with self._lock:
            self._bytes, newest, begun = 0, self._newest, self._from
            if begun is None:
                return newest
            if not self._is_pulling:  # what was pushed is applied first, so that the buffer is empty
                self._pull.rewind(begun)
                self._is_pulling = True
                return begun
        reached = self._pull.gather(newest)
        with self._lock:
            if reached >= self._newest:
                self._from, self._is_pulling = None, False
                self._pulled = max(reached, self._pull.after)
        return reached

    @property
    def may_skip(self) -> bool:
        with self._lock:
            return self._is_pulling

    def rewind(self, after: Epoch) -> None:
        with self._lock:
            self._pull.rewind(after)
            self._from, self._is_pulling = after, True

    def _stop_pushing(self) -> None:
        if self._from is None:
            self._from = self._newest


class QueuedFeed:
    """A push through a queue of up to `room_bytes`: the bytes of further epochs are dropped, and pulled. A deque needs
    no lock between two threads."""

    def __init__(self, inner: PushFeed, room_bytes: int) -> None:
        self._inner = inner
        self._room_bytes = room_bytes
        self._queue: deque[tuple[Epoch, Sequence[EpochWrite] | None]] = deque()
        self._bytes = 0  # queued since the last `gather`

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        self._bytes += size_of_parts(parts)
        is_too_much = self._room_bytes and self._bytes > self._room_bytes
        self._queue.append((epoch, None if is_too_much else parts))

    def gather(self, durable: Epoch) -> Epoch:
        self._bytes = 0
        while self._queue:
            epoch, parts = self._queue.popleft()
            if parts is None:
                self._inner.epoch_was_released(epoch)
            else:
                self._inner.epoch_is_durable(epoch, parts)
        return self._inner.gather(durable)

    def rewind(self, after: Epoch) -> None:
        self._inner.rewind(after)

    @property
    def may_skip(self) -> bool:
        return self._inner.may_skip  # while it pulls, queued epochs are not pushed


def size_of_parts(parts: Sequence[EpochWrite]) -> int:
    return sum(len(piece) for part in parts for piece in part.pieces)


def make_feed(
    mode: Mode,
    threads: Threads,
    tail: LogTail,
    applying: VersionApply,
    channel_of: ChannelOf,
    step_bytes: int,
    room_bytes: int,
) -> Feed:
    """The feed of a mode. Pushes follow `tail.after`: everything older is pulled."""
    pull = PullFeed(tail, applying, step_bytes, threads.breathe)
    if mode not in (Mode.PUSH, Mode.PUSH_THREADED):
        return pull
    push = PushFeed(threads, applying, channel_of, pull, tail.after, room_bytes)
    return push if mode is Mode.PUSH else QueuedFeed(push, room_bytes)


_REST_SECONDS = 5.0
_BEHIND_SECONDS = 0.1  # pause for a store whose compaction is behind


@dataclass(frozen=True, slots=True)
class ReflectionSettings:
    reflection: Mode = Mode.NOTIFY
    lag_seconds: float = 0.1  # delay after a commit: what is removed meanwhile is never reflected
    quiet_seconds: float = 0.0  # … and this delay while little is written, since a round slows down requests
    quiet_bytes: int = 2 << 20  # little: fewer bytes than this since the last round
    step_bytes: int = 64 << 20  # limit of one step
    bulk_bytes: int = 4 << 20  # from this backlog on a worker process makes a table; 0: never
    chunk_bytes: int = 4 << 20  # limit of a batch of the store: no other Python thread runs while one is applied
    buffer: str = "memory"  # version buffer: memory, or rocksdb (a column family)
    buffer_bytes: int = 32 << 20  # memory of the version buffer; above it entries go to files
    overlay_bytes: int = 16 << 20  # latest views: a larger backlog is applied first, if possible
    flush_bytes: int = 64 << 20  # the store is flushed after so many bytes were applied …
    flush_seconds: float = 10.0  # … or so long after the last flush
    retry_seconds: float = 1.0  # pause before a failed round is repeated
    poll_seconds: float = 0.0  # watch: poll interval, where inotify does not work; 0: inotify


class Reflection:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        settings: ReflectionSettings,
        feed: Feed,
        applying: VersionApply,
        store: SnapshotStore,
        durable: Callable[[], Epoch],
        on_flushed: Callable[[Applied], None] = lambda mark: None,
        follows_durable: bool = True,
        bulk: BulkLoader | None = None,
        is_automatic: bool = True,
        flushed: Applied | None = None,
        background: Background | None = None,
    ) -> None:
        """`flushed`: the mark that the store has on disk, if older than what it holds."""
        self._clock = clock
        self._settings = settings
        self._feed = feed
        self._applying = applying
        self._store = store
        self._durable = durable
        self._on_flushed = on_flushed
        self._follows_durable = follows_durable
        self._bulk = bulk if follows_durable else None
        self._is_automatic = is_automatic  # else only on request: Spark makes the tables
        self._has_worked = False  # since the last `_rest`
        self._safe: Version = store.applied.version
        self._offered = store.applied.epoch  # the store was offered every entry up to here
        self._apply_lock = threads.condition()  # held while something is applied or flushed
        self._bell = threads.condition()
        self._lag = threads.condition()  # waited on during the lag; notified by `end`, and when a quiet period ends
        self._is_rung = self._is_stopping = self._is_paused = False
        self._is_quiet = False  # whether it waits longer than the lag
        self._new_bytes = 0  # durable since the last round; counted by commit leaders, one at a time
        self._flushed, self._flushed_ns, self._flushed_bytes = flushed or store.applied, clock.monotonic_ns(), 0
        background = background or Background()
        self._task = background.task("reflection", "reflection is stopped", settings.retry_seconds)
        self._thread = threads.start("warren-reflection", self._run)

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """Called in the thread of the commit leader."""
        self._feed.epoch_is_durable(epoch, parts)
        if self._settings.quiet_seconds:
            self._count(parts)
        self._ring()

    @property
    def failure(self) -> WarrenError | None:
        """Why the last round failed; None if it succeeded."""
        return self._task.failure

    @property
    def safe(self) -> Version:
        """The safe snapshot version: nothing above it is in the store."""
        return self._safe

    def advance(self, safe: Version) -> None:
        """Move the safe snapshot version; it never moves back."""
        with self._bell:
            self._safe = max(self._safe, safe)
        self._ring()

    def catch_up(self) -> Applied:
        """Reflect everything that is durable now, in the caller's thread; the mark of the store afterwards."""
        with self._apply_lock:
            return self._reflect(self._durable())

    def store_view(self) -> tuple[StoreView, Epoch]:
        """A view of the store, and the epoch up to which the store was offered every entry. Everything that is durable
        now is applied first, unless reflection is paused, failed or on request only; an entry above the safe snapshot
        version is not in the view."""
        with self._apply_lock:
            is_well = self.failure is None and self._store.failure is None
            if is_well and self._is_automatic and not self._is_paused:
                with suppress(WarrenError):  # the thread fails in the same way, and raises the alarm
                    self._reflect(self._durable())
            return self._store.view(), self._offered

    def flush(self) -> Applied:
        """Flush what was applied; the log up to the mark may then be purged."""
        with self._apply_lock:
            return self._flush()

    def apply_lock(self) -> Condition:
        """The lock for applying, ingesting and flushing."""
        return self._apply_lock

    def pause(self) -> None:
        """Leave everything in the log, or in the buffer, until `resume`."""
        with self._apply_lock:
            self._is_paused = True

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def resume(self) -> None:
        with self._apply_lock:
            self._is_paused = False
        self._ring()

    def stop(self) -> None:
        """End the thread, then reflect and flush the rest, so that the next start finds nothing to do."""
        self.end()
        if self.failure is None:
            self.catch_up()
            self.flush()

    def end(self) -> None:
        """End the thread and leave everything as it is."""
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        with self._lag:
            self._lag.notify_all()
        self._thread.join()
        if self._bulk is not None:
            self._bulk.rest()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _wait_for_lag(self) -> None:
        """Wait for the lag, however many commits follow, and longer while little is written; only `end` interrupts."""
        settings = self._settings
        seconds = max(settings.lag_seconds, _BEHIND_SECONDS if self._store.is_behind else 0.0)
        if not seconds and not settings.quiet_seconds:
            return
        with self._lag:
            if seconds > 0 and not self._is_stopping:
                self._lag.wait(seconds)
            if settings.quiet_seconds > seconds and self._new_bytes < settings.quiet_bytes and not self._is_stopping:
                self._is_quiet = True
                self._lag.wait(settings.quiet_seconds - seconds)
                self._is_quiet = False
            self._new_bytes = 0

    def _count(self, parts: Sequence[EpochWrite]) -> None:
        """Wake the thread when a quiet period ends. The lag itself is never cut short."""
        self._new_bytes += size_of_parts(parts)
        if self._is_quiet and self._new_bytes >= self._settings.quiet_bytes:
            with self._lag:
                self._lag.notify_all()

    def _ring(self) -> None:
        with self._bell:
            self._is_rung = True
            self._bell.notify_all()

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_rung and not self._is_stopping:
                    self._bell.wait(self._wait_seconds())
                is_idle, is_lagging = not self._is_rung, self._is_rung
                self._is_rung = False
            if is_lagging:
                self._wait_for_lag()
            with self._bell:
                if self._is_stopping:
                    return
            if self._is_paused and self.failure is not None:
                continue  # a round that does nothing would clear the alarm
            if not self._task.run(lambda: self._round(is_idle)):  # noqa: B023 - called at once
                with self._bell:
                    self._task.back_off(self._bell, self._clock, lambda: self._is_stopping)
                    self._is_rung = True

    def _round(self, is_idle: bool) -> None:
        """A failure is an alarm, and the round is repeated later: the log has everything."""
        with self._apply_lock:
            if not self._is_paused:
                self._apply_and_flush()
        if is_idle:
            self._rest()

    def _apply_and_flush(self) -> None:
        if self._store.failure is not None:
            self._resume_store()
        if self._is_automatic:
            self._reflect(self._durable(), yields_to_compaction=True)
        if self._is_flush_due():
            self._flush()

    def _resume_store(self) -> None:
        """The store may have fallen back to the last mark on its disk: what follows is read again. A late entry need
        not have moved the mark, so an equal mark is not enough."""
        before, is_all_on_disk = self._store.applied, self._applying.bytes_applied == self._flushed_bytes
        self._store.resume()
        self._offered = self._store.applied.epoch
        if self._store.applied != before or not is_all_on_disk:
            self._feed.rewind(self._store.applied.epoch)

    def _reflect(self, durable: Epoch, yields_to_compaction: bool = False) -> Applied:
        """Step by step, so that the buffer holds one step at a time. `yields_to_compaction`: return early while the
        store's compaction is behind."""
        while True:
            if yields_to_compaction and self._store.is_behind:
                self._ring()  # continued in the next round
                return self._store.applied
            applied = self._bulk_step(durable)
            if applied is None:
                up_to = min(self._feed.gather(durable), durable)
                applied = self._applying.apply(up_to, self.safe_at(up_to))
            else:
                up_to = applied.epoch
            self._offered = max(self._offered, up_to)
            self._has_worked = True
            if up_to >= durable:
                return applied

    def _bulk_step(self, durable: Epoch) -> Applied | None:
        """A step by a table, which is on disk at once; None if a table does not apply."""
        if self._bulk is None or not self._feed.may_skip:
            return None
        mark = self._bulk.load(durable, self.safe_at)
        if mark is not None:
            self.has_flushed(mark)
        return mark

    def _rest(self) -> None:
        """Idle for a while: end the table worker, and free unused disk space. The latter without the lock, since it
        takes a moment and readers need the lock."""
        with self._apply_lock:
            if self._store.applied != self._flushed or not self._has_worked:
                return
            self._has_worked = False
            if self._bulk is not None:
                self._bulk.rest()
        self._store.tidy()

    def safe_at(self, epoch: Epoch) -> Version:
        """The safe snapshot version for a log that is read up to an epoch."""
        with self._bell:
            if self._follows_durable:
                self._safe = max(self._safe, (epoch, MINOR_MAX))
            return self._safe

    # -- flushing ------------------------------------------------------------------------------------------------

    def _is_flush_due(self) -> bool:
        if self._store.applied == self._flushed:
            return False
        is_much = self._applying.bytes_applied - self._flushed_bytes >= self._settings.flush_bytes
        return is_much or self._clock.monotonic_ns() - self._flushed_ns >= self._settings.flush_seconds * 1e9

    def _wait_seconds(self) -> float | None:
        """Time to the next work; None: until `_ring`."""
        if self._store.applied == self._flushed or self._is_paused:
            return _REST_SECONDS if self._has_worked else None
        return max(0.01, self._settings.flush_seconds - (self._clock.monotonic_ns() - self._flushed_ns) / 1e9)

    def _flush(self) -> Applied:
        mark = self._store.flush()
        self.has_flushed(mark)
        return mark

    def has_flushed(self, mark: Applied) -> None:
        """The store has everything up to the mark on disk."""
        self._flushed, self._flushed_ns = mark, self._clock.monotonic_ns()
        self._flushed_bytes = self._applying.bytes_applied
        self._on_flushed(mark)
