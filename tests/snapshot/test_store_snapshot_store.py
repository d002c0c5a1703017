"""What every snapshot store keeps to: one suite, over RocksDB and the one that forgets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.log.merge_model import columns_of
from tests.snapshot.snapshot_store_suite import KINDS, QUICK_PLACE, Stage, about, apply, held_by, mark, put, remove
from warren.base.errors import Misuse, Refused
from warren.base.ids import TimelineId
from warren.log.settings import EntryKind
from warren.snapshot.store import NO_VERSION, SnapshotStore

CLEAR, ADD, REMOVE_STORAGE = EntryKind.CLEAR_STORAGE, EntryKind.ADD_STORAGE, EntryKind.REMOVE_STORAGE


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        new_stage = Stage(request.param, Path(place))
        yield new_stage
        new_stage.close()


@pytest.fixture
def store(stage: Stage) -> SnapshotStore:
    return stage.store


def test_a_new_store_is_empty_and_at_the_beginning(store: SnapshotStore) -> None:
    assert store.applied == mark(0, NO_VERSION)
    assert store.get(3, b"k") is None and held_by(store) == [] and store.counter(b"ready") is None
    assert store.failure is None


def test_vo_02_entries_of_a_batch_act_one_after_another_in_version_order(store: SnapshotStore) -> None:
    """VO-02: a put, its remove and the next put, a clear between: what stands last stays."""
    apply(store, put((1, 1), b"a"), remove((1, 2), b"a"), put((1, 3), b"b"), about(CLEAR, (1, 4)), put((1, 5), b"c"))
    apply(store, put((2, 1), b"a", b"again"), put((2, 2), b"a", b"newest"))
    assert [(row.key, row.value) for row in store.range(3)] == [(b"a", b"newest"), (b"c", b"v")]


def test_vo_03_nothing_newer_than_the_mark_is_taken(store: SnapshotStore) -> None:
    """VO-03: an entry above the safe snapshot version is refused with its whole batch."""
    apply(store, put((1, 1), b"a"))
    with pytest.raises(Misuse, match=r"newer than the mark"):
        apply(store, put((2, 1), b"b"), put((2, 3), b"c"), at=mark(2, (2, 2)))
    assert [row.key for row in store.range(3)] == [b"a"] and store.applied == mark(1, (1, 1))


def test_vo_03_a_view_shows_nothing_that_came_after_its_mark(store: SnapshotStore) -> None:
    """VO-03: gets, ranges, batches and counters of a view are all of one mark, whatever is applied meanwhile."""
    store.apply([columns_of([put((1, 1), b"a"), put((1, 2), b"b", b"old")])], mark(1, (1, 2)), {b"n": b"2"})
    view = store.view()
    half_read = store.range(3)
    assert next(half_read).key == b"a"
    entries = [remove((2, 1), b"a"), put((2, 2), b"b", b"new"), put((2, 3), b"c"), about(ADD, (2, 4), 3)]
    store.apply([columns_of(entries)], mark(2, (2, 4)), {b"n": b"3"})
    store.flush()
    assert (view.applied, view.counter(b"n")) == (mark(1, (1, 2)), b"2")
    assert view.get_many(3, [b"a", b"b", b"c"]) == [(b"v", (1, 1)), (b"old", (1, 2)), None]
    assert [row.value for row in view.range(3)] == [b"v", b"old"]
    assert [row.value for row in view.range(3, reverse=True)] == [b"old", b"v"]
    assert [entry.value for entry in held_by(view)] == [b"v", b"old"]
    assert [row.value for row in half_read] == [b"old"], "a range sees the moment at which it began"
    view.close()
    with pytest.raises(Misuse, match="closed"):
        view.get(3, b"a")
    with pytest.raises(Misuse, match="closed"):
        list(view.range(3))


def test_ranges_that_share_a_view_do_not_disturb_one_another(store: SnapshotStore) -> None:
    apply(store, *(put((1, n), b"%02d" % n) for n in range(20)))
    view = store.view()
    pairs = list(zip(view.range(3), view.range(3, reverse=True), view.prefix(3, b"1"), strict=False))
    assert [(up.key, down.key, some.key) for up, down, some in pairs] == [
        (b"%02d" % n, b"%02d" % (19 - n), b"1%d" % n) for n in range(10)
    ]


def test_a_clear_takes_what_is_older_and_spares_its_own_version_and_other_storages(store: SnapshotStore) -> None:
    last = (1 << 64) - 1
    apply(store, put((1, 1), b"a"), put((1, 2), b"b", storage=4), put((1, 3), b"c", storage=last))
    apply(store, put((2, 1), b"d"), about(CLEAR, (2, 1)), about(REMOVE_STORAGE, (2, 1), last))
    assert [(row.storage, row.key) for row in held_by(store)] == [(3, b"d"), (4, b"b")]


def test_batches_show_storages_that_were_added_and_not_removed(store: SnapshotStore) -> None:
    added = [about(ADD, (1, n), n, value=b"name") for n in (2, 3, 5, 9)]
    apply(store, *added, *(put((1, 10 + n), b"%d" % n) for n in range(12)), put((1, 30), b"", storage=5))
    apply(store, about(REMOVE_STORAGE, (2, 1), 2), about(CLEAR, (2, 2), 9))
    listed = [(entry.kind, entry.storage, entry.value) for entry in held_by(store) if entry.kind == ADD]
    assert listed == [(ADD, 3, b"name"), (ADD, 5, b"name"), (ADD, 9, b"name")]
    assert [entry.kind for entry in held_by(store, 5)] == [ADD, EntryKind.PUT]
    assert len(held_by(store)) == 3 + 13


def test_vo_03_a_late_entry_never_replaces_a_newer_one(store: SnapshotStore) -> None:
    """VO-03: versions decide, not the order in which entries arrive."""
    apply(store, put((5, 1), b"a", b"new"), about(CLEAR, (5, 2), 4), at=mark(5, (5, 9)))
    late = [put((4, 1), b"a", b"old"), put((4, 2), b"b", b"late"), remove((4, 3), b"a"), put((5, 1), b"c", storage=4)]
    apply(store, *late, put((5, 3), b"d", storage=4), are_late=True, at=mark(6, (5, 9)))
    rows = [(row.storage, row.key, row.value) for row in held_by(store)]
    assert rows == [(3, b"a", b"new"), (3, b"b", b"late"), (4, b"d", b"v")]


def test_a_late_clear_takes_only_what_is_older_than_itself(store: SnapshotStore) -> None:
    apply(store, about(ADD, (1, 1)), put((1, 1), b"a"), put((3, 1), b"b"), about(ADD, (3, 2), 4))
    late = [about(REMOVE_STORAGE, (2, 1)), about(REMOVE_STORAGE, (2, 2), 4), about(ADD, (1, 5), 4)]
    apply(store, *late, are_late=True)
    assert [(row.kind, row.storage, row.key) for row in held_by(store)] == [(1, 3, b"b"), (ADD, 4, b"")]
    apply(store, put((2, 0), b"c"), about(ADD, (2, 0)), are_late=True)
    assert len(held_by(store)) == 2, "the clear is remembered"


def test_x_04_entries_applied_before_a_crash_may_all_be_applied_again(stage: Stage) -> None:
    """X-04: the mark's epoch was behind when the power went; a put that was removed does not come back to life."""
    history = [put((7, 1), b"a", epoch=11), remove((7, 2), b"a", epoch=10), put((7, 3), b"b", epoch=11)]
    apply(stage.store, *history, at=mark(10, (7, 3)))
    stage.store.flush()
    store = stage.crash()
    offered_again = [entry for entry in history if entry.epoch > store.applied.epoch]
    for entry in offered_again:
        apply(store, entry, at=mark(10, (7, 3)), are_late=True)
    assert [row.key for row in store.range(3)] == [b"b"]
    apply(store, at=mark(11, (8, 0)))
    apply(store, put((8, 1), b"a", b"new"))
    assert [row.key for row in store.range(3)] == [b"a", b"b"]


