"""A queue index over a dict: what `QueueIndex` promises, as plain as can be, with a disk that forgets on demand.

    written    what sessions have put, each with its epoch       seen by the running queue
    durable    the same at the durable epoch                     what a crash leaves
    applied    the same at an earlier one, if it lags            all that a scan has to see

Rows are the real ones (queue_index/row_format, run_format); only log and snapshot store are missing. Tests say when an
epoch becomes durable (`is_prompt`: at once), so that the time between is as long as they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warren.base.environment import Clock
from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import QueuePlace, Run, Sizes
from warren.log.writer import Placed
from warren.queue_index.batch import IndexBatch
from warren.queue_index.index import IndexedRun, OnDamage, Piece
from warren.queue_index.row_format import (
    ACK_ROW,
    Counters,
    ack_key,
    counters_key,
    decode_contents,
    decode_counters,
    decode_gone,
    decode_run,
    read_key,
    run_key,
)

Key = tuple[int, bytes]
Rows = dict[Key, tuple[bytes, Epoch]]


class PlainSession:
    placed: Sequence[Placed] = ()

    def __init__(self, index: PlainIndex) -> None:
        self._index = index
        self._steps: list[tuple[Key, bytes | None]] = []
        self._removed: list[int] = []

    def put(self, storage: int, key: bytes, value: bytes) -> None:
        self._steps.append(((storage, key), value))

    def remove(self, storage: int, key: bytes) -> None:
        self._steps.append(((storage, key), None))

    def remove_storage(self, storage: int) -> None:
        self._removed.append(storage)

    def record(self, value: bytes, *, key: bytes) -> None:
        self._index.history.append(value)

    def end(self) -> Epoch:
        return self._index.write(self._removed, self._steps)

    def abort(self) -> None:
        self._steps = []


class PlainIndex:
    """Has `IndexSource`."""

    def __init__(self, clock: Clock, is_prompt: bool = True, lags: bool = False) -> None:
        self._clock = clock
        self._lags = lags  # scans see what is durable only after `apply`
        self._applied = Epoch(0)
        self.is_prompt = is_prompt
        self.history: list[bytes] = []
        self.rows: Rows = {}
        self.images: dict[Epoch, Rows] = {Epoch(0): {}}  # those that are not durable yet, and the last that is
        self.epoch = Epoch(0)
        self.durable_epoch = Epoch(0)
        self.reads = 0  # of contents
        self.scans = 0
        self.damaged: set[tuple[int, int]] = set()  # queue, first sequence id

    def begin(self) -> IndexBatch:
        return IndexBatch(lambda: PlainSession(self), self._clock)

    def write(self, removed: Sequence[int], steps: Sequence[tuple[Key, bytes | None]]) -> Epoch:
        self.epoch = Epoch(self.epoch + 1)
        for storage in removed:
            self.rows = {key: row for key, row in self.rows.items() if key[0] != storage}
        for key, value in steps:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = (value, self.epoch)
        self.images[self.epoch] = dict(self.rows)
        if self.is_prompt:
            self.settle()
        return self.epoch

    def settle(self, epoch: Epoch | None = None) -> None:
        """Everything up to an epoch, or all there is, becomes durable."""
        self.durable_epoch = max(self.durable_epoch, self.epoch if epoch is None else epoch)
        self.images = {e: rows for e, rows in self.images.items() if e >= self.applied_epoch}

    @property
    def applied_epoch(self) -> Epoch:
        return self._applied if self._lags else self.durable_epoch

    def apply(self) -> None:
        """Scans see everything that is durable."""
        self._applied = self.durable_epoch

    def crash(self) -> None:
        """What was not durable never was."""
        self.rows = dict(self.images[self.durable_epoch])
        self.images = {self.durable_epoch: dict(self.rows)}
        self.epoch = self.durable_epoch
        self.apply()

    def is_durable(self, epoch: Epoch) -> bool:
        return epoch <= self.durable_epoch

    # -- calls of a queue ----------------------------------------------------------------------------------------

    def recover(self, place: QueuePlace, newest: Epoch = Epoch(0), on_damage: OnDamage | None = None) -> Counters:
        row = self.rows.get((place.queue, counters_key(place.level)))
        counters = Counters() if row is None else decode_counters(place, row[0])
        next_, count, size_bytes = counters.next, counters.count, counters.size_bytes
        for found in self._runs(place, self.rows):
            if found.run.first >= counters.next:
                next_ = found.run.end
                alive = [i for i in range(found.run.count) if not found.gone >> i & 1]
                count += len(alive)
                size_bytes += sum(found.run.size_of(i, i + 1) for i in alive)
        is_clean = counters.is_clean and next_ == counters.next
        delivered_to = counters.delivered_to if is_clean else next_
        return Counters(next_, counters.head, count, size_bytes, delivered_to, is_clean)

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
        self.scans += 1
        self.settle(newest)
        seen = 0
        seen_epoch = self.applied_epoch if self.applied_epoch >= newest else self.durable_epoch
        for run, gone in self._runs(place, self.images[seen_epoch]):
            if messages_max is not None and seen >= messages_max:
                return
            if run.end > first and run.first < stop and gone.bit_count() < run.count:
                if (place.queue, run.first) in self.damaged:
                    assert on_damage is not None
                    on_damage(run.first, Damage("as the test wants it"))
                else:
                    seen += min(run.end, stop) - max(run.first, first)
                    yield IndexedRun(run, gone)

    def contents_of(self, place: QueuePlace, pieces: Sequence[Piece]) -> list[list[bytes]]:
        self.reads += 1
        return [self._contents(place, *piece) for piece in pieces]

    def _contents(self, place: QueuePlace, run: Run, start: int, stop: int) -> list[bytes]:
        assert run.epoch, "what is not written can not be read"
        if (place.queue, run.first) in self.damaged:
            raise Damage("as the test wants it")
        self.settle(run.epoch)
        return decode_contents(
            place, run.first, self.rows[place.queue, run_key(place.level, run.first)][0], start, stop
        )

    def _runs(self, place: QueuePlace, rows: Rows) -> list[IndexedRun]:
        found = []
        prefix = b"r" + bytes([place.level])
        for (queue, key), (value, epoch) in sorted(rows.items()):
            if queue == place.queue and key.startswith(prefix) and read_key(place, key)[1] != ACK_ROW:
                run = decode_run(place, read_key(place, key)[0], value, epoch)
                ack = rows.get((queue, ack_key(place.level, run.first)))
                found.append(IndexedRun(run, 0 if ack is None else decode_gone(place, run.first, run.count, ack[0])))
        return found


class PlainStore:
    """Large contents in a dict, each run's once. Has `PersistentStore`."""

    def __init__(self) -> None:
        self.units: dict[bytes, list[bytes]] = {}
        self.submitted: list[Run] = []
        self._waiting: list[tuple[object, Run, list[bytes]]] = []
        self._pending_writes: dict[object, bytes] = {}  # written by one of several batches

    def submit(
        self, publication: object, contents: Sequence[bytes], place: QueuePlace, run: Run, batch: IndexBatch
    ) -> None:
        self.submitted.append(run)
        self._waiting.append((publication, run, list(contents)))
        batch.join(self)

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        wanted = {id(run) for _, run in runs}
        for publication, run, contents in self._waiting:
            if id(run) in wanted:
                run.stored = self._pending_writes.setdefault(publication, b"unit %d" % len(self.units))
                assert self.units.setdefault(run.stored, contents) == contents, "one name for different contents"
        self._waiting = []

    def after_commit(self, epoch: Epoch) -> None:
        """It has no disk."""

    def on_abort(self) -> None:
        self._waiting = []

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        return self.units[stored][start:stop]


class PlainTransientStore:
    """Has `TransientStore`."""

    def __init__(self) -> None:
        self.units: dict[bytes, list[bytes]] = {}
        self.written = 0

    def write(self, contents: Sequence[bytes]) -> bytes:
        self.written += 1
        stored = b"transient %d" % self.written
        self.units[stored] = list(contents)
        return stored

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        return self.units[stored][start:stop]

    def remove(self, stored: bytes) -> None:
        del self.units[stored]
