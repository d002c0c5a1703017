"""Reflection: what became durable in the log goes on into the safe snapshot store.

    commit ──▶ feed (notify | push | push-threaded) ──▶ version buffer ──▶ store, in version order ──▶ flush ──▶ purge
                    a large backlog: ──▶ table worker (bulk) ──▶ ingest ─────────────────────────────────────────▶ purge

One thread, whatever the feed (snapshot/reflection): it gathers, applies up to the safe snapshot version (version_apply), and
flushes now and then. The safe snapshot version follows the durable epoch by itself; a caller who gives versions of his
own may move it himself (`advance`).

Writers are never held back: what is not reflected yet stays in the log, and the log is on disk. A little lag is wanted,
since what is removed meanwhile never reaches the store. Log files may go only behind a flush (`on_flushed`). If a round
fails (the store's disk failed or is full, a block is damaged, a defect), `failure` says why, the log grows, and the
round is tried again after `retry_seconds`, however many epochs become durable meanwhile (base/threads).

Always true: applied <= durable.

How entries that became durable reach the version buffer: pulled from the log's files, or pushed from memory.

    notify          the commit rings a bell; the reflection's thread reads the new blocks from the files   (LogTail)
    push            whoever led the commit adds the epoch's blocks to the buffer before anybody returns to his caller
    push-threaded   he leaves the epoch's bytes in a queue, and the reflection's thread adds them
    watch           another process watches the log's directory and reads the files; no feed of ours (outside, puller)
    spark           tables are made elsewhere when somebody asks (sync_orders); pulled only where a read needs it now

Pulling couples least: the log knows of it as a bell, and bytes wait in the page cache. Pushing reads nothing, and holds
the bytes of an epoch in memory until they are added. All hand over the same blocks (a test compares).

Always true: `gather` answers with an epoch up to which every entry is in the buffer; nothing is handed over before it
is durable, because the commit calls only then.
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


APPLIED_HERE = frozenset({Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED})  # by a thread of this process, without orders


class Feed(Protocol):
    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """From the thread of whoever led the commit."""
        ...

    def gather(self, durable: Epoch) -> Epoch:
        """From the reflection's thread: bring the next step into the buffer; the epoch up to which all is in it."""
        ...

    def rewind(self, after: Epoch) -> None:
        """The store went back to this epoch: bring what is behind it once more, from the files."""
        ...


class PullFeed:
    def __init__(
        self, tail: LogTail, applying: VersionApply, step_bytes: int, breathe: Callable[[], None] = lambda: None
    ) -> None:
        self._tail = tail
        self._applying = applying
        self._step_bytes = step_bytes
        self._breathe = breathe  # between two blocks: whoever commits goes first

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """The bell is rung; nothing else is needed."""

    def gather(self, durable: Epoch) -> Epoch:
        up_to = self._tail.epoch_within(durable, self._step_bytes)
        for block in self._tail.read(up_to):
            self._applying.add(block)
            self._breathe()
        return up_to

    def rewind(self, after: Epoch) -> None:
        self._tail.rewind(after)

    @property
    def referring(self) -> frozenset[StreamId]:
        return self._tail.referring


class PushFeed:
    """What is not pushed is pulled: what came before it was made, what the buffer had no room for (whoever commits is
    not to fail for that), and what is more than `room_bytes` between two gatherings: a large backlog is better made
    into tables (bulk). From the first epoch that is not pushed on all are pulled, until the pull is at the newest."""

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
        self._bytes = 0  # pushed since the last gathering
        self._from: Epoch | None = None  # behind this epoch nothing is pushed
        self._is_pulling = False

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        with self._lock:
            self._bytes += size_of_parts(parts)
            if self._room_bytes and self._bytes > self._room_bytes:
                self._push_no_more()
            try:
                for part in parts if self._from is None else ():
                    for block in blocks_of_part(self._channel_of(part), part, self._pull.referring):
                        self._applying.add(block)
            except Exception as error:  # the commit must not fail: the pull meets the same error, if it lasts
                _LOG.warning(
                    "epoch not pushed, it is read from the log", exc_info=error, extra={"facts": {"epoch": epoch}}
                )
                self._push_no_more()
            self._newest = epoch

    def epoch_was_released(self, epoch: Epoch) -> None:
        """It became durable, and nobody kept its bytes."""
        with self._lock:
            self._push_no_more()
            self._newest = epoch

    def gather(self, durable: Epoch) -> Epoch:
        with self._lock:
            self._bytes, newest, begun = 0, self._newest, self._from
            if begun is None:
                return newest
            if not self._is_pulling:  # what was pushed is applied first; then nothing is in the buffer
                self._pull.rewind(begun)
                self._is_pulling = True
                return begun
        reached = self._pull.gather(newest)
        with self._lock:
            if reached >= self._newest:
                self._from, self._is_pulling = None, False
        return reached

    def rewind(self, after: Epoch) -> None:
        with self._lock:
            self._pull.rewind(after)
            self._from, self._is_pulling = after, True

    def _push_no_more(self) -> None:
        if self._from is None:
            self._from = self._newest


