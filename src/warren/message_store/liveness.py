"""Liveness: which units of the message store are alive, which of their messages, and what is known of each file.

    persistent     the rows of the referencing runs: a unit is alive if a run that names it has messages  ReferenceCheck
    transient      the index: a unit is alive while its reference count is not 0                          CountCheck

There is no count on disk that could be wrong. A record's key names the runs that reference it. A run that was never
written, or that has the sequence id of one that was never written, does not name the unit, and so does not keep it.

A liveness scan of a file computes its live bytes:

    records ──▶ units, some hundred at a time ──▶ LivenessCheck ──▶ live bytes, exactly

A record counts if its unit is alive and located here: one that the collector has copied elsewhere is garbage here, and
so is a copy whose move never became durable. Of a unit only the bytes of live messages count. Memory: a few hundred
units, however many a file has. The caller makes sure that the file is settled: every run that names something in it is
durable, or was never written.

`FileStatistics` has the size of each file in use, its dead bytes, and its earliest unit:

    file 3   80 of 100 bytes dead, counted · first unit in use 3|0x40
    file 5   40 of 100 bytes dead, counted, and 20 more noted since
    file 6   not counted yet; not needed until something is noted

A scan reads the whole file and counts exactly what is durable. A file from before the start is counted once, and so is
every file when much may have died without a note. Between two scans, each release of runs notes its dead bytes: notes
only select the next file to scan. A note that one scan does not confirm is kept for the next scan, and no longer. Dead
stays dead, so a count can be too low, never too high; a note can be both.

For files written by this process the bytes per queue are known. When a queue is deleted, its runs are not walked: its
bytes in each file are noted. A file without bytes of any other queue need not be counted at all; a file written before
the start is counted, since its queues are not known.

Files are in the order of their numbers, and so of their units' ids: the earliest unit in use is that of the first file,
however many files there are (MR-11). The collector owns the statistics; notes may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from warren.base.ids import FileNumber, Lsn, QueueId, lsn_of
from warren.base.messages import Sizes
from warren.base.threads import Condition
from warren.message_store.body_files import BodyFiles, FoundRecord
from warren.message_store.body_format import Body, RecordKind, Reference, decode_key, decode_stored, every
from warren.message_store.index import IndexEntry, LocationIndex
from warren.message_store.read import LocatedBody, flags, of_messages


class HeldBodies(NamedTuple):
    """The row of a referencing run, with everything durable in it."""

    stored: bytes
    sizes: Sizes
    gone: int  # bitmap of the run's messages that are gone


class Liveness(Protocol):
    def runs_of(self, holders: Sequence[Reference]) -> Sequence[HeldBodies | None]:
        """The run of each reference; None: it does not exist."""
        ...


class LiveBodies(NamedTuple):
    """A live unit: its location, and its live messages."""

    located: LocatedBody
    wanted: int  # bitmap of its live messages
    sizes: Sizes | None  # of all messages of the run; None: not known, the unit is whole
    holders: tuple[Reference, ...]  # live ones
    entry: IndexEntry | None


class LivenessQuestion(NamedTuple):
    unit: Lsn
    holders: tuple[Reference, ...]


class LivenessCheck(Protocol):
    def check(self, questions: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        """The live part of each unit; None: nothing is alive."""
        ...


class ReferenceCheck:
    def __init__(self, liveness: Liveness, index: LocationIndex) -> None:
        self._liveness = liveness
        self._index = index

    def check(self, questions: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        every_holder = [holder for each in questions for holder in each.holders]
        answers = iter(self._liveness.runs_of(every_holder))
        entries = self._index.look_up_many([each.unit for each in questions])
        named = _UnitsByRun()
        return [
            _alive(each, [(holder, next(answers)) for holder in each.holders], entry, named)
            for each, entry in zip(questions, entries, strict=True)
        ]


class CountCheck:
    def __init__(self, index: LocationIndex) -> None:
        self._index = index

    def check(self, questions: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        return [_counted(entry) for entry in self._index.look_up_many([each.unit for each in questions])]


def _alive(
    question: LivenessQuestion,
    runs: Sequence[tuple[Reference, HeldBodies | None]],
    entry: IndexEntry | None,
    named: _UnitsByRun,
) -> LiveBodies | None:
    wanted, holders, found = 0, [], None
    for holder, row in runs:
        unit, chunk_bytes = (None, 0) if row is None else named.unit(row.stored, question.unit)
        if row is None or unit is None:
            continue
        of_holder = every(unit.messages) & ~(row.gone >> unit.first)
        if of_holder:
            wanted |= of_holder
            holders.append(holder)
            found = found or (LocatedBody(chunk_bytes, (unit,)), row.sizes)
    if found is None:
        return None
    located, sizes = found
    if entry is not None:
        now = decode_stored(entry.location)
        located = LocatedBody(now.chunk_bytes, now.units)
    return LiveBodies(located, wanted & located.unit.kept, sizes, tuple(holders), entry)


class _UnitsByRun:
    """The units that runs name, cached: a run with many units is looked up again and again."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[Lsn, Body], int]] = {}

    def unit(self, stored: bytes, unit: Lsn) -> tuple[Body | None, int]:
        if not stored:
            return None, 0
        if stored not in self._known:
            decoded = decode_stored(stored)
            self._known[stored] = {each.id: each for each in decoded.units}, decoded.chunk_bytes
        units, chunk_bytes = self._known[stored]
        return units.get(unit), chunk_bytes


