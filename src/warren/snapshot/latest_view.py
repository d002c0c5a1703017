"""Reads as of now: everything that is durable, whether or not the store has taken it.

    store        up to its mark ─────────────┐
    log                     behind the mark ─┴─ read once, block by block, and kept as an overlay ──▶ NowView

Usually the store takes what is durable when somebody asks, and its own view is the answer. It can not if the version of
an entry is still to come, if reflection is off, paused or broken down, or if another process applies. Then the rest is
read from the log's files and laid over what the store shows. The overlay is kept and grows by what became durable since
the last question; what the store has taken meanwhile is dropped from it. If it would come to more than `overlay_bytes`,
whoever applies is asked to do so first, if anybody can be asked; what is left then is overlaid, however much it is.

A database has a second one that only overlays, for readers that must not apply anything, such as the event loop.

Always true: a view shows every epoch that was durable when it was asked for, whole. Files of the log may go while they
are read only if the store has what was in them on its disk (`reflected`): if that has come past the view's mark, the
reading may have missed something, and is done again with a newer view.

A view as of now: a view of the store, and over it what lies in the log behind its mark. Is a `View`.

    get, get_many    the overlay's entry of the key against the store's row
    range, prefix    both in key order, side by side; of the store some rows at a time, as ever
    batches          the store's batches, each merged with what the overlay has up to its end; if that is nothing, the
                     batch goes on as it is

What wins is the rule of the log (log/merge/merge): the higher version, wherever it is; a clear in the overlay takes the
store's rows that are older, a clear in the store the overlay's entries. Nothing in the store is above its mark's
version, so an entry that is need not be compared. One that is not is late, or in the store already: the store is asked
whether it remembers a remove or a clear that is newer.

Always true: it shows what a merge of everything would leave, as far as the store remembers it (late_entries says what
it forgets). `applied` and counters are the store's own.

What lies in the log behind the store's mark, in memory and by key, so that it can be laid over a view of the store.

    run        entries as the merge rule leaves them (log/merge/merge, not at the bottom): the newest of each key, removes and
               entries about storages too, in the order of storage and key
    overlay    a few runs, the older the larger; whoever asks takes the newest version that any of them has

One run would do, if more did not become durable all the time: laying one more block over it would mean merging all of
it again. So what is new becomes a run of its own, and takes those in front of it in when it has grown to a share of
them: each entry is merged a few times, not once for each block that follows.

Always true: nothing here is ever changed; a view keeps the overlay it was made with. Keys are looked for in the columns
as they are: to make a dict of them would take longer than most overlays live.
Not here: what the store holds (now_view), and when there is more to lay over it (now).
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

_RUN_SHARE = 8  # what is new is merged with the last run, unless that is more than so many times as long, and so on
_PIECE_ROWS = 512


class Overlaid(NamedTuple):
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
    """Merged entries. What is asked of them is answered in rows of `columns`."""

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

    def find(self, storage: int, key: bytes) -> Overlaid | None:
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

    def entries(self, start: int, stop: int, reverse: bool = False) -> Iterator[Overlaid]:
        """Puts and removes, some at once."""
        edges = range(start, stop, _PIECE_ROWS)
        for edge in reversed(edges) if reverse else edges:
            piece = list(_overlaid(self.columns, edge, min(edge + _PIECE_ROWS, stop)))
            yield from reversed(piece) if reverse else piece

    def rows_of(self, storage: int | None) -> tuple[int, int]:
        """All rows of a storage, or of all of them."""
        if storage is None:
            return 0, self.count
        span = self._spans.get(storage, _Span(0, 0, 0))
        return span.start, span.stop

    def row_behind(self, storage: int, kind: int, key: bytes) -> int:
        """The first row that is ordered behind such an entry."""
        span = self._spans.get(storage)
        if span is None:
            return int(np.searchsorted(self.columns.storages.array(), np.uint64(storage), side="right"))
        if kind in ABOUT_STORAGES:
            return span.keyed
        return bisect_right(range(span.stop), key, span.keyed, key=self.columns.keys.at)


class LogOverlay:
    def __init__(self, runs: Sequence[OverlayRun] = ()) -> None:
        self.runs = tuple(runs)
        self.clears: dict[int, Version] = {}  # of each storage the newest clear or removal
        for storage, version in (clear for run in self.runs for clear in run.clears()):
            self.clears[storage] = max(version, self.cleared_at(storage))

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)

    def cleared_at(self, storage: int) -> Version:
        return self.clears.get(storage, NO_VERSION)

    def find(self, storage: int, key: bytes) -> Overlaid | None:
        """The newest entry of a key, if there is one that no clear has taken."""
        found = [entry for run in self.runs if (entry := run.find(storage, key)) is not None]
        newest = max(found, key=lambda entry: entry.version, default=None)
        return None if newest is None or newest.version < self.cleared_at(storage) else newest

    def extended(self, blocks: Sequence[EntryColumns]) -> LogOverlay:
        """This one, and these entries too."""
        given = [block for block in blocks if block.count]
        if not given:
            return self
        runs, count = list(self.runs), sum(block.count for block in given)
        while runs and runs[-1].count <= _RUN_SHARE * count:
            count += runs[-1].count
            given.append(runs.pop().columns)
        return LogOverlay([*runs, OverlayRun(merge(given, is_bottom=False))])

    def behind(self, epoch: Epoch, offered: Epoch, version: Version) -> LogOverlay:
        """What of it is not in a store that holds everything up to `epoch`, and of what came up to `offered` everything
        up to this version. What is dropped of a key is in that store, and newer than all else that was ever here."""
        runs = [_run_behind(run, epoch, offered, version) for run in self.runs]
        return self if all(a is b for a, b in zip(runs, self.runs, strict=True)) else LogOverlay([r for r in runs if r])


def rows_behind(columns: EntryColumns, epoch: Epoch, offered: Epoch, version: Version) -> EntryColumns:
    """Those entries of later epochs which such a store does not hold (`LogOverlay.behind`)."""
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


def _overlaid(columns: EntryColumns, start: int, stop: int) -> Iterable[Overlaid]:
    majors, minors = columns.majors.part(start, stop), columns.minors.part(start, stop)
    is_put = (columns.kinds.part(start, stop).array() == EntryKind.PUT).tolist()
    values = [value if put else None for value, put in zip(_strings(columns.values, start, stop), is_put, strict=True)]
    versions = zip(majors.array().tolist(), minors.array().tolist(), strict=True)
    return map(Overlaid, _strings(columns.keys, start, stop), versions, values)


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
        self._about: dict[int, dict[int, Version]] = {}  # what the base knows about storages that were asked for

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
        return [self._newer(storage, entry, held) for entry, held in zip(entries, found, strict=True)]

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

    def _newer(self, storage: int, entry: Overlaid | None, found: StoredVersion | None) -> StoredVersion | None:
        if found is not None and found.version < self._overlay.cleared_at(storage):
            found = None
        if entry is None or (found is not None and found.version >= entry.version):
            return found
        return (
            StoredVersion(entry.value, entry.version)
            if entry.value is not None and self._counts(storage, entry)
            else None
        )

    def _counts(self, storage: int, entry: Overlaid) -> bool:
        """Whether the store knows of nothing that makes an end of an entry which is newer than the row."""
        if entry.version > self._base.applied.version:
            return True
        [removed] = self._base.removed_at(storage, [entry.key])
        return (removed is None or entry.version > removed) and entry.version >= self._cleared_at(storage)

    def _cleared_at(self, storage: int) -> Version:
        """The newest clear of a storage that the base knows."""
        return max(self._about_at(storage).get(kind, NO_VERSION) for kind in CLEARING)

    def _about_at(self, storage: int) -> dict[int, Version]:
        if storage not in self._about:
            self._about[storage] = dict(self._base.about_at(storage))
        return self._about[storage]

    # -- row by row ----------------------------------------------------------------------------------------------

    def _woven(
        self, storage: int, rows: Iterator[StoreRow], runs: Sequence[Iterator[Overlaid]], clear: Version, reverse: bool
    ) -> Iterator[StoreRow]:
        sides: list[Iterator[StoreRow | Overlaid]] = [rows, *runs]  # of equals the row is met first, and taken
        for _, rivals in groupby(in_order(*sides, key=_key, reverse=reverse), key=_key):
            newest = max(rivals, key=_version)
            if isinstance(newest, StoreRow):
                yield newest
            elif newest.value is not None and newest.version >= clear and self._counts(storage, newest):
                yield StoreRow(storage, newest.key, newest.value, newest.version)

    # -- column by column ----------------------------------------------------------------------------------------

    def _merged(self, batch: EntryColumns | None, places: Sequence[tuple[int, int]]) -> Iterator[EntryColumns]:
        """A batch of the base, and of each run the rows at its place."""
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
        """Without those late entries of which the store knows that they were removed or cleared."""
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
                return self._counts(storage, Overlaid(part.keys.at(row), version, b""))
            case EntryKind.ADD_STORAGE:
                return version >= self._about_at(storage).get(EntryKind.REMOVE_STORAGE, NO_VERSION)
        return True


def _edge(run: OverlayRun, batch: EntryColumns, start: int, stop: int) -> int:
    """Of the rows from start to stop those up to the batch's last entry end here."""
    last = batch.count - 1
    return max(start, min(run.row_behind(batch.storages.at(last), batch.kinds.at(last), batch.keys.at(last)), stop))


