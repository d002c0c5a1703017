"""Latest views: everything that is durable, whether or not the store has applied it.

    store        up to its mark ─────────────┐
    log                     after the mark ──┴─ read once, block by block, kept as a LogOverlay ──▶ LatestView

Usually the store applies what is durable when a view is requested, and its own view is the answer. It cannot if the
version of an entry is above the safe snapshot version, if reflection is off, paused or failed, or if another process
applies. Then the rest is read from the log's files and overlaid on a view of the store. The overlay is kept between
requests: it grows by what became durable, and drops what the store has applied. If it would exceed `overlay_bytes`, the
applier is called first, where there is one; the remainder is overlaid, however large it is. A database has a second
`LatestViewBuilder` that only overlays, for readers that must not apply anything, such as the event loop.

    get, get_many    the overlay's entry of the key against the store's row
    range, prefix    both in key order, side by side; of the store some rows at a time
    batches          the store's batches, each merged with the overlay's entries up to its end; a batch without any
                     passes unchanged

The merge rule is that of the log (log/merge/merge): the higher version wins, on either side; a clear in the overlay
removes the store's rows that are older, a clear in the store the overlay's entries. Nothing in the store is above its
mark's version, so an entry above it needs no comparison. An entry that is not is late, or in the store already: the
store is asked whether it remembers a newer remove or clear.

    run        entries as the merge rule leaves them (not at the bottom): the newest of each key, removes and entries
               about storages too, in the order of storage and key
    overlay    a few runs, the older the larger; a lookup takes the newest version in any of them

With one run only, each new block would mean merging all of it again. So new entries become a run of their own, which
absorbs the runs before it once it has grown to a share of them: each entry is merged a few times, not once per block.
Keys are searched in the columns: building a dict of them would take longer than most overlays live.

Invariants
* A view shows every epoch that was durable when it was requested, whole. Files of the log may be purged while they are
  read only if the store has their entries on disk (`reflected`): once that has passed the view's mark, the reading may
  have missed something, and is repeated with a newer view of the store.
* A view shows what a merge of everything would leave, as far as the store remembers it (rocksdb/store says what it
  forgets). `applied` and counters are the store's own.
* Runs and overlays are immutable; a view keeps the overlay it was built with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from heapq import merge as in_order
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.log.merge.merge import ABOUT_STORAGES, Clears, merge
from warren.log.merge.pool import Flags, Pool
from warren.log.read.tail import LogTail
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import EntryColumns, Texts
from warren.snapshot.apply import size_of, version_at
from warren.snapshot.rocksdb.row_format import behind_prefix
from warren.snapshot.store import NO_VERSION, Applied, ReadView, StoredVersion, StoreRow, StoreView, Version
from warren.snapshot.version_buffer.entries import rows_up_to

_RUN_SHARE = 8  # new entries are merged with the last run, unless it is more than so many times as long; then the next
_PIECE_ROWS = 512


class OverlayEntry(NamedTuple):
    """A put, or a remove if it has no value."""

    key: bytes
    version: Version
    value: bytes | None


class _Span(NamedTuple):
    """The rows of one storage in a run."""

    start: int
    keyed: int  # where the entries about the storage end, and those of its keys begin
    stop: int


class OverlayRun:
    """Merged entries. Lookups answer in rows of `columns`."""

    def __init__(self, columns: EntryColumns) -> None:
        self.columns = columns
        self._spans = _spans(columns)

    @property
    def count(self) -> int:
        return self.columns.count

    @cached_property
    def size_bytes(self) -> int:
        return size_of(self.columns)

    @cached_property
    def lowest_epoch(self) -> int:
        assert self.columns.epochs is not None
        return int(self.columns.epochs.array().min())

    @cached_property
    def lowest_version(self) -> Version:
        majors, minors = self.columns.majors.array(), self.columns.minors.array()
        return int(majors.min()), int(minors[majors == majors.min()].min())

    def clears(self) -> Iterator[tuple[int, Version]]:
        for storage, span in self._spans.items():
            for row in range(span.start, span.keyed):
                if self.columns.kinds.at(row) in CLEARING:
                    yield storage, version_at(self.columns, row)

    def find(self, storage: int, key: bytes) -> OverlayEntry | None:
        span = self._spans.get(storage)
        if span is None:
            return None
        row = bisect_left(range(span.stop), key, span.keyed, key=self.columns.keys.at)
        return next(self.entries(row, row + 1)) if row < span.stop and self.columns.keys.at(row) == key else None

    def between(self, storage: int, low: bytes, high: bytes | None) -> tuple[int, int]:
        """The rows of keys with low <= key < high."""
        span = self._spans.get(storage)
        if span is None:
            return 0, 0
        start, stop, key_at = span.keyed, span.stop, self.columns.keys.at
        if low:
            start = bisect_left(range(stop), low, start, key=key_at)
        return start, stop if high is None else bisect_left(range(stop), high, start, key=key_at)

    def entries(self, start: int, stop: int, reverse: bool = False) -> Iterator[OverlayEntry]:
        """Puts and removes, decoded in pieces."""
        edges = range(start, stop, _PIECE_ROWS)
        for edge in reversed(edges) if reverse else edges:
            piece = list(_overlaid(self.columns, edge, min(edge + _PIECE_ROWS, stop)))
            yield from reversed(piece) if reverse else piece

    def rows_of(self, storage: int | None) -> tuple[int, int]:
        """All rows of a storage, or of all storages."""
        if storage is None:
            return 0, self.count
        span = self._spans.get(storage, _Span(0, 0, 0))
        return span.start, span.stop

    def row_behind(self, storage: int, kind: int, key: bytes) -> int:
        """The first row after such an entry in the order of the run."""
        span = self._spans.get(storage)
        if span is None:
            return int(np.searchsorted(self.columns.storages.array(), np.uint64(storage), side="right"))
        if kind in ABOUT_STORAGES:
            return span.keyed
        return bisect_right(range(span.stop), key, span.keyed, key=self.columns.keys.at)


class LogOverlay:
    def __init__(self, runs: Sequence[OverlayRun] = ()) -> None:
        self.runs = tuple(runs)
        self.clears: dict[int, Version] = {}  # the newest clear or removal of each storage
        for storage, version in (clear for run in self.runs for clear in run.clears()):
            self.clears[storage] = max(version, self.cleared_at(storage))

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)

    def cleared_at(self, storage: int) -> Version:
        return self.clears.get(storage, NO_VERSION)

    def find(self, storage: int, key: bytes) -> OverlayEntry | None:
        """The newest entry of a key, unless a clear is newer."""
        found = [entry for run in self.runs if (entry := run.find(storage, key)) is not None]
        newest = max(found, key=lambda entry: entry.version, default=None)
        return None if newest is None or newest.version < self.cleared_at(storage) else newest

    def extended(self, blocks: Sequence[EntryColumns]) -> LogOverlay:
        """This overlay with the entries of these blocks added."""
        given = [block for block in blocks if block.count]
        if not given:
            return self
        runs, count = list(self.runs), sum(block.count for block in given)
        while runs and runs[-1].count <= _RUN_SHARE * count:
            count += runs[-1].count
            given.append(runs.pop().columns)
        return LogOverlay([*runs, OverlayRun(merge(given, is_bottom=False))])

    def behind(self, epoch: Epoch, offered: Epoch, version: Version) -> LogOverlay:
        """The entries that are not in a store which holds everything up to `epoch`, and everything up to `version` of
        what came up to `offered`. A dropped entry is in that store, and newer than all others of its key here."""
        runs = [_run_behind(run, epoch, offered, version) for run in self.runs]
        return self if all(a is b for a, b in zip(runs, self.runs, strict=True)) else LogOverlay([r for r in runs if r])


def rows_behind(columns: EntryColumns, epoch: Epoch, offered: Epoch, version: Version) -> EntryColumns:
    """The entries that such a store does not hold (`LogOverlay.behind`)."""
    assert columns.epochs is not None
    epochs = columns.epochs.array()
    is_held: Flags = (epochs <= np.uint64(offered)) & rows_up_to(columns.majors, columns.minors, version)
    is_held |= epochs <= np.uint64(epoch)
    return without(columns, is_held)


def without(columns: EntryColumns, is_gone: Flags) -> EntryColumns:
    return Pool.of([columns]).take(np.flatnonzero(~is_gone)) if is_gone.any() else columns


def _run_behind(run: OverlayRun, epoch: Epoch, offered: Epoch, version: Version) -> OverlayRun | None:
    if run.lowest_epoch > epoch and (run.lowest_epoch > offered or run.lowest_version > version):
        return run
    left = rows_behind(run.columns, epoch, offered, version)
    if left is run.columns:
        return run
    return OverlayRun(left) if left.count else None


def _spans(columns: EntryColumns) -> dict[int, _Span]:
    storages, kinds = columns.storages, columns.kinds
    if storages.is_constant:
        edges = {storages.base: 0}
    else:
        names, firsts = np.unique(storages.array(), return_index=True)
        edges = dict(zip(names.tolist(), firsts.tolist(), strict=True))
    spans: dict[int, _Span] = {}
    for (storage, start), stop in zip(edges.items(), [*edges.values(), columns.count][1:], strict=True):
        keyed = start
        while keyed < stop and kinds.at(keyed) in ABOUT_STORAGES:
            keyed += 1
        spans[storage] = _Span(start, keyed, stop)
    return spans


def _overlaid(columns: EntryColumns, start: int, stop: int) -> Iterable[OverlayEntry]:
    majors, minors = columns.majors.part(start, stop), columns.minors.part(start, stop)
    is_put = (columns.kinds.part(start, stop).array() == EntryKind.PUT).tolist()
    values = [value if put else None for value, put in zip(_strings(columns.values, start, stop), is_put, strict=True)]
    versions = zip(majors.array().tolist(), minors.array().tolist(), strict=True)
    return map(OverlayEntry, _strings(columns.keys, start, stop), versions, values)


def _strings(texts: Texts, start: int, stop: int) -> list[bytes]:
    edges = texts.offsets.part(start, stop + 1).array().tolist()
    data = texts.heap[edges[0] : edges[-1]].tobytes()
    return [data[a - edges[0] : b - edges[0]] for a, b in pairwise(edges)]


_BATCH_BYTES = 1 << 20
_key, _version = attrgetter("key"), attrgetter("version")


class LatestView:
    def __init__(self, base: StoreView, overlay: LogOverlay) -> None:
        self._base = base
        self._overlay = overlay
        self._about: dict[int, dict[int, Version]] = {}  # cache of `about_at` of the base

    @property
    def applied(self) -> Applied:
        return self._base.applied

    def get(self, storage: int, key: bytes) -> StoredVersion | None:
        entry = self._overlay.find(storage, key)
        if entry is not None and entry.version > self._base.applied.version:
            return None if entry.value is None else StoredVersion(entry.value, entry.version)
        return self._newer(storage, entry, self._base.get(storage, key))

    def get_many(self, storage: int, keys: Sequence[bytes]) -> list[StoredVersion | None]:
        found = self._base.get_many(storage, keys)
        if not self._overlay.runs:
            return found
        entries = (self._overlay.find(storage, key) for key in keys)
        return [self._newer(storage, entry, row) for entry, row in zip(entries, found, strict=True)]

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[StoreRow]:
        rows = self._base.range(storage, low, high, reverse)
        places = [(run, *run.between(storage, low, high)) for run in self._overlay.runs]
        entries = [run.entries(start, stop, reverse) for run, start, stop in places if start < stop]
        clear = self._overlay.cleared_at(storage)
        if clear > NO_VERSION:
            rows = (row for row in rows if row.version >= clear)
        return self._woven(storage, rows, entries, clear, reverse) if entries else rows

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[StoreRow]:
        return self.range(storage, start, behind_prefix(start), reverse)

    def batches(self, storage: int | None = None) -> Iterator[EntryColumns]:
        places = [run.rows_of(storage) for run in self._overlay.runs]
        for batch in self._base.batches(storage):
            edges = [_edge(run, batch, *place) for run, place in zip(self._overlay.runs, places, strict=True)]
            yield from self._merged(batch, [(start, edge) for (start, _), edge in zip(places, edges, strict=True)])
            places = [(edge, stop) for (_, stop), edge in zip(places, edges, strict=True)]
        yield from self._merged(None, places)

    def counter(self, name: bytes) -> bytes | None:
        return self._base.counter(name)

    def close(self) -> None:
        self._overlay = LogOverlay()
        self._base.close()

    # -- what wins -----------------------------------------------------------------------------------------------

    def _newer(self, storage: int, entry: OverlayEntry | None, found: StoredVersion | None) -> StoredVersion | None:
        if found is not None and found.version < self._overlay.cleared_at(storage):
            found = None
        if entry is None or (found is not None and found.version >= entry.version):
            return found
        return (
            StoredVersion(entry.value, entry.version)
            if entry.value is not None and self._counts(storage, entry)
            else None
        )

    def _counts(self, storage: int, entry: OverlayEntry) -> bool:
        """Whether an entry newer than the store's row is visible: the store knows no newer remove or clear."""
        if entry.version > self._base.applied.version:
            return True
        [removed] = self._base.removed_at(storage, [entry.key])
        return (removed is None or entry.version > removed) and entry.version >= self._cleared_at(storage)

    def _cleared_at(self, storage: int) -> Version:
        """The newest clear of a storage in the base."""
        return max(self._about_at(storage).get(kind, NO_VERSION) for kind in CLEARING)

    def _about_at(self, storage: int) -> dict[int, Version]:
        if storage not in self._about:
            self._about[storage] = dict(self._base.about_at(storage))
        return self._about[storage]

    # -- row by row ----------------------------------------------------------------------------------------------

    def _woven(
        self,
        storage: int,
        rows: Iterator[StoreRow],
        runs: Sequence[Iterator[OverlayEntry]],
        clear: Version,
        reverse: bool,
    ) -> Iterator[StoreRow]:
        sides: list[Iterator[StoreRow | OverlayEntry]] = [
            rows,
            *runs,
        ]  # of equal versions the row comes first, and wins
        for _, rivals in groupby(in_order(*sides, key=_key, reverse=reverse), key=_key):
            newest = max(rivals, key=_version)
            if isinstance(newest, StoreRow):
                yield newest
            elif newest.value is not None and newest.version >= clear and self._counts(storage, newest):
                yield StoreRow(storage, newest.key, newest.value, newest.version)

    # -- column by column ----------------------------------------------------------------------------------------

    def _merged(self, batch: EntryColumns | None, places: Sequence[tuple[int, int]]) -> Iterator[EntryColumns]:
        """A batch of the base merged with these rows of each run."""
        pairs = zip(self._overlay.runs, places, strict=True)
        parts = [self._alive(run.columns.part(*place)) for run, place in pairs if place[0] < place[1]]
        if batch is not None and not parts and not self._has_cleared(batch):
            yield batch
            return
        given = parts if batch is None else [batch, *parts]
        left = merge(given, is_bottom=True, clears=Clears(self._overlay.clears)) if given else None
        if left is not None and left.count:
            yield from left.split(_BATCH_BYTES) if batch is None else [left]

    def _has_cleared(self, batch: EntryColumns) -> bool:
        if not self._overlay.clears:
            return False
        storages = {batch.storages.base} if batch.storages.is_constant else set(batch.storages.array().tolist())
        return not storages.isdisjoint(self._overlay.clears)

    def _alive(self, part: EntryColumns) -> EntryColumns:
        """Without late entries that the store knows as removed or cleared."""
        is_late = rows_up_to(part.majors, part.minors, self._base.applied.version)
        if is_late is False:
            return part
        is_gone: Flags = np.zeros(part.count, dtype=np.bool_)
        rows = np.arange(part.count) if is_late is True else np.flatnonzero(is_late)
        for row in rows.tolist():
            is_gone[row] = not self._is_alive(part, row)
        return without(part, is_gone)

    def _is_alive(self, part: EntryColumns, row: int) -> bool:
        storage, version = part.storages.at(row), version_at(part, row)
        match part.kinds.at(row):
            case EntryKind.PUT:
                return self._counts(storage, OverlayEntry(part.keys.at(row), version, b""))
            case EntryKind.ADD_STORAGE:
                return version >= self._about_at(storage).get(EntryKind.REMOVE_STORAGE, NO_VERSION)
        return True


