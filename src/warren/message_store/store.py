"""Transient store: contents that need not survive a restart, paged out of memory.

    page out ──write──▶ plain files ──read──▶ back        remove: the contents are not needed any more

It is not in the log, and deleted at every start. Each unit has an entry in the index, since its liveness is recorded
nowhere else; a queue keeps one `stored` per group of messages paged out together. Reading and collecting are shared
with the persistent store.

Message store: contents that are large, or referenced by several queues, written once.

    queues ──submit──▶ pending write ──before_commit──▶ body files (log stream "bodies") ──▶ run.stored
    queues ──read(run.stored)─────────────────────────▶ body files, without the store's lock
    collector ────────────────────────────────────────▶ body files, index

Only writes take the store's lock. A reader needs only `run.stored` (`read`). The contents of a run are written before
the session that names them begins, so a durable run has durable contents.

A pending write holds contents that were submitted and are not written yet:

    submit q1 ─┐
    submit q2 ─┼─▶ PendingWrite: contents, runs ──before_commit──▶ written once; `stored` of each run is set
    submit q3 ─┘                                ──no run is left──▶ cancelled: nothing is written

A publication has one pending write, however many queues submit it. Queues that submit it in one `IndexBatch` commit
together; if another batch commits first, it writes for all runs submitted so far.

A broker has two stores (`MessageStorePair`), and one thread that collects the garbage of both:

    persistent   stream "bodies" of the log        index: counts in memory, moved units in storage 3
    transient    <directory>/transient             index: in memory; everything is deleted at the start

The persistent store's index is a parameter: any implementation that passes tests/message_store/index_suite.py will do.

Invariant: the collector does not scan a file before every run that names something in it is durable, or was never
written (`is_settled`). Elsewhere: which messages are alive (queue_index), order within a queue (queues).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, FileNumber, Lsn, QueueId
from warren.base.messages import BatchParticipant, QueuePlace, Run, Sizes, sizes_of
from warren.base.threads import Condition, Threads
from warren.files.protocol import join
from warren.log.store import LogStore
from warren.message_store.body_files import BodyFiles, LogBodyFiles, TransientBodyFiles
from warren.message_store.body_format import CHUNK_BYTES, HOLDERS_MAX, Body, Reference, decode_stored, encode_stored
from warren.message_store.collector import Collector, CollectorThread
from warren.message_store.index import IndexEntry, LocationIndex, MemoryIndex
from warren.message_store.liveness import CountCheck, FileStatistics, Liveness, ReferenceCheck
from warren.message_store.read import BodyReader, location_of, shares, write_units
from warren.message_store.settings import MessageStoreSettings


class TransientStore:
    def __init__(
        self,
        body_files: BodyFiles,
        index: LocationIndex,
        statistics: FileStatistics,
        lock: Condition,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._body_files = body_files
        self._index = index
        self._statistics = statistics
        self._lock = lock
        self._writing: list[FileNumber] = []  # first file of each write in progress
        self._chunk_bytes = chunk_bytes
        self.ended: deque[tuple[Lsn, IndexEntry]] = deque()  # for the collector
        self.read = BodyReader(body_files, index).read

    def write(self, contents: Sequence[bytes]) -> bytes:
        """Store contents; returns their location, for `read` and `remove`."""
        with self._lock:
            begun = self._body_files.present_file()
            self._writing.append(begun)
        try:
            units = write_units(self._body_files, contents, sizes_of(contents), (), self._chunk_bytes)
            for unit in units:
                self._index.insert(unit.id, IndexEntry(1, encode_stored([unit], self._chunk_bytes)))
        finally:
            with self._lock:
                self._writing.remove(begun)
        return encode_stored(units, self._chunk_bytes)

    def remove(self, stored: bytes) -> None:
        """Release contents."""
        for unit in decode_stored(stored).units:
            if self._index.add_references(unit.id, -1) == 0 and (entry := self._index.look_up(unit.id)) is not None:
                self.ended.append((unit.id, entry))
            moved = location_of(self._index, unit.id)
            places = (moved.unit if moved is not None else unit).places
            for place, share in zip(places, shares(max(1, unit.size_bytes), [1] * len(places)), strict=True):
                self._statistics.note_dead(place.file, share)

    def is_settled(self, file: FileNumber) -> bool:
        """Whether the index has every unit of this sealed file: no write in progress began in it or before."""
        with self._lock:
            return all(file < begun for begun in self._writing)

    def facts(self) -> Mapping[str, int]:
        return self._index.facts()


PlacedRun = tuple[QueuePlace, Run]


class JoinableBatch(Protocol):
    """The part of `queue_index.batch.IndexBatch` that the store uses. message_store does not import queue_index."""

    def join(self, participant: BatchParticipant) -> None: ...


class Participation:
    """The state of one `IndexBatch` in the store."""

    __slots__ = ("files", "runs", "writes_from")

    def __init__(self) -> None:
        self.runs: dict[object, list[Run]] = {}  # by publication: the runs that this batch submitted
        self.writes_from: FileNumber | None = None  # writing now, into this file or later ones
        self.files: set[FileNumber] = set()  # files with contents of its runs


class PendingWrite:
    """Contents that were submitted, and the runs that reference them."""

    __slots__ = ("contents", "sizes", "stored", "unwritten")

    def __init__(self, contents: Sequence[bytes], sizes: Sizes) -> None:
        self.contents = contents
        self.sizes = sizes
        self.unwritten: dict[Run, tuple[QueuePlace, Participation]] = {}
        self.stored: dict[Run, bytes] = {}  # runs that it was written for: the location


class MessageStore:
    def __init__(
        self,
        body_files: BodyFiles,
        index: LocationIndex,
        statistics: FileStatistics,
        threads: Threads,
        durable: Callable[[], Epoch],
        settings: MessageStoreSettings,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._body_files = body_files
        self._index = index
        self._statistics = statistics
        self._lock = threads.condition()  # of the tables; never held during I/O
        self._writer = threads.condition()  # serialises writers
        self._durable = durable
        self._settings = settings
        self._chunk_bytes = chunk_bytes
        self._pending_writes: dict[object, PendingWrite] = {}  # by publication
        self._participations: dict[object, Participation] = {}  # by batch
        self._unsettled: dict[Epoch, set[FileNumber]] = {}  # files named by runs whose epoch may not be durable
        self.ended: deque[tuple[Lsn, IndexEntry]] = deque()  # entries without references, for the collector
        self._reader = BodyReader(body_files, index)
        self.read = self._reader.read

    # -- writing -------------------------------------------------------------------------------------------------

    def submit(
        self, publication: object, contents: Sequence[bytes], place: QueuePlace, run: Run, batch: JoinableBatch
    ) -> None:
        """Reference these contents by this run. They are written when the batch commits, unless the run is cancelled.
        A publication that was submitted before only gets one more reference."""
        if run.count != len(contents):
            raise Misuse(f"a run of {run.count} messages has {len(contents)} contents")
        self._check_sizes(run.sizes)
        with self._lock:
            participation = self._participations.get(batch)
            if participation is None:
                batch.join(_StoreParticipant(self, batch))
                participation = self._participations[batch] = Participation()
            pending_write = self._pending_writes.get(publication)
            if pending_write is None:
                pending_write = self._pending_writes[publication] = PendingWrite(contents, run.sizes)
            pending_write.unwritten[run] = (place, participation)
            participation.runs.setdefault(publication, []).append(run)

    def before_commit(self, batch: object, runs: Sequence[PlacedRun]) -> None:
        """Write the contents of runs that are not cancelled, and set `stored` of those runs."""
        wanted = {run for _, run in runs}
        with self._writer:
            with self._lock:
                participation = self._participations[batch]
                participation.writes_from = self._body_files.present_file()
                for publication, own in participation.runs.items():
                    for run in own:
                        if run not in wanted:
                            self._pending_writes[publication].unwritten.pop(run, None)
                taken = [
                    pending_write
                    for each, own in participation.runs.items()
                    if (pending_write := self._to_be_written(each, own))
                ]
            for pending_write in taken:
                self._write(pending_write)
            with self._lock:
                participation.writes_from = None
        for publication, own in participation.runs.items():
            for run in own:
                if run in wanted:
                    run.stored = self._pending_writes[publication].stored[run]

    def _to_be_written(self, publication: object, own: Sequence[Run]) -> PendingWrite | None:
        pending_write = self._pending_writes[publication]
        return pending_write if any(run in pending_write.unwritten for run in own) else None

    def _write(self, pending_write: PendingWrite) -> None:
        """Write once for all references; only more than `HOLDERS_MAX` of them need another copy."""
        with self._lock:
            unwritten = list(pending_write.unwritten.items())
        for at in range(0, len(unwritten), HOLDERS_MAX):
            some = unwritten[at : at + HOLDERS_MAX]
            holders = [Reference(place.queue, place.level, run.first) for run, (place, _) in some]
            units = write_units(
                self._body_files, pending_write.contents, pending_write.sizes, holders, self._chunk_bytes
            )
            stored = encode_stored(units, self._chunk_bytes)
            files = {place.file for unit in units for place in unit.places}
            self._note_written(units, {holder.queue for holder in holders})
            with self._lock:
                for run, (_, participation) in some:
                    pending_write.unwritten.pop(run, None)
                    pending_write.stored[run] = stored
                    participation.files |= files
                if len(some) > 1:
                    for unit in units:
                        self._index.insert(unit.id, IndexEntry(len(some), encode_stored([unit], self._chunk_bytes)))

    def _note_written(self, units: Sequence[Body], queues: set[QueueId]) -> None:
        written: dict[FileNumber, int] = {}
        for unit in units:
            for place in unit.places:
                written[place.file] = written.get(place.file, 0) + unit.size_bytes // len(unit.places)
        for file, size_bytes in written.items():
            self._statistics.wrote(file, queues, size_bytes)

    def after_commit(self, batch: object, epoch: Epoch) -> None:
        with self._lock:
            participation, written = self._forget(batch)
            self._drop_durable()
            if participation.files:
                self._unsettled.setdefault(epoch, set()).update(participation.files)
        self._note_unwanted([run for run in written if not run.stored], written)

    def on_abort(self, batch: object) -> None:
        with self._lock:
            _, written = self._forget(batch)
        self._note_unwanted(list(written), written)

    def _forget(self, batch: object) -> tuple[Participation, dict[Run, bytes]]:
        """End the participation of a batch, and drop pending writes that no other has. Returns what was written."""
        participation = self._participations.pop(batch)
        written: dict[Run, bytes] = {}
        for publication, own in participation.runs.items():
            pending_write = self._pending_writes[publication]
            for run in own:
                pending_write.unwritten.pop(run, None)
                if run in pending_write.stored:
                    written[run] = pending_write.stored.pop(run)
            if not any(publication in other.runs for other in self._participations.values()):
                del self._pending_writes[publication]
        return participation, written

    def _note_unwanted(self, runs: Sequence[Run], written: Mapping[Run, bytes]) -> None:
        for run in runs:
            self.note_dead(written[run], run.size_of(0, run.count))

    def check(self, stored: bytes) -> None:
        """Verify what a run has stored, by reading it. `Damage` names file and offset."""
        self._reader.check(stored)

    # -- releasing -----------------------------------------------------------------------------------------------

    def note_dead(self, stored: bytes, dead_bytes: int, ends_run: bool = True) -> None:
        """Note that `dead_bytes` more bytes of a run are garbage. `ends_run`: the whole run is, and its references are
        released. This only hints at files that are worth a liveness scan; the collector checks the rows."""
        units = decode_stored(stored).units
        for unit, share in zip(units, shares(dead_bytes, [unit.size_bytes for unit in units]), strict=True):
            if not ends_run:
                self._note(unit, -(-share // (self._index.add_references(unit.id, 0) or 1)))
            elif self._release(unit):
                self._note(unit, max(1, share))  # at least 1, so that an empty content counts as well

    def _release(self, unit: Body) -> bool:
        """Remove one reference; whether it was the last."""
        left = self._index.add_references(unit.id, -1)
        if left == 0 and (entry := self._index.look_up(unit.id)) is not None:
            self.ended.append((unit.id, entry))
        return not left

    def _note(self, unit: Body, dead_bytes: int) -> None:
        if not self._statistics.knows(unit.places[0].file):
            moved = location_of(self._index, unit.id)
            unit = unit if moved is None else moved.unit
        for place, share in zip(unit.places, shares(dead_bytes, [1] * len(unit.places)), strict=True):
            self._statistics.note_dead(place.file, share)

    # -- for the collector ---------------------------------------------------------------------------------------

    def is_settled(self, file: FileNumber) -> bool:
        """Whether every run that names something in this sealed file is durable, or was never written."""
        with self._lock:
            self._drop_durable()
            open_ones = self._participations.values()
            if any(
                participation.writes_from is not None and participation.writes_from <= file
                for participation in open_ones
            ):
                return False  # the file of that write is not known yet
            if any(file in participation.files for participation in open_ones):
                return False
            return not any(file in files for files in self._unsettled.values())

    def _drop_durable(self) -> None:
        durable = self._durable()
        for epoch in [epoch for epoch in self._unsettled if epoch <= durable]:
            del self._unsettled[epoch]

    def facts(self) -> Mapping[str, int]:
        return {"flying": len(self._pending_writes), **self._index.facts()}

    # -- helpers -------------------------------------------------------------------------------------------------

    def _check_sizes(self, sizes: Sizes) -> None:
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        limit = self._settings.max_message_size
        if largest > limit:
            raise Refused(f"a message of {largest} bytes is over the limit of {limit}", "raise max_message_size")


class _StoreParticipant:
    """The store as a `BatchParticipant` of one `IndexBatch`."""

    __slots__ = ("_batch", "_store")

    def __init__(self, store: MessageStore, batch: object) -> None:
        self._store = store
        self._batch = batch

    def before_commit(self, runs: Sequence[PlacedRun]) -> None:
        self._store.before_commit(self._batch, runs)

    def after_commit(self, epoch: Epoch) -> None:
        self._store.after_commit(self._batch, epoch)

    def on_abort(self) -> None:
        self._store.on_abort(self._batch)


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
        self._body_files = self._open_files(log, directory)
        persistent_files, transient_files = self._body_files
        lock = self._threads.condition
        statistics = FileStatistics(lock())
        statistics.begin(persistent_files.present_file())
        self.persistent = MessageStore(
            persistent_files, index, statistics, self._threads, lambda: log.durable, settings, chunk_bytes
        )
        self.collector = Collector(
            persistent_files,
            index,
            ReferenceCheck(liveness, index),
            statistics,
            lock(),
            self.persistent.is_settled,
            self.persistent.ended,
        )
        memory, transient_statistics = MemoryIndex(lock()), FileStatistics(lock())
        self.transient = TransientStore(transient_files, memory, transient_statistics, lock(), chunk_bytes)
        self.transient_collector = Collector(
            transient_files,
            memory,
            CountCheck(memory),
            transient_statistics,
            lock(),
            self.transient.is_settled,
            self.transient.ended,
        )

    def begin(self) -> None:
        """Start the collector thread: it scans every file, and joins two at a time where that is worth it."""
        collectors = (self.collector, self.transient_collector)
        settings = self._settings
        seconds = settings.gc_seconds, settings.gc_census_seconds
        self._worker = CollectorThread(self._threads, self._clock, self._background, collectors, *seconds)

    def collect_soon(self, is_much_dead: bool = False) -> None:
        """Request a collection. `is_much_dead`: more than was noted, like the runs of a queue that was deleted."""
        if is_much_dead:
            self.collector.count_again()
        if self._worker is not None:
            self._worker.wake()

    def collect(self) -> None:
        """Collect garbage now, as far as it is worth it; returns when that is done."""
        if self._worker is not None:
            self._worker.run_pass()

    def alarms(self) -> list[str]:
        return self._worker.alarms() if self._worker is not None else []

    def facts(self) -> Mapping[str, int]:
        """Of both stores, prefixed with their names."""
        by_store = {"persistent": self.persistent.facts(), "transient": self.transient.facts()}
        return {f"{store}_{name}": value for store, facts in by_store.items() for name, value in facts.items()}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        for body_files in self._body_files:
            body_files.close()

    def _open_files(self, log: LogStore, directory: str) -> tuple[LogBodyFiles, TransientBodyFiles]:
        settings, cache_bytes = self._settings, self._settings.read_cache_bytes
        transient = join(directory, TRANSIENT)
        return LogBodyFiles(log, cache_bytes), TransientBodyFiles(
            log.environment, transient, settings.transient_file_bytes, cache_bytes
        )
