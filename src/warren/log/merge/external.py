"""Merging several inputs into one sequence of batches in key order, in memory or in pieces on disk.

    put_only        in memory: all entries are read, then ordered once by key and version. Key ranges are ordered, and
                    the output is gathered, by several threads side by side
    update_to_max   in memory, one input after another: an entry stays only if it is newer than the known one of its
                    key. One thread; memory for the distinct keys, however often each was written
    external        in pieces on disk, each piece by put_only

`sorted_merge` uses put_only where it fits into its memory, else external; update_to_max is the fallback of external,
and the plan to choose where few keys are written very often. All give the same (a differential test compares them). The
first two are limestone's, without its sort database: the order of the first is what version-prefixed keys gave, the
fold of the second what get-compare-put gave. The inputs are an explicit list, never a directory listing, and can be
read again: a start-up snapshot takes all files, an online compaction some. The working directory is cleared first.

External:

    inputs ──survey──► splitters (from real keys), clears
    inputs ──loads───► each sorted and merged in memory, then partitioned by key range ──► spills
    spills ──────────► one after another merged in memory ──► output, in key order

Every entry is written once and read twice more, however large the log: the cost is linear. A range that is too large
nevertheless (skewed keys) is partitioned again, with splitters of its own. A single key that was written very often
collapses when its load is merged; a range that holds one key only is folded, which needs memory for one entry. A spill
holds each load's share of one range as sorted blocks. It is never synced and never survives; its blocks are checksummed
nevertheless. Splitters come from a sample of real keys; an inexact sample makes pieces uneven, and nothing else.

Merges partitioned to several workers:

    key range    low <= (storage, key) < high (None: unbounded)       each worker writes one file of the result
    hash bucket  hash(storage, key) mod count                         workers that know nothing of each other

Every version of a key lies in one range or bucket. A worker reads all inputs and selects its own rows. What a clear
drops may lie in any range behind it, so a range notes the clears of all; entries about a storage as a whole are in
every bucket. All clears are known before anything is partitioned, so each range drops what they cover. Rows are
compared with a bound eight bytes at a time, all at once; only those that agree so far are compared further. The hash is
a function of storage, length and the first 256 bytes of the key. It never reaches the disk, so it may change between
versions.

Read-ahead: results in order, computed ahead by a few threads while the consumer works on the last of them.

    threads    job 5 · job 6            at most `depth` results beyond what was requested
    waiting    4
    consumed   0 1 2 3

A merge gathers its next pieces while the writer checksums and writes the last one. An error of a job is raised where
its result would have been; closing the iterator stops the threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import Epoch, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.files.protocol import Buffer, Files, join
from warren.log.merge.merge import ABOUT_STORAGES, KEYED, NO_CLEARS, Clears, merge, rows_of_kinds, survivors
from warren.log.merge.pool import (
    WORD_BYTES,
    Flags,
    Pool,
    Positions,
    Strings,
    joined_pools,
    no_entries,
    numbers_at,
    part_of,
)
from warren.log.settings import EntryKind
from warren.records.block import FileIdentity, check_block
from warren.records.columns import U64, EntryColumns, NumberColumn, Texts
from warren.records.entries import draft_entries, read_entries
from warren.records.format import BlockKind, BlockVerdict

Result = TypeVar("Result")


def ahead(threads: Threads, jobs: Sequence[Callable[[], Result]], worker_count: int) -> Iterator[Result]:
    """The jobs' results, in order. With fewer than two workers each job runs when its result is requested."""
    if worker_count < 2 or len(jobs) < 2:
        return (job() for job in jobs)
    return _Ahead(threads, jobs, worker_count).results()


