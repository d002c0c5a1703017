"""The message store: contents that are large, or held by several queues, once.

    queues ──submit──▶ flying ──before_end of the changes──▶ heap (log stream "bodies") ──▶ run.stored
    queues ──read(run.stored)──────────────────────────────▶ heap, without asking the store
    collector ────────────────────────────────────────────▶ heap, index

Only writing passes the store and its lock. Whoever reads needs what the run says (`reading`). The contents of a run are
written before the session that names them begins, so a run that is durable has durable contents.

Always true: a file is not judged by the collector before every run that names something in it is durable, or was never
written (`is_settled`). Not here: which messages are alive (queue_index), what stands where in a queue (queues).

The two message stores of a broker, wired: one for what must survive, one for what need not.

    persistent   stream "bodies" of the log        index: counts in memory, moved units in storage 3
    transient    <directory>/transient             index: in memory; everything is deleted at the start

One thread collects the garbage of both. The index is handed in: any that passes the suite will do.

Flying writes: contents that were submitted and are not written yet.

    submit q1 ─┐
    submit q2 ─┼─▶ flying: contents, who holds them ──before_end──▶ written once, each holder's run told where
    submit q3 ─┘                                    ──nobody wants them any more──▶ cancelled: not a byte

A publication flies once, however many queues submit it. Those who submit it in one `Changes` end together; if another
`Changes` ends first, it writes for all who have submitted so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, FileNumber, Lsn, QueueId
from warren.base.messages import QueuePlace, Run, Sizes
from warren.base.threads import Threads
from warren.files.protocol import join
from warren.log.store import LogStore
from warren.message_store.body_files import BodyFiles, LogBodyFiles, TransientBodyFiles
from warren.message_store.body_format import CHUNK_BYTES, HOLDERS_MAX, Body, Reference, decode_stored, encode_stored
from warren.message_store.collector import Collector, CollectorThread
from warren.message_store.index import IndexEntry, LocationIndex, MemoryIndex
from warren.message_store.liveness import CountCheck, FileStatistics, Liveness, ReferenceCheck
from warren.message_store.read import BodyReader, location_of, shares, write_units
from warren.message_store.settings import MessageStoreSettings
from warren.message_store.transient import TransientStore

HeldRun = tuple[QueuePlace, Run]


class IndexBatchParticipant(Protocol):
    """Somebody who writes elsewhere and ends together with changes. (queue_index/batch.py says the same.)"""

    def before_end(self, runs: Sequence[HeldRun]) -> None: ...

    def after_end(self, epoch: Epoch) -> None: ...

    def aborted(self) -> None: ...


class JoinedBodies(Protocol):
    """What is used of changes."""

    def join(self, participant: IndexBatchParticipant) -> None: ...


class Participation:
    """What one `Changes` has to do with the store."""

    __slots__ = ("files", "flying", "writes_from")

    def __init__(self) -> None:
        self.flying: dict[object, list[Run]] = {}  # by publication: the runs that these changes gave it
        self.writes_from: FileNumber | None = None  # it is writing now, into this file or later ones
        self.files: set[FileNumber] = set()  # that hold contents of its runs


class PendingWrites:
    """Contents on their way."""

    __slots__ = ("contents", "held", "sizes", "stored")

    def __init__(self, contents: Sequence[bytes], sizes: Sizes) -> None:
        self.contents = contents
        self.sizes = sizes
        self.held: dict[Run, tuple[QueuePlace, Participation]] = {}  # it is not written for these yet
        self.stored: dict[Run, bytes] = {}  # it is for these: where


class MessageStore:
    def __init__(
        self,
        heap: BodyFiles,
        index: LocationIndex,
        ledger: FileStatistics,
        threads: Threads,
        durable: Callable[[], Epoch],
        settings: MessageStoreSettings,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._heap = heap
        self._index = index
        self._ledger = ledger
        self._lock = threads.condition()  # of the tables; held for a moment only
        self._writer = threads.condition()  # who writes: one behind the other
        self._durable = durable
        self._settings = settings
        self._chunk_bytes = chunk_bytes
        self._flying: dict[object, PendingWrites] = {}  # by publication
        self._joined: dict[object, Participation] = {}  # by changes
        self._unsettled: dict[Epoch, set[FileNumber]] = {}  # files named by runs of epochs that are perhaps not durable
        self.ended: deque[tuple[Lsn, IndexEntry]] = deque()  # entries that nobody counts on any more, for the collector
        self._reader = BodyReader(heap, index)
        self.read = self._reader.read

    # -- writing -------------------------------------------------------------------------------------------------

    def submit(
        self, publication: object, contents: Sequence[bytes], place: QueuePlace, run: Run, changes: JoinedBodies
    ) -> None:
        """A queue holds these contents by this run. They are written when the changes end, if it is still wanted; of a
        publication that was submitted before, only one more holder is remembered."""
        if run.count != len(contents):
            raise Misuse(f"a run of {run.count} messages came with {len(contents)} contents")
        self._check_sizes(run.sizes)
        with self._lock:
            joined = self._joined.get(changes)
            if joined is None:
                changes.join(_OfChanges(self, changes))
                joined = self._joined[changes] = Participation()
            flying = self._flying.get(publication)
            if flying is None:
                flying = self._flying[publication] = PendingWrites(contents, run.sizes)
            flying.held[run] = (place, joined)
            joined.flying.setdefault(publication, []).append(run)

    def before_end(self, changes: object, runs: Sequence[HeldRun]) -> None:
        """Write what is still wanted, and tell the runs where it is; what nobody wants any more is not written."""
        wanted = {run for _, run in runs}
        with self._writer:
            with self._lock:
                joined = self._joined[changes]
                joined.writes_from = self._heap.present_file()
                for publication, own in joined.flying.items():
                    for run in own:
                        if run not in wanted:
                            self._flying[publication].held.pop(run, None)
                taken = [flying for each, own in joined.flying.items() if (flying := self._to_be_written(each, own))]
            for flying in taken:
                self._write(flying)
            with self._lock:
                joined.writes_from = None
        for publication, own in joined.flying.items():
            for run in own:
                if run in wanted:
                    run.stored = self._flying[publication].stored[run]

    def _to_be_written(self, publication: object, own: Sequence[Run]) -> PendingWrites | None:
        flying = self._flying[publication]
        return flying if any(run in flying.held for run in own) else None

    def _write(self, flying: PendingWrites) -> None:
        """Once for all who hold it, however many; only a crowd that no record can name gets another copy."""
        with self._lock:
            held = list(flying.held.items())
        for at in range(0, len(held), HOLDERS_MAX):
            some = held[at : at + HOLDERS_MAX]
            holders = [Reference(place.queue, place.level, run.first) for run, (place, _) in some]
            units = write_units(self._heap, flying.contents, flying.sizes, holders, self._chunk_bytes)
            stored = encode_stored(units, self._chunk_bytes)
            files = {place.file for unit in units for place in unit.places}
            self._note_written(units, {holder.queue for holder in holders})
            with self._lock:
                for run, (_, joined) in some:
                    flying.held.pop(run, None)
                    flying.stored[run] = stored
                    joined.files |= files
                if len(some) > 1:
                    for unit in units:
                        self._index.insert(unit.id, IndexEntry(len(some), encode_stored([unit], self._chunk_bytes)))

    def _note_written(self, units: Sequence[Body], queues: set[QueueId]) -> None:
        written: dict[FileNumber, int] = {}
        for unit in units:
            for place in unit.places:
                written[place.file] = written.get(place.file, 0) + unit.size_bytes // len(unit.places)
        for file, size_bytes in written.items():
            self._ledger.wrote(file, queues, size_bytes)

    def after_end(self, changes: object, epoch: Epoch) -> None:
        with self._lock:
            joined, written = self._forget(changes)
            self._drop_durable()
            if joined.files:
                self._unsettled.setdefault(epoch, set()).update(joined.files)
        self._note_unwanted([run for run in written if not run.stored], written)

    def aborted(self, changes: object) -> None:
        with self._lock:
            _, written = self._forget(changes)
        self._note_unwanted(list(written), written)

    def _forget(self, changes: object) -> tuple[Participation, dict[Run, bytes]]:
        """The changes are over; a publication that no others have submitted has landed. What was written for them."""
        joined = self._joined.pop(changes)
        written: dict[Run, bytes] = {}
        for publication, own in joined.flying.items():
            flying = self._flying[publication]
            for run in own:
                flying.held.pop(run, None)
                if run in flying.stored:
                    written[run] = flying.stored.pop(run)
            if not any(publication in other.flying for other in self._joined.values()):
                del self._flying[publication]
        return joined, written

    def _note_unwanted(self, runs: Sequence[Run], written: Mapping[Run, bytes]) -> None:
        for run in runs:
            self.note_dead(written[run], run.size_of(0, run.count))

    def check(self, stored: bytes) -> None:
        """Read what a run has stored, and keep nothing of it. `Damage` names file and offset."""
        self._reader.check(stored)

    # -- letting go ----------------------------------------------------------------------------------------------

    def note_dead(self, stored: bytes, dead_bytes: int, ends_run: bool = True) -> None:
        """So many more bytes of a run are no longer wanted. `ends_run`: it is over, and lets go of its units. This only
        hints at files that are worth a census; the collector asks the rows."""
        units = decode_stored(stored).units
        for unit, share in zip(units, shares(dead_bytes, [unit.size_bytes for unit in units]), strict=True):
            if not ends_run:
                self._note(unit, -(-share // (self._index.add_references(unit.id, 0) or 1)))
            elif self._release(unit):
                self._note(unit, max(1, share))  # that something went, though it had no bytes

    def _release(self, unit: Body) -> bool:
        """One reference less; was it the last?"""
        left = self._index.add_references(unit.id, -1)
        if left == 0 and (entry := self._index.look_up(unit.id)) is not None:
            self.ended.append((unit.id, entry))
        return not left

    def _note(self, unit: Body, dead_bytes: int) -> None:
        if not self._ledger.knows(unit.places[0].file):
            moved = location_of(self._index, unit.id)
            unit = unit if moved is None else moved.unit
        for place, share in zip(unit.places, shares(dead_bytes, [1] * len(unit.places)), strict=True):
            self._ledger.note_dead(place.file, share)

    # -- for the collector ---------------------------------------------------------------------------------------

    def is_settled(self, file: FileNumber) -> bool:
        """Is every run that names something in this sealed file durable, or was never written?"""
        with self._lock:
            self._drop_durable()
            open_ones = self._joined.values()
            if any(joined.writes_from is not None and joined.writes_from <= file for joined in open_ones):
                return False  # nobody knows yet into which one
            if any(file in joined.files for joined in open_ones):
                return False
            return not any(file in files for files in self._unsettled.values())

    def _drop_durable(self) -> None:
        durable = self._durable()
        for epoch in [epoch for epoch in self._unsettled if epoch <= durable]:
            del self._unsettled[epoch]

    def facts(self) -> Mapping[str, int]:
        return {"flying": len(self._flying), **self._index.facts()}

    # -- helpers -------------------------------------------------------------------------------------------------

    def _check_sizes(self, sizes: Sizes) -> None:
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        limit = self._settings.max_message_size
        if largest > limit:
            raise Refused(f"a message of {largest} bytes is over the limit of {limit}", "raise max_message_size")


class _OfChanges:
    """The store's part in one `Changes`."""

    __slots__ = ("_changes", "_store")

    def __init__(self, store: MessageStore, changes: object) -> None:
        self._store = store
        self._changes = changes

    def before_end(self, runs: Sequence[HeldRun]) -> None:
        self._store.before_end(self._changes, runs)

    def after_end(self, epoch: Epoch) -> None:
        self._store.after_end(self._changes, epoch)

    def aborted(self) -> None:
        self._store.aborted(self._changes)