class QueuedFeed:
    """A push that waits in a queue, and no more of it than there is room for: the rest is let go of, and pulled. A
    deque takes and gives from two threads without a lock."""

    def __init__(self, inner: PushFeed, room_bytes: int) -> None:
        self._inner = inner
        self._room_bytes = room_bytes
        self._queue: deque[tuple[Epoch, Sequence[EpochWrite] | None]] = deque()
        self._bytes = 0  # queued since the last gathering

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
    """The feed of a mode. Before pushes can be relied upon everything older has been pulled: `tail.after` says so."""
    pull = PullFeed(tail, applying, step_bytes, threads.breathe)
    if mode not in (Mode.PUSH, Mode.PUSH_THREADED):
        return pull
    push = PushFeed(threads, applying, channel_of, pull, tail.after, room_bytes)
    return push if mode is Mode.PUSH else QueuedFeed(push, room_bytes)


_REST_SECONDS = 5.0
_BREATH_SECONDS = 0.1  # given to a store whose upkeep is behind


@dataclass(frozen=True, slots=True)
class ReflectionSettings:
    reflection: Mode = Mode.NOTIFY
    lag_seconds: float = 0.1  # what is durable waits so long for more: what is removed meanwhile is never reflected
    quiet_seconds: float = 0.0  # … and so long while little comes, since a round costs whoever waits for an answer
    quiet_bytes: int = 2 << 20  # little: less than this since the last round
    step_bytes: int = 64 << 20  # most of the log that is reflected at once
    bulk_bytes: int = 4 << 20  # of a backlog of so much a process of its own makes a table; 0: never
    chunk_bytes: int = 4 << 20  # largest batch of the store: while it takes one, no other thread of Python runs
    buffer: str = "memory"  # version buffer: memory, or rocksdb (a column family)
    buffer_bytes: int = 32 << 20  # memory of the version buffer; above it entries wait in files
    overlay_bytes: int = 16 << 20  # reads as of now: more than this of the log is applied first, if that is possible
    flush_bytes: int = 64 << 20  # the store is flushed when so much was applied …
    flush_seconds: float = 10.0  # … or something was, so long ago
    retry_seconds: float = 1.0  # how often a store that failed is tried again
    poll_seconds: float = 0.0  # watch: look at the log so often, where inotify tells nothing; 0: inotify


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
        by_itself: bool = True,
        flushed: Applied | None = None,
        background: Background | None = None,
    ) -> None:
        """`flushed` is what the store has on disk, if that is less than it holds."""
        self._clock = clock
        self._settings = settings
        self._feed = feed
        self._applying = applying
        self._store = store
        self._durable = durable
        self._on_flushed = on_flushed
        self._follows_durable = follows_durable
        self._bulk = bulk if follows_durable else None
        self._by_itself = by_itself  # else it reflects only when somebody needs it, and somebody else does it
        self._has_worked = False  # since it rested
        self._safe: Version = store.applied.version
        self._offered = store.applied.epoch  # the store was offered every entry up to here
        self._turn = threads.condition()  # held while something is applied or flushed: one at a time
        self._bell = threads.condition()
        self._lag = threads.condition()  # slept on while more comes; rung at the end, and when a quiet spell is over
        self._is_rung = self._is_stopping = self._is_paused = False
        self._is_quiet = False  # whether it waits for more than the lag
        self._new_bytes = 0  # durable since the last round; counted by those who lead commits, one at a time
        self._flushed, self._flushed_ns, self._flushed_bytes = flushed or store.applied, clock.monotonic_ns(), 0
        background = background or Background()
        self._task = background.task("reflection", "reflection stands still", settings.retry_seconds)
        self._thread = threads.start("warren-reflection", self._run)

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """From the thread of whoever led the commit."""
        self._feed.epoch_is_durable(epoch, parts)
        if self._settings.quiet_seconds:
            self._count(parts)
        self._ring()

    @property
    def failure(self) -> WarrenError | None:
        """Why the last round failed; None: it was good."""
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
        """Reflect everything that is durable now, in the caller's thread; where the store is then."""
        with self._turn:
            return self._reflect(self._durable())

    def look(self) -> tuple[StoreView, Epoch]:
        """What the store can show: everything that is durable now, unless its version is still to come, or reflection
        is paused, broken down or somebody else's business. And up to which epoch the store was offered every entry."""
        with self._turn:
            is_well = self.failure is None and self._store.failure is None
            if is_well and self._by_itself and not self._is_paused:
                with suppress(WarrenError):  # the thread meets it too, and tells
                    self._reflect(self._durable())
            return self._store.view(), self._offered

    def flush(self) -> Applied:
        """Bring what was applied to the disk, and let go of the log behind it."""
        with self._turn:
            return self._flush()

    def turn(self) -> Condition:
        """While it is held nobody else applies, ingests or flushes."""
        return self._turn

    def pause(self) -> None:
        """Leave everything in the log, or in the buffer, until `resume`."""
        with self._turn:
            self._is_paused = True

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def resume(self) -> None:
        with self._turn:
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

    def _let_more_come(self) -> None:
        """Wait the lag out, however often the bell rings meanwhile, and longer while little comes; only the end is told
        at once."""
        settings = self._settings
        seconds = max(settings.lag_seconds, _BREATH_SECONDS if self._store.is_behind else 0.0)
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
        """Tell the thread that it is not quiet any more. The lag itself is never cut short."""
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
                    self._bell.wait(self._seconds_of_rest())
                is_idle, is_lagging = not self._is_rung, self._is_rung
                self._is_rung = False
            if is_lagging:
                self._let_more_come()
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
        """What goes wrong is an alarm, and is tried again later: the log has everything."""
        with self._turn:
            if not self._is_paused:
                self._bring()
        if is_idle:
            self._rest()

    def _bring(self) -> None:
        if self._store.failure is not None:
            self._resume_store()
        if self._by_itself:
            self._reflect(self._durable(), is_patient=True)
        if self._is_flush_due():
            self._flush()

    def _resume_store(self) -> None:
        """It may be back at the last mark that is on its disk: what came behind that is brought once more. A late entry
        need not have moved the mark, so the same mark is not enough."""
        before, is_all_on_disk = self._store.applied, self._applying.bytes_applied == self._flushed_bytes
        self._store.resume()
        self._offered = self._store.applied.epoch
        if self._store.applied != before or not is_all_on_disk:
            self._feed.rewind(self._store.applied.epoch)

    def _reflect(self, durable: Epoch, is_patient: bool = False) -> Applied:
        """Step by step, so that the buffer holds one step at a time. A patient one lets the store catch its breath."""
        while True:
            if is_patient and self._store.is_behind:
                self._ring()  # once more, soon
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
        """A step by a table, which is on disk at once; None if this is nothing for one."""
        mark = self._bulk.bring(durable, self.safe_at) if self._bulk is not None else None
        if mark is not None:
            self.has_flushed(mark)
        return mark

    def _rest(self) -> None:
        """Nothing has come for a while: let go of what it costs to be ready, and give back what lies for nothing. The
        second without the turn, for it takes a moment, and whoever reads needs that."""
        with self._turn:
            if self._store.applied != self._flushed or not self._has_worked:
                return
            self._has_worked = False
            if self._bulk is not None:
                self._bulk.rest()
        self._store.tidy()

    def safe_at(self, epoch: Epoch) -> Version:
        """The safe snapshot version, of a log that is read up to an epoch."""
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

    def _seconds_of_rest(self) -> float | None:
        """How long there is nothing to do; None: until somebody rings."""
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