def _counted(entry: IndexEntry | None) -> LiveBodies | None:
    if entry is None or not entry.references:
        return None
    located = LocatedBody(*decode_stored(entry.location))
    return LiveBodies(located, located.unit.kept, None, (), entry)


BATCH_RECORDS = 256


class RecordLiveness(NamedTuple):
    """One record, and the live part of its unit."""

    lsn: Lsn
    unit: Lsn
    is_start: bool  # of its unit, or of a copy of the unit
    size_bytes: int
    live_bytes: int
    alive: LiveBodies | None  # None: nothing is alive, or the unit is not here


class LivenessScan(NamedTuple):
    total_bytes: int  # of contents
    live_bytes: int
    earliest: Lsn | None  # the first live record


def scan_liveness(body_files: BodyFiles, file: FileNumber, liveness_check: LivenessCheck) -> LivenessScan:
    total_bytes = live_bytes = 0
    earliest: Lsn | None = None
    for some in scan_records(body_files, file, liveness_check):
        for each in some:
            total_bytes += each.size_bytes
            live_bytes += each.live_bytes
            if earliest is None and each.alive is not None:
                earliest = each.lsn
    return LivenessScan(total_bytes, live_bytes, earliest)


def scan_records(
    body_files: BodyFiles, file: FileNumber, liveness_check: LivenessCheck
) -> Iterator[list[RecordLiveness]]:
    found = body_files.records(file)
    while records := list(islice(found, BATCH_RECORDS)):
        keys = [decode_key(record.key) for record in records]
        units = [key.unit or record.place.lsn for key, record in zip(keys, records, strict=True)]
        questions = [LivenessQuestion(unit, key.holders) for unit, key in zip(units, keys, strict=True)]
        answers = liveness_check.check(questions)
        yield [
            _record_liveness(record, unit, key.kind is RecordKind.START, alive)
            for record, unit, key, alive in zip(records, units, keys, answers, strict=True)
        ]


def _record_liveness(record: FoundRecord, unit: Lsn, is_start: bool, alive: LiveBodies | None) -> RecordLiveness:
    here = alive if alive is not None and record.place in alive.located.unit.places else None
    size_bytes = record.size_bytes
    live_bytes = 0 if here is None else _live_bytes(here, size_bytes)
    return RecordLiveness(record.place.lsn, unit, is_start, size_bytes, live_bytes, here)


def _live_bytes(alive: LiveBodies, size_bytes: int) -> int:
    """Live bytes of a record: all of a chunk; of joined contents, those of live messages."""
    unit = alive.located.unit
    if alive.sizes is None or alive.wanted == unit.kept:
        return size_bytes
    sizes = of_messages(alive.sizes, unit.first, unit.first + unit.messages)
    return int(sizes[flags(alive.wanted, unit.messages)].sum())


@dataclass(slots=True)
class FileNotes:
    total_bytes: int | None = None  # of contents; None: not counted yet
    dead_bytes: int = 0  # as counted
    noted_bytes: int = 0  # more dead bytes, by notes
    unfound_bytes: int = 0  # of those, what the last scan did not confirm
    earliest: Lsn | None = None  # the first live unit of the last scan; None: not known
    damage: str = ""  # why it cannot be collected
    is_doubtful: bool = False  # more may be dead than was noted
    is_abandoned: bool = False  # all queues with contents in it are deleted

    @property
    def is_empty(self) -> bool:
        """Counted, and nothing was alive."""
        return self.total_bytes is not None and self.earliest is None

    @property
    def is_half_garbage(self) -> bool:
        """Counted, and more than half of it was dead; exactly half is not more."""
        return self.total_bytes is not None and 2 * self.dead_bytes > self.total_bytes

    @property
    def is_to_be_counted(self) -> bool:
        if self.is_abandoned:
            return False
        if self.total_bytes is None or self.is_doubtful:
            return self.is_doubtful or self.noted_bytes > 0
        dead_bytes = min(self.dead_bytes + self.noted_bytes, self.total_bytes)
        is_news = dead_bytes >= self.total_bytes or (2 * dead_bytes > self.total_bytes and not self.is_half_garbage)
        return self.noted_bytes > 0 and is_news


