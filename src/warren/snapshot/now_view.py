"""A view as of now: a view of the store, and over it what lies in the log behind its mark. Is a `View`.

    get, get_many    the overlay's entry of the key against the store's row
    range, prefix    both in key order, side by side; of the store some rows at a time, as ever
    batches          the store's batches, each merged with what the overlay has up to its end; if that is nothing, the
                     batch goes on as it is

What wins is the rule of the log (log/merge): the higher version, wherever it is; a clear in the overlay takes the
store's rows that are older, a clear in the store the overlay's entries. Nothing in the store is above its mark's
version, so an entry that is need not be compared. One that is not is late, or in the store already: the store is asked
whether it remembers a remove or a clear that is newer.

Always true: it shows what a merge of everything would leave, as far as the store remembers it (late_entries says what
it forgets). `applied` and counters are the store's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge as in_order
from itertools import groupby
from operator import attrgetter

import numpy as np

from warren.log.entries import CLEARING, EntryKind
from warren.log.gather import Flags
from warren.log.merge import merge
from warren.log.storage_entries import Clears
from warren.records.columns import EntryColumns
from warren.snapshot.applied import NO_VERSION, Applied, Version
from warren.snapshot.overlay import LogOverlay, Overlaid, OverlayRun, without
from warren.snapshot.row_format import behind_prefix
from warren.snapshot.snapshot_store import StoredVersion, StoreRow, StoreView
from warren.snapshot.version_apply import version_at
from warren.snapshot.version_order import rows_up_to

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
