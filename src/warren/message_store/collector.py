"""Garbage collector of the message store: joins two files that are both more than half garbage.

    file 3  ▓▓░░░░▓░░░   ┐ 1  live units are appended again, behind the newest records; reads continue
    file 5  ░░░▓░░░░▓░   ┘ 2  the index gets their new locations, durably
                           3  both files are released

A file without live units is released without a partner. Of a unit only live messages are copied, if the others take
bytes. A crash before 2 leaves copies without a reference, garbage for the next scan; a crash before 3 leaves files
without live units. Rows about units that have died since they were moved go with the file they point into.

`CollectorThread` runs the collectors periodically and on request. Releases of runs note most of the garbage, but not
all: the runs of a deleted queue are not walked. So every file is counted again at long intervals, and on request. An
exception ends a pass, not the thread: it is an alarm until a later pass succeeds (base/threads). While passes fail,
requests wait for the back-off; `run_pass` does not, since its caller waits for the result.

Invariants
* What cannot be read is neither copied nor dropped: its file stays, and an alarm names it.
* One thread at a time collects; no other thread waits for it.

Elsewhere: which files are worth it and which units are alive (liveness).
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
    LiveBodies,
    LivenessCheck,
    RecordLiveness,
    scan_liveness,
    scan_records,
)
from warren.message_store.read import BodyReader, append_pieces, edges_of, flags, pieces_of


@dataclass(slots=True)
class CollectionResult:
    """The result of one pass."""

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
        body_files: BodyFiles,
        index: LocationIndex,
        liveness_check: LivenessCheck,
        statistics: FileStatistics,
        lock: Condition,
        is_settled: Callable[[FileNumber], bool],
        ended: deque[tuple[Lsn, IndexEntry]],
    ) -> None:
        self._body_files = body_files
        self._index = index
        self._liveness_check = liveness_check
        self._statistics = statistics
        self._lock = lock  # one collection at a time
        self._is_settled = is_settled
        self._ended = ended
        self._reader = BodyReader(body_files, index)
        self.locked: tuple[FileNumber, ...] = ()  # files that are being collected

    def run(self) -> CollectionResult:
        """One pass: scan files where that is worth it, release empty ones, join two if two are fit for it. A file whose
        queues are all deleted is emptied without a scan: live units in it are found on the way."""
        with self._lock:
            done = CollectionResult()
            self._drop_ended()
            self._statistics.update(self._body_files.files())
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
        """Have the next pass scan every file: much may have died without a note, as when a queue is deleted."""
        self._statistics.count_again(self._body_files.present_file())

    def queue_deleted(self, queue: QueueId) -> None:
        """Note that everything of a queue is garbage."""
        self._statistics.queue_deleted(queue)

    def alarms(self) -> list[str]:
        damaged = [(number, notes.damage) for number, notes in self._statistics.files().items() if notes.damage]
        return [
            f"{self._body_files.path(number)} is kept although it may hold garbage: {reason}"
            for number, reason in damaged
        ]

    def _sound(self) -> dict[FileNumber, FileNotes]:
        return {number: notes for number, notes in self._statistics.files().items() if not notes.damage}

    def _drop_ended(self) -> None:
        """Delete entries without references. One that was moved stays until its file is collected: only then no crash
        can bring its runs back."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        self._index.delete_object([(unit, entry) for unit, entry in ended if _is_at(unit, entry)])

    def _count(self, done: CollectionResult) -> None:
        for number, notes in self._sound().items():
            if notes.is_to_be_counted and self._is_settled(number):
                try:
                    self._statistics.counted(number, *scan_liveness(self._body_files, number, self._liveness_check))
                except (Damage, Refused) as error:
                    self._statistics.is_damaged(number, error.what)
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
            self._body_files.release(files)
            done.released += files
            self._statistics.update(self._body_files.files())
        except _Unreadable as error:
            self._statistics.is_damaged(error.file, error.reason)
        finally:
            self.locked = ()

    def _empty(self, number: FileNumber, done: CollectionResult) -> None:
        """Copy everything that is alive elsewhere, some hundred units at a time."""
        try:
            for records in scan_records(self._body_files, number, self._liveness_check):
                alive = {each.unit: each.alive for each in records if each.alive is not None}
                moves = [self._copied(unit, each, number, done) for unit, each in alive.items()]
                self._index.move(moves)
                self._note_left_behind(alive.values(), number)
                self._index.delete_object(self._stale(records))
        except (Damage, Refused) as error:
            raise _Unreadable(number, error.what) from error

    def _copied(self, unit: Lsn, alive: LiveBodies, number: FileNumber, done: CollectionResult) -> BodyMove:
        located = alive.located
        try:
            trimmed = _is_worth_trimming(alive)
            pieces = self._trimmed(alive) if trimmed else map(bytes, self._reader.pieces(located))
            places = append_pieces(self._body_files, unit, alive.holders, pieces)
        except (Damage, Refused) as error:
            raise _Unreadable(number, f"unit {unit:#x} cannot be read: {error.what}") from error
        queues, share = {holder.queue for holder in alive.holders}, located.unit.size_bytes // len(places)
        for place in places:
            self._statistics.wrote(place.file, queues, share)
        kept = alive.wanted if trimmed else located.unit.kept
        size_bytes = _size_of(alive, kept) if trimmed else located.unit.size_bytes
        copy = Body(unit, size_bytes, located.unit.first, located.unit.messages, places, kept)
        done.copied_units += 1
        done.copied_bytes += size_bytes
        return BodyMove(unit, _words(alive), encode_stored([copy], located.chunk_bytes))

    def _note_left_behind(self, moved: Iterable[LiveBodies], number: FileNumber) -> None:
        """A rotation may lie between two chunks of a unit: those in the other file are garbage now."""
        for alive in moved:
            unit = alive.located.unit
            for (begin, end), place in zip(
                pieces_of(unit.size_bytes, alive.located.chunk_bytes), unit.places, strict=True
            ):
                if place.file != number:
                    self._statistics.note_dead(place.file, end - begin)

    def _trimmed(self, alive: LiveBodies) -> Iterator[bytes]:
        """The live contents, joined again: one record, since only joined contents are trimmed."""
        unit, sizes = alive.located.unit, alive.sizes
        assert sizes is not None and len(unit.places) == 1, "a content in chunks is alive as a whole"
        raw = next(self._reader.pieces(alive.located))
        edges = edges_of(unit, sizes).tolist()
        wanted = flags(alive.wanted, unit.messages).tolist()
        yield b"".join(raw[edges[at] : edges[at + 1]] for at, is_wanted in enumerate(wanted) if is_wanted)

    def _stale(self, records: Sequence[RecordLiveness]) -> list[tuple[Lsn, IndexEntry]]:
        """Entries of dead units that were moved to this file, or whose references were not released one by one."""
        dead = [each for each in records if each.is_start and each.alive is None]
        entries = self._index.look_up_many([each.unit for each in dead])
        return [
            (each.unit, entry)
            for each, entry in zip(dead, entries, strict=True)
            if entry is not None and _is_at(each.lsn, entry)
        ]

    def _move_base(self, done: CollectionResult) -> None:
        earliest = self._statistics.earliest()
        if earliest is not None and done.has_done_something:
            self._body_files.move_base(earliest)


