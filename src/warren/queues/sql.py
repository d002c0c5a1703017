"""The SQL-backed queue: a backing queue whose messages are rows of a table (S1's "alternate"; BQ-02, HS-04).

    SQL       every message, ready or pending, one row each
    memory    which of them are ready, as ranges:     requeued ranges │ from `fetched_to` on, all there is
              what the changes under way publish:     not in SQL before their end

What it is for: a queue that anybody can look into with SQL (BQ-03), whose moves are plain SQL transactions (BQ-04), on
a machine that cannot run the log. What it costs: speed, above all one sync for each `IndexBatch` (HS-03 measures it).

Fetching changes nothing in SQL. Fetches go in order, so all below `delivered_to` was delivered before. A clean stop
writes it down; after any other stop everything that is found counts as delivered.

Always true: of what is ready, requeued ones come first; they are all below `fetched_to`. Belongs to one caller at a
time, with one `IndexBatch` at a time. If changes that took messages are aborted it refuses to go on and has to be opened
again. Not here: a history of what happened, a limit for memory (it holds no contents).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from warren.base.errors import Refused
from warren.base.runs import Publication, QueuePlace, Slice
from warren.queue_index.changes import IndexBatch
from warren.queue_index.why import DequeueReason
from warren.queues.backing import Fetched, MessageSizes, TagRange
from warren.queues.sql_rows import CONTENT, PERSISTENT, SEQUENCE, SIZE, Row, SqlFilter, rows_of, slices_of
from warren.queues.sql_session import SqlSession
from warren.queues.sql_store import SqlPlaceStore, SqlStore
from warren.queues.tag_ranges import TagRanges

HEAD_ROWS = 128  # looked at for the head
BROWSE_ROWS = 256  # read at once
LARGE_ROWS = 64  # read at once where bytes are limited


class SqlQueue:
    """Is a `BackingQueue`."""

    def __init__(self, place: QueuePlace, is_durable: bool, store: SqlStore) -> None:
        self.place = place
        self._is_durable = is_durable
        self._store = store
        found = store.recover(place, is_durable)
        self._next = found.next
        self._delivered_to = found.delivered_to
        self._count, self._ready_bytes = found.count, found.size_bytes
        self._fetched_to = 0
        self._requeued = TagRanges()
        self._pending = TagRanges()
        self._pending_rows: dict[int, tuple[int, int]] = {}  # tag → size, and 1 if it is persistent
        self._pending_bytes = 0
        self._persistent, self._persistent_bytes = (found.count, found.size_bytes) if is_durable else (0, 0)
        self._unwritten: list[Row] = []  # published by the changes under way
        self._unwritten_bytes = 0
        self._has_taken = False  # the changes under way did more than publish
        self._is_astray = False
        self._is_stopping = False  # by the changes under way
        self._is_removed = False
        self._told_next = found.next  # what SQL says; -1: something else than it should
        self._version = 0  # of what is ready
        self._head: tuple[int, Slice | None] = (-1, None)  # and the version it belongs to

    # -- publishing and fetching ---------------------------------------------------------------------------------

    def publish(self, publication: Publication, changes: IndexBatch) -> None:
        if not publication.contents:
            return
        rows = rows_of(publication, self._next, self._is_durable and publication.is_persistent)
        self._of(changes).rows += rows
        self._count_persistent(rows, 1)
        size_bytes = sum(map(len, publication.contents))
        self._is_removed = False
        self._unwritten += rows
        self._unwritten_bytes += size_bytes
        self._next += len(rows)
        self._count += len(rows)
        self._ready_bytes += size_bytes
        self._version += 1

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        self._check_astray()
        delivered_to = self._delivered_to
        rows = self._take(count, bytes_max)
        for row in rows:
            self._pending_rows[row[SEQUENCE]] = row[SIZE], row[PERSISTENT]
            self._pending_bytes += row[SIZE]
        slices = slices_of(rows, edge=delivered_to)
        for each in slices:
            self._pending.add(each.first, each.end)
            self._delivered_to = max(self._delivered_to, each.end)
        return [Fetched(each.first, each, each.first < delivered_to) for each in slices]

    # -- pending messages ----------------------------------------------------------------------------------------

    def ack(self, tags: Sequence[TagRange], why: DequeueReason, changes: IndexBatch) -> int:
        self._check_astray()
        taken = self._pending.take(tags)
        if taken:
            self._let_go(taken, changes)
            self._settled(taken, is_gone=True)
        return sum(stop - first for first, stop in taken)

    def look(self, tags: Sequence[TagRange]) -> list[Slice]:
        self._pending.checked(tags)
        return [slice_ for first, stop in tags for slice_ in slices_of(self._between(first, stop, stop - first))]

    def requeue(self, tags: Sequence[TagRange], changes: IndexBatch) -> int:
        self._check_astray()
        taken = self._pending.take(tags)
        for first, stop in taken:
            self._requeued.add(first, stop)
            self._count += stop - first
            self._ready_bytes += self._size_of(first, stop)
        self._settled(taken, is_gone=False)
        self._version += 1
        return sum(stop - first for first, stop in taken)

    # -- letting go ----------------------------------------------------------------------------------------------

    def drop(self, count: int, why: DequeueReason, changes: IndexBatch) -> int:
        self._check_astray()
        rows = self._take(count, has_contents=False)
        if rows:
            self._let_go([(each.first, each.end) for each in slices_of(rows)], changes)
            self._count_persistent(rows, -1)
        return len(rows)

    def purge(self, changes: IndexBatch) -> int:
        self._check_astray()
        purged = self._count
        ready = [each for each in self._ready_ranges() if each[0] < each[1]]
        if purged:
            self._let_go(ready, changes)
        self._requeued.clear()
        self._fetched_to = self._next
        self._count = self._ready_bytes = 0
        sizes = [size for size, is_persistent in self._pending_rows.values() if is_persistent]
        self._persistent, self._persistent_bytes = len(sizes), sum(sizes)
        self._version += 1
        return purged

    def delete(self, changes: IndexBatch) -> None:
        of_place = self._of(changes)
        of_place.is_removed, of_place.rows, of_place.gone = True, [], []
        self._has_taken = self._is_removed = True
        self._unwritten, self._unwritten_bytes = [], 0
        self._requeued.clear()
        self._pending.clear()
        self._pending_rows.clear()
        self._pending_bytes = self._persistent = self._persistent_bytes = 0
        self._fetched_to = self._next
        self._count = self._ready_bytes = 0
        self._version += 1

    # -- looking at it -------------------------------------------------------------------------------------------

    def head(self) -> Slice | None:
        if self._head[0] != self._version:
            rows = self._upcoming(HEAD_ROWS, has_contents=False)
            self._head = self._version, next(iter(slices_of(rows)), None)
        return self._head[1]

    def browse(self) -> Iterator[Slice]:
        return self._browse(None)

    def search(self, where: SqlFilter) -> Iterator[Slice]:
        """Those of the ready messages that fit, in order, as `browse` does; only what is written. SQL does the work."""
        return self._browse(where)

    def __len__(self) -> int:
        return self._count

    @property
    def ready_bytes(self) -> int:
        return self._ready_bytes

    @property
    def pending_count(self) -> int:
        return self._pending.count

    @property
    def ram_bytes(self) -> int:
        return self._unwritten_bytes

    def sizes(self) -> MessageSizes:
        in_ram, ram_bytes = len(self._unwritten), self._unwritten_bytes
        return MessageSizes(self._pending_bytes, in_ram, 0, ram_bytes, self._persistent, self._persistent_bytes)

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """Nothing stays in memory, whatever the target."""

    def ram_duration(self) -> float:
        return math.inf

    def page(self) -> bool:
        return False

    def facts(self) -> Mapping[str, int | float | str]:
        return {
            "kind": "sql",
            "ready": self._count,
            "ready_bytes": self._ready_bytes,
            "pending": self.pending_count,
            "where": self._store.where,
            "next": self._next,
            "delivered_to": self._delivered_to,
        }

    # -- the end of changes --------------------------------------------------------------------------------------

    def stop(self, changes: IndexBatch) -> None:
        self._of(changes)
        self._is_stopping = True

    def counters(self) -> tuple[int, int, bool] | None:
        """What a start should know, if it would not find it so: next, delivered_to, is_clean."""
        if self._is_removed or (self._next == self._told_next and not self._is_stopping):
            return None
        return self._next, self._delivered_to, self._is_stopping

    def written(self) -> None:
        self._unwritten, self._unwritten_bytes, self._has_taken = [], 0, False
        self._told_next = -1 if self._is_stopping or self._is_removed else self._next
        self._is_stopping = False

    def given_up(self) -> None:
        """What was published never was. What was taken cannot be brought back."""
        rows = self._unwritten
        if self._has_taken or (rows and self._fetched_to > rows[0][SEQUENCE]):
            self._is_astray = True
            return
        self._count_persistent(rows, -1)
        self._next -= len(rows)
        self._count -= len(rows)
        self._ready_bytes -= self._unwritten_bytes
        self._version += 1
        self.written()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _of(self, changes: IndexBatch) -> SqlPlaceStore:
        """What the changes do here."""
        self._check_astray()
        return SqlSession.of(self._store, changes).of_member(self)

    def _let_go(self, ranges: Sequence[TagRange], changes: IndexBatch) -> None:
        self._of(changes).gone += ranges
        self._has_taken = True

    def _settled(self, ranges: Sequence[TagRange], is_gone: bool) -> None:
        for tag in chain.from_iterable(range(first, stop) for first, stop in ranges):
            size_bytes, is_persistent = self._pending_rows.pop(tag)
            self._pending_bytes -= size_bytes
            if is_gone and is_persistent:
                self._persistent -= 1
                self._persistent_bytes -= size_bytes

    def _count_persistent(self, rows: Sequence[Row], sign: int) -> None:
        sizes = [row[SIZE] for row in rows if row[PERSISTENT]]
        self._persistent += sign * len(sizes)
        self._persistent_bytes += sign * sum(sizes)

    @property
    def is_astray(self) -> bool:
        return self._is_astray

    def _check_astray(self) -> None:
        if self._is_astray:
            what = f"queue {self.place.queue}: changes that took messages from it were not written"
            raise Refused(what, "open the queue again: it will be as SQL says")

    def _ready_ranges(self) -> Iterator[TagRange]:
        return chain(self._requeued, [(self._fetched_to, self._next)])

    def _take(self, count: int, bytes_max: int | None = None, has_contents: bool = True) -> list[Row]:
        """Take from the head what is ready."""
        rows = self._upcoming(count, bytes_max, has_contents)
        left = len(rows)
        while left and self._requeued:
            first, stop = self._requeued.take_first(left)
            left -= stop - first
        if left:
            self._fetched_to = rows[-1][SEQUENCE] + 1
        self._count -= len(rows)
        self._ready_bytes -= sum(row[SIZE] for row in rows)
        self._version += 1
        return rows

    def _upcoming(self, count: int, bytes_max: int | None = None, has_contents: bool = True) -> list[Row]:
        """From the head, as many as are asked for and fit, and at least one; they stay where they are."""
        found: list[Row] = []
        room = math.inf if bytes_max is None else bytes_max
        for first, stop in self._ready_ranges():
            while first < stop and len(found) < count:
                limit = count - len(found) if bytes_max is None else min(count - len(found), LARGE_ROWS)
                rows = self._between(first, stop, limit, has_contents)
                for row in rows:
                    room -= row[SIZE]
                    if room < 0 and found:
                        return found
                    found.append(row)
                if not rows:
                    break
                first = rows[-1][SEQUENCE] + 1
        return found

    def _between(self, first: int, stop: int, limit: int, has_contents: bool = True) -> list[Row]:
        """Up to so many of what there is between two sequence ids: from SQL, then from what is not written yet."""
        written_to = self._unwritten[0][SEQUENCE] if self._unwritten else self._next
        rows: list[Row] = []
        if first < written_to:
            rows = self._store.rows(self.place, first, min(stop, written_to), limit, has_contents)
        if stop > written_to and len(rows) < limit:
            start = bisect_left(self._unwritten, max(first, written_to), key=_sequence_of)
            end = min(bisect_left(self._unwritten, stop, key=_sequence_of), start + limit - len(rows))
            rows += (
                self._unwritten[start:end] if has_contents else [row[:CONTENT] for row in self._unwritten[start:end]]
            )
        return rows

    def _size_of(self, first: int, stop: int) -> int:
        unwritten: int = sum(row[SIZE] for row in self._unwritten if first <= row[SEQUENCE] < stop)
        return unwritten + self._store.size_of(self.place, first, stop)

    def _browse(self, where: SqlFilter | None) -> Iterator[Slice]:
        version = self._version
        for first, stop in list(self._ready_ranges()):
            while first < stop:
                if where is None:
                    rows = self._between(first, stop, BROWSE_ROWS)
                else:
                    rows = self._store.rows(self.place, first, stop, BROWSE_ROWS, where=where)
                for slice_ in slices_of(rows):
                    yield slice_
                    if self._version != version:
                        return
                if not rows:
                    break
                first = rows[-1][SEQUENCE] + 1


def _sequence_of(row: Row) -> int:
    return int(row[SEQUENCE])
