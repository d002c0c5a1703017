"""Changes: what one session will do to queues, gathered as plain data until its end.

    publish · dequeue · requeued · delivered · counters · remove_queue         any number of queues, any order
                │
               end ──▶ before_end of the joined ──▶ ONE session of the message stream ──▶ after_end of the joined

What is published writes a run row; what is dequeued removes it, or says in an ack row which of its messages are gone; a
history record tells why. Everything becomes durable together or not at all, so a move from queue to queue is one
`IndexBatch` (DESIGN rule 24). Of rows that are written again and again only the last image goes in.

A run that is published and wholly dequeued before the end is cancelled: of it nothing is written but its history, and
a message store that has joined never hears of it (rule 17). Transient runs are passed over: they never touch the log.

Always true: nothing is written before the end, and nobody waits in here. Belongs to one thread; whoever has several
about one queue ends them in the order in which things happened to it. Not here: what order messages have (queues),
where large contents go (message_store).

The lock of the message stream, and which rows changed while cleaning did not hold it.

    Changes.end   lock ──▶ session ends ──▶ its epoch, and during a watch its rows, are noted
    cleaning      lock: the watch begins ──▶ no lock: wait for the disk, read rows ──▶ lock: unchanged rows are written

Every batch of the event loop takes this lock. Invariant: no holder of it waits for the disk, neither for durability nor
for room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from warren.base.environment import Clock
from warren.base.errors import Misuse
from warren.base.ids import Epoch, QueueId
from warren.base.messages import QueuePlace, Run
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
    encode_counters,
    encode_gone,
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
        """Note changed rows from now on; the epoch up to which the stream is written."""
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
NOTHING = Epoch(0)  # the epoch of changes that wrote nothing: it is durable already

Contents = Sequence[bytes] | None
Fate = tuple[HistoryRecord, DequeueReason | None, bytes]


class BatchParticipant(Protocol):
    """Somebody who writes elsewhere and ends together with the changes."""

    def before_end(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        """Runs that were published without contents and are still wanted: set `stored` of those that are yours. What is
        written here must become durable no later than a session that ends next."""
        ...

    def after_end(self, epoch: Epoch) -> None:
        """It is written; durable when the epoch is. Epoch 0: there was nothing to write."""
        ...

    def aborted(self) -> None:
        """Nothing of the changes was written, nor will be."""
        ...


class MessageSession(Protocol):
    """What is used of a session of the message stream."""

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
    """What is gathered about one sub-queue."""

    __slots__ = ("counters", "gone", "history", "published", "removed")

    def __init__(self) -> None:
        self.published: dict[int, tuple[Run, Contents]] = {}  # by first sequence id, as all of these
        self.gone: dict[int, int] = {}  # runs of which some are gone: bitmaps
        self.removed: dict[int, bool] = {}  # runs of which all are gone: may there be an ack row?
        self.counters: Counters | None = None
        self.history: dict[Fate, list[tuple[int, int]]] = {}


class IndexBatch:
    """Made by `QueueIndex.begin`."""

    def __init__(self, begin: Callable[[], MessageSession], clock: Clock, writing: StreamLock | None = None) -> None:
        self._begin = begin
        self._clock = clock
        self._writing = writing or StreamLock(nullcontext())
        self._places: dict[QueuePlace, _QueueChanges] = {}
        self._removed_queues: dict[QueueId, None] = {}
        self._joined: dict[int, BatchParticipant] = {}  # by identity
        self._is_open = True

    # -- what happens --------------------------------------------------------------------------------------------

    def publish(self, place: QueuePlace, run: Run, contents: Contents) -> None:
        """Messages that came. `contents` None: somebody who joins sets `run.stored` before the end."""
        if not run.is_persistent:
            return
        check_run(place, run, contents)
        self._of(place).published[run.first] = (run, contents)

    def dequeue(
        self, place: QueuePlace, run: Run, gone: int, newly: Ranges, reason: DequeueReason, detail: bytes = b""
    ) -> None:
        """Messages that left. `gone`: of the run all that are gone now, as a bitmap; `newly`: sequence ids that go with
        this call, as ranges."""
        if not run.is_persistent:
            return
        check_detail(place, detail)
        of_place = self._of(place)
        gone_count = gone.bit_count()
        assert newly and gone_count <= run.count, "something goes, and nothing that is not there"
        if gone_count < run.count:
            of_place.gone[run.first] = gone
        else:
            of_place.gone.pop(run.first, None)
            if of_place.published.pop(run.first, None) is None:
                of_place.removed[run.first] = gone_count > sum(stop - first for first, stop in newly)
        _tell(of_place, (HistoryRecord.DEQUEUED, reason, detail), newly)

    def requeued(self, place: QueuePlace, ranges: Ranges) -> None:
        """Messages that were pending and are ready again. History only."""
        if not ranges:
            return
        _tell(self._of(place), (HistoryRecord.REQUEUED, None, b""), ranges)

    def delivered(self, place: QueuePlace, ranges: Ranges, consumer: str = "") -> None:
        """Messages that went out to somebody. History only."""
        if not ranges:
            return
        detail = consumer.encode()
        check_detail(place, detail)
        _tell(self._of(place), (HistoryRecord.DELIVERED, None, detail), ranges)

    def counters(self, place: QueuePlace, counters: Counters) -> None:
        """What the next start should know; the last one given counts."""
        assert counters.is_possible, f"{named(place)}: no start could believe {counters}"
        self._of(place).counters = counters

    def remove_queue(self, queue: QueueId) -> None:
        """All of a queue goes, every level; only history is left. Nothing more may happen to it."""
        self._check_open()
        for place, of_place in self._places.items():
            if place.queue == queue:
                of_place.published, of_place.gone, of_place.removed, of_place.counters = {}, {}, {}, None
        self._removed_queues[queue] = None

    def join(self, participant: BatchParticipant) -> None:
        """Take part in the end; once, however often it is asked for."""
        self._check_open()
        self._joined.setdefault(id(participant), participant)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Epoch:
        """Write all of it as one session, without waiting; the epoch to wait for."""
        self._finish()
        try:
            wanted = self._wanted()
            elsewhere = [(place, run) for place, run, contents in wanted if contents is None]
            for participant in self._joined.values():
                participant.before_end(elsewhere)
            _check_stored(elsewhere)
            epoch = self._write()
        except BaseException:
            self._tell_aborted()
            raise
        for _, run, _ in wanted:
            run.epoch = epoch
        for participant in self._joined.values():
            participant.after_end(epoch)
        self._release()
        return epoch

    def abort(self) -> None:
        """Forget it. Nothing of it was ever written."""
        self._finish()
        self._tell_aborted()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _of(self, place: QueuePlace) -> _QueueChanges:
        self._check_open()
        found = self._places.get(place)
        if found is None:
            check_place(place)
            found = self._places[place] = _QueueChanges()
        if place.queue in self._removed_queues:
            raise Misuse(f"{named(place)} is removed by these changes: nothing more can happen to it")
        return found

    def _check_open(self) -> None:
        if not self._is_open:
            raise Misuse("the changes have ended", "begin others")

    def _finish(self) -> None:
        self._check_open()
        self._is_open = False

    def _tell_aborted(self) -> None:
        for participant in self._joined.values():
            participant.aborted()
        self._release()

    def _release(self) -> None:
        """Of contents, and of those who have joined: they know us, and a circle stays in memory for a while."""
        self._joined, self._places = {}, {}

    def _wanted(self) -> list[tuple[QueuePlace, Run, Contents]]:
        return [(place, *each) for place, of_place in self._places.items() for each in of_place.published.values()]

    def _write(self) -> Epoch:
        if not self._places and not self._removed_queues:
            return NOTHING
        wall_ms = self._clock.wall_ns() // MS
        session = self._begin()
        numbered: list[tuple[int, Run]] = []  # runs, and which entry of the session the row of each is
        entries = len(self._removed_queues)
        try:
            for queue in self._removed_queues:
                session.remove_storage(queue)
            for place, of_place in self._places.items():
                for run, _ in of_place.published.values():
                    numbered.append((entries, run))
                    entries += 1
                entries += _write_rows(session, place, of_place)
                if of_place.history:
                    entries += _write_history(session, place, of_place, wall_ms)
        except BaseException:
            session.abort()
            raise
        writing = self._writing
        with writing.lock:
            epoch = session.end()
            writing.newest = max(writing.newest, epoch)
            if writing.is_watched:
                writing.note(self._acknowledged(), self._removed_queues)
        _set_positions(numbered, session.placed)
        return epoch

    def _acknowledged(self) -> Iterator[RunPlace]:
        """Runs of which messages are gone."""
        for place, of_place in self._places.items():
            for first in (*of_place.gone, *of_place.removed):
                yield place.queue, place.level, first


def _tell(of_place: _QueueChanges, fate: Fate, ranges: Ranges) -> None:
    """Remember it for history; a range that goes on where the last one ended is one with it."""
    told = of_place.history.setdefault(fate, [])
    for first, stop in ranges:
        assert first < stop, "a range of sequence ids holds some"
        if told and told[-1][1] == first:
            told[-1] = (told[-1][0], stop)
        else:
            told.append((first, stop))


def _check_stored(runs: Sequence[tuple[QueuePlace, Run]]) -> None:
    for place, run in runs:
        if not run.stored:
            raise Misuse(f"{named(place, run.first)}: nobody has taken the contents of a run", "join a message store")
        check_run(place, run, None)


def _set_positions(numbered: Sequence[tuple[int, Run]], placed: Sequence[Placed]) -> None:
    """Runs keep the position of their row, so that contents are read back without the index."""
    at, first = 0, 0  # a block, and the number of its first entry within the session
    for number, run in numbered:
        while at < len(placed) and number >= first + placed[at].entries:
            first += placed[at].entries
            at += 1
        if at < len(placed):
            run.block, run.entry = placed[at].block, placed[at].entry + number - first


def _write_rows(session: MessageSession, place: QueuePlace, of_place: _QueueChanges) -> int:
    """The runs first; how many entries come behind them."""
    queue, level = place.queue, place.level
    for first, (run, contents) in of_place.published.items():
        session.put(queue, run_key(level, first), encode_run(run, contents))
    for first, gone in of_place.gone.items():
        session.put(queue, ack_key(level, first), encode_gone(gone))
    entries = len(of_place.gone) + len(of_place.removed)
    for first, may_have_ack_row in of_place.removed.items():
        session.remove(queue, run_key(level, first))
        if may_have_ack_row:
            session.remove(queue, ack_key(level, first))
            entries += 1
    if of_place.counters is not None:
        session.put(queue, counters_key(level), encode_counters(of_place.counters))
        entries += 1
    return entries


def _write_history(session: MessageSession, place: QueuePlace, of_place: _QueueChanges, wall_ms: int) -> int:
    """How many entries that are."""
    entries = 0
    for (kind, reason, detail), ranges in of_place.history.items():
        for record in encode_events(kind, reason, wall_ms, ranges, detail):
            session.record(record, key=history_key(place))
            entries += 1
    return entries