def test_a_mark_never_goes_back_and_never_leaves_its_timeline(store: SnapshotStore) -> None:
    apply(store, put((5, 5)))
    for bad in (mark(4, (5, 5)), mark(5, (5, 4)), mark(6, timeline=TimelineId(12))):
        with pytest.raises(Misuse):
            store.apply([], bad)
        with pytest.raises(Misuse):
            store.ingest([], bad)
    store.apply([], mark(5, (5, 5)))
    assert store.applied == mark(5, (5, 5))


def test_records_of_a_stream_are_refused(store: SnapshotStore) -> None:
    with pytest.raises(Misuse, match="stream"):
        apply(store, put((1, 1))._replace(kind=EntryKind.RECORD))


def test_counters_are_set_kept_and_taken_away_with_their_batch(stage: Stage) -> None:
    stage.store.apply([], mark(1), {b"ready": b"7", b"head": b"\0", b"": b"x"})
    stage.store.apply([], mark(2), {b"ready": b"8", b"head": None})
    store = stage.reopen()
    assert [store.counter(name) for name in (b"ready", b"head", b"")] == [b"8", None, b"x"]


def test_a_clean_stop_loses_nothing(stage: Stage) -> None:
    apply(stage.store, put((1, 1)))
    store = stage.reopen()
    assert store.applied == mark(1, (1, 1)) and store.get(3, b"k") == (b"v", (1, 1))


