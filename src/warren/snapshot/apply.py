"""Applies entries from the version buffer to the store, in version order, up to the safe snapshot version.

    buffer.take(safe) ──▶ chunks, in version order ──▶ collapsed, one entry a key ──▶ store.apply, one batch a chunk
                                                                                      ──▶ taken.done()

Each chunk is a batch of its own, with the version it reaches as its mark: a reader between two chunks sees the state as
of that version, whole. Chunks end between two major versions (epochs, unless a writer gave others), so no session is
seen in part. Only a major version that is many chunks large is cut inside. The last chunk carries the epoch as well.

The buffer frees entries only when all are applied. After a crash in between, the log is read again from the mark's
epoch on, and entries that are in the store already are late: each is compared with what is there, and changes nothing.
An entry is late, too, if its writer gave it a version at or below the safe snapshot version. It is applied if it is
newer than what the store has under its key, as a merge of the log would do.

Collapsing leaves the newest entry of each key, and nothing of keys that were put and removed in the same range:

    key of any storage          put 1 · put 2 · remove 3     →   remove 3          the store may hold an older value
    key of a write-once one     put 1 · remove 3             →   nothing           there is no older value to remove
                                remove 3                     →   remove 3          its put was applied before

The keys of a write-once storage are put once, and never again after they were removed (messages). So if the put is in
the range, the store has nothing under that key, and neither entry needs to reach it: messages that live shorter than
the lag cost no work in the store. With any other storage that would bring an old value back. The rest is the merge rule
(log/merge/merge), never at the bottom: tombstones and clears stay, since the store may hold what they remove.

Invariant: applying the collapsed entries gives what applying every entry in version order gives.
Memory: all of the given batches; a large range is collapsed part by part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from warren.base.ids import Epoch, TimelineId
from warren.base.threads import Threads
from warren.log.merge.key_order import KeyRanges, KeyWords
from warren.log.merge.merge import KEYED, Clears, rows_of_kinds, survivors
from warren.log.merge.pool import Flags, Pool, Positions, numbers_at, part_of
from warren.log.read.tail import TailBlock
from warren.log.settings import EntryKind
from warren.records.columns import U64, EntryColumns
from warren.snapshot.store import Applied, SnapshotStore, Version
from warren.snapshot.version_buffer.buffer import VersionBuffer

_RANGE_ROWS = 1 << 19  # sorted at once: fits into the processor's caches


def collapsed(batches: Iterable[EntryColumns], write_once: Collection[int] = ()) -> list[EntryColumns]:
    """One entry for each key that needs one, in key order; entries about storages in front of their keys."""
    given = [batch for batch in batches if batch.count]
    if not given:
        return []
    pool = Pool.of(given)
    clears = Clears.of(pool)
    if len(gone := _cancelled(pool, write_once)):
        stays = np.ones(pool.count, dtype=np.bool_)
        stays[gone] = False
        pool = part_of(pool, np.flatnonzero(stays))
    rows = survivors(pool, clears, is_bottom=False)
    return [pool.take(piece) for piece in pool.pieces(rows)]


def _cancelled(pool: Pool, write_once: Collection[int]) -> Positions:
    """Rows of write-once keys whose newest entry is a remove, and which were put in this range."""
    rows = _of_storages(pool, rows_of_kinds(pool, KEYED), write_once)
    if not (numbers_at(pool.kinds, rows) == EntryKind.REMOVE).any():
        return rows[:0]
    words = KeyWords(pool.storages, pool.keys, rows)
    ranges = KeyRanges(words, words.count // _RANGE_ROWS + 1)
    return np.concatenate([_cancelled_of(pool, ranges, number) for number in range(ranges.count)])


def _cancelled_of(pool: Pool, ranges: KeyRanges, number: int) -> Positions:
    order = ranges.order(number)
    if len(order.rows) == 0:
        return order.rows
    is_put = numbers_at(pool.kinds, order.rows) == EntryKind.PUT
    put, removed = _newest(pool, order.rows, order.starts, is_put), _newest(pool, order.rows, order.starts, ~is_put)
    is_gone = put.is_there & removed.is_there & removed.is_above(put)
    return order.rows[np.repeat(is_gone, np.diff(order.starts, append=len(order.rows)))]


class _Newest:
    """The newest version of each group among some of its rows."""

    def __init__(self, is_there: Flags, major: U64, minor: U64) -> None:
        self.is_there, self.major, self.minor = is_there, major, minor

    def is_above(self, other: _Newest) -> Flags:
        is_above: Flags = (self.major == other.major) & (self.minor > other.minor)
        is_above |= self.major > other.major
        return is_above


def _newest(pool: Pool, rows: Positions, starts: Positions, is_meant: Flags) -> _Newest:
    sizes = np.diff(starts, append=len(rows))
    major = np.where(is_meant, numbers_at(pool.majors, rows), np.uint64(0))
    highest = np.maximum.reduceat(major, starts)
    is_highest = is_meant & (major == np.repeat(highest, sizes))
    minor = np.where(is_highest, numbers_at(pool.minors, rows), np.uint64(0))
    return _Newest(np.logical_or.reduceat(is_meant, starts), highest, np.maximum.reduceat(minor, starts))


def _of_storages(pool: Pool, rows: Positions, storages: Collection[int]) -> Positions:
    if not storages:
        return rows[:0]
    if pool.storages.is_constant:
        return rows if pool.storages.base in storages else rows[:0]
    wanted = np.array(sorted(storages), dtype=np.uint64)
    return rows[np.isin(numbers_at(pool.storages, rows), wanted)]


_CHUNKS_OF_ONE_VERSION = 8  # above it, limited memory is preferred to whole sessions


class VersionApply:
    def __init__(
        self,
        threads: Threads,
        timeline: TimelineId,
        buffer: VersionBuffer,
        store: SnapshotStore,
        chunk_bytes: int = 16 << 20,
        write_once: Collection[int] = (),
    ) -> None:
        self._timeline = timeline
        self._buffer = buffer
        self._store = store
        self._chunk_bytes = chunk_bytes
        self._write_once = write_once
        self._lock = threads.condition()
        self._waiting: list[tuple[Epoch, Version]] = []  # of each block in the buffer: its epoch, its highest version
        self.bytes_applied = 0

    def add(self, block: TailBlock) -> None:
        """Add entries that became durable; from any thread, also during `apply`."""
        highest = highest_version(block.columns)
        with self._lock:
            self._waiting.append((block.epoch, highest))  # first, so that every entry in the buffer is listed
        self._buffer.add(block.channel, block.first, block.columns)

    def apply(self, epoch: Epoch, safe: Version) -> Applied:
        """Apply everything up to the safe snapshot version of a log read up to `epoch`; the mark afterwards."""
        before = self._store.applied
        safe = max(safe, before.version)
        with self._lock:
            known = list(self._waiting)
        # Entries added meanwhile are of later epochs: they may be applied, and count as waiting until the next call.
        throttled = [at for at, highest in known if highest > safe and at <= epoch]
        reached = min([epoch, *(Epoch(at - 1) for at in throttled)])
        mark = Applied(self._timeline, max(reached, before.epoch), safe)
        taken = self._buffer.take(safe)
        try:
            for chunk, last in self._chunks(taken.batches()):
                self._apply_chunk(chunk, Applied(self._timeline, before.epoch, last) if last else mark)
            if self._store.applied != mark:
                self._store.apply([], mark)
        except BaseException:
            taken.put_back()
            raise
        taken.done()
        gone = {each for each in known if each[1] <= safe}
        with self._lock:
            self._waiting = [each for each in self._waiting if each not in gone]
        return mark

    def _apply_chunk(self, chunk: list[EntryColumns], mark: Applied) -> None:
        at = self._store.applied.version
        are_late = lowest_version(chunk[0]) <= at
        mark = mark._replace(version=max(mark.version, at))
        self._store.apply(collapsed(chunk, () if are_late else self._write_once), mark, are_late=are_late)
        self.bytes_applied += sum(map(size_of, chunk))

    def _chunks(self, batches: Iterator[EntryColumns]) -> Iterator[tuple[list[EntryColumns], Version | None]]:
        """The batches of each chunk, and the version it reaches; None for the last chunk."""
        chunk, size = list[EntryColumns](), 0
        for batch in (part for whole in batches for part in by_major(whole)):
            is_new = bool(chunk) and chunk[-1].majors.at(chunk[-1].count - 1) != batch.majors.at(0)
            limit = self._chunk_bytes if is_new else _CHUNKS_OF_ONE_VERSION * self._chunk_bytes
            if chunk and size + size_of(batch) > limit:
                yield chunk, version_at(chunk[-1], chunk[-1].count - 1)
                chunk, size = [], 0
            chunk.append(batch)
            size += size_of(batch)
        if chunk:
            yield chunk, None


def by_major(batch: EntryColumns) -> Iterator[EntryColumns]:
    """The batch, which is in version order, cut where its last major version begins: a chunk may end there."""
    majors = batch.majors
    if majors.is_constant or majors.at(0) == majors.at(batch.count - 1):
        yield batch
        return
    edge = int(np.searchsorted(majors.array(), np.uint64(majors.at(batch.count - 1))))
    yield batch.part(0, edge)
    yield batch.part(edge, batch.count)


def size_of(batch: EntryColumns) -> int:
    return batch.keys.size_bytes + batch.values.size_bytes + 32 * batch.count


def version_at(batch: EntryColumns, row: int) -> Version:
    return batch.majors.at(row), batch.minors.at(row)


def lowest_version(batch: EntryColumns) -> Version:
    """Of a batch in version order."""
    return version_at(batch, 0)


def highest_version(batch: EntryColumns) -> Version:
    """Of a batch in any order."""
    if batch.majors.is_constant:
        return batch.majors.base, int(batch.minors.array().max())
    majors = batch.majors.array()
    major = majors.max()
    return int(major), int(batch.minors.array()[majors == major].max())
