"""Index batch: everything one session does to queues, collected as plain data until `end`.

    publish · dequeue · requeued · requeues · delivered · counters · remove_queue    any number of queues, any order
                │
               end ──▶ before_commit of the participants ──▶ ONE session of the message stream ──▶ after_commit

A publish writes a run row. A dequeue removes it, or writes an ack row with the messages of the run that are gone; the
reason is a history record. The batch becomes durable as a whole or not at all, so a move from queue to queue is one
`IndexBatch` (DESIGN rule 24). Of a row that changes several times only the last image is written.

A run that is published and wholly dequeued before `end` is cancelled: only its history is written, and a participating
message store never writes its contents (rule 17). Transient runs are skipped: they never touch the log.

`StreamLock` is the lock of the message stream. It also notes which rows change while cleaning does not hold it:

    IndexBatch.end  lock ──▶ session ends ──▶ its epoch, and during a watch its rows, are noted
    cleaning        lock: the watch begins ──▶ no lock: wait for the disk, read rows ──▶ lock: writes unchanged rows

Invariants
* Nothing is written before `end`, and nothing here waits for the disk.
* A batch belongs to one thread. Several batches about one queue end in the order of what happened to that queue.
* Every batch of the event loop takes the stream lock, so no holder of it waits for durability or for room on the disk.

Elsewhere: the order of messages (queues), large contents (message_store).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from warren.base.environment import Clock
from warren.base.errors import Misuse
from warren.base.ids import Epoch, QueueId
from warren.base.messages import BatchParticipant, QueuePlace, Run
from warren.log.writer import Placed
from warren.queue_index.history_format import (
    DequeueReason,
    HistoryRecord,
    Ranges,
    check_detail,
    encode_events,
    history_key,
)
from warren.queue_index.row_format import (
    Counters,
    ack_key,
    check_place,
    check_run,
    counters_key,
    delivery_key,
    encode_counters,
    encode_gone,
    encode_requeues,
    encode_run,
    named,
    run_key,
)

RunPlace = tuple[QueueId, int, int]  # queue, level, first sequence id


class StreamLock:
    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.lock = lock
        self.newest = Epoch(0)  # under the lock: of all sessions of the stream that have ended
        self.is_watched = False
        self._runs: set[RunPlace] = set()
        self._queues: set[QueueId] = set()

    def begin_watch(self) -> Epoch:
        """Note changed rows from now on. Returns the epoch up to which the stream is written."""
        with self.lock:
            self.is_watched = True
            return self.newest

    def end_watch(self) -> None:
        """Under the lock."""
        self.is_watched = False
        self._runs, self._queues = set(), set()

    def note(self, runs: Iterable[RunPlace], queues: Iterable[QueueId]) -> None:
        """Under the lock, during a watch: acknowledgements of these runs, and these whole queues, were written."""
        self._runs.update(runs)
        self._queues.update(queues)

    def is_changed(self, run: RunPlace) -> bool:
        """Under the lock: since the watch began."""
        return run[0] in self._queues or run in self._runs


MS = 1_000_000  # nanoseconds
NOTHING = Epoch(0)  # the epoch of a batch that wrote nothing: it is durable already

Contents = Sequence[bytes] | None
Fate = tuple[HistoryRecord, DequeueReason | None, bytes]
_REQUEUED: Fate = (HistoryRecord.REQUEUED, None, b"")


class MessageSession(Protocol):
    """The part of a log session that a batch uses."""

    @property
    def placed(self) -> Sequence[Placed]:
        """After `end`: positions of its entries, block by block."""
        ...

    def put(self, storage: int, key: bytes, value: bytes) -> None: ...

    def remove(self, storage: int, key: bytes) -> None: ...

    def remove_storage(self, storage: int) -> None: ...

    def record(self, value: bytes, *, key: bytes) -> None: ...

    def end(self) -> Epoch: ...

    def abort(self) -> None: ...


class _QueueChanges:
    """The changes to one sub-queue."""

    __slots__ = ("counters", "gone", "history", "published", "removed", "requeues")

    def __init__(self) -> None:
        self.published: dict[int, tuple[Run, Contents]] = {}  # by first sequence id, as all of these
        self.gone: dict[int, int] = {}  # runs of which some are gone: bitmaps
        self.removed: dict[int, bool] = {}  # runs that are wholly gone: whether an ack row may exist
        self.counters: Counters | None = None
        self.requeues: dict[int, int] = {}  # by sequence id; 0: no row any more
        self.history: dict[Fate, list[tuple[int, int]]] = {}


class IndexBatch:
    """Created by `QueueIndex.begin`."""

    def __init__(
        self, begin: Callable[[], MessageSession], clock: Clock, stream_lock: StreamLock | None = None
    ) -> None:
        self._begin = begin
        self._clock = clock
        self._stream_lock = stream_lock or StreamLock(nullcontext())
        self._places: dict[QueuePlace, _QueueChanges] = {}
        self._removed_queues: dict[QueueId, None] = {}
        self._participants: dict[int, BatchParticipant] = {}  # by identity
        self._is_open = True

    # -- changes -------------------------------------------------------------------------------------------------

    def publish(self, place: QueuePlace, run: Run, contents: Contents) -> None:
        """New messages. `contents` None: a participant sets `run.stored` in `before_commit`."""
        if not run.is_persistent:
            return
        check_run(place, run, contents)
        self._changes_of(place).published[run.first] = (run, contents)

    def dequeue(
        self, place: QueuePlace, run: Run, gone: int, newly: Ranges, reason: DequeueReason, detail: bytes = b""
    ) -> None:
        """Messages that left. `gone`: all messages of the run that are gone by now, as a bitmap; `newly`: the sequence
        ids that go with this call, as ranges."""
        if not run.is_persistent:
            return
        check_detail(place, detail)
        changes = self._changes_of(place)
        gone_count = gone.bit_count()
        assert newly and gone_count <= run.count, "a dequeue names messages of the run, at least one"
        if gone_count < run.count:
            changes.gone[run.first] = gone
        else:
            changes.gone.pop(run.first, None)
            if changes.published.pop(run.first, None) is None:
                changes.removed[run.first] = gone_count > sum(stop - first for first, stop in newly)
        _add_history(changes, (HistoryRecord.DEQUEUED, reason, detail), newly)

    def requeued(self, place: QueuePlace, ranges: Ranges) -> None:
        """Pending messages that are ready again. History only."""
        if not ranges:
            return
        _add_history(self._changes_of(place), _REQUEUED, ranges)

    def count_requeues(self, place: QueuePlace, counts: Mapping[int, int]) -> list[int]:
        """Write how often messages were requeued, after `requeued` of the same ones. Returns those that have a row now:
        a transient message has none, because its sequence id is given again after a crash."""
        changes = self._places.get(place)
        ranges = changes.history.get(_REQUEUED, ()) if changes is not None else ()
        rows = [message for first, stop in ranges for message in range(first, stop) if message in counts]
        if changes is not None:
            changes.requeues.update({message: counts[message] for message in rows})
        return rows

    def forget_requeues(self, place: QueuePlace, messages: Iterable[int]) -> None:
        """Remove the rows of messages that are gone."""
        self._changes_of(place).requeues.update(dict.fromkeys(messages, 0))

    def delivered(self, place: QueuePlace, ranges: Ranges, consumer: str = "") -> None:
        """Messages that were delivered to a consumer. History only."""
        if not ranges:
            return
        detail = consumer.encode()
        check_detail(place, detail)
        _add_history(self._changes_of(place), (HistoryRecord.DELIVERED, None, detail), ranges)

    def counters(self, place: QueuePlace, counters: Counters) -> None:
        """Counters for the next start; the last call counts."""
        assert counters.is_possible, f"{named(place)}: impossible counters {counters}"
        self._changes_of(place).counters = counters

    def remove_queue(self, queue: QueueId) -> None:
        """Remove all levels of a queue; only history is left. No change to this queue may follow."""
        self._check_open()
        for place, changes in self._places.items():
            if place.queue == queue:
                changes.published, changes.gone, changes.removed, changes.counters = {}, {}, {}, None
                changes.requeues.clear()
        self._removed_queues[queue] = None

    def join(self, participant: BatchParticipant) -> None:
        """Add a participant; a second call with the same one has no effect."""
        self._check_open()
        self._participants.setdefault(id(participant), participant)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Epoch:
        """Write the batch as one session, without waiting. Returns the epoch to wait for."""
        self._finish()
        try:
            wanted = self._wanted()
            elsewhere = [(place, run) for place, run, contents in wanted if contents is None]
            for participant in self._participants.values():
                participant.before_commit(elsewhere)
            _check_stored(elsewhere)
            epoch = self._write()
        except BaseException:
            self._notify_abort()
            raise
        for _, run, _ in wanted:
            run.epoch = epoch
        for participant in self._participants.values():
            participant.after_commit(epoch)
        self._release()
        return epoch

    def abort(self) -> None:
        """Discard the batch. Nothing of it was written."""
        self._finish()
        self._notify_abort()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _changes_of(self, place: QueuePlace) -> _QueueChanges:
        self._check_open()
        found = self._places.get(place)
        if found is None:
            check_place(place)
            found = self._places[place] = _QueueChanges()
        if place.queue in self._removed_queues:
            raise Misuse(f"{named(place)} is removed by this batch: it cannot change any more")
        return found

    def _check_open(self) -> None:
        if not self._is_open:
            raise Misuse("the batch has ended", "begin another one")

    def _finish(self) -> None:
        self._check_open()
        self._is_open = False

    def _notify_abort(self) -> None:
        for participant in self._participants.values():
            participant.on_abort()
        self._release()

    def _release(self) -> None:
        """Drop contents and participants: participants refer to the batch, and cycles stay in memory for a while."""
        self._participants, self._places = {}, {}

    def _wanted(self) -> list[tuple[QueuePlace, Run, Contents]]:
        return [(place, *each) for place, changes in self._places.items() for each in changes.published.values()]

    def _write(self) -> Epoch:
        if not self._places and not self._removed_queues:
            return NOTHING
        wall_ms = self._clock.wall_ns() // MS
        session = self._begin()
        numbered: list[tuple[int, Run]] = []  # runs, with the number of their row's entry in the session
        entries = len(self._removed_queues)
        try:
            for queue in self._removed_queues:
                session.remove_storage(queue)
            for place, changes in self._places.items():
                for run, _ in changes.published.values():
                    numbered.append((entries, run))
                    entries += 1
                entries += _write_rows(session, place, changes)
                if changes.history:
                    entries += _write_history(session, place, changes, wall_ms)
        except BaseException:
            session.abort()
            raise
        stream_lock = self._stream_lock
        with stream_lock.lock:
            epoch = session.end()
            stream_lock.newest = max(stream_lock.newest, epoch)
            if stream_lock.is_watched:
                stream_lock.note(self._acknowledged(), self._removed_queues)
        _set_positions(numbered, session.placed)
        return epoch

    def _acknowledged(self) -> Iterator[RunPlace]:
        """Runs with messages that are gone."""
        for place, changes in self._places.items():
            for first in (*changes.gone, *changes.removed):
                yield place.queue, place.level, first


def _add_history(changes: _QueueChanges, fate: Fate, ranges: Ranges) -> None:
    """Add ranges to the history; adjacent ranges are merged."""
    known = changes.history.setdefault(fate, [])
    for first, stop in ranges:
        assert first < stop, "a range of sequence ids is not empty"
        if known and known[-1][1] == first:
            known[-1] = (known[-1][0], stop)
        else:
            known.append((first, stop))


def _check_stored(runs: Sequence[tuple[QueuePlace, Run]]) -> None:
    for place, run in runs:
        if not run.stored:
            raise Misuse(f"{named(place, run.first)}: the contents of a run were not stored", "join a message store")
        check_run(place, run, None)


def _set_positions(numbered: Sequence[tuple[int, Run]], placed: Sequence[Placed]) -> None:
    """Set the position of each run's row, so that contents are read back without the index."""
    at, first = 0, 0  # a block, and the number of its first entry in the session
    for number, run in numbered:
        while at < len(placed) and number >= first + placed[at].entries:
            first += placed[at].entries
            at += 1
        if at < len(placed):
            run.block, run.entry = placed[at].block, placed[at].entry + number - first


