"""Queue index: the order of messages in each queue, and which of them are gone.

    journal    the message stream of the log: changes of all queues are appended                          (batch)
    segments   ranges of keys in the snapshot store, made from the journal in bulk                        (snapshot)

                 queue 7   r 0 …   r 16384 …   r 32768 …   c           one storage per queue
                           └ run row, ack row, run row, …              `scan` reads a range of sequence ids

A row of more than a few bytes stays in the log, and the store holds a pointer to it: the order is read from the store,
contents from the log's blocks, which are read whole, checked, and cached for a while (log/pointers). So nothing is
copied before a log file has to go, and reading a queue from its head reads every block about once.

Recovery reads the counters row and the runs behind it, so it does not grow with the length of a queue. After an unclean
stop everything recovered counts as delivered before: what was delivered is not known. A queue that resumes after a
clean stop writes counters that are not clean before its first delivery.

Invariants
* A read uses a view that holds at least what the caller has written.
* A read of one queue never depends on another queue.
* Rows of unknown queues are ignored (HS-06), and so is an ack row without its run (MR-13).

Elsewhere: large contents (message_store), residence in memory (queues).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from warren.base.environment import Clock
from warren.base.errors import Damage, Gone, Misuse
from warren.base.ids import Epoch, Lsn, SequenceId
from warren.base.messages import QueuePlace, Run
from warren.base.threads import SystemThreads
from warren.files.protocol import Buffer
from warren.log.pointers import Pointer, is_pointer
from warren.queue_index.batch import NOTHING, IndexBatch, MessageSession, StreamLock
from warren.queue_index.row_format import (
    ACK_ROW,
    RUN_COUNT_MAX,
    Counters,
    counters_key,
    decode_contents,
    decode_counters,
    decode_delivery,
    decode_gone,
    decode_run,
    delivery_key,
    named,
    read_key,
    run_key,
)
from warren.snapshot.database import Database
from warren.snapshot.store import StoredVersion, StoreRow

MESSAGES = "messages"  # the stream
TRIES = 4  # a row may move while it is read; then it is looked up again

OnDamage = Callable[[SequenceId, Damage], None]  # the run that begins there cannot be read
Piece = tuple[Run, int, int]  # messages start … stop of a run


class RowReader(Protocol):
    """The part of a store view that the index uses."""

    def get(self, storage: int, key: bytes) -> StoredVersion | None: ...

    def get_many(self, storage: int, keys: Sequence[bytes]) -> list[StoredVersion | None]: ...

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]: ...

    def close(self) -> None: ...


class Reads(Protocol):
    """The part of a database that the index uses."""

    def view_at(self, epoch: Epoch) -> RowReader: ...

    def view_durable(self) -> RowReader: ...

    def resolve(self, value: bytes) -> Buffer: ...

    def row_at(self, epoch: Epoch, block: Lsn, entry: int, storage: int, key: bytes) -> Buffer: ...


class IndexedRun(NamedTuple):
    run: Run  # without contents
    gone: int  # bit i: message i of the run is gone


class QueueIndex:
    """One for all queues. Thread-safe."""

    def __init__(
        self, reads: Reads, begin: Callable[[], MessageSession], clock: Clock, stream_lock: StreamLock | None = None
    ) -> None:
        self._reads = reads
        self.stream_lock = stream_lock or StreamLock(SystemThreads().condition())
        self.begin = partial(IndexBatch, begin, clock, self.stream_lock)

    @classmethod
    def of(cls, database: Database) -> QueueIndex:
        stream = database.log.stream(MESSAGES, is_referring=True)
        environment = database.log.environment
        return cls(database, stream.begin, environment.clock, StreamLock(environment.threads.condition()))

    def recover(self, place: QueuePlace, newest: Epoch = NOTHING, on_damage: OnDamage | None = None) -> Counters:
        """Counters of a sub-queue, with everything up to `newest`; right after opening the default will do. `is_clean`:
        its last stop was clean; if not, everything there counts as delivered."""
        with closing(self._reads.view_at(newest)) as view:
            found = view.get(place.queue, counters_key(place.level))
            counters = decode_counters(place, self._reads.resolve(found.value)) if found is not None else Counters()
            unread: list[SequenceId] = []
            note = None if on_damage is None else _noting(unread, on_damage)
            starts: list[SequenceId] = []
            for indexed in self._from(view, place, counters.next, None, note):
                starts.append(indexed.run.first)
                counters = _with_run(counters, *indexed)
        if unread:
            counters = _with_unread(counters, unread, starts)
        return counters if counters.is_clean else replace(counters, delivered_to=counters.next)

    def requeues(self, place: QueuePlace, newest: Epoch) -> dict[SequenceId, int]:
        """How often messages were requeued, where that is counted; some of the messages may be gone."""
        low, high = delivery_key(place.level, 0), delivery_key(place.level, (1 << 64) - 1)
        with closing(self._reads.view_at(newest)) as view:
            rows = view.range(place.queue, low, high)
            return dict(decode_delivery(place, row.key, self._reads.resolve(row.value)) for row in rows)

    def scan(
        self,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId,
        newest: Epoch,
        runs_max: int | None = None,
        messages_max: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[IndexedRun]:
        """The runs with live messages from `first` up to `stop`, in order, up to `runs_max` runs or about
        `messages_max` messages. The first and the last may lie in the range only in part. They must have been written
        in epochs up to `newest`. An unreadable run raises `Damage`, or is passed to `on_damage` and left out."""
        messages = 0
        with closing(self._reads.view_at(newest)) as view:
            for runs, indexed in enumerate(self._between(view, place, first, stop, on_damage)):
                if runs == runs_max or (messages_max is not None and messages >= messages_max):
                    return
                messages += min(indexed.run.end, stop) - max(indexed.run.first, first)
                yield indexed

    def contents(self, place: QueuePlace, run: Run, start: int, stop: int) -> list[bytes]:
        """Contents of messages start … stop of a run with embedded contents. Waits until the run is durable."""
        return self.contents_of(place, [(run, start, stop)])[0]

    def contents_of(self, place: QueuePlace, pieces: Sequence[Piece]) -> list[list[bytes]]:
        """The same for several runs at once, which costs less."""
        for run, _, _ in pieces:
            if run.epoch == NOTHING:
                raise Misuse(f"{named(place, run.first)}: the run was not written", "end the batch that publishes it")
        values = [self._value_at(place, run) for run, _, _ in pieces]
        missing = [at for at, value in enumerate(values) if value is None]
        if missing:
            runs = [pieces[at][0] for at in missing]
            with closing(self._reads.view_at(max(run.epoch for run in runs))) as view:
                rows = view.get_many(place.queue, [run_key(place.level, run.first) for run in runs])
            for at, run, row in zip(missing, runs, rows, strict=True):
                values[at] = self._value(place, run.first, row)
        return [
            decode_contents(place, run.first, value, start, stop)
            for (run, start, stop), value in zip(pieces, values, strict=True)
            if value is not None
        ]

    # -- runs in order -------------------------------------------------------------------------------------------

    def _between(
        self,
        view: RowReader,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId,
        on_damage: OnDamage | None,
    ) -> Iterator[IndexedRun]:
        """Runs that begin in the range, and before them the one that contains `first`."""
        found = self._from(view, place, first, stop, on_damage)
        head = next(found, None)
        if head is None or head.run.first > first:
            nearest = run_key(place.level, max(0, first - RUN_COUNT_MAX + 1))
            behind = view.range(place.queue, nearest, run_key(place.level, first), reverse=True)
            before = next((at for at, kind in (read_key(place, row.key) for row in behind) if kind != ACK_ROW), None)
            if before is not None:
                earlier = self._from(view, place, before, first, on_damage)
                yield from (indexed for indexed in earlier if indexed.run.end > first)
        if head is not None:
            yield head
            yield from found

    def _from(
        self,
        view: RowReader,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId | None,
        on_damage: OnDamage | None,
    ) -> Iterator[IndexedRun]:
        """Runs that begin at `first` or later and have live messages."""
        high = _behind(place.level) if stop is None else run_key(place.level, stop)
        end = first
        for at, row, ack in _paired(place, view.range(place.queue, run_key(place.level, first), high)):
            try:
                indexed = self._indexed(place, at, row, ack)
                if at < end:
                    raise Damage(f"{named(place, at)}: a run begins here, and the one before it ends at {end}")
            except Damage as error:
                if on_damage is None:
                    raise
                on_damage(at, error)
                continue
            end = indexed.run.end
            if indexed.gone.bit_count() < indexed.run.count:
                yield indexed

    def _indexed(self, place: QueuePlace, first: SequenceId, row: StoreRow, ack: StoreRow | None) -> IndexedRun:
        run = decode_run(place, first, self._value(place, first, row), Epoch(row.version[0]))
        if is_pointer(row.value):
            run.block, run.entry, *_ = Pointer.decode(row.value)
        if ack is None:
            return IndexedRun(run, 0)
        value = self._value(place, first, ack, ack.key)
        return IndexedRun(run, decode_gone(place, first, run.count, value))

    # -- values --------------------------------------------------------------------------------------------------

    def _value_at(self, place: QueuePlace, run: Run) -> Buffer | None:
        """The row of a run from its position. None: it has none, or is not readable there. Cleaning may have written it
        again elsewhere: the index has the newest position."""
        if not run.block:
            return None
        try:
            key = run_key(place.level, run.first)
            return self._reads.row_at(run.epoch, run.block, run.entry, place.queue, key)
        except (Gone, Damage):
            run.block = Lsn(0)
            return None

    def _value(
        self, place: QueuePlace, first: SequenceId, row: StoreRow | StoredVersion | None, key: bytes | None = None
    ) -> Buffer:
        """The value of a row, from the store or the log. It may move from the log to the store meanwhile."""
        for left in reversed(range(TRIES)):
            if row is None:
                raise Damage(f"{named(place, first)}: the row of a run is not there")
            try:
                return self._reads.resolve(row.value)
            except Gone as error:
                if not left:
                    raise Damage(f"{named(place, first)}: {error.what}") from error
            except Damage as error:
                raise Damage(f"{named(place, first)}: {error.bare}", error.path, error.offset) from error
            # Cleaning releases a file after the store has applied the row's new position, unless the store is down.
            with closing(self._reads.view_at(NOTHING) if left == TRIES - 1 else self._reads.view_durable()) as view:
                row = view.get(place.queue, key or run_key(place.level, first))
        raise AssertionError("the last try returns or raises")


def _behind(level: int) -> bytes:
    """Behind every run of a level."""
    return b"r" + bytes([level]) + b"\xff" * 10


def _noting(unread: list[SequenceId], on_damage: OnDamage) -> OnDamage:
    def note(first: SequenceId, damage: Damage) -> None:
        unread.append(first)
        on_damage(first, damage)

    return note


def _paired(place: QueuePlace, rows: Iterator[StoreRow]) -> Iterator[tuple[SequenceId, StoreRow, StoreRow | None]]:
    """Each run row with its ack row. An ack row without a run row is left from a run that is gone."""
    previous: tuple[SequenceId, StoreRow] | None = None
    for row in rows:
        first, kind = read_key(place, row.key)
        if kind == ACK_ROW:
            if previous is not None and previous[0] == first:
                yield *previous, row
                previous = None
            continue
        if previous is not None:
            yield *previous, None
        previous = first, row
    if previous is not None:
        yield *previous, None


def _with_unread(counters: Counters, unread: Sequence[SequenceId], starts: Sequence[SequenceId]) -> Counters:
    """Counters including unreadable runs. Their number of messages is unknown: the largest possible one is assumed, so
    that all are found when the runs are readable again, and no sequence id is assigned twice."""
    following = sorted([*unread, *starts])
    behind = [min([at for at in following if at > first] + [first + RUN_COUNT_MAX]) for first in unread]
    return replace(
        counters,
        next=SequenceId(max(counters.next, *(first + RUN_COUNT_MAX for first in unread))),
        head=min([counters.head] * bool(counters.count) + [*unread]),
        count=counters.count + sum(end - first for first, end in zip(unread, behind, strict=True)),
        is_clean=False,
    )


def _with_run(counters: Counters, run: Run, gone: int) -> Counters:
    """Counters including one more run. It was written after the counters, so the stop was not clean."""
    alive = [index for index in range(run.count) if not gone >> index & 1] if gone else range(run.count)
    size_bytes = sum(run.size_of(index, index + 1) for index in alive) if gone else run.size_of(0, run.count)
    return Counters(
        next=run.end,
        head=counters.head if counters.count else SequenceId(run.first + alive[0]),
        count=counters.count + len(alive),
        size_bytes=counters.size_bytes + size_bytes,
        delivered_to=counters.delivered_to,
        is_clean=False,
    )