class _Ahead(Generic[Result]):
    def __init__(self, threads: Threads, jobs: Sequence[Callable[[], Result]], worker_count: int) -> None:
        self._threads = threads
        self._jobs = jobs
        self._worker_count = worker_count
        self._changed = threads.condition()
        self._begun = 0
        self._requested = 0
        self._is_closed = False
        self._done: dict[int, Result | BaseException] = {}

    def results(self) -> Iterator[Result]:
        running = [self._threads.start(f"ahead-{number}", self._work) for number in range(self._worker_count)]
        try:
            for number in range(len(self._jobs)):
                yield self._result_of(number)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            for thread in running:
                thread.join()

    def _result_of(self, number: int) -> Result:
        with self._changed:
            self._requested = number
            self._changed.notify_all()
            while number not in self._done:
                self._changed.wait()
            result = self._done.pop(number)
        if isinstance(result, BaseException):
            raise result
        return result

    def _work(self) -> None:
        while (number := self._begin()) is not None:
            try:
                result: Result | BaseException = self._jobs[number]()
            except BaseException as error:
                result = error
            with self._changed:
                self._done[number] = result
                self._changed.notify_all()

    def _begin(self) -> int | None:
        """The number of the next job, once it is within `depth` of what was requested."""
        with self._changed:
            while not self._is_closed and self._begun < len(self._jobs):
                if self._begun <= self._requested + self._worker_count:
                    self._begun += 1
                    return self._begun - 1
                self._changed.wait()
        return None


ENTRY_INDEX_BYTES = 96  # what put_only keeps in memory for each entry, at its peak
_FOLD_COST_MIN = 32 << 20


class Input(Protocol):
    """Entries to be merged: a scanned log file, a compacted file, a spill."""

    @property
    def entries(self) -> int:
        """About how many entries there are."""
        ...

    @property
    def size_bytes(self) -> int:
        """About how many bytes their keys and values have."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether batches are views of a mapped file, so that holding on to them costs no memory of ours."""
        ...

    def batches(self) -> Iterator[EntryColumns]:
        """All entries, with their epochs; can be read more than once."""
        ...


def memory_bytes_of(inputs: Sequence[Input]) -> int:
    """What put_only would need for these inputs: an index, and room for what is not mapped, which may be copied."""
    return sum(each.entries * ENTRY_INDEX_BYTES + (0 if each.is_mapped else 2 * each.size_bytes) for each in inputs)


def put_only(
    inputs: Sequence[Input], is_bottom: bool, threads: Threads, worker_count: int = 2, clears: Clears = NO_CLEARS
) -> Iterator[EntryColumns]:
    """Everything at once. `clears` are those known from elsewhere."""
    pool = Pool.of(_read_together(inputs, threads, worker_count))
    clears = clears.and_also(Clears.of(pool))
    rows = survivors(pool, clears, is_bottom, threads.together, worker_count)
    return ahead(threads, [partial(pool.take, piece) for piece in pool.pieces(rows)], worker_count)


def update_to_max(inputs: Sequence[Input], is_bottom: bool, clears: Clears = NO_CLEARS) -> Iterator[EntryColumns]:
    """One after another, newer over older."""
    folded, waiting, waiting_cost = no_entries(), list[EntryColumns](), 0
    for batch in (batch for each in inputs for batch in each.batches()):
        waiting.append(batch)
        waiting_cost += _cost_of(batch)
        if waiting_cost >= max(_cost_of(folded), _FOLD_COST_MIN):  # so that an entry is folded a few times only
            folded, waiting, waiting_cost = merge([folded, *waiting], is_bottom=False, clears=clears), [], 0
    pool = Pool.of([folded, *waiting])
    yield from map(pool.take, pool.pieces(survivors(pool, clears.and_also(Clears.of(pool)), is_bottom)))


def _cost_of(batch: EntryColumns) -> int:
    return batch.keys.size_bytes + batch.values.size_bytes + ENTRY_INDEX_BYTES * batch.count


