"""The collector: what it releases, what it leaves, and its effect on readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.message_store.store_stage import A, B, Failing, StoreStage, content, file_of, stored_of
from tests.message_store.test_read import damage
from warren.base.errors import Damage, OutOfRoom
from warren.base.ids import Lsn
from warren.base.messages import Publication, Run
from warren.base.threads import SystemThreads
from warren.message_store.body_files import STREAM, Record
from warren.message_store.body_format import BodyPlace, decode_key
from warren.message_store.index import MOVED_STORAGE
from warren.message_store.liveness import scan_liveness


@pytest.fixture
def stage() -> StoreStage:
    return StoreStage(read_cache_bytes=0)


def a_file(stage: StoreStage, *live: int, dead: int = 900) -> list[Run]:
    """A sealed file with a run of one content for each size, and a dead one; those that live."""
    runs = [stage.publish([content(at, size)], A)[A] for at, size in enumerate(live)]
    stage.dequeue(A, stage.publish([content(99, dead)], A)[A])
    stage.seal()
    return runs


def moved_rows(stage: StoreStage) -> int:
    with closing(stage.database.view_now()) as view:
        return len(list(view.range(MOVED_STORAGE)))


def test_two_files_that_are_both_more_than_half_garbage_are_merged(stage: StoreStage) -> None:
    """GC-02, C-09: what is alive is written again, and both files go."""
    first, second = a_file(stage, 400, 300), a_file(stage, 500)
    before = stage.files
    done = stage.collect()
    assert done.released == before
    assert (done.copied_units, done.copied_bytes) == (3, 1200)
    purged = stage.log.purge()
    assert len(purged.files) == 2
    for run, size, at in ((first[0], 400, 0), (first[1], 300, 1), (second[0], 500, 0)):
        assert stage.contents(run) == [content(at, size)]


def test_exactly_half_is_not_more_than_half(stage: StoreStage) -> None:
    """GC-03: one byte makes the difference; a file that is fit for it waits for a partner that is."""
    a_file(stage, 900, dead=900)
    fit = a_file(stage, 899, dead=900)
    assert stage.collect().released == [] and stage.collect().released == []
    assert len(stage.files) == 2
    a_file(stage, 500, dead=501)
    assert len(stage.collect().released) == 2
    assert len(stage.files) == 1 and stage.contents(fit[0]) == [content(0, 899)]


def test_a_file_with_nothing_alive_goes_without_a_partner(stage: StoreStage) -> None:
    a_file(stage)
    remaining = a_file(stage, 900)
    (empty, other) = stage.files
    assert stage.collect().released == [empty] and stage.files == [other]
    assert stage.contents(remaining[0]) == [content(0, 900)]


def test_contents_without_bytes_are_alive_all_the_same(stage: StoreStage) -> None:
    runs = stage.publish([b"", b""], A, B)
    run = runs[A]
    stage.seal()
    for _ in range(3):
        assert stage.collect().released == []
    assert stage.contents(run) == [b"", b""]
    for place, each in runs.items():
        stage.dequeue(place, each)
    assert len(stage.collect().released) == 1


def test_only_messages_that_are_alive_are_copied(stage: StoreStage) -> None:
    runs = []
    for _ in range(2):
        runs.append(stage.publish([content(at, 200) for at in range(5)], A)[A])
        stage.seal()
    for run in runs:
        stage.dequeue(A, run, 0b10111)
    assert stage.collect().copied_bytes == 400
    stage.log.purge()
    for run in runs:
        assert stage.contents(run, 3, 4) == [content(3, 200)]
        with pytest.raises(Damage, match="no run referenced them"):
            stage.contents(run, 2, 4)
    stage.reopen()
    for run, _ in stage.recovered(A):
        assert stage.contents(run, 3, 4) == [content(3, 200)]


def test_a_trimmed_unit_is_trimmed_again_and_counted_by_its_remaining_bytes(stage: StoreStage) -> None:
    runs = []
    for _ in range(2):
        runs.append(stage.publish([content(at, 100 + at) for at in range(8)], A)[A])
        stage.dequeue(A, stage.publish([content(9, 900)], A)[A])
        stage.seal()
    for gone in (0b00011101, 0b01011111):
        for run in runs:
            stage.dequeue(A, run, gone)
        while (done := stage.collect()).released:
            stage.log.purge()
            alive = [at for at in range(8) if not gone >> at & 1]
            assert done.copied_bytes == 2 * sum(100 + at for at in alive)
        for run in runs:
            assert [stage.contents(run, at, at + 1)[0] for at in alive] == [content(at, 100 + at) for at in alive]
        stage.seal()
    assert moved_rows(stage) == 2


def test_a_shared_unit_lives_as_long_as_one_of_its_holders(stage: StoreStage) -> None:
    """What is gone from one queue and not from the other stays, message by message."""
    runs = []
    for _ in range(2):
        runs.append(stage.publish([content(at, 200) for at in range(5)], A, B))
        stage.dequeue(A, stage.publish([content(9, 900)], A)[A])
        stage.seal()
    for each in runs:
        stage.dequeue(A, each[A])
        stage.dequeue(B, each[B], 0b00111)
    assert stage.collect().copied_bytes == 2 * 400
    stage.log.purge()
    assert stage.contents(runs[0][B], 3, 5) == [content(3, 200), content(4, 200)]
    holders = [decode_key(key).holders for key in stage.record_keys()]
    assert [[holder.queue for holder in each] for each in holders] == [[B.queue], [B.queue]]


def test_a_run_that_has_the_sequence_id_of_a_lost_one_does_not_hold_its_contents(stage: StoreStage) -> None:
    """After a crash sequence ids are given again that a run had which was never durable."""
    batch = stage.queues.begin()
    stage.submit(Publication([content(1, 900)]), A, batch)
    batch.join(Failing())
    with pytest.raises(OutOfRoom):
        batch.end()
    stage.next[A] = 0
    other = stage.publish([content(2, 300)], A)[A]
    stage.database.make_durable()
    stage.seal()
    liveness_scan = scan_liveness(stage.stores._body_files[0], file_of(other), stage.stores.collector._liveness_check)
    assert (liveness_scan.total_bytes, liveness_scan.live_bytes) == (1200, 300)


def test_large_contents_are_copied_chunk_by_chunk_also_from_a_file_that_stays(stage: StoreStage) -> None:
    """A rotation may come between two chunks: the unit then lies in two files, and is moved as a whole."""
    body_files = stage.stores._body_files[0]
    append = body_files.append

    def rotating(records: Sequence[Record]) -> list[BodyPlace]:
        places = append(records)
        if len(records[0].value) == 1000 and decode_key(records[0].key).chunk == 1:
            stage.seal()
        return places

    body_files.append = rotating  # type: ignore[method-assign]
    large = stage.publish([content(5, 3700)], A)[A]
    body_files.append = append  # type: ignore[method-assign]
    assert len({place.file for place in stored_of(large).units[0].places}) == 2
    for _ in range(5):
        stage.dequeue(A, stage.publish([content(9, 900)], A)[A])
    stage.seal()
    early, late = stage.files
    assert stage.collect().released == [], "the early file is alive"
    stage.dequeue(A, stage.publish([content(9, 900)], A)[A])
    a_file(stage, 100)
    done = stage.collect()
    assert len(done.released) == 2 and early not in done.released and late in done.released
    assert done.copied_bytes == 3800
    stage.log.purge()
    assert stage.contents(large) == [content(5, 3700)]
    assert stage.collect().released == [early], "nothing in it is current any more"
    stage.log.purge()
    assert stage.contents(large) == [content(5, 3700)]
    starts = {key.unit for key in map(decode_key, stage.record_keys()) if key.chunk}
    assert starts == {stored_of(large).units[0].id}


def test_a_row_about_a_moved_unit_goes_with_the_file_it_points_into(stage: StoreStage) -> None:
    first, second = a_file(stage, 400), a_file(stage, 500)
    stage.collect()
    assert moved_rows(stage) == 2
    stage.dequeue(A, first[0])
    stage.seal()
    assert stage.collect().released == [] and moved_rows(stage) == 2
    stage.dequeue(A, second[0])
    assert len(stage.collect().released) == 1
    stage.database.make_durable()
    assert moved_rows(stage) == 0


def test_a_row_is_not_dropped_because_of_a_count(stage: StoreStage) -> None:
    """A run may end in changes that a crash takes back; only the rows of its holders are sure."""
    runs = stage.publish([content(1)], A, B)
    stage.dequeue(A, stage.publish([content(2, 900)], A)[A])
    stage.seal()
    a_file(stage, 100)
    stage.collect()
    for run in runs.values():
        stage.store.note_dead(run.stored, 400)
    stage.collect()
    stage.log.purge()
    stage.reopen()
    for place in (A, B):
        run = stage.recovered(place)[0][0]
        assert stage.contents(run) == [content(1)]


def test_readers_continue_while_files_are_merged(stage: StoreStage) -> None:
    """GC-01, GC-04, MS-08, MS-15: at each step of the collector, by the location in the run, and by the index."""
    first, second = a_file(stage, 400, 300), a_file(stage, 500, 200)
    wanted = [(first[0], 0, 400), (first[1], 1, 300), (second[0], 0, 500), (second[1], 1, 200)]
    locked: list[tuple[int, ...]] = []

    def look() -> None:
        locked.append(stage.stores.collector.locked)
        for run, at, size in wanted:
            assert stage.contents(run) == [content(at, size)]
        stage.publish([content(7)], B)

    body_files, index = stage.stores._body_files[0], stage.moved
    before = tuple(stage.files)
    busy = [False]
    for part, name in ((body_files, "append"), (body_files, "release"), (body_files, "read"), (index, "move")):
        _watch(part, name, look, busy)
    assert len(stage.collect().released) == 2
    busy[0] = True
    look()
    stage.log.purge()
    look()
    assert before in locked and locked[-1] == ()


def _watch(part: Any, name: str, look: Callable[[], None], busy: list[bool]) -> None:
    """Check before and after each call, though not during a check, nor while another call is watched."""
    call = getattr(part, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        is_first, busy[0] = not busy[0], True
        try:
            if is_first:
                look()
            answer = call(*arguments, **named)
            if is_first:
                look()
            return answer
        finally:
            if is_first:
                busy[0] = False

    setattr(part, name, watched)


class Only:
    """A part of the index: any other call is an error."""

    def __init__(self, whole: object, *names: str) -> None:
        for name in names:
            setattr(self, name, getattr(whole, name))


def test_store_collector_and_queues_each_do_only_their_part(stage: StoreStage) -> None:
    """MS-16, MS-18: the store inserts and counts, the collector moves and deletes, queues look up."""
    store: Any = stage.store
    collector: Any = stage.stores.collector
    store._index = Only(stage.moved, "insert", "add_references", "look_up", "facts")
    store._reader._index = collector._reader._index = Only(stage.moved, "look_up")
    collector._index = collector._liveness_check._index = Only(stage.moved, "look_up_many", "move", "delete_object")
    remaining = []
    for n in range(2):
        remaining.append(stage.publish([content(n)], A, B)[B])
        stage.dequeue(A, stage.publish([content(9, 900)], A)[A])
        stage.seal()
    assert len(stage.collect().released) == 2
    stage.log.purge()
    assert [stage.contents(run) for run in remaining] == [[content(0)], [content(1)]]
    for place in (A, B):
        for run, _ in stage.recovered(place):
            stage.dequeue(place, run)
    stage.seal()
    assert len(stage.collect().released) == 1
    assert stage.store.facts()["entries"] == 0


class Interfering:
    """An index in which a queue adds a reference to a unit just before the collector deletes its entry."""

    def __init__(self, whole: Any, unit: Lsn) -> None:
        self._whole, self._unit = whole, unit
        self.look_up_many, self.move = whole.look_up_many, whole.move

    def delete_object(self, seen: Any) -> Any:
        self._whole.add_references(self._unit, 1)
        return self._whole.delete_object(seen)


def test_the_collector_deletes_an_entry_only_if_it_is_as_it_was_seen(stage: StoreStage) -> None:
    """MS-17: compare-and-delete; a reference that comes after the entry was seen keeps it, at any time up to the
    delete."""
    collector: Any = stage.stores.collector
    runs = stage.publish([content(1)], A, B)
    unit = stored_of(runs[A]).units[0].id
    for place in (A, B):
        stage.dequeue(place, runs[place])
    seen = stage.moved.look_up(unit)
    assert seen is not None and seen.references == 0
    stage.moved.add_references(unit, 1)
    stage.collect()
    assert stage.moved.look_up(unit) == seen._replace(references=1)
    for index, is_kept in ((Interfering(stage.moved, unit), True), (stage.moved, False)):
        stage.moved.add_references(unit, -1)
        collector._ended.append((unit, seen))
        collector._index = index
        stage.collect()
        assert (stage.moved.look_up(unit) is not None) == is_kept


def test_a_damaged_unit_is_neither_copied_nor_dropped_but_reported() -> None:
    stage = StoreStage(chunk_bytes=70_000, read_cache_bytes=0)
    remaining = a_file(stage, 66_000, 67_000, dead=140_000)
    a_file(stage, 66_000, dead=70_000)
    path, _ = damage(stage, remaining[0])
    before = stage.files
    for _ in range(2):
        assert stage.collect().released == [] and stage.files == before
    (alarm,) = stage.stores.collector.alarms()
    assert path in alarm and "damaged" in alarm
    assert stage.contents(remaining[1]) == [content(1, 67_000)]
    with pytest.raises(Damage):
        stage.contents(remaining[0])


def test_damage_between_liveness_scan_and_copy_stops_that_file_only() -> None:
    stage = StoreStage(chunk_bytes=70_000, read_cache_bytes=0)
    hurt = a_file(stage, 66_000, dead=140_000)
    stage.collect()
    damage(stage, hurt[0])
    sound = a_file(stage, 66_000, dead=70_000)
    stage.collect()
    assert len(stage.stores.collector.alarms()) == 1 and len(stage.files) == 2
    a_file(stage, 66_000, dead=70_000)
    assert len(stage.collect().released) == 2, "the sound one finds another partner"
    assert stage.contents(sound[0]) == [content(0, 66_000)]
    assert file_of(hurt[0]) in stage.files


def test_after_a_start_every_file_is_counted_once_and_then_only_on_request(stage: StoreStage) -> None:
    a_file(stage, 900)
    a_file(stage, 900)
    stage.reopen()
    assert stage.collect().counted == 2
    rows_read = stage.rows.rows_read
    assert stage.collect().counted == 0 and stage.rows.rows_read == rows_read
    for run, _ in stage.recovered(A):
        stage.dequeue(A, run)
    assert len(stage.collect().released) == 2


def test_what_a_deleted_queue_leaves_behind_is_found_by_counting_again(stage: StoreStage) -> None:
    """Its runs are not walked one by one."""
    runs = [stage.publish([content(n, 900)], A, B) for n in range(2)]
    stage.seal()
    stage.collect()
    for queue in (A.queue, B.queue):
        batch = stage.queues.begin()
        batch.remove_queue(queue)
        stage.log.wait(batch.end())
    assert stage.collect().counted == 0
    stage.stores.collect_soon(is_much_dead=True)
    assert stage.collect().released == [file_of(runs[0][A])]
    assert stage.store.facts()["entries"] == 0, "nor is anything without references counted"


def delete_a(stage: StoreStage) -> None:
    batch = stage.queues.begin()
    batch.remove_queue(A.queue)
    stage.log.wait(batch.end())
    stage.stores.collector.queue_deleted(A.queue)


def test_a_deleted_queue_is_cleared_away_without_counting_and_other_files_are_not_touched(stage: StoreStage) -> None:
    """A liveness scan reads all of a file: deleting one queue must not mean to read what all the others have."""
    stage.publish([content(9, 900)], B)
    stage.seal()
    mine = stage.publish([content(0, 900)], A)
    stage.seal()
    other = stage.publish([content(1, 900)], B)
    stage.seal()
    both = [stage.publish([content(2, 1800)], A), stage.publish([content(3, 900)], B)]
    stage.seal()
    stage.collect()
    delete_a(stage)
    done = stage.collect()
    assert done.released == [file_of(mine[A])] and done.counted == 2, "one that A has shared, and the first: who knows"
    assert file_of(other[B]) in stage.files and file_of(both[1][B]) in stage.files
    assert stage.contents(other[B]) == [content(1, 900)]


def test_files_of_an_earlier_process_have_no_known_owner(stage: StoreStage) -> None:
    runs = [stage.publish([content(n, 900)], place) for n, place in enumerate((A, B))]
    stage.seal()
    stage.reopen()
    stage.collect()
    batch = stage.queues.begin()
    for queue in (A.queue, B.queue):
        batch.remove_queue(queue)
    stage.log.wait(batch.end())
    stage.stores.collector.queue_deleted(A.queue)
    done = stage.collect()
    assert done.counted == 1 and done.released == [file_of(runs[0][A])]


def test_what_the_collector_copies_belongs_to_its_queues_too(stage: StoreStage) -> None:
    for n in range(2):
        stage.publish([content(n)], A)
        stage.dequeue(B, stage.publish([content(9, 900)], B)[B])
        stage.seal()
    assert stage.collect().copied_units == 2
    stage.seal()
    stage.collect()
    delete_a(stage)
    done = stage.collect()
    assert (done.counted, len(done.released), stage.files) == (0, 1, [])


def test_a_file_is_not_judged_before_it_is_settled(stage: StoreStage) -> None:
    batch = stage.queues.begin()
    run = stage.submit(Publication([content(1, 900)]), A, batch)
    stage.store.before_commit(batch, [(A, run)])
    stage.seal()
    assert stage.collect().counted == 0 and len(stage.files) == 1
    stage.store.on_abort(batch)
    assert len(stage.collect().released) == 1


def base_of(stage: StoreStage) -> Lsn:
    return stage.log.stream(STREAM).base


def test_the_base_moves_up_when_the_earliest_file_is_done_and_only_then(stage: StoreStage) -> None:
    """MR-09, MR-10, MR-11: a message in the middle that goes does not move it; the earliest one in use is the base."""
    runs = [a_file(stage, 900)[0] for _ in range(4)]
    ids = [stored_of(run).units[0].id for run in runs]
    stage.collect()
    assert base_of(stage) == ids[0], "the earliest that is in use"
    stage.dequeue(A, runs[1])
    assert stage.collect().released == [file_of(runs[1])]
    assert base_of(stage) == ids[0]
    stage.dequeue(A, runs[0])
    assert stage.collect().released == [file_of(runs[0])]
    assert base_of(stage) == ids[2], "over the one that went before"
    assert stage.contents(runs[2]) == [content(0, 900)]


def test_what_a_pin_holds_stays_readable_where_it_was(stage: StoreStage) -> None:
    """X-06: the collector releases; the purge decides when a file goes, and checks pins."""
    first = a_file(stage, 400)
    a_file(stage, 500)
    pin, _ = stage.log.pins.take("a backup", 60.0, numbers=stage.files)
    old = stored_of(first[0]).units[0].places[0]
    assert len(stage.collect().released) == 2
    assert stage.log.purge().files == ()
    assert bytes(stage.stores._body_files[0].read(old, 400)) == content(0, 400)
    stage.log.pins.release(pin)
    assert len(stage.log.purge().files) == 2


def test_a_worker_of_its_own_collects(stage: StoreStage) -> None:
    """GC-01: beside publishers and readers, and stops on request."""
    runs = a_file(stage, 400) + a_file(stage, 500)
    released = SystemThreads().condition()
    reported: list[int] = []
    collector: Any = stage.stores.collector
    run = collector.run

    def noted() -> Any:
        done = run()
        with released:
            reported.extend(done.released)
            released.notify_all()
        return done

    collector.run = noted
    stage.stores.begin()
    stage.stores.collect_soon()
    with released:
        while len(reported) < 2:
            assert released.wait(20)
    assert stage.stores.alarms() == []
    assert [stage.contents(each) for each in runs] == [[content(0, 400)], [content(0, 500)]]
    stage.close()
