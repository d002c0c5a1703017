"""The queue index over a real database: published messages stay in order until dequeued, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from threading import Event as Signal
from threading import current_thread

import pytest

from tests.queue_index.index_stage import (
    BEHIND,
    BILLS,
    ORDERS,
    CountedReads,
    IndexStage,
    a_run,
    firsts,
    large,
    pointer_of,
    spoil,
)
from tests.snapshot.database_stage import DatabaseStage
from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId, SequenceId
from warren.base.messages import WIRE, Origin, QueuePlace, Run
from warren.log.settings import EntryKind
from warren.queue_index.history_format import DequeueReason, HistoryRecord
from warren.queue_index.row_format import Counters, ack_key, encode_gone, run_key
from warren.queues.settings import VariableQueueSettings
from warren.snapshot.reflection import Mode
from warren.testing.faulty_files import FaultyFiles

SHOP = Origin("shop", "new", "ann", WIRE)


@pytest.fixture
def stage() -> Iterator[IndexStage]:
    stage = IndexStage()
    yield stage
    stage.database.close()


# -- what is published -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.PUSH, Mode.OFF])
def test_what_is_published_is_there_in_order_with_its_contents_before_and_after_a_restart(mode: Mode) -> None:
    """QI-02, MR-01, MR-04: the row of a run is content, metadata and place in the queue, in one entry."""
    stage = IndexStage(DatabaseStage(mode))
    stage.publish(5, large("b"), origin=SHOP)
    stage.publish(0, [b"small"] * 5, origin=SHOP)
    stage.publish(8, [b""])
    wanted = dict(enumerate([*[b"small"] * 5, *large("b"), b""]))
    for _ in range(2):
        assert stage.alive() == wanted
        assert [(run.first, run.count, run.origin, gone) for run, gone in stage.runs()] == [
            (0, 5, SHOP, 0),
            (5, 3, SHOP, 0),
            (8, 1, Origin(), 0),
        ]
        stage.reopen()
    stage.database.close()


def test_the_index_holds_what_each_queue_knows_of_a_message_that_several_hold(stage: IndexStage) -> None:
    """QI-01: the same contents in three queues, at other places, with other fates."""
    contents, places = large("x"), [ORDERS, BILLS, QueuePlace(BILLS.queue, 9)]
    batch = stage.index.begin()
    runs = [replace(a_run(first, contents), expires_ms=first) for first in (0, 100, 200)]
    for place, run in zip(places, runs, strict=True):
        batch.publish(place, run, contents)
    assert stage.end(batch) == runs[0].epoch == runs[2].epoch
    stage.dequeue(runs[1], 0b011, 0b011, BILLS)
    stage.dequeue(runs[2], 0b111, 0b111, places[2])
    stage.reopen()
    assert stage.alive(ORDERS) == dict(enumerate(contents))
    assert stage.alive(BILLS) == {102: contents[2]}
    assert stage.alive(places[2]) == {}
    assert [run.expires_ms for run, _ in stage.runs(BILLS)] == [100]


def test_tiny_messages_cost_one_write_and_one_sync_however_many_they_are() -> None:
    """QI-05: their contents lie in the index itself, so a publication is one write to one file."""
    disk = DatabaseStage()
    disk.log_settings = replace(disk.log_settings, container_bytes=4 << 20)
    files = FaultyFiles(disk.disk)
    stage = IndexStage(disk, files)
    stage.publish(0, [b"first"])
    before = len(files.steps)
    stage.publish(1, [b"%d" % number for number in range(10_000)])
    steps = [step for step in files.steps[before:] if "pwal" in step.path]
    assert [step.operation for step in steps] == ["write", "sync"]
    assert len({step.path for step in steps}) == 1
    assert len(stage.alive()) == 10_001
    stage.database.close()


def test_contents_can_be_read_in_part_and_of_several_runs_at_once(stage: IndexStage) -> None:
    one, two = stage.publish(0, large("a", 5)), stage.publish(5, [b"b"] * 4)
    assert stage.index.contents(ORDERS, one, 1, 3) == large("a", 5)[1:3]
    assert stage.index.contents_of(ORDERS, [(two, 3, 4), (one, 0, 0), (one, 4, 5)]) == [[b"b"], [], large("a", 5)[4:]]
    assert stage.index.contents_of(ORDERS, []) == []
    with pytest.raises(Misuse, match=r"queue \d+, sequence id 9: the run was not written"):
        stage.index.contents(ORDERS, a_run(9, [b"x"]), 0, 1)


def test_a_log_that_is_read_from_its_head_reads_each_block_once(stage: IndexStage) -> None:
    for first in range(0, 30, 3):
        stage.publish(first, large("a"))
    stage.database.settle()
    assert len(stage.alive()) == 30
    assert stage.database.pointed.reads == 10


# -- what goes -------------------------------------------------------------------------------------------------------


def test_a_message_that_is_gone_stays_away_and_the_others_stay(stage: IndexStage) -> None:
    """QI-04, MR-05, MR-08: each dequeue adds to the story of the run, until the removal of its row ends it."""
    run = stage.publish(0, large("a"))
    for gone, newly, left in ((0b010, 0b010, [0, 2]), (0b011, 0b001, [2]), (0b111, 0b100, [])):
        stage.dequeue(run, gone, newly, reason=DequeueReason.REJECTED)
        stage.reopen()
        assert list(stage.alive()) == left
    kinds = [kind for kind, storage, _, _ in stage.journal() if storage == ORDERS.queue]
    assert kinds == [EntryKind.PUT] * 3 + [EntryKind.REMOVE] * 2
    assert [event.ranges for event in stage.events()] == [((1, 2),), ((0, 1),), ((2, 3),)]
    assert {event.reason for event in stage.events()} == {DequeueReason.REJECTED}


def test_a_run_that_was_removed_is_not_recovered_though_its_entries_are_in_the_log(stage: IndexStage) -> None:
    """MR-12: the story of the first ends with its deletion."""
    gone, _ = stage.publish(0, large("a")), stage.publish(3, large("b"))
    stage.dequeue(gone, 0b111, 0b111)
    stage.database.close()
    stage.stage.store = None  # all of it is read from the log once more
    stage.open()
    assert (EntryKind.PUT, ORDERS.queue, run_key(0, 0)) in [entry[:3] for entry in stage.journal()]
    assert firsts(stage.runs()) == [3]
    assert stage.index.recover(ORDERS).count == 3


def test_an_ack_row_whose_run_is_no_longer_there_is_passed_over(stage: IndexStage) -> None:
    """MR-13: a record whose beginning is gone says nothing."""
    stage.publish(3, large("b"))
    with stage.stream.begin() as session:
        session.put(ORDERS.queue, ack_key(0, 0), encode_gone(0b1))
        session.put(ORDERS.queue, ack_key(0, 9), encode_gone(0b1))
    stage.reopen()
    assert list(stage.alive()) == [3, 4, 5]
    assert stage.index.recover(ORDERS).count == 3


def test_a_run_of_which_all_is_gone_is_not_there_though_its_rows_are(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    stage.publish(3, large("b"))
    with stage.stream.begin() as session:
        session.put(ORDERS.queue, ack_key(0, 0), encode_gone(0b111))
    stage.reopen()
    assert firsts(stage.runs()) == [3]
    assert stage.index.recover(ORDERS).count == 3


def test_a_queue_that_is_removed_is_empty_and_others_are_not(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    stage.publish(0, large("b"), BILLS)
    stage.publish(0, large("b"), QueuePlace(BILLS.queue, 3))
    batch = stage.index.begin()
    batch.remove_queue(BILLS.queue)
    stage.end(batch)
    for _ in range(2):
        assert [len(stage.alive(place)) for place in (ORDERS, BILLS, QueuePlace(BILLS.queue, 3))] == [3, 0, 0]
        stage.reopen()


# -- order and segments ----------------------------------------------------------------------------------------------


def test_a_segment_is_a_range_of_keys_that_is_read_without_the_others(stage: IndexStage) -> None:
    """QI-06, C-40: publishes and acks of adjacent sequence ids are adjacent rows of one storage."""
    part = VariableQueueSettings().delta_read_messages
    starts = [0, 7, part - 1, part, part + 9, 2 * part, 5 * part]
    runs = {first: stage.publish(first, [b"x"]) for first in reversed(starts)}
    runs[part + 1] = stage.publish(part + 1, large("x"))
    stage.dequeue(runs[part + 1], 0b010, 0b010)
    counted = CountedReads(stage)
    index = counted.index(stage)

    def segment(at: int) -> list[tuple[int, int]]:
        first, stop = SequenceId(at * part), SequenceId((at + 1) * part)
        return [(each.run.first, each.gone) for each in index.scan(ORDERS, first, stop, stage.newest)]

    assert {at: segment(at) for at in (0, 1, 3)} == {
        0: [(0, 0), (7, 0), (part - 1, 0)],
        1: [(part, 0), (part + 1, 0b010), (part + 9, 0)],
        3: [],
    }
    assert counted.ranges[:2] == [(run_key(0, at * part), run_key(0, (at + 1) * part)) for at in (0, 1)]
    assert counted.rows == 3 + 4 + 0, "a row is read once, and none of another segment"


def test_a_scan_begins_with_the_run_that_its_first_message_lies_in(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    middle = stage.publish(3, large("b", 5))
    stage.dequeue(middle, 0b11, 0b11)
    stage.publish(20, large("c"))
    assert firsts(stage.runs(first=3)) == firsts(stage.runs(first=5)) == firsts(stage.runs(first=7)) == [3, 20]
    assert firsts(stage.runs(first=8)) == firsts(stage.runs(first=20)) == [20]
    assert firsts(stage.runs(first=2, stop=3)) == [0]
    assert firsts(stage.runs(first=2, stop=4)) == [0, 3]
    assert stage.runs(first=8, stop=20) == stage.runs(first=23) == stage.runs(BILLS) == []


def test_a_scan_stops_where_it_is_reported_and_continues_from_there(stage: IndexStage) -> None:
    for first in range(0, 30, 3):
        stage.publish(first, large("a"))
    scan = stage.index.scan
    assert firsts(scan(ORDERS, SequenceId(0), BEHIND, stage.newest, runs_max=2)) == [0, 3]
    assert firsts(scan(ORDERS, SequenceId(6), BEHIND, stage.newest, messages_max=7)) == [6, 9, 12]
    assert firsts(scan(ORDERS, SequenceId(7), BEHIND, stage.newest, messages_max=2)) == [6]
    assert firsts(scan(ORDERS, SequenceId(7), BEHIND, stage.newest, messages_max=3)) == [6, 9]
    assert firsts(scan(ORDERS, SequenceId(0), BEHIND, stage.newest, runs_max=0)) == []


def test_levels_of_one_queue_are_kept_apart(stage: IndexStage) -> None:
    places = [QueuePlace(ORDERS.queue, level) for level in (0, 1, 255)]
    for place in places:
        stage.publish(place.level, [b"%d" % place.level], place)
        stage.write(Counters(SequenceId(1000 + place.level)), place)
    stage.reopen()
    for place in places:
        assert stage.alive(place) == {place.level: b"%d" % place.level}
        assert stage.index.recover(place).next == 1000 + place.level


# -- journal ---------------------------------------------------------------------------------------------------------


def test_the_journal_gets_an_entry_whenever_anything_happens_in_the_order_it_happens(stage: IndexStage) -> None:
    """QI-03, QI-07: publications, deliveries, requeues and acknowledgements of all queues, one behind the other."""
    stage.stage.clock.advance_ns(5_000_000)
    later = stage.publish(9, large("x"), BILLS)
    first = stage.publish(0, [b"x"])
    for change in ("delivered", "requeued", "dequeued"):
        batch = stage.index.begin()
        if change == "delivered":
            batch.delivered(BILLS, [(9, 12)], "ann")
        elif change == "requeued":
            batch.requeued(BILLS, [(10, 11)])
        else:
            batch.dequeue(ORDERS, first, 1, [(0, 1)], DequeueReason.ACKED)
        stage.end(batch)
    stage.dequeue(later, 0b100, 0b100, BILLS, DequeueReason.EXPIRED)
    stage.reopen()
    assert [(kind.name, storage, key[-1:]) for kind, storage, key, _ in stage.journal() if key[:1] != b"h"] == [
        ("PUT", BILLS.queue, b"\0"),
        ("PUT", ORDERS.queue, b"\0"),
        ("REMOVE", ORDERS.queue, b"\0"),
        ("PUT", BILLS.queue, b"\1"),
    ]
    reported = [
        (event.place, HistoryRecord(event.kind), event.reason, event.ranges, event.detail) for event in stage.events()
    ]
    assert reported == [
        (BILLS, HistoryRecord.DELIVERED, 0, ((9, 12),), b"ann"),
        (BILLS, HistoryRecord.REQUEUED, 0, ((10, 11),), b""),
        (ORDERS, HistoryRecord.DEQUEUED, DequeueReason.ACKED, ((0, 1),), b""),
        (BILLS, HistoryRecord.DEQUEUED, DequeueReason.EXPIRED, ((11, 12),), b""),
    ]
    assert {event.wall_ms for event in stage.events()} == {stage.stage.clock.wall_ns() // 1_000_000}


def test_a_queue_publishes_and_acknowledges_without_waiting() -> None:
    """QI-08: the disk blocks, and with it every other thread of the log; batches continue in the caller's thread."""
    disk, resumed, is_suspended, touched = DatabaseStage(), Signal(), Signal(), [0]
    files = FaultyFiles(disk.disk)
    stage = IndexStage(disk, files)
    here = current_thread()

    def suspend() -> None:
        if current_thread() is here:
            touched[0] += 1
        else:
            is_suspended.set()
            assert resumed.wait(30)

    stage.database.settle()
    files.pause = suspend
    run = a_run(0, large("a"))
    batch = stage.index.begin()
    batch.publish(ORDERS, run, large("a"))
    epoch = batch.end()
    stage.database.log.flush()
    assert is_suspended.wait(30)
    for gone in (0b001, 0b011, 0b111):
        batch = stage.index.begin()
        batch.dequeue(ORDERS, run, gone, [(gone.bit_length() - 1, gone.bit_length())], DequeueReason.ACKED)
        batch.counters(ORDERS, Counters(SequenceId(3), SequenceId(gone.bit_length())))
        stage.newest = batch.end()
    assert stage.database.log.durable < epoch <= stage.newest
    assert touched == [0], "nor does the caller touch the disk"
    resumed.set()
    stage.database.log.wait(stage.newest)
    assert stage.alive() == {}
    stage.database.close()


