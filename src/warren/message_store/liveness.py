"""Whether a unit is alive, and which of its messages: asked of whoever knows.

    persistent     the rows of its holders: a unit is alive if a run that names it still has messages     HolderJudge
    transient      the index: a unit is alive while somebody counts on it                                 CountJudge

No count on disk can be wrong, since there is none. A record's key names the runs that were to hold it; a run that never
came, or was given the sequence id of one that never came, does not name the unit, and so does not hold it.

The census of a file: who in it is alive.

    records ──▶ units, some hundred at a time ──▶ judge ──▶ live bytes, exactly

A record counts if its unit is alive and lies here now: one that the collector has copied elsewhere is garbage here, and
a copy whose move never became durable is garbage as well. Of a unit the bytes of those messages count that are alive.

Always true: memory is for a few hundred units, however many a file has. Whoever asks has made sure that the file is
settled: every run that names something in it is durable, or was never written.

What is known of the files in use: how much is in each, how much of it is dead, and where the earliest unit is.

    file 3   80 of 100 bytes dead, counted · first unit in use 3|0x40
    file 5   40 of 100 bytes dead, counted, and 20 more noted since
    file 6   not counted yet; it need not be as long as nobody has noted anything

A census reads the whole file and counts exactly what is durable. A file that was there before we were is counted once,
and so is every file when much may have died unnoted. Between two of them whoever lets go of runs notes what went with
them: that says only which file is worth the next census. A note that a census has not found yet is kept for the next
one, and no longer. What is dead stays dead, so a count can be too low, never too high; a note can be both.

Of a file that we have written ourselves it is known which queues have how much in it. When a queue is deleted, nobody
looks at its runs one by one: what it had in each file is noted. A file in which nobody else has anything need not be
counted at all; one that an earlier life has written is counted, since nobody knows.

Files stand in the order of their numbers, and so of their units' ids: the earliest unit in use is that of the first
file, however many there are (MR-11). Belongs to the collector, but for notes, which any thread may leave.
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
    """What the rows of a holder say; everything durable must be in them."""

    stored: bytes
    sizes: Sizes
    gone: int  # bitmap of the run's messages that are gone


class Liveness(Protocol):
    def held(self, holders: Sequence[Reference]) -> Sequence[HeldBodies | None]:
        """None: there is no such run."""
        ...


class LiveBodies(NamedTuple):
    """A unit that is wanted: where it is now, and what of it."""

    located: LocatedBody
    wanted: int  # bitmap of its messages that are alive
    sizes: Sizes | None  # of the run's messages, by their place in it; None: nobody knows, it is whole
    holders: tuple[Reference, ...]  # that are alive
    entry: IndexEntry | None


class LivenessQuestion(NamedTuple):
    unit: Lsn
    holders: tuple[Reference, ...]


class LivenessCheck(Protocol):
    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        """Of each unit what is alive of it; None: nothing."""
        ...


class ReferenceCheck:
    def __init__(self, liveness: Liveness, index: LocationIndex) -> None:
        self._liveness = liveness
        self._index = index

    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        every_holder = [holder for each in asked for holder in each.holders]
        answers = iter(self._liveness.held(every_holder))
        entries = self._index.look_up_many([each.unit for each in asked])
        named = _Named()
        return [
            _alive(each, [(holder, next(answers)) for holder in each.holders], entry, named)
            for each, entry in zip(asked, entries, strict=True)
        ]


class CountCheck:
    def __init__(self, index: LocationIndex) -> None:
        self._index = index

    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        return [_counted(entry) for entry in self._index.look_up_many([each.unit for each in asked])]


def _alive(
    asked: LivenessQuestion,
    told: Sequence[tuple[Reference, HeldBodies | None]],
    entry: IndexEntry | None,
    named: _Named,
) -> LiveBodies | None:
    wanted, holders, found = 0, [], None
    for holder, held in told:
        unit, chunk_bytes = (None, 0) if held is None else named.unit(held.stored, asked.unit)
        if held is None or unit is None:
            continue
        of_holder = every(unit.messages) & ~(held.gone >> unit.first)
        if of_holder:
            wanted |= of_holder
            holders.append(holder)
            found = found or (LocatedBody(chunk_bytes, (unit,)), held.sizes)
    if found is None:
        return None
    located, sizes = found
    if entry is not None:
        now = decode_stored(entry.location)
        located = LocatedBody(now.chunk_bytes, now.units)
    return LiveBodies(located, wanted & located.unit.kept, sizes, tuple(holders), entry)


class _Named:
    """Which units runs name; of a run with many units they are looked for again and again."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[Lsn, Body], int]] = {}

    def unit(self, stored: bytes, unit: Lsn) -> tuple[Body | None, int]:
        if not stored:
            return None, 0
        if stored not in self._known:
            told = decode_stored(stored)
            self._known[stored] = {each.id: each for each in told.units}, told.chunk_bytes
        units, chunk_bytes = self._known[stored]
        return units.get(unit), chunk_bytes


def _counted(entry: IndexEntry | None) -> LiveBodies | None:
    if entry is None or not entry.references:
        return None
    located = LocatedBody(*decode_stored(entry.location))
    return LiveBodies(located, located.unit.kept, None, (), entry)


BATCH_RECORDS = 256


class JudgedFiles(NamedTuple):
    """One record, and what is alive of its unit."""

    lsn: Lsn
    unit: Lsn
    is_start: bool  # of its unit, or of a copy of it
    size_bytes: int
    live_bytes: int
    alive: LiveBodies | None  # None: nothing of it, or not here


class LivenessScan(NamedTuple):
    total_bytes: int  # of contents
    live_bytes: int
    earliest: Lsn | None  # the first record that is alive