class FileStatistics:
    def __init__(self, lock: Condition) -> None:
        self._lock = lock
        self._files: dict[FileNumber, FileNotes] = {}  # in use, oldest first
        self._noted: dict[FileNumber, int] = {}  # of files that are still written
        self._bytes_by_queue: dict[FileNumber, dict[QueueId, int]] = {}  # of files written by this process
        self._abandoned: set[FileNumber] = set()  # of those, files that are still written
        self._newest = FileNumber(0)  # of all files that were ever sealed
        self._old_up_to = FileNumber(0)  # these may be from before the start: their queues are not known
        self._doubtful_up_to = FileNumber(0)  # in these, sealed or not, more may be dead than was noted

    def update(self, files: Iterable[FileNumber]) -> None:
        """Set the files that are in use and sealed, oldest first."""
        with self._lock:
            before = self._files
            self._files = {
                number: before.get(number) or FileNotes(is_doubtful=number <= self._doubtful_up_to) for number in files
            }
            for number in self._abandoned & self._files.keys():
                self._files[number].is_abandoned = True
            self._abandoned -= self._files.keys()
            self._newest = max(self._newest, next(reversed(self._files), FileNumber(0)))
            self._bytes_by_queue = {
                number: by_queue
                for number, by_queue in self._bytes_by_queue.items()
                if number in self._files or number > self._newest
            }
            for number in [number for number in self._noted if number in self._files]:
                self._files[number].noted_bytes += self._noted.pop(number)

    def note_dead(self, file: FileNumber, dead_bytes: int) -> None:
        with self._lock:
            if file in self._files:
                self._files[file].noted_bytes += dead_bytes
            else:
                self._noted[file] = self._noted.get(file, 0) + dead_bytes

    def wrote(self, file: FileNumber, queues: Iterable[QueueId], size_bytes: int) -> None:
        """Note bytes that were written for these queues."""
        with self._lock:
            by_queue = self._bytes_by_queue.setdefault(file, {})
            for queue in queues:
                by_queue[queue] = by_queue.get(queue, 0) + size_bytes
            self._abandoned.discard(file)
            if file in self._files:
                self._files[file].is_abandoned = False

    def queue_deleted(self, queue: QueueId) -> None:
        """Note that a queue was deleted, durably, with all of its contents."""
        with self._lock:
            for number, by_queue in self._bytes_by_queue.items():
                gone_bytes = by_queue.pop(queue, None)
                if gone_bytes is None:
                    continue
                is_abandoned = not by_queue and number > self._old_up_to
                if number in self._files:
                    self._files[number].noted_bytes += gone_bytes
                    self._files[number].is_abandoned = is_abandoned
                else:
                    self._noted[number] = self._noted.get(number, 0) + gone_bytes
                    self._abandoned |= {number} if is_abandoned else set()
            for number, notes in self._files.items():
                notes.is_doubtful |= number not in self._bytes_by_queue or number <= self._old_up_to

    def knows(self, file: FileNumber) -> bool:
        """Whether a file is in use, or newer than every file that ever was."""
        with self._lock:
            return file in self._files or file > self._newest

    def counted(self, file: FileNumber, total_bytes: int, live_bytes: int, earliest: Lsn | None) -> None:
        with self._lock:
            before, dead_bytes = self._files.get(file) or FileNotes(), total_bytes - live_bytes
            left = max(0, before.noted_bytes - (dead_bytes - before.dead_bytes))
            left = 0 if left == before.unfound_bytes else left
            self._files[file] = FileNotes(total_bytes, dead_bytes, left, left, earliest)
            self._files[file].is_abandoned = before.is_abandoned

    def begin(self, present: FileNumber) -> None:
        """Files up to this one, which is being written, may be from before the start."""
        with self._lock:
            self._old_up_to = self._doubtful_up_to = present

    def count_again(self, present: FileNumber) -> None:
        """Distrust all counts, also that of the file being written."""
        with self._lock:
            self._doubtful_up_to = present
            for notes in self._files.values():
                notes.is_doubtful = True

    def is_damaged(self, file: FileNumber, damage: str) -> None:
        with self._lock:
            self._files.setdefault(file, FileNotes()).damage = damage

    def files(self) -> dict[FileNumber, FileNotes]:
        with self._lock:
            return dict(self._files)

    def earliest(self) -> Lsn | None:
        """No unit before this one is in use; None: there is no sealed file in use."""
        with self._lock:
            for number, notes in self._files.items():
                return lsn_of(number, 0) if notes.earliest is None else notes.earliest
            return None
