"""Reflection: what became durable in the log goes on into the safe snapshot store.

    commit ──▶ feed (notify | push | push-threaded) ──▶ version buffer ──▶ store, in version order ──▶ flush ──▶ purge
                    a large backlog: ──▶ table worker (bulk) ──▶ ingest ─────────────────────────────────────────▶ purge

One thread, whatever the feed (snapshot/feeds): it gathers, applies up to the safe snapshot version (version_apply), and
flushes now and then. The safe snapshot version follows the durable epoch by itself; a caller who gives versions of his
own may move it himself (`advance`).

Writers are never held back: what is not reflected yet stays in the log, and the log is on disk. A little lag is wanted,
since what is removed meanwhile never reaches the store. Log files may go only behind a flush (`on_flushed`). If a round
fails (the store's disk failed or is full, a block is damaged, a defect), `failure` says why, the log grows, and the
round is tried again after `retry_seconds`, however many epochs become durable meanwhile (base/background).

Always true: applied <= durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from warren.base.background import Background
from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.base.threads import Condition, Threads
from warren.durability.participant import EpochWrite
from warren.snapshot.applied import MINOR_MAX, Applied, Version
from warren.snapshot.bulk import BulkLoader
from warren.snapshot.feeds import Feed, Mode, size_of_parts
from warren.snapshot.snapshot_store import SnapshotStore, StoreView
from warren.snapshot.version_apply import VersionApply

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
