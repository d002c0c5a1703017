"""What lies in the log behind the store's mark, in memory and by key, so that it can be laid over a view of the store.

    run        entries as the merge rule leaves them (log/merge, not at the bottom): the newest of each key, removes and
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
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from warren.base.ids import Epoch
from warren.log.entries import CLEARING, EntryKind
from warren.log.gather import Flags
from warren.log.merge import merge
from warren.log.pool import Pool
from warren.log.storage_entries import ABOUT_STORAGES
from warren.records.columns import EntryColumns, Texts
from warren.snapshot.applied import NO_VERSION, Version
from warren.snapshot.version_apply import size_of, version_at
from warren.snapshot.version_order import rows_up_to

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