def _edge(run: OverlayRun, batch: EntryColumns, start: int, stop: int) -> int:
    """Where the rows from start to stop pass the batch's last entry."""
    last = batch.count - 1
    return max(start, min(run.row_behind(batch.storages.at(last), batch.kinds.at(last), batch.keys.at(last)), stop))


# A view of the store, and an epoch up to which the store was offered every entry: those that are not above the view's
# version are in it. 0: only the mark is known.
OpenStoreView = Callable[[], tuple[StoreView, Epoch]]


class LatestViewBuilder:
    """Builds views of the latest state, for any thread; keeps the overlay between them."""

    def __init__(
        self,
        threads: Threads,
        tail: LogTail,
        durable: Callable[[], Epoch],
        store_view: OpenStoreView,
        overlay_bytes: int,
        catch_up: Callable[[], object] | None = None,
    ) -> None:
        self._tail = tail  # not shared with another reader
        self._durable = durable
        self._store_view = store_view
        self._overlay_bytes = overlay_bytes
        self._catch_up = catch_up
        self._lock = threads.condition()
        self._overlay = LogOverlay()
        self._mark: Applied | None = None  # the overlay holds the entries from this mark to the position of the tail
        self._offered = Epoch(0)
        self._caught_up_at = Epoch(0)  # the durable epoch at the last `catch_up`

    def view(self) -> ReadView:
        with self._lock:
            while True:
                durable = self._durable()
                base, offered = self._store_view()
                if base.applied.epoch >= durable:
                    return base
                try:
                    view = self._overlaid(base, offered)
                except BaseException:
                    base.close()
                    raise
                if view is not None:
                    return view
                base.close()

    def _overlaid(self, base: StoreView, offered: Epoch) -> ReadView | None:
        """The base with everything durable over it; None: another base is needed."""
        durable = self._durable()  # read again: nothing in the base is newer than this
        self._move_to(base.applied, offered)
        try:
            if self._tail.after < durable:
                if self._has_caught_up(durable):
                    return None
                self._read(base.applied, durable)
        except WarrenError:
            if self._tail.reflected <= base.applied.epoch:
                raise
        if self._tail.reflected > base.applied.epoch:
            self._mark = None  # start over: the bytes read may be those of a recycled file
            return None
        return LatestView(base, self._overlay)

    def _move_to(self, mark: Applied, offered: Epoch) -> None:
        """Drop from the overlay the entries that a store with this mark holds."""
        old = self._mark
        is_ahead = old is not None and mark.epoch >= old.epoch and mark.version >= old.version
        if is_ahead and offered >= self._offered:
            self._overlay = self._overlay.behind(mark.epoch, offered, mark.version)
            self._tail.after = max(self._tail.after, mark.epoch)
        else:  # the first view, or the store fell back to what was on its disk
            self._overlay = LogOverlay()
            self._tail.rewind(mark.epoch)
        self._mark, self._offered = mark, offered

    def _has_caught_up(self, durable: Epoch) -> bool:
        """Whether too much was waiting and the applier was called; at most once per durable epoch."""
        if self._catch_up is None or self._caught_up_at >= durable:
            return False
        room = max(self._overlay_bytes - self._overlay.size_bytes, 0)
        if self._tail.waiting_bytes(durable, room) <= room:
            return False
        self._caught_up_at = durable
        with suppress(WarrenError):  # then all of it is overlaid, however much it is
            self._catch_up()
        return True

    def _read(self, mark: Applied, durable: Epoch) -> None:
        blocks = [block.columns for block in self._tail.read(durable)]
        behind = [rows_behind(block, mark.epoch, self._offered, mark.version) for block in blocks]
        self._overlay = self._overlay.extended(behind)