def _read_together(inputs: Sequence[Input], threads: Threads, worker_count: int) -> list[EntryColumns]:
    """The batches of all inputs, in order; reading them verifies them, which is work for several threads."""
    found: list[list[EntryColumns]] = [[] for _ in inputs]

    def read(worker: int) -> None:
        for number in range(worker, len(inputs), worker_count):
            found[number] = list(inputs[number].batches())

    if inputs:
        threads.together([partial(read, worker) for worker in range(min(worker_count, len(inputs)))])
    return [batch for batches in found for batch in batches]


ROWS_AT_ONCE = 1 << 16

Bound = tuple[int, bytes]  # storage, key


def is_below(pool: Pool, bound: Bound) -> Flags:
    """Which rows come before the bound."""
    storage, key = bound
    storages = numbers_at(pool.storages, np.arange(pool.count, dtype=np.int64))
    below: Flags = storages < np.uint64(storage)
    open_rows = np.flatnonzero(storages == np.uint64(storage))
    for depth in range(0, len(key), WORD_BYTES):
        words = pool.keys.words(depth, open_rows)
        mine = np.uint64(int.from_bytes(key[depth : depth + WORD_BYTES].ljust(WORD_BYTES, b"\0"), "big"))
        below[open_rows[words < mine]] = True
        open_rows = open_rows[words == mine]
        if not len(open_rows):
            return below
    below[open_rows[pool.keys.lengths(open_rows) < len(key)]] = True  # equal but for zeros: the shorter comes first
    return below


@dataclass(frozen=True, slots=True)
class KeyRange:
    low: Bound | None = None
    high: Bound | None = None

    def rows(self, pool: Pool) -> Positions:
        if self.low is None and self.high is None:
            return np.arange(pool.count, dtype=np.int64)
        within: Flags = np.ones(pool.count, dtype=np.bool_) if self.high is None else is_below(pool, self.high)
        if self.low is not None:
            within &= ~is_below(pool, self.low)
        return np.flatnonzero(within)

    def to_json(self) -> list[Any]:
        return [None if bound is None else [bound[0], bound[1].hex()] for bound in (self.low, self.high)]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> KeyRange:
        return cls(*(None if bound is None else (int(bound[0]), bytes.fromhex(bound[1])) for bound in raw))


def ranges_between(bounds: Sequence[Bound]) -> list[KeyRange]:
    """One range more than there are bounds; together they are everything."""
    edges = [None, *bounds, None]
    return [KeyRange(low, high) for low, high in pairwise(edges)]


class RangeInput:
    """One range's share of an input, as an input of a merge. What was read has noted its clears."""

    def __init__(self, source: Input, key_range: KeyRange, share: float) -> None:
        self._source = source
        self._range = key_range
        self._share = share  # about how much of the source is in the range
        self.clears = NO_CLEARS

    @property
    def entries(self) -> int:
        return int(self._source.entries * self._share) + 1

    @property
    def size_bytes(self) -> int:
        return int(self._source.size_bytes * self._share) + 1

    @property
    def is_mapped(self) -> bool:
        return self._source.is_mapped

    def batches(self) -> Iterator[EntryColumns]:
        """The share, copied."""
        return (pool.take(np.arange(pool.count, dtype=np.int64)) for pool in self.pools())

    def pools(self) -> Iterator[Pool]:
        """The share, where it lies."""
        gathered, rows = list[EntryColumns](), 0
        for batch in self._source.batches():
            gathered.append(batch)
            rows += batch.count
            if rows >= ROWS_AT_ONCE:
                yield self._own(Pool.of(gathered))
                gathered, rows = [], 0
        if gathered:
            yield self._own(Pool.of(gathered))

    def _own(self, pool: Pool) -> Pool:
        if not pool.kinds.is_constant or pool.kinds.base not in KEYED:
            self.clears = self.clears.and_also(Clears.of(pool))
        return part_of(pool, self._range.rows(pool))


_HASHED_BYTES_MAX = 256
_ROWS_AT_ONCE = 1 << 16
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_HALF = np.uint64(32)


