"""The collector: joins two files that are both more than half garbage.

    file 3  ▓▓░░░░▓░░░   ┐ 1  live units are appended again, to the head of the heap, while everybody reads on
    file 5  ░░░▓░░░░▓░   ┘ 2  the index says where each is now, durably
                           3  both files are released

A file in which nothing is alive goes without a partner. Of a unit only messages that are alive are copied, where the
others take bytes. A crash before 2 leaves copies that nobody names, garbage of the next census; before 3 it leaves
files in which nothing is alive. Rows about units that have died since they were moved go with the file they point into.

Always true: what cannot be read is neither copied nor dropped: its file stays, and somebody is told. One thread at a
time collects; nobody else waits for it. Not here: which files are worth it (ledger), who is alive (census).

The collector's own thread: garbage is looked for now and then, and whenever somebody asks.

What is dead is noted by whoever lets go of it, mostly. Not all is: the runs of a queue that is deleted are not looked
at one by one. So once in a long while, and when somebody says so, every file is counted again.

An exception ends a turn, not the thread: it is an alarm until a later turn is good (base/threads). While turns fail,
rings wait for the back-off; `turn` does not, since its caller waits for the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from warren.base.environment import Clock
from warren.base.errors import Damage, Refused
from warren.base.ids import FileNumber, Lsn, QueueId
from warren.base.threads import Background, BackgroundLoop, Condition, Threads
from warren.message_store.body_files import BodyFiles
from warren.message_store.body_format import Body, decode_stored, encode_stored
from warren.message_store.index import BodyMove, IndexEntry, LocationIndex
from warren.message_store.liveness import (
    FileNotes,
    FileStatistics,
    JudgedFiles,
    LiveBodies,
    LivenessCheck,
    judged_records,
    scan_liveness,
)
from warren.message_store.read import BodyReader, append_pieces, edges_of, flags, pieces_of


@dataclass(slots=True)
class CollectionResult:
    """What one turn has done."""

    released: list[FileNumber] = field(default_factory=list)
    copied_units: int = 0
    copied_bytes: int = 0
    counted: int = 0  # files

    @property
    def has_done_something(self) -> bool:
        return bool(self.released or self.counted)


class Collector:
    def __init__(
        self,
        heap: BodyFiles,
        index: LocationIndex,
        judge: LivenessCheck,
        ledger: FileStatistics,
        lock: Condition,
        is_settled: Callable[[FileNumber], bool],
        ended: deque[tuple[Lsn, IndexEntry]],
    ) -> None:
        self._heap = heap
        self._index = index
        self._judge = judge
        self._ledger = ledger
        self._lock = lock  # one collection at a time
        self._is_settled = is_settled
        self._ended = ended
        self._reader = BodyReader(heap, index)
        self.locked: tuple[FileNumber, ...] = ()  # files that are being collected; all others are as ever

    def run(self) -> CollectionResult:
        """One turn: count what is worth counting, let go of what is empty, join two files if two are fit for it. A file
        whose queues are all deleted is emptied uncounted: should anything be alive in it, that is found on the way."""
        with self._lock:
            done = CollectionResult()
            self._drop_ended()
            self._ledger.update(self._heap.files())
            self._count(done)
            empty = [number for number, notes in self._sound().items() if notes.is_empty or notes.is_abandoned]
            for number in filter(self._is_settled, empty):
                self._collect([number], done)
            pair = self._pair()
            if len(pair) == 2:
                self._collect(pair, done)
            self._move_base(done)
            return done

    def count_again(self) -> None:
        """Let the next turn count every file: much may have died that nobody has noted, as when a queue is deleted."""
        self._ledger.count_again(self._heap.present_file())

    def queue_has_gone(self, queue: QueueId) -> None:
        """All that was in it is garbage, and nobody has noted it run by run."""
        self._ledger.queue_has_gone(queue)

    def alarms(self) -> list[str]:
        damaged = [(number, notes.damage) for number, notes in self._ledger.files().items() if notes.damage]
        return [
            f"{self._heap.path(number)} is kept although it may hold garbage: {reason}" for number, reason in damaged
        ]

    def _sound(self) -> dict[FileNumber, FileNotes]:
        return {number: notes for number, notes in self._ledger.files().items() if not notes.damage}

    def _drop_ended(self) -> None:
        """Entries whose last run has ended. One that was moved stays until its file is collected: only then is it sure
        that no crash can bring its runs back."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        self._index.delete_object([(unit, entry) for unit, entry in ended if _is_at(unit, entry)])

    def _count(self, done: CollectionResult) -> None:
        for number, notes in self._sound().items():
            if notes.is_to_be_counted and self._is_settled(number):
                try:
                    self._ledger.counted(number, *scan_liveness(self._heap, number, self._judge))
                except (Damage, Refused) as error:
                    self._ledger.is_damaged(number, error.what)
                done.counted += 1

    def _pair(self) -> list[FileNumber]:
        """The two files with the most garbage, if both are more than half garbage."""
        fit = {number: notes for number, notes in self._sound().items() if notes.is_half_garbage}
        return sorted(fit, key=lambda number: (-fit[number].dead_bytes, number))[:2]

    # -- one collection ------------------------------------------------------------------------------------------

    def _collect(self, files: Sequence[FileNumber], done: CollectionResult) -> None:
        self.locked = tuple(files)
        try:
            for number in files:
                self._empty(number, done)
            self._heap.release(files)
            done.released += files
            self._ledger.update(self._heap.files())
        except _Unreadable as error:
            self._ledger.is_damaged(error.file, error.reason)
        finally:
            self.locked = ()

    def _empty(self, number: FileNumber, done: CollectionResult) -> None:
        """Bring everything that is alive elsewhere, some hundred units at a time."""
        try:
            for judged in judged_records(self._heap, number, self._judge):
                alive = {each.unit: each.alive for each in judged if each.alive is not None}
                moves = [self._copied(unit, each, number, done) for unit, each in alive.items()]
                self._index.move(moves)
                self._note_left_behind(alive.values(), number)
                self._index.delete_object(self._stale(judged))
        except (Damage, Refused) as error:
            raise _Unreadable(number, error.what) from error

    def _copied(self, unit: Lsn, alive: LiveBodies, number: FileNumber, done: CollectionResult) -> BodyMove:
        located = alive.located
        try:
            trimmed = _is_worth_trimming(alive)
            pieces = self._trimmed(alive) if trimmed else map(bytes, self._reader.pieces(located))
            places = append_pieces(self._heap, unit, alive.holders, pieces)
        except (Damage, Refused) as error:
            raise _Unreadable(number, f"unit {unit:#x} cannot be read: {error.what}") from error
        queues, share = {holder.queue for holder in alive.holders}, located.unit.size_bytes // len(places)
        for place in places:
            self._ledger.wrote(place.file, queues, share)
        kept = alive.wanted if trimmed else located.unit.kept
        size_bytes = _size_of(alive, kept) if trimmed else located.unit.size_bytes
        copy = Body(unit, size_bytes, located.unit.first, located.unit.messages, places, kept)
        done.copied_units += 1
        done.copied_bytes += size_bytes
        return BodyMove(unit, _words(alive), encode_stored([copy], located.chunk_bytes))

    def _note_left_behind(self, moved: Iterable[LiveBodies], number: FileNumber) -> None:
        """A rotation may have come between two chunks: the others are garbage now, in another file."""
        for alive in moved:
            unit = alive.located.unit
            for (begin, end), place in zip(
                pieces_of(unit.size_bytes, alive.located.chunk_bytes), unit.places, strict=True
            ):
                if place.file != number:
                    self._ledger.note_dead(place.file, end - begin)

    def _trimmed(self, alive: LiveBodies) -> Iterator[bytes]:
        """The contents that are wanted, joined again: one record, since only joined contents are trimmed."""
        unit, sizes = alive.located.unit, alive.sizes
        assert sizes is not None and len(unit.places) == 1, "a content that is cut into chunks is wanted or not"
        raw = next(self._reader.pieces(alive.located))
        edges = edges_of(unit, sizes).tolist()
        wanted = flags(alive.wanted, unit.messages).tolist()
        yield b"".join(raw[edges[at] : edges[at + 1]] for at, is_wanted in enumerate(wanted) if is_wanted)

    def _stale(self, judged: Sequence[JudgedFiles]) -> list[tuple[Lsn, IndexEntry]]:
        """Entries of dead units that were moved to this file, or whose holders went without a word."""
        dead = [each for each in judged if each.is_start and each.alive is None]
        entries = self._index.look_up_many([each.unit for each in dead])
        return [
            (each.unit, entry)
            for each, entry in zip(dead, entries, strict=True)
            if entry is not None and _is_at(each.lsn, entry)
        ]

    def _move_base(self, done: CollectionResult) -> None:
        earliest = self._ledger.earliest()
        if earliest is not None and done.has_done_something:
            self._heap.move_base(earliest)


