"""The overlay of entries behind the store's mark on a view of the store, against the merge of everything at once.

Some entries are in the store, some in the overlay, some in both, in any order of versions. The store gets
a mark behind which everything may be offered again, so that it remembers what was removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.merge_model import KEYS, Entry, columns_of, entries_of, histories, merged_by_hand
from tests.snapshot.snapshot_store_suite import KINDS, QUICK_PLACE, Stage, about, apply, mark, put, remove
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.log.merge.merge import merge
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns
from warren.snapshot.latest_view import LatestView, LogOverlay
from warren.snapshot.store import StoredVersion, StoreRow, Version

STORAGES = (0, 1, 2, (1 << 64) - 1)


class Case(NamedTuple):
    blocks: list[list[Entry]]
    epoch: Epoch  # everything up to it is in the store
    offered: Epoch  # and of what came up to this one …
    version: Version  # … everything up to this version

    @property
    def every(self) -> list[Entry]:
        return [entry for block in self.blocks for entry in block]

    def is_stored(self, entry: Entry) -> bool:
        return entry.epoch <= self.epoch or (entry.epoch <= self.offered and entry.version <= self.version)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    blocks = draw(histories())
    epochs = {next_major(entry): draw(st.integers(1, 9)) for block in blocks for entry in block}
    blocks = [
        [entry._replace(version=next_major(entry), epoch=epochs[next_major(entry)], undo=(0, 0)) for entry in block]
        for block in blocks
    ]
    version, offered = draw(st.sampled_from([(0, 0), *epochs])), draw(st.integers(0, 9))
    waiting = [epoch for at, epoch in epochs.items() if at > version]
    highest = min([9, *(epoch - 1 for epoch in waiting)])
    return Case(blocks, Epoch(draw(st.integers(0, highest))), Epoch(offered), version)


def next_major(entry: Entry) -> Version:
    """Version 0.0 is none: no entry has it."""
    return entry.version[0] + 1, entry.version[1]


def check(view: LatestView, every: Sequence[Entry], keys: Sequence[bytes]) -> None:
    wanted = merged_by_hand(every, is_bottom=True)
    assert entries_of(view.batches()) == wanted
    for storage in STORAGES:
        assert entries_of(view.batches(storage)) == [entry for entry in wanted if entry.storage == storage]
        puts = [entry for entry in wanted if entry.storage == storage and entry.kind == EntryKind.PUT]
        rows = [StoreRow(storage, entry.key, entry.value, entry.version) for entry in puts]
        assert list(view.range(storage)) == rows
        assert list(view.range(storage, reverse=True)) == rows[::-1]
        found = {row.key: StoredVersion(row.value, row.version) for row in rows}
        assert view.get_many(storage, keys) == [found.get(key) for key in keys] == [view.get(storage, k) for k in keys]
        for low, high in pairwise(sorted(keys)):
            inside = [row for row in rows if low <= row.key < high]
            assert list(view.range(storage, low, high)) == inside
            assert list(view.range(storage, low, high, reverse=True)) == inside[::-1]
            inside = [row for row in rows if row.key.startswith(low)]
            assert list(view.prefix(storage, low)) == inside
            assert list(view.prefix(storage, low, reverse=True)) == inside[::-1]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), more=st.lists(KEYS, max_size=3), share=st.sampled_from([0, 1, 8]))
def test_store_and_overlay_show_what_a_merge_of_everything_leaves(
    kind: str, case: Case, more: list[bytes], share: int
) -> None:
    """Whether the overlay has everything behind the mark's epoch, or only what the store has not taken; and whether it
    is many runs (`share` 0: never merged) or one."""
    keys = sorted({entry.key for entry in case.every} | set(more))
    stored = [entry for entry in case.every if case.is_stored(entry)]
    with tempfile.TemporaryDirectory(dir=QUICK_PLACE) as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.snapshot.latest_view._RUN_SHARE", share)
        stage = Stage(kind, Path(directory))
        try:
            for part in (stored[::2], stored[1::2]):
                apply(stage.store, *part, at=mark(0, case.version), are_late=True)
            behind = [[entry for entry in block if entry.epoch > case.epoch] for block in case.blocks]
            whole, grown = LogOverlay(), LogOverlay()
            for block in behind:
                whole = whole.extended([columns_of(block)])
            for block in case.blocks:
                grown = grown.extended([columns_of(block)]).behind(case.epoch, case.offered, case.version)
            assert not any(case.is_stored(entry) for run in grown.runs for entry in entries_of([run.columns]))
            for overlay in (whole, grown):
                view = LatestView(stage.store.view(), overlay)
                check(view, case.every, keys)
                view.close()
        finally:
            stage.close()


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    stage = Stage(request.param, tmp_path)
    yield stage
    stage.close()


def overlaid(stage: Stage, *entries: Entry) -> LatestView:
    return LatestView(stage.store.view(), LogOverlay().extended([columns_of(entries)]))


def test_a_clear_takes_what_is_older_and_spares_its_own_version(stage: Stage) -> None:
    apply(stage.store, put((1, 0), b"a"), put((2, 0), b"b"), put((3, 0), b"c"))
    view = overlaid(stage, about(EntryKind.CLEAR_STORAGE, (2, 0)), put((2, 0), b"b"))
    assert [row.key for row in view.range(3)] == [b"b", b"c"]
    assert view.get(3, b"a") is None
    assert view.get_many(3, [b"a", b"b"]) == [None, StoredVersion(b"v", (2, 0))]
    assert [entry.key for entry in entries_of(view.batches())] == [b"b", b"c"]


def test_a_clear_reaches_over_all_batches_of_its_storage(stage: Stage) -> None:
    """It stands in front of the first; the second has an entry of its own over it, the third has none."""
    apply(stage.store, *(put((1, number), b"%02d" % number) for number in range(15)), put((1, 20), b"a", storage=4))
    view = overlaid(stage, about(EntryKind.CLEAR_STORAGE, (2, 0)), put((3, 0), b"07"))
    assert [(entry.storage, entry.key) for entry in entries_of(view.batches())] == [(3, b"07"), (4, b"a")]


def test_an_entry_that_is_older_than_what_the_store_removed_or_cleared_stays_gone(stage: Stage) -> None:
    """It is late: a put of version 2 behind a remove of version 5, which the store remembers."""
    apply(stage.store, put((1, 0), b"a"), remove((5, 0), b"a"), at=mark(0, (9, 0)), are_late=True)
    apply(stage.store, about(EntryKind.REMOVE_STORAGE, (6, 0), 4), at=mark(0, (9, 0)), are_late=True)
    late = [put((2, 0), b"a"), put((3, 0), b"b"), about(EntryKind.ADD_STORAGE, (4, 0), 4), put((4, 1), b"a", storage=4)]
    view = overlaid(stage, *late)
    assert [entry.key for entry in entries_of(view.batches())] == [b"b"]
    assert [row.key for row in view.range(3)] == [b"b"]
    assert list(view.range(4)) == []
    assert view.get(3, b"a") is None and view.get(4, b"a") is None
    assert view.get(3, b"b") == StoredVersion(b"v", (3, 0))


def test_a_batch_without_overlay_passes_unchanged() -> None:
    """The columns of the store's own view, not copies."""
    given = [columns_of([put((1, 0), b"%d" % number, storage=storage)]) for storage in (1, 2, 3) for number in (1, 5)]

    class Base:
        applied = mark(1)

        def batches(self, storage: int | None = None) -> list[EntryColumns]:
            return given

    view = LatestView(Base(), LogOverlay().extended([columns_of([put((2, 0), b"3", storage=2)])]))  # type: ignore[arg-type]
    batches = list(view.batches())
    assert [batch is old for batch, old in zip(batches, given, strict=True)] == [True, True, True, False, True, True]
    assert [entry.key for entry in entries_of(batches[3:4])] == [b"3", b"5"]