def bucket_of(storages: NumberColumn, keys: Strings, count: int) -> Positions:
    """The bucket of each (storage, key)."""
    rows = np.arange(keys.count, dtype=np.int64)
    if count == 1 or not len(rows):
        return np.zeros(len(rows), dtype=np.int64)
    lengths = keys.lengths(rows)
    hashes = _mixed(numbers_at(storages, rows) ^ (lengths.view(np.uint64) << _HALF))
    shortest, longest = int(lengths.min()), min(int(lengths.max()), _HASHED_BYTES_MAX)
    for depth in range(0, longest, WORD_BYTES):
        if depth < shortest:
            hashes = _mixed(hashes ^ keys.words(depth, rows))
        else:
            some = np.flatnonzero(lengths > depth)
            hashes[some] = _mixed(hashes[some] ^ keys.words(depth, some))
    return (((hashes >> _HALF) * np.uint64(count)) >> _HALF).view(np.int64)


def _mixed(values: U64) -> U64:
    """Every bit of the input moves about half of the output's."""
    mixed = values * _FACTORS[0]
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(27)
    mixed *= _FACTORS[2]
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket's share of an input, as an input of a merge."""

    source: Input
    number: int
    count: int
    with_values: bool = True  # False: values are not wanted, so they are left out

    @property
    def entries(self) -> int:
        return self.source.entries // self.count + 1

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes // self.count + 1

    @property
    def is_mapped(self) -> bool:
        return self.source.is_mapped

    def batches(self) -> Iterator[EntryColumns]:
        """The share, copied."""
        return (pool.take(np.arange(pool.count, dtype=np.int64)) for pool in self.pools())

    def pools(self) -> Iterator[Pool]:
        """The share, where it lies."""
        gathered, rows = list[EntryColumns](), 0
        for batch in self.source.batches():
            gathered.append(batch if self.with_values else replace(batch, values=Texts.empty(batch.count)))
            rows += batch.count
            if rows >= _ROWS_AT_ONCE:
                yield self._share(Pool.of(gathered))
                gathered, rows = [], 0
        if gathered:
            yield self._share(Pool.of(gathered))

    def _share(self, pool: Pool) -> Pool:
        if self.count == 1:
            return pool
        mine: Flags = bucket_of(pool.storages, pool.keys, self.count) == self.number
        mine[rows_of_kinds(pool, ABOUT_STORAGES)] = True
        return part_of(pool, np.flatnonzero(mine))


def newest_values(buckets: Sequence[Bucket], memory_bytes_max: int) -> Iterator[EntryColumns]:
    """The keys that have a value when all is merged, in key order. The inputs hold all there is of their keys."""
    if memory_bytes_of(buckets) > memory_bytes_max:
        pools = [Pool.of([batch]) for batch in update_to_max(buckets, True)]
    else:
        pools = [joined_pools([pool for bucket in buckets for pool in bucket.pools()])]
    for pool in pools:
        rows = survivors(pool, Clears.of(pool), True)
        if not pool.kinds.is_constant:
            rows = rows[numbers_at(pool.kinds, rows) == EntryKind.PUT]
        elif pool.kinds.base != EntryKind.PUT:
            rows = rows[:0]
        yield from (pool.take(piece) for piece in pool.pieces(rows))


_BLOCK_BYTES = 1 << 20
_NO_FILE = FileIdentity(TimelineId(0), Incarnation(0))


class SpillFile:
    is_mapped = True

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file = files.create(path)
        self.entries = 0
        self.size_bytes = 0

    def add(self, columns: EntryColumns) -> None:
        """Sorted entries, written at once."""
        pieces: list[Buffer] = []
        offset = self.size_bytes
        for part in columns.split(_BLOCK_BYTES):
            draft = draft_entries(part, kind=BlockKind.SORTED)
            header, _ = draft.place(_NO_FILE, offset, Epoch(0))
            pieces += [header, *draft.pieces]
            offset += draft.size_bytes
        self._file.write_at(self.size_bytes, pieces)
        self.entries += columns.count
        self.size_bytes = offset

    def batches(self) -> Iterator[EntryColumns]:
        return _blocks(self._file.view(), self._file.path, 0, self.size_bytes)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self._files.remove(self._file.path)