def test_flush_returns_a_mark_that_survives_a_crash(stage: Stage) -> None:
    apply(stage.store, put((1, 1), b"a"))
    assert stage.store.flush() == mark(1, (1, 1))
    apply(stage.store, put((2, 1), b"b"), remove((2, 2), b"a"))
    store = stage.crash()
    keys = [row.key for row in store.range(3)]
    assert (store.applied, keys) in [(mark(1, (1, 1)), [b"a"]), (mark(2, (2, 2)), [b"b"])]


def test_keys_and_ranges_have_exact_ends(store: SnapshotStore) -> None:
    keys = [b"", b"\0", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
    for storage in (2, 3, 4):
        apply(store, *(put((storage, n), key, b"%d" % n, storage) for n, key in enumerate(keys)))
    assert [row.key for row in store.range(3)] == keys
    assert [row.key for row in store.range(3, reverse=True)] == keys[::-1]
    assert [row.key for row in store.range(3, b"a", b"b")] == keys[2:6]
    assert [row.key for row in store.range(3, b"a", b"b", reverse=True)] == keys[2:6][::-1]
    assert [row.key for row in store.range(3, b"b", b"a")] == []
    assert [row.key for row in store.prefix(3, b"a\xff")] == keys[4:6]
    assert [row.key for row in store.prefix(3, b"\xff")] == keys[7:]
    assert [row.key for row in store.prefix(3, b"", reverse=True)] == keys[::-1]
    assert store.get_many(3, []) == [] and store.get(5, b"") is None


def test_tables_are_taken_with_counters_and_mark(stage: Stage) -> None:
    apply(stage.store, *(put((1, n), b"%d" % n) for n in range(5)), put((1, 9), b"x", storage=4))
    first, _ = stage.table("t1", [about(ADD, (2, 1), 2), put((2, 2), b"n", storage=2), remove((2, 3), b"1")])
    second, cleared = stage.table("t2", [about(CLEAR, (2, 4), 4), put((2, 5), b"y", storage=4)])
    stage.store.ingest([first, second], mark(2, (2, 9)), {b"n": b"1"}, cleared)
    store = stage.crash()
    rows = [(row.kind, row.storage, row.key) for row in held_by(store)]
    left = [(1, 3, key) for key in (b"0", b"2", b"3", b"4")]
    assert rows == [(ADD, 2, b""), (1, 2, b"n"), *left, (1, 4, b"y")], "on disk when it returns"
    assert (store.applied, store.counter(b"n")) == (mark(2, (2, 9)), b"1")
    apply(store, put((2, 2), b"z", storage=4), are_late=True)
    assert store.get(4, b"z") is None, "the clear in the table is remembered"


def test_a_view_does_not_see_tables_that_come_later(stage: Stage) -> None:
    apply(stage.store, put((1, 1), b"a", b"old"), put((1, 2), b"b"))
    view = stage.store.view()
    path, cleared = stage.table("t", [about(CLEAR, (2, 1)), put((2, 2), b"a", b"new")])
    stage.store.ingest([path], mark(2, (2, 2)), cleared=cleared)
    assert [row.value for row in stage.store.range(3)] == [b"new"]
    assert [row.value for row in view.range(3)] == [b"old", b"v"] and view.get(3, b"a") == (b"old", (1, 1))
    assert view.applied == mark(1, (1, 2))


def test_tables_behind_an_entry_of_a_later_epoch_are_refused(stage: Stage) -> None:
    apply(stage.store, put((1, 1), epoch=9), at=mark(1, (1, 1)))
    path, _ = stage.table("t", [put((2, 1))])
    if stage.kind == "rocksdb":
        with pytest.raises(Misuse, match="epoch 9"):
            stage.store.ingest([path], mark(2, (2, 1)))
    stage.store.ingest([path], mark(9, (2, 1)))
    assert stage.store.get(3, b"k") == (b"v", (2, 1))


def test_a_store_of_another_timeline_is_refused(stage: Stage) -> None:
    apply(stage.store, put((1, 1)))
    stage.store.close()
    with pytest.raises(Refused, match="timeline b, not c"):
        stage.reopen(TimelineId(12))
    assert stage.reopen().applied == mark(1, (1, 1))