class _Unreadable(Exception):
    """Something in a file is alive, or may be, and cannot be read."""

    def __init__(self, file: FileNumber, reason: str) -> None:
        super().__init__(reason)
        self.file = file
        self.reason = reason


def _is_worth_trimming(alive: LiveBodies) -> bool:
    """Are there messages that nobody wants, and that take bytes?"""
    unit = alive.located.unit
    if alive.sizes is None or alive.wanted == unit.kept or len(unit.places) > 1:
        return False
    return _size_of(alive, alive.wanted) < unit.size_bytes


def _size_of(alive: LiveBodies, kept: int) -> int:
    assert alive.sizes is not None, "whose sizes nobody knows is not trimmed"
    return int(edges_of(alive.located.unit._replace(kept=kept), alive.sizes)[-1])


def _is_at(lsn: Lsn, entry: IndexEntry) -> bool:
    """Does an entry say that its unit begins here?"""
    return decode_stored(entry.location).units[0].places[0].lsn == lsn


def _words(alive: LiveBodies) -> bytes:
    """Where the unit is, as the index knows it."""
    return (
        encode_stored(alive.located.units, alive.located.chunk_bytes) if alive.entry is None else alive.entry.location
    )


class CollectorThread:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        background: Background,
        collectors: Sequence[Collector],
        seconds: float,
        scan_seconds: float,
    ) -> None:
        self._clock = clock
        self._collectors = collectors
        self._scan_seconds = scan_seconds
        self._counted_ns = clock.monotonic_ns()
        self._task = background.task("store-gc", "garbage in the message store is not collected")
        self._loop = BackgroundLoop(threads, clock, self._task, lambda is_requested: self._turn())
        self._loop.start("warren-store-gc", seconds)

    @property
    def turns(self) -> int:
        """Rounds that have ended."""
        return self._loop.rounds

    def ring(self) -> None:
        """Request a round."""
        self._loop.request()

    def turn(self) -> None:
        """Request a round; return when a round that began after this call has ended."""
        self._loop.run_and_wait()

    def stop(self) -> None:
        """End after the current round."""
        self._loop.stop()

    def alarms(self) -> list[str]:
        return [*self._task.alarms(), *(alarm for collector in self._collectors for alarm in collector.alarms())]

    def _turn(self) -> None:
        """As long as there is something to do: what was copied may soon be garbage, too, but not at once."""
        now_ns = self._clock.monotonic_ns()
        is_liveness_scan_due = now_ns - self._counted_ns >= self._scan_seconds * 1e9
        if is_liveness_scan_due:
            self._counted_ns = now_ns
        for collector in self._collectors:
            if is_liveness_scan_due:
                collector.count_again()
            while collector.run().released and not self._loop.is_stopping:
                continue