class _Unreadable(Exception):
    """A file has a unit that is or may be alive, and cannot be read."""

    def __init__(self, file: FileNumber, reason: str) -> None:
        super().__init__(reason)
        self.file = file
        self.reason = reason


def _is_worth_trimming(alive: LiveBodies) -> bool:
    """Whether dead messages take bytes."""
    unit = alive.located.unit
    if alive.sizes is None or alive.wanted == unit.kept or len(unit.places) > 1:
        return False
    return _size_of(alive, alive.wanted) < unit.size_bytes


def _size_of(alive: LiveBodies, kept: int) -> int:
    assert alive.sizes is not None, "a unit without known sizes is not trimmed"
    return int(edges_of(alive.located.unit._replace(kept=kept), alive.sizes)[-1])


def _is_at(lsn: Lsn, entry: IndexEntry) -> bool:
    """Whether an entry locates its unit here."""
    return decode_stored(entry.location).units[0].places[0].lsn == lsn


def _words(alive: LiveBodies) -> bytes:
    """The location of the unit, as the index has it."""
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
        self._loop = BackgroundLoop(threads, clock, self._task, lambda is_requested: self._run_pass())
        self._loop.start("warren-store-gc", seconds)

    @property
    def passes(self) -> int:
        """Rounds that have ended."""
        return self._loop.rounds

    def wake(self) -> None:
        """Request a round."""
        self._loop.request()

    def run_pass(self) -> None:
        """Request a round; return when a round that began after this call has ended."""
        self._loop.run_and_wait()

    def stop(self) -> None:
        """End after the current round."""
        self._loop.stop()

    def alarms(self) -> list[str]:
        return [*self._task.alarms(), *(alarm for collector in self._collectors for alarm in collector.alarms())]

    def _run_pass(self) -> None:
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
