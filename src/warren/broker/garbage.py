"""Garbage upkeep and scrub: background work on the files of messages.

Upkeep frees garbage as fast as it arises, so that the disk holds little more than live data:

    messages leave ──▶ their bytes are counted ──▶ an eighth of the live bytes? ──▶ one pass, in its own thread

    a pass     1  the files being written are sealed
               2  everything durable is in the store, on its disk: no row is unknown
               3  files with little live data are cleaned (queue_index/cleaner), or joined in pairs
                  (message_store/collector)
               4  files that are not needed, retained or pinned are purged

At twice that amount publishers wait for the current pass, so that garbage does not fill the disk (DESIGN promise 5).
Gets and acknowledgements never wait. While passes fail, or without the thread, publishers are not throttled: the
failure is an alarm, and the pass is repeated after a back-off.

The scrub reads every message on disk periodically, so that damage is known before the message is delivered:

    rows of the queues ──▶ block in the log, checked once for all its runs ──▶ large contents, checked

It follows the rows, so it reads only live messages, and damage is reported with the name of a queue. A step reads about
a given number of bytes, and the next step continues there: the caller's pace bounds the load on the disk.

Invariants
* A pass that is interrupted at any point loses nothing: each of its steps is safe on its own.
* The scrub changes nothing, and keeps nothing that it has read in memory. Damage of the store's own blocks is found by
  reading the rows, and noted by the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing

from warren.base.environment import Clock
from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch, Lsn, QueueId, SequenceId
from warren.base.messages import QueuePlace
from warren.base.threads import BackgroundLoop
from warren.files.environment import Environment
from warren.log.pointers import Pointer, is_pointer
from warren.message_store.store import MessageStore
from warren.queue_index.cleaner import Cleaner
from warren.queue_index.row_format import ACK_ROW, KEY, decode_run
from warren.snapshot.database import Database

GARBAGE_BYTES_MIN = 1 << 20  # no pass for less than this
FILE_BYTES_MIN = 8 << 20  # files are sealed at this size, or …
ALIVE_SHARE = 8  # … at this share of the live bytes: garbage is freed by whole files, or by pairs of files
HISTORY_SHARE = 16  # this share of the retained history may be garbage, too: a pass could not free it yet
THROTTLE_SECONDS_MAX = 1.0  # a publisher is throttled for this long at a time


class GarbageUpkeep:
    def __init__(
        self,
        environment: Environment,
        database: Database,
        cleaning: Cleaner,
        collect: Callable[[], None],
        alive_bytes: Callable[[], int],
        scrub: Callable[[], None] = lambda: None,
    ) -> None:
        """`collect` runs the collector of the message stores; `alive_bytes` returns the live bytes of the queues;
        `scrub` reads some live messages, to find damage."""
        self._clock = environment.clock
        self._task = environment.background.task("upkeep", "garbage is not cleared away")
        self._scrub_task = environment.background.task("scrub", "messages on disk are not checked")
        self._database = database
        self._cleaning = cleaning
        self._collect = collect
        self._alive_bytes = alive_bytes
        self._scrub = scrub
        self._scrubbed_ns = 0
        self._period_seconds = 0.0
        threads = environment.threads
        self._loop = BackgroundLoop(threads, self._clock, self._task, self._round, repeats_failed=True)
        self._garbage_bytes = 0  # noted since the last pass began
        self._due_bytes = self._file_bytes = 0
        self._measure()

    def begin(self, seconds: float) -> None:
        """Check this often whether a pass is due, and scrub; a pass also begins when enough garbage is noted."""
        self._period_seconds, self._scrubbed_ns = seconds, self._clock.monotonic_ns()
        self._loop.start("warren-upkeep", seconds)

    def stop(self) -> None:
        self._loop.stop()

    @property
    def rounds(self) -> int:
        """Rounds that have ended: each is a pass, unless none was requested or due."""
        return self._loop.rounds

    # -- for queues and publishers -------------------------------------------------------------------------------

    def note_dead(self, size_bytes: int) -> None:
        """Messages of this size have left their queues. Any thread; takes no lock until a pass is due."""
        self._garbage_bytes += size_bytes
        if self._garbage_bytes >= self._due_bytes and not self._loop.is_requested:
            self.request_pass()

    def request_pass(self) -> None:
        """Request a pass."""
        self._loop.request()

    def is_behind(self) -> bool:
        """Whether garbage arises much faster than it is freed; then a pass is running or requested. Does not wait."""
        if self._database.log.rotation.active_bytes > self._file_bytes:
            self._measure()
            if self._database.log.rotation.active_bytes > self._file_bytes:
                self._database.log.rotation.rotate_soon()
        if self._garbage_bytes < 2 * self._due_bytes or self._task.failure is not None:
            return False
        if not self._loop.is_alive:
            return False
        if not self._loop.is_requested:
            self.request_pass()
        return True

    def throttle(self) -> None:
        """If upkeep is behind, wait until a pass has ended."""
        if not self.is_behind():
            return
        with self._loop.condition:
            rounds = self._loop.rounds
            while self._loop.rounds == rounds and not self._loop.is_stopping:
                if not self._loop.condition.wait(THROTTLE_SECONDS_MAX):
                    return

    # -- the thread ----------------------------------------------------------------------------------------------

    def _round(self, is_requested: bool) -> None:
        if self._clock.monotonic_ns() - self._scrubbed_ns >= self._period_seconds * 1e9:
            self._scrub_task.run(self._scrub)
            self._scrubbed_ns = self._clock.monotonic_ns()
        if is_requested or self._cleaning.is_due():
            self.run()

    def run(self) -> None:
        """One pass."""
        database, log = self._database, self._database.log
        self._garbage_bytes = 0
        log.rotate()
        if database.reflection is not None and not database.reflection.is_paused:
            database.reflection.catch_up()
            database.reflection.flush()
        self._cleaning.run()
        self._collect()
        log.purge()
        self._measure()

    def _measure(self) -> None:
        """Compute the limits from the bytes that are alive and retained."""
        settings = self._database.log.settings
        history_bytes = settings.retention_bytes if settings.retention_seconds else 0
        share = max(self._alive_bytes() // ALIVE_SHARE, history_bytes // HISTORY_SHARE)
        self._due_bytes = max(GARBAGE_BYTES_MIN, share)
        self._file_bytes = max(FILE_BYTES_MIN, share)

    def alarms(self) -> list[str]:
        return self._task.alarms()


STEP_BYTES = 32 << 20
EVERY_SECONDS = 24 * 3600.0
ROW_BYTES = 64  # approximate cost of a row without a pointer
_RUN = b"r"

ReportDamage = Callable[[QueuePlace, SequenceId, Damage], None]


class Scrub:
    def __init__(
        self,
        database: Database,
        bodies: MessageStore,
        queues: Callable[[], Collection[QueueId]],
        clock: Clock,
        report_damage: ReportDamage,
    ) -> None:
        self._database = database
        self._bodies = bodies
        self._queues = queues
        self._clock = clock
        self._report_damage = report_damage
        self._steps: Iterator[int] | None = None
        self._begun_ns: int | None = None
        self.passes = 0  # completed

    def step(self, bytes_max: int = STEP_BYTES) -> None:
        """Continue the current pass, or begin one if it is due."""
        now_ns = self._clock.monotonic_ns()
        if self._steps is None:
            if self._begun_ns is not None and now_ns - self._begun_ns < EVERY_SECONDS * 1e9:
                return
            self._steps, self._begun_ns = self._pass(), now_ns
        for size_bytes in self._steps:
            bytes_max -= size_bytes
            if bytes_max <= 0:
                return
        self._steps = None
        self.passes += 1

    def _pass(self) -> Iterator[int]:
        """Yields the approximate number of bytes read for each row."""
        for queue in sorted(self._queues()):
            after = b""
            try:
                while rows := self._rows_behind(queue, after):
                    after = rows[-1][0]
                    yield from self._check(queue, rows)
            except Damage:
                continue  # the store itself is damaged: noted by the database

    def _rows_behind(self, queue: QueueId, after: bytes) -> list[tuple[bytes, bytes, int]]:
        """Up to 512 rows, so that no view stays open between steps."""
        found = []
        with closing(self._database.view()) as view:
            for row in view.range(queue, after + b"\x00" if after else b""):
                found.append((row.key, row.value, row.version[0]))
                if len(found) == 512:
                    break
        return found

    def _check(self, queue: QueueId, rows: list[tuple[bytes, bytes, int]]) -> Iterator[int]:
        last = Lsn(0)
        for key, value, epoch in rows:
            if len(key) != KEY.size or key[:1] != _RUN or key[-1] == ACK_ROW:
                continue
            place, first = QueuePlace(queue, key[1]), SequenceId(KEY.unpack(key)[2])
            size_bytes = ROW_BYTES
            try:
                if is_pointer(value):
                    block = Pointer.decode(value).block
                    size_bytes, last = (Pointer.decode(value).block_bytes if block != last else ROW_BYTES), block
                run = decode_run(place, first, self._database.resolve(value), Epoch(epoch))
                if run.stored:
                    size_bytes += run.size_of(0, run.count)
                    self._bodies.check(run.stored)
            except Gone:
                pass  # cleaned or collected meanwhile: its live messages were moved, and are read there
            except Damage as damage:
                if self._is_still_there(queue, key, value):
                    self._report_damage(place, first, damage)
            yield size_bytes

    def _is_still_there(self, queue: QueueId, key: bytes, value: bytes) -> bool:
        """Whether the row is unchanged: a message that was acknowledged meanwhile may be gone without damage."""
        with closing(self._database.view_now()) as view:
            found = view.get(queue, key)
        return found is not None and found.value == value