def scan_liveness(heap: BodyFiles, file: FileNumber, judge: LivenessCheck) -> LivenessScan:
    total_bytes = live_bytes = 0
    earliest: Lsn | None = None
    for judged in judged_records(heap, file, judge):
        for each in judged:
            total_bytes += each.size_bytes
            live_bytes += each.live_bytes
            if earliest is None and each.alive is not None:
                earliest = each.lsn
    return LivenessScan(total_bytes, live_bytes, earliest)


def judged_records(heap: BodyFiles, file: FileNumber, judge: LivenessCheck) -> Iterator[list[JudgedFiles]]:
    found = heap.records(file)
    while records := list(islice(found, BATCH_RECORDS)):
        keys = [decode_key(record.key) for record in records]
        units = [key.unit or record.place.lsn for key, record in zip(keys, records, strict=True)]
        asked = [LivenessQuestion(unit, key.holders) for unit, key in zip(units, keys, strict=True)]
        answers = judge.judge(asked)
        yield [
            _judged(record, unit, key.kind is RecordKind.START, alive)
            for record, unit, key, alive in zip(records, units, keys, answers, strict=True)
        ]


def _judged(record: FoundRecord, unit: Lsn, is_start: bool, alive: LiveBodies | None) -> JudgedFiles:
    here = alive if alive is not None and record.place in alive.located.unit.places else None
    size_bytes = record.size_bytes
    live_bytes = 0 if here is None else _live_bytes(here, size_bytes)
    return JudgedFiles(record.place.lsn, unit, is_start, size_bytes, live_bytes, here)


def _live_bytes(alive: LiveBodies, size_bytes: int) -> int:
    """What of a record is alive: all of a chunk, of joined contents those that are wanted."""
    unit = alive.located.unit
    if alive.sizes is None or alive.wanted == unit.kept:
        return size_bytes
    sizes = of_messages(alive.sizes, unit.first, unit.first + unit.messages)
    return int(sizes[flags(alive.wanted, unit.messages)].sum())


@dataclass(slots=True)
class FileNotes:
    total_bytes: int | None = None  # of contents; None: not counted yet
    dead_bytes: int = 0  # as counted
    noted_bytes: int = 0  # dead besides, as far as anybody has said
    unfound_bytes: int = 0  # of those what the last census has looked for and not found
    earliest: Lsn | None = None  # the first unit that was alive when it was counted; None: not known
    damage: str = ""  # why it cannot be collected
    is_doubtful: bool = False  # more may be dead than anybody has noted
    is_abandoned: bool = False  # all queues that had anything in it are deleted

    @property
    def is_empty(self) -> bool:
        """Counted, and nothing in it was alive."""
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
        told = min(self.dead_bytes + self.noted_bytes, self.total_bytes)
        is_news = told >= self.total_bytes or (2 * told > self.total_bytes and not self.is_half_garbage)
        return self.noted_bytes > 0 and is_news


class FileStatistics:
    def __init__(self, lock: Condition) -> None:
        self._lock = lock
        self._files: dict[FileNumber, FileNotes] = {}  # in use, oldest first
        self._noted: dict[FileNumber, int] = {}  # of files that are still written to
        self._held: dict[FileNumber, dict[QueueId, int]] = {}  # of files that we have written: bytes of each queue
        self._abandoned: set[FileNumber] = set()  # of those which are still written to
        self._newest = FileNumber(0)  # of all that were ever sealed
        self._old_up_to = FileNumber(0)  # an earlier life may have written these, who knows for whom
        self._doubtful_up_to = FileNumber(0)  # of these, though not sealed yet, more may be dead than noted

    def update(self, files: Iterable[FileNumber]) -> None:
        """These are in use and sealed, oldest first."""
        with self._lock:
            before = self._files
            self._files = {
                number: before.get(number) or FileNotes(is_doubtful=number <= self._doubtful_up_to) for number in files
            }
            for number in self._abandoned & self._files.keys():
                self._files[number].is_abandoned = True
            self._abandoned -= self._files.keys()
            self._newest = max(self._newest, next(reversed(self._files), FileNumber(0)))
            self._held = {
                number: held for number, held in self._held.items() if number in self._files or number > self._newest
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
        """So much was written that these queues hold."""
        with self._lock:
            held = self._held.setdefault(file, {})
            for queue in queues:
                held[queue] = held.get(queue, 0) + size_bytes
            self._abandoned.discard(file)
            if file in self._files:
                self._files[file].is_abandoned = False

    def queue_has_gone(self, queue: QueueId) -> None:
        """It was deleted, durably, and whatever it had."""
        with self._lock:
            for number, held in self._held.items():
                gone_bytes = held.pop(queue, None)
                if gone_bytes is None:
                    continue
                is_abandoned = not held and number > self._old_up_to
                if number in self._files:
                    self._files[number].noted_bytes += gone_bytes
                    self._files[number].is_abandoned = is_abandoned
                else:
                    self._noted[number] = self._noted.get(number, 0) + gone_bytes
                    self._abandoned |= {number} if is_abandoned else set()
            for number, notes in self._files.items():
                notes.is_doubtful |= number not in self._held or number <= self._old_up_to

    def knows(self, file: FileNumber) -> bool:
        """Is it in use, or newer than all that ever were?"""
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
        """What there is up to this file, which is being written, may be an earlier life's."""
        with self._lock:
            self._old_up_to = self._doubtful_up_to = present

    def count_again(self, present: FileNumber) -> None:
        """Nobody knows any more how much is dead where, also in the file that is being written."""
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
        """No unit before this one is in use; None: no sealed file is."""
        with self._lock:
            for number, notes in self._files.items():
                return lsn_of(number, 0) if notes.earliest is None else notes.earliest
            return None