def test_contents_are_read_from_the_position_of_their_row_without_a_view(
    stage: IndexStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one run and of several in one session, small and large; for runs that were published and for scanned ones."""
    small, contents = [b"s"], [large("a"), large("b"), [b"c" * 70_000]]
    batch = stage.index.begin()
    runs = [a_run(0, small), a_run(10, contents[0]), a_run(20, contents[1]), a_run(30, contents[2])]
    batch.counters(BILLS, Counters())
    for run, each in zip(runs, [small, *contents], strict=True):
        batch.publish(ORDERS, run, each)
    stage.end(batch)
    scanned = [indexed.run for indexed in stage.runs()][1:]
    monkeypatch.setattr(stage.database, "view_at", None)
    read = stage.index.contents_of(ORDERS, [(run, 0, run.count) for run in [*runs, *scanned]])
    assert read == [small, *contents, *contents]


def test_a_position_with_another_row_is_not_used(stage: IndexStage) -> None:
    run, other = stage.publish(0, large("a")), stage.publish(10, large("b"))
    with pytest.raises(Damage, match="is not row"):
        stage.database.row_at(run.epoch, run.block, run.entry, ORDERS.queue, run_key(0, other.first))
    with pytest.raises(Damage, match="is not row"):
        stage.database.row_at(run.epoch, run.block, run.entry + 1, ORDERS.queue, run_key(0, run.first))
    run.block, run.entry = other.block, other.entry
    assert stage.index.contents(ORDERS, run, 0, run.count) == large("a"), "the index knows better"


# -- moved, damaged, unknown -----------------------------------------------------------------------------------------


def test_a_row_that_moves_while_it_is_read_is_looked_up_again(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    run = stage.publish(3, large("b"))
    counted = CountedReads(stage)
    index = counted.index(stage)
    stage.database.settle()
    with closing(stage.database.view()) as view:
        pointers = {row.value for row in view.range(ORDERS.queue)}
    counted.moved = set(pointers)
    assert firsts(index.scan(ORDERS, SequenceId(0), BEHIND, stage.newest)) == [0, 3]
    counted.moved = set(pointers)
    assert index.contents(ORDERS, run, 0, 3) == large("b")
    assert len(counted.moved) == 1


def test_a_row_that_is_in_no_file_is_damage(stage: IndexStage) -> None:
    with pytest.raises(Damage, match="sequence id 0: the row of a run is not there"):
        stage.index.contents(ORDERS, Run(SequenceId(0), 1, 1, epoch=stage.publish(5, [b"x"]).epoch), 0, 1)
    run = stage.publish(0, large("a"))
    stage.database.settle()
    files = [pointer_of(stage, run).file]
    stage.database.log.rotate()
    stage.database.settle()
    stage.database.log.streams.release(stage.stream, files)
    stage.database.pointed.forget(files)
    stage.database.log.purge()
    with pytest.raises(Damage, match=rf"queue {ORDERS.queue}, sequence id 0: log file \d+ is gone"):
        stage.index.contents(ORDERS, run, 0, 1)


def test_a_run_that_is_damaged_is_reported_by_name_and_the_others_are_served(stage: IndexStage) -> None:
    runs = [stage.publish(first, large("a")) for first in (0, 3, 6)]
    stage.database.settle()
    spoil(stage, runs[1])
    damaged: list[tuple[int, str]] = []
    found = stage.index.scan(
        ORDERS, SequenceId(0), BEHIND, stage.newest, on_damage=lambda first, error: damaged.append((first, error.what))
    )
    assert firsts(found) == [0, 6]
    [(first, what)] = damaged
    assert first == 3
    assert f"queue {ORDERS.queue}, sequence id 3: the log is damaged" in what
    with pytest.raises(Damage, match="sequence id 3"):
        stage.runs()
    with pytest.raises(Damage, match="sequence id 3"):
        stage.index.contents(ORDERS, runs[1], 0, 1)
    assert stage.index.contents(ORDERS, runs[2], 0, 3) == large("a")


def test_runs_that_overlap_are_damage(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    stage.publish(2, large("a"))
    with pytest.raises(Damage, match="sequence id 2: a run begins here, and the one before it ends at 3"):
        stage.runs()


def test_rows_of_an_unknown_queue_are_skipped(stage: IndexStage) -> None:
    """HS-06: the catalog has forgotten the queue in the middle, and the log has not."""
    known, unknown = [QueuePlace(QueueId(n << 32)) for n in (5, 7)], QueuePlace(QueueId(6 << 32))
    batch = stage.index.begin()
    for place in (*known, unknown):
        batch.publish(place, a_run(0, large("a")), large("a"))
        batch.counters(place, Counters(SequenceId(3), SequenceId(0), 3, 603))
    stage.end(batch)
    stage.publish(3, large("b"), unknown)
    with stage.stream.begin() as session:
        session.put(unknown.queue, b"not ours", b"what is this")
    stage.reopen()
    for place in known:
        assert stage.index.recover(place).count == 3
        assert stage.alive(place) == dict(enumerate(large("a")))