# A view of the store, and an epoch up to which the store was offered every entry: those of them that are not above the
# view's version are in it. 0: nothing is known but the mark.
Look = Callable[[], tuple[StoreView, Epoch]]


class LatestReader:
    """Any thread may ask."""

    def __init__(
        self,
        threads: Threads,
        tail: LogTail,
        durable: Callable[[], Epoch],
        look: Look,
        overlay_bytes: int,
        catch_up: Callable[[], object] | None = None,
    ) -> None:
        self._tail = tail  # of its own: nobody else reads by it
        self._durable = durable
        self._look = look
        self._overlay_bytes = overlay_bytes
        self._catch_up = catch_up
        self._lock = threads.condition()
        self._overlay = LogOverlay()
        self._mark: Applied | None = None  # the overlay is what lies between this mark and where the tail has come to
        self._offered = Epoch(0)
        self._asked = Epoch(0)  # whoever applies was last asked at this epoch

    def view(self) -> ReadView:
        with self._lock:
            while True:
                durable = self._durable()
                base, offered = self._look()
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
        """The base, and over it everything that is durable; None: it has to be another base."""
        durable = self._durable()  # asked again: nothing in the base is newer than this
        self._go_to(base.applied, offered)
        try:
            if self._tail.after < durable:
                if self._has_asked_for_less(durable):
                    return None
                self._read(base.applied, durable)
        except WarrenError:
            if self._tail.reflected <= base.applied.epoch:
                raise
        if self._tail.reflected > base.applied.epoch:
            self._mark = None  # begin anew: what was read may have been bytes of a file that is used again
            return None
        return LatestView(base, self._overlay)

    def _go_to(self, mark: Applied, offered: Epoch) -> None:
        """Drop from the overlay what a store with this mark holds."""
        old = self._mark
        is_ahead = old is not None and mark.epoch >= old.epoch and mark.version >= old.version
        if is_ahead and offered >= self._offered:
            self._overlay = self._overlay.behind(mark.epoch, offered, mark.version)
            self._tail.after = max(self._tail.after, mark.epoch)
        else:  # the first time, or the store went back to what was on its disk
            self._overlay = LogOverlay()
            self._tail.rewind(mark.epoch)
        self._mark, self._offered = mark, offered

    def _has_asked_for_less(self, durable: Epoch) -> bool:
        """Whether there was too much, and whoever applies has had its turn; once for each durable epoch."""
        if self._catch_up is None or self._asked >= durable:
            return False
        room = max(self._overlay_bytes - self._overlay.size_bytes, 0)
        if self._tail.waiting_bytes(durable, room) <= room:
            return False
        self._asked = durable
        with suppress(WarrenError):  # then it is overlaid, however much it is
            self._catch_up()
        return True

    def _read(self, mark: Applied, durable: Epoch) -> None:
        blocks = [block.columns for block in self._tail.read(durable)]
        behind = [rows_behind(block, mark.epoch, self._offered, mark.version) for block in blocks]
        self._overlay = self._overlay.extended(behind)