def _write_rows(session: MessageSession, place: QueuePlace, changes: _QueueChanges) -> int:
    """Write the runs first. Returns the number of entries behind them."""
    queue, level = place.queue, place.level
    for first, (run, contents) in changes.published.items():
        session.put(queue, run_key(level, first), encode_run(run, contents))
    for first, gone in changes.gone.items():
        session.put(queue, ack_key(level, first), encode_gone(gone))
    entries = len(changes.gone) + len(changes.removed)
    for first, may_have_ack_row in changes.removed.items():
        session.remove(queue, run_key(level, first))
        if may_have_ack_row:
            session.remove(queue, ack_key(level, first))
            entries += 1
    if changes.counters is not None:
        session.put(queue, counters_key(level), encode_counters(changes.counters))
        entries += 1
    for message, requeues in changes.requeues.items():
        if requeues:
            session.put(queue, delivery_key(level, message), encode_requeues(requeues))
        else:
            session.remove(queue, delivery_key(level, message))
    return entries + len(changes.requeues)


def _write_history(session: MessageSession, place: QueuePlace, changes: _QueueChanges, wall_ms: int) -> int:
    """Returns the number of entries written."""
    entries = 0
    for (kind, reason, detail), ranges in changes.history.items():
        for record in encode_events(kind, reason, wall_ms, ranges, detail):
            session.record(record, key=history_key(place))
            entries += 1
    return entries