def test_a_block_that_is_laid_over_many_does_not_merge_them_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand blocks of one entry: each entry is merged a few times, and there are few runs to search."""
    merged: list[int] = []

    def watched(inputs: Sequence[EntryColumns], is_bottom: bool) -> EntryColumns:
        merged.append(sum(each.count for each in inputs))
        return merge(inputs, is_bottom)

    monkeypatch.setattr("warren.snapshot.latest_view.merge", watched)
    overlay, runs_most = LogOverlay(), 0
    for number in range(1000):
        overlay = overlay.extended([columns_of([put((number + 1, 0), b"%d" % (number * 7919 % 1000))])])
        runs_most = max(runs_most, len(overlay.runs))
    assert sum(run.count for run in overlay.runs) == 1000
    assert sum(merged) < 30_000, "every time all of it would be half a million"
    assert runs_most <= 5


def test_a_closed_view_shows_nothing_any_more(stage: Stage) -> None:
    view = overlaid(stage, put((2, 0), b"a"))
    assert view.get(3, b"a") == StoredVersion(b"v", (2, 0))
    view.close()
    with pytest.raises(Misuse):
        view.get(3, b"a")


def test_counters_and_mark_are_those_of_the_store(stage: Stage) -> None:
    stage.store.apply([], mark(4), {b"n": b"7"})
    view = overlaid(stage, put((9, 0), b"a"))
    assert (view.counter(b"n"), view.applied) == (b"7", mark(4))
