"""The transient store."""

from __future__ import annotations

from tests.message_store.store_stage import StoreStage, content
from warren.base.messages import sizes_of
from warren.files.protocol import join

TRANSIENT = join("db", "transient")


def test_there_is_a_store_for_what_must_survive_and_one_for_what_need_not() -> None:
    """MS-01, MS-02, C-08: two for the whole broker; a start leaves everything of the one and nothing of the other."""
    stage = StoreStage()
    run = stage.publish([content(1)])[next(iter(stage.next))]
    stored = stage.stores.transient.write([content(2)])
    assert stage.stores.transient.read(stored, 400, 0, 1) == [content(2)]
    assert stage.bodies() == [content(1)], "what is transient never touches the log"
    disk = stage.stage.disk
    left = {name: disk.open(join(TRANSIENT, name)).view() for name in disk.list(TRANSIENT)}
    assert any(content(2) in bytes(view) for view in left.values())
    stage.reopen()
    assert stage.contents(run) == [content(1)]
    assert [disk.stat(join(TRANSIENT, name)).size_bytes for name in disk.list(TRANSIENT)] == [0]
    assert stage.stores.facts() == {
        "persistent_flying": 0,
        "persistent_entries": 0,
        "persistent_memory_bytes": 0,
        "transient_entries": 0,
        "transient_memory_bytes": 0,
    }


def test_what_was_removed_becomes_room_and_what_was_not_can_be_read_before_and_after() -> None:
    """GC-02 of the transient store: two files that are both more than half garbage are joined, an empty one goes."""
    stage = StoreStage()
    store, collector = stage.stores.transient, stage.stores.transient_collector
    written = [store.write([content(n), content(n + 100, 1500)]) for n in range(12)]
    assert len(stage.stage.disk.list(TRANSIENT)) > 5
    remaining = written[::4]
    for stored in written:
        if stored not in remaining:
            store.remove(stored)
    while (done := collector.run()).released:
        assert done.copied_bytes <= 2 * 1900
    for n, stored in zip(range(0, 12, 4), remaining, strict=True):
        contents = [content(n), content(n + 100, 1500)]
        assert store.read(stored, sizes_of(contents), 0, 2) == contents
    used = sum(stage.stage.disk.stat(join(TRANSIENT, name)).size_bytes for name in stage.stage.disk.list(TRANSIENT))
    assert used < 12 * 1900
    for stored in remaining:
        store.remove(stored)
    while collector.run().released:
        continue
    assert len(stage.stage.disk.list(TRANSIENT)) == 1, "the one that is written to"


def test_a_unit_that_was_moved_can_be_removed_and_its_entry_goes_with_its_file() -> None:
    stage = StoreStage()
    store, collector = stage.stores.transient, stage.stores.transient_collector
    written = [store.write([content(n, 900)]) for n in range(9)]
    for stored in written[1:3] + written[4:]:
        store.remove(stored)
    while collector.run().released:
        continue
    assert store.read(written[0], 900, 0, 1) == [content(0, 900)]
    for stored in (written[0], written[3]):
        store.remove(stored)
    for n in range(9):
        store.remove(store.write([content(n, 900)]))
    while collector.run().released:
        continue
    assert store.facts()["entries"] <= 2, "those of the file that is written to"


def test_nothing_is_judged_during_a_write() -> None:
    """A unit that is in a file and not in the index yet would look dead."""
    stage = StoreStage()
    store, collector = stage.stores.transient, stage.stores.transient_collector
    body_files = stage.stores._body_files[1]
    append = body_files.append
    released: list[int] = []

    def slowly(records):  # type: ignore[no-untyped-def]
        places = append(records)
        body_files._start_file()
        released.extend(collector.run().released)
        return places

    body_files.append = slowly  # type: ignore[method-assign]
    stored = store.write([content(1)])
    assert released == []
    assert store.read(stored, 400, 0, 1) == [content(1)]