@dataclass(frozen=True, slots=True)
class SpillPart:
    """Some bytes of a spill that another process wrote, as an input of a merge."""

    files: Files
    path: str
    start: int
    stop: int
    entries: int
    is_mapped: bool = True

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start

    def batches(self) -> Iterator[EntryColumns]:
        if self.start == self.stop:
            return
        file = self.files.open(self.path)
        try:
            view = file.view()
        finally:
            file.close()
        yield from _blocks(view, self.path, self.start, self.stop)


def _blocks(view: memoryview, path: str, start: int, stop: int) -> Iterator[EntryColumns]:
    offset = start
    while offset < stop:
        header = check_block(view, offset, _NO_FILE)
        if isinstance(header, BlockVerdict):
            raise Damage(f"a spilled block cannot be read back: {header.value}", path, offset)
        yield read_entries(view, header)
        offset = header.end


def clear_directory(files: Files, directory: str) -> None:
    """Make the directory if need be, and empty it."""
    files.make_directories(directory)
    for name in files.list(directory):
        path = join(directory, name)
        if files.stat(path).is_directory:
            clear_directory(files, path)
            files.remove_directory(path)
        else:
            files.remove(path)


_SAMPLED_PER_RANGE = 64
_SAMPLED_MIN = 4


class Sample:
    """Every so many-th key, each once; fewer of them if they are long."""

    def __init__(self, entries: int, ranges: int, bytes_max: int, per_range: int | None = None) -> None:
        self._ranges = ranges
        self._bytes_max = bytes_max
        self._step = entries // (ranges * (per_range or _SAMPLED_PER_RANGE)) + 1
        self._seen = 0
        self._keys: set[Bound] = set()
        self._bytes = 0

    def add(self, batch: EntryColumns) -> None:
        for row in range(-self._seen % self._step, batch.count, self._step):
            key = (batch.storages.at(row), batch.keys.at(row))
            self._bytes += 0 if key in self._keys else len(key[1])
            self._keys.add(key)
            if self._bytes > self._bytes_max and len(self._keys) > _SAMPLED_MIN:
                self._thin_out()
        self._seen += batch.count

    def bounds(self) -> list[Bound]:
        """Bounds that cut the different keys evenly, one less than ranges; at least one if there are two keys."""
        keys = sorted(self._keys)
        chosen = {max(len(keys) * number // self._ranges, 1) for number in range(1, self._ranges)}
        return [keys[number] for number in sorted(chosen) if number < len(keys)]

    def _thin_out(self) -> None:
        self._step *= 2
        self._keys = set(sorted(self._keys)[::2])
        self._bytes = sum(len(key) for _, key in self._keys)


_RANGES_MAX = 256


@dataclass(frozen=True, slots=True)
class MergeResources:
    """Where and with what a merge works."""

    threads: Threads
    files: Files
    directory: str  # for spills; cleared first
    memory_bytes_max: int = 512 << 20  # beyond it the merge works in pieces on disk
    worker_count: int = 2


def external(
    inputs: Sequence[Input], is_bottom: bool, workshop: MergeResources, clears: Clears = NO_CLEARS
) -> Iterator[EntryColumns]:
    """All inputs merged, in key order. `clears` are those known from elsewhere."""
    return _External(workshop, is_bottom, clears).merged(inputs)


class _External:
    def __init__(self, workshop: MergeResources, is_bottom: bool, clears: Clears) -> None:
        self._workshop = workshop
        self._is_bottom = is_bottom
        self._clears = clears
        self._numbers = count()

    def merged(self, inputs: Sequence[Input]) -> Iterator[EntryColumns]:
        splitters = self._survey(inputs)
        spills = deque(self._new_spill() for _ in range(len(splitters) + 1))
        try:
            for load in self._loads(inputs):
                self._deal(Pool.of(load), splitters, spills)
            while spills:
                yield from self._of_range(spills[0], is_whole=not splitters)
                spills.popleft().remove()
        finally:
            for spill in spills:
                spill.remove()

    def _of_range(self, spill: SpillFile, is_whole: bool) -> Iterator[EntryColumns]:
        workshop = self._workshop
        if memory_bytes_of([spill]) <= workshop.memory_bytes_max:
            return put_only([spill], self._is_bottom, workshop.threads, workshop.worker_count, self._clears)
        if is_whole:
            return update_to_max([spill], self._is_bottom, self._clears)
        return self.merged([spill])

    def _survey(self, inputs: Sequence[Input]) -> list[Bound]:
        """Bounds between ranges that will each fit into half the memory. On the way all clears are noted."""
        wanted = min(2 * memory_bytes_of(inputs) // self._workshop.memory_bytes_max + 2, _RANGES_MAX)
        sample = Sample(sum(each.entries for each in inputs), wanted, self._workshop.memory_bytes_max // 8)
        for batch in (batch for each in inputs for batch in each.batches()):
            self._note_clears(batch)
            sample.add(batch)
        return sample.bounds()

    def _note_clears(self, batch: EntryColumns) -> None:
        if (not batch.kinds.is_constant or batch.kinds.base not in KEYED) and batch.count:
            found = Clears.of(Pool.of([batch]))
            self._clears = self._clears.and_also(found) if found.versions else self._clears

    def _new_spill(self) -> SpillFile:
        return SpillFile(self._workshop.files, join(self._workshop.directory, f"spill-{next(self._numbers):06}"))

    def _deal(self, load: Pool, splitters: list[Bound], spills: Iterable[SpillFile]) -> None:
        """Merge one load and append to each spill its share."""
        threads, workers = self._workshop.threads, self._workshop.worker_count
        rows = survivors(load, self._clears, False, threads.together, workers)
        shares = zip(spills, partitions(load, rows, splitters), strict=True)
        pieces = [(spill, piece) for spill, share in shares for piece in load.pieces(share)]
        taken = ahead(threads, [partial(load.take, piece) for _, piece in pieces], workers)
        for (spill, _), columns in zip(pieces, taken, strict=True):
            spill.add(columns)

    def _loads(self, inputs: Sequence[Input]) -> Iterator[list[EntryColumns]]:
        """Batches until half the memory is used."""
        load, used = list[EntryColumns](), 0
        for each in inputs:
            for batch in each.batches():
                load.append(batch)
                used += batch.count * ENTRY_INDEX_BYTES
                used += 0 if each.is_mapped else 2 * (batch.keys.size_bytes + batch.values.size_bytes)
                if 2 * used >= self._workshop.memory_bytes_max:
                    yield load
                    load, used = [], 0
        if load:
            yield load


def partitions(pool: Pool, rows: Positions, splitters: Sequence[Bound]) -> list[Positions]:
    """The rows of each range; rows come in key order."""

    def bound_of(row: np.int64) -> Bound:
        return pool.storages.at(int(row)), pool.keys.at(int(row))

    edges = [bisect_left(rows, splitter, key=bound_of) for splitter in splitters]
    return np.split(rows, edges)


def sorted_merge(inputs: Sequence[Input], is_bottom: bool, workshop: MergeResources) -> Iterator[EntryColumns]:
    """All inputs merged, in key order, within the memory of the workshop."""
    clear_directory(workshop.files, workshop.directory)
    if memory_bytes_of(inputs) <= workshop.memory_bytes_max:
        return put_only(inputs, is_bottom, workshop.threads, workshop.worker_count)
    return external(inputs, is_bottom, workshop)
