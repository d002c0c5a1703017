"""A queue index over a real database on a memory disk, and the few words that tests of it need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from tests.snapshot.database_stage import DIRECTORY, DatabaseStage
from warren.base.errors import Gone
from warren.base.ids import Epoch, Lsn, QueueId, SequenceId
from warren.base.messages import NOWHERE, Origin, QueuePlace, Run, sizes_of
from warren.files.protocol import Buffer, Files, join
from warren.log.pointers import Pointer
from warren.log.settings import EntryKind
from warren.log.streams import Stream
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason, HistoryEvent, decode_event
from warren.queue_index.index import MESSAGES, IndexedRun, QueueIndex
from warren.queue_index.row_format import Counters, run_key
from warren.snapshot.store import ReadView, StoreRow

ORDERS, BILLS = QueuePlace(QueueId(7 << 32)), QueuePlace(QueueId(8 << 32), 2)
BEHIND = SequenceId(1 << 50)  # every sequence id of a test


class IndexStage:
    def __init__(self, stage: DatabaseStage | None = None, files: Files | None = None) -> None:
        self.stage = stage or DatabaseStage()
        self.newest = Epoch(0)
        self.open(files)

    def open(self, files: Files | None = None) -> None:
        self.database = self.stage.open(files)
        self.index = QueueIndex.of(self.database)

    def reopen(self) -> None:
        self.database.close()
        self.open()

    def end(self, batch: IndexBatch) -> Epoch:
        """End them, and wait until they are durable."""
        self.newest = max(self.newest, batch.end())
        self.database.log.wait(self.newest)
        return self.newest

    def publish(
        self, first: int, contents: Sequence[bytes], place: QueuePlace = ORDERS, origin: Origin = NOWHERE
    ) -> Run:
        run = a_run(first, contents, origin)
        batch = self.index.begin()
        batch.publish(place, run, contents)
        self.end(batch)
        return run

    def dequeue(
        self, run: Run, gone: int, newly: int, place: QueuePlace = ORDERS, reason: DequeueReason = DequeueReason.ACKED
    ) -> None:
        """Both as bitmaps."""
        batch = self.index.begin()
        batch.dequeue(place, run, gone, ranges_of(run, newly), reason)
        self.end(batch)

    def write(self, counters: Counters, place: QueuePlace = ORDERS) -> None:
        batch = self.index.begin()
        batch.counters(place, counters)
        self.end(batch)

    def runs(self, place: QueuePlace = ORDERS, first: int = 0, stop: int = BEHIND) -> list[IndexedRun]:
        return list(self.index.scan(place, SequenceId(first), SequenceId(stop), self.newest))

    def alive(self, place: QueuePlace = ORDERS) -> dict[int, bytes]:
        """Every message that is there: its content, by sequence id."""
        return alive_in(self.index, place, self.newest)

    @property
    def stream(self) -> Stream:
        return self.database.log.stream(MESSAGES, is_referring=True)

    def journal(self) -> list[tuple[EntryKind, int, bytes, bytes]]:
        """Kind, storage, key and value of every entry of the message stream, in order."""
        found = []
        for _, entries in self.stream.read():
            for at in range(entries.count):
                kind, storage = EntryKind(entries.kinds.at(at)), entries.storages.at(at)
                found.append((kind, storage, entries.keys.at(at), entries.values.at(at)))
        return found

    def events(self) -> list[HistoryEvent]:
        return [decode_event(key, value) for kind, _, key, value in self.journal() if kind is EntryKind.RECORD]


def a_run(first: int, contents: Sequence[bytes], origin: Origin = NOWHERE) -> Run:
    return Run(SequenceId(first), len(contents), sizes_of(contents), origin=origin)


def alive_in(index: QueueIndex, place: QueuePlace, newest: Epoch) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for run, gone in index.scan(place, SequenceId(0), BEHIND, newest):
        contents = index.contents(place, run, 0, run.count)
        found |= {run.first + at: content for at, content in enumerate(contents) if not gone >> at & 1}
    return found


def ranges_of(run: Run, bits: int) -> list[tuple[int, int]]:
    return [(run.first + at, run.first + at + 1) for at in range(run.count) if bits >> at & 1]


def firsts(runs: Iterable[IndexedRun]) -> list[int]:
    return [indexed.run.first for indexed in runs]


def large(letter: str, count: int = 3) -> list[bytes]:
    """Contents that stay in the log: the store gets a pointer to them."""
    return [letter.encode() * (200 + at) for at in range(count)]


class CountedReads:
    """A database that records its calls."""

    def __init__(self, stage: IndexStage) -> None:
        self._database = stage.database
        self.ranges: list[tuple[bytes, bytes | None]] = []
        self.rows = 0
        self.moved: set[bytes] = set()  # pointers that lead nowhere, the first time

    def view_at(self, epoch: Epoch) -> CountedView:
        return CountedView(self, self._database.view_at(epoch))

    def view_durable(self) -> CountedView:
        return CountedView(self, self._database.view_durable())

    def row_at(self, epoch: Epoch, block: Lsn, entry: int, storage: int, key: bytes) -> Buffer:
        if any(Pointer.decode(value)[:2] == (block, entry) for value in self.moved):
            raise Gone("the log file is gone")
        return self._database.row_at(epoch, block, entry, storage, key)

    def resolve(self, value: bytes) -> Buffer:
        if value in self.moved:
            self.moved.remove(value)
            raise Gone("the log file is gone")
        return self._database.resolve(value)

    def index(self, stage: IndexStage) -> QueueIndex:
        return QueueIndex(self, stage.stream.begin, stage.stage.clock)


class CountedView:
    def __init__(self, reads: CountedReads, view: ReadView) -> None:
        self._reads, self._view = reads, view
        self.get, self.get_many, self.close = view.get, view.get_many, view.close

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]:
        self._reads.ranges.append((low, high))
        for row in self._view.range(storage, low, high, reverse):
            self._reads.rows += 1
            yield row


def pointer_of(stage: IndexStage, run: Run) -> Pointer:
    with closing(stage.database.view()) as view:
        found = view.get(ORDERS.queue, run_key(0, run.first))
    assert found is not None
    return Pointer.decode(found.value)


def spoil(stage: IndexStage, run: Run) -> None:
    """Let a few bytes of the run's block in the log be others than were written."""
    pointer = pointer_of(stage, run)
    record = stage.database.log.manifest.state.files[pointer.file]
    handle = stage.stage.disk.open(join(DIRECTORY, "log", record.name), writable=True)
    handle.write_at(pointer.offset + 100, [b"????"])
    handle.close()