TRANSIENT = "transient"


class MessageStorePair:
    def __init__(
        self,
        log: LogStore,
        directory: str,
        liveness: Liveness,
        index: LocationIndex,
        settings: MessageStoreSettings,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._threads = log.environment.threads
        self._clock = log.environment.clock
        self._background = log.environment.background
        self._settings = settings
        self._worker: CollectorThread | None = None
        self._heaps = self._open_heaps(log, directory)
        kept, plain = self._heaps
        lock = self._threads.condition
        ledger = FileStatistics(lock())
        ledger.begin(kept.present_file())
        self.persistent = MessageStore(kept, index, ledger, self._threads, lambda: log.durable, settings, chunk_bytes)
        judge = ReferenceCheck(liveness, index)
        told = self.persistent
        self.collector = Collector(kept, index, judge, ledger, lock(), told.is_settled, told.ended)
        memory, of_plain = MemoryIndex(lock()), FileStatistics(lock())
        self.transient = TransientStore(plain, memory, of_plain, lock(), chunk_bytes)
        judge_of_plain = CountCheck(memory)
        paged = self.transient
        self.transient_collector = Collector(
            plain, memory, judge_of_plain, of_plain, lock(), paged.is_settled, paged.ended
        )

    def begin(self) -> None:
        """Let garbage be collected: every file gets a census, and two at a time are joined where it is worth it."""
        collectors = (self.collector, self.transient_collector)
        settings = self._settings
        seconds = settings.gc_seconds, settings.gc_census_seconds
        self._worker = CollectorThread(self._threads, self._clock, self._background, collectors, *seconds)

    def collect_soon(self, is_much_dead: bool = False) -> None:
        """Look for garbage now. `is_much_dead`: more than was noted, like the runs of a queue that was deleted."""
        if is_much_dead:
            self.collector.count_again()
        if self._worker is not None:
            self._worker.ring()

    def collect(self) -> None:
        """Have garbage collected now, as far as it is worth it; it is done when this returns."""
        if self._worker is not None:
            self._worker.turn()

    def alarms(self) -> list[str]:
        return self._worker.alarms() if self._worker is not None else []

    def facts(self) -> Mapping[str, int]:
        """Of both, by their names."""
        told = {"persistent": self.persistent.facts(), "transient": self.transient.facts()}
        return {f"{store}_{name}": value for store, facts in told.items() for name, value in facts.items()}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        for heap in self._heaps:
            heap.close()

    def _open_heaps(self, log: LogStore, directory: str) -> tuple[LogBodyFiles, TransientBodyFiles]:
        settings, kept_bytes = self._settings, self._settings.read_cache_bytes
        transient = join(directory, TRANSIENT)
        return LogBodyFiles(log, kept_bytes), TransientBodyFiles(
            log.environment, transient, settings.transient_file_bytes, kept_bytes
        )
