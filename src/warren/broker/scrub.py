"""The scrub: every message on disk is read now and then, so that damage is known before somebody wants the message.

    rows of the queues ──▶ block in the log, checked once for all runs in it ──▶ large contents, checked

It follows the rows, so that what it reads is what queues hold, and damage has the name of a queue. A step reads about
a given number of bytes and leaves the rest to the next one: the caller's pace bounds what it takes from the disk.

Invariants: nothing is kept in memory of what was read; a scrub changes nothing. Damage of the store's own blocks is met
by reading the rows, and noted by the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing

from warren.base.clock import Clock
from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch, Lsn, QueueId, SequenceId
from warren.base.runs import QueuePlace
from warren.log.referring import Pointer, is_pointer
from warren.message_store.store import MessageStore
from warren.queue_index.format import ACK_ROW, KEY
from warren.queue_index.run_format import decode_run
from warren.snapshot.database import Database

STEP_BYTES = 32 << 20
EVERY_SECONDS = 24 * 3600.0
ROW_BYTES = 64  # about what a row costs that points nowhere
_RUN = b"r"

TellDamage = Callable[[QueuePlace, SequenceId, Damage], None]


class Scrub:
    def __init__(
        self,
        database: Database,
        bodies: MessageStore,
        queues: Callable[[], Collection[QueueId]],
        clock: Clock,
        tell: TellDamage,
    ) -> None:
        self._database = database
        self._bodies = bodies
        self._queues = queues
        self._clock = clock
        self._tell = tell
        self._steps: Iterator[int] | None = None
        self._begun_ns: int | None = None
        self.passes = 0  # that came to their end

    def step(self, bytes_max: int = STEP_BYTES) -> None:
        """Go on with a pass, or begin one if it is time for it."""
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
        """One for each row: about how many bytes it took."""
        for queue in sorted(self._queues()):
            after = b""
            try:
                while rows := self._rows_behind(queue, after):
                    after = rows[-1][0]
                    yield from self._check(queue, rows)
            except Damage:
                continue  # the database has noted it: the store itself is damaged

    def _rows_behind(self, queue: QueueId, after: bytes) -> list[tuple[bytes, bytes, int]]:
        """Some rows, so that no view is held from step to step."""
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
                pass  # cleaned or collected meanwhile: what is alive of it stands elsewhere, and is read there
            except Damage as damage:
                if self._is_still_there(queue, key, value):
                    self._tell(place, first, damage)
            yield size_bytes

    def _is_still_there(self, queue: QueueId, key: bytes, value: bytes) -> bool:
        """A message that was acknowledged meanwhile may be gone from disk: that is no damage."""
        with closing(self._database.view_now()) as view:
            found = view.get(queue, key)
        return found is not None and found.value == value
