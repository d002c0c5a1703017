"""What every backing queue must do, of any kind. Run over all kinds by test_backing_queue.py."""

from __future__ import annotations

import pytest

from tests.queues.backing_stage import BackingStage, contents_of, flags_of, numbered, one, tags_of
from warren.base.errors import Misuse
from warren.base.messages import Origin
from warren.queues.backing_queue import TagRange


class BackingSuite:
    # -- order ---------------------------------------------------------------------------------------------------

    def test_messages_come_out_in_the_order_they_came_in(self, stage: BackingStage) -> None:
        for first in range(0, 30, 3):
            stage.put(*numbered(first, first + 3))
        found = [content for _ in range(15) for content in contents_of(stage.get(2))]
        assert found == numbered(0, 30)
        assert stage.get(1) == []

    def test_persistent_and_transient_messages_keep_their_order(self, stage: BackingStage) -> None:
        for number in range(12):
            stage.put(*numbered(number, number + 1), is_persistent=number % 3 != 0)
        fetched = stage.get(12)
        assert contents_of(fetched) == numbered(0, 12)
        flags = [each.slice.run.is_persistent for each in fetched for _ in range(len(each.slice))]
        assert flags == [number % 3 != 0 for number in range(12)]

    def test_publishing_nothing_does_nothing(self, stage: BackingStage) -> None:
        stage.put()
        assert (len(stage.queue), stage.queue.head(), stage.get(5)) == (0, None, [])

    def test_a_message_may_be_empty(self, stage: BackingStage) -> None:
        stage.put(b"", b"")
        stage.put(b"", is_persistent=False)
        assert contents_of(stage.get(3)) == [b"", b"", b""]

    def test_large_and_small_messages_come_back_as_they_were(self, stage: BackingStage) -> None:
        contents = [b"a" * size for size in (1, 4095, 4096, 4097, 70_000, 3, 600_000, 0)]
        stage.put(*contents)
        stage.put(*contents, is_persistent=False)
        assert contents_of(stage.get(16)) == contents + contents

    # -- fetch ---------------------------------------------------------------------------------------------------

    def test_a_fetch_takes_no_more_than_requested(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 10))
        assert contents_of(stage.get(4)) == numbered(0, 4)
        assert (len(stage.queue), stage.queue.pending_count) == (6, 4)

    def test_a_fetch_stops_before_too_many_bytes_but_takes_one(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 6, size=10))
        stage.put(b"x" * 100)
        assert contents_of(stage.get(9, bytes_max=39)) == numbered(0, 3, size=10)
        assert contents_of(stage.get(9, bytes_max=30)) == numbered(3, 6, size=10)
        assert contents_of(stage.get(9, bytes_max=0)) == [b"x" * 100]

    def test_tags_follow_one_another_within_a_slice_and_name_one_message_each(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 5))
        stage.put(*numbered(5, 9))
        fetched = stage.get(3) + stage.get(6)
        assert all(each.tags == (each.tag, each.tag + len(each.slice)) for each in fetched)
        assert len(set(tags_of(fetched))) == 9

    def test_the_head_is_what_comes_next_and_has_no_contents(self, stage: BackingStage) -> None:
        stage.put(b"one", expires_ms=7)
        stage.put(b"two", expires_ms=8)
        head = stage.queue.head()
        assert head is not None
        assert (head.run.expires_ms, head.contents, len(stage.queue)) == (7, None, 2)
        stage.get(1)
        head = stage.queue.head()
        assert head is not None and head.run.expires_ms == 8

    def test_the_properties_of_a_message_are_stored(self, stage: BackingStage) -> None:
        origin = Origin("orders", "eu.new", "anna")
        stage.put(b"a", expires_ms=1_700_000_000_123, published_ms=1_600_000_000_000, origin=origin)
        stage.put(b"b", is_persistent=False, expires_ms=5, published_ms=6, origin=origin)
        runs = [each.slice.run for each in stage.get(2)]
        assert [(run.expires_ms, run.published_ms, run.origin) for run in runs] == [
            (1_700_000_000_123, 1_600_000_000_000, origin),
            (5, 6, origin),
        ]

    # -- ack -----------------------------------------------------------------------------------------------------

    def test_what_is_acknowledged_is_gone(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 6))
        tags = tags_of(stage.get(6))
        assert stage.ack(one(tags[0]), one(tags[2]), (tags[4], tags[5] + 1)) == 4
        assert (len(stage.queue), stage.queue.pending_count) == (0, 2)
        assert stage.requeue(one(tags[1]), one(tags[3])) == 2
        assert contents_of(stage.get(9)) == [b"0001", b"0003"]

    def test_acknowledging_in_any_order(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 9))
        stage.put(*numbered(9, 12), is_persistent=False)
        tags = tags_of(stage.get(12))
        for tag in sorted(tags, key=lambda tag: tag * 7 % 12):
            assert stage.ack(one(tag)) == 1
        assert (len(stage.queue), stage.queue.pending_count, stage.queue.ready_bytes) == (0, 0, 0)

    def test_one_range_may_span_what_was_fetched_apart(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 4))
        fetched = stage.get(2) + stage.get(2)
        tags = tags_of(fetched)
        if tags == list(range(tags[0], tags[0] + 4)):
            assert stage.ack((tags[0], tags[0] + 4)) == 4
        else:
            assert stage.ack(*map(one, tags)) == 4

    @pytest.mark.parametrize("call", ["ack", "requeue"])
    def test_an_unknown_tag_is_a_misuse_and_changes_nothing(self, stage: BackingStage, call: str) -> None:
        stage.put(*numbered(0, 6))
        tags = tags_of(stage.get(4))
        stage.ack(one(tags[1]))
        do = getattr(stage, call)
        wrong: list[list[TagRange]] = [
            [one(tags[0]), one(tags[1])],  # was acknowledged before
            [one(tags[2]), (tags[2], tags[3] + 1)],  # the same one twice
            [one(tags[0]), one(max(tags) + 1)],  # is ready
            [one(max(tags) + 1000)],
            [one(-1)],
        ]
        for ranges in wrong:
            with pytest.raises(Misuse):
                do(*ranges)
            assert (len(stage.queue), stage.queue.pending_count) == (2, 3)
        assert do(one(tags[0]), (tags[2], tags[3] + 1)) == 3

    def test_naming_no_tags_is_fine(self, stage: BackingStage) -> None:
        assert (stage.ack(), stage.requeue(), stage.queue.read_pending([])) == (0, 0, [])

    def test_browsing_pending_messages_leaves_them_pending(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 4))
        stage.put(*numbered(4, 8), is_persistent=False)
        tags = tags_of(stage.get(7))
        slices = stage.queue.read_pending([(tags[3], tags[3] + 1), one(tags[5]), one(tags[0])])
        assert [content for each in slices for content in each.contents or []] == [b"0003", b"0005", b"0000"]
        assert (len(stage.queue), stage.queue.pending_count) == (1, 7)
        for wrong in ([one(max(tags) + 1)], [one(tags[0]), one(tags[0])]):
            with pytest.raises(Misuse):
                stage.queue.read_pending(wrong)
        assert stage.ack(*map(one, tags)) == 7

    # -- requeue -------------------------------------------------------------------------------------------------

    def test_what_is_requeued_stands_where_it_stood(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 8))
        tags = tags_of(stage.get(6))
        stage.requeue(one(tags[4]))
        stage.requeue(one(tags[1]))
        stage.put(*numbered(8, 10))
        stage.requeue(one(tags[2]), one(tags[5]))
        assert contents_of(stage.get(10)) == [b"0001", b"0002", *numbered(4, 10)]
        stage.requeue(one(tags[0]), one(tags[3]))
        assert contents_of(stage.get(10)) == [b"0000", b"0003"]

    def test_requeued_messages_are_flagged_and_others_are_not(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 6))
        fetched = stage.get(4)
        assert flags_of(fetched) == [False] * 4
        tags = tags_of(fetched)
        stage.requeue(one(tags[3]), one(tags[0]))
        again = stage.get(6)
        assert contents_of(again) == [b"0000", b"0003", b"0004", b"0005"]
        assert flags_of(again) == [True, True, False, False]

    def test_requeued_transient_messages_stand_among_persistent_ones(self, stage: BackingStage) -> None:
        for number in range(10):
            stage.put(*numbered(number, number + 1), is_persistent=number % 2 == 0)
        tags = tags_of(stage.get(7))
        stage.requeue(*(one(tag) for tag in reversed(tags[1:])))
        assert contents_of(stage.get(10)) == numbered(1, 10)

    # -- drop, purge, delete ---------------------------------------------------------------------------------------

    def test_dropping_takes_from_the_head(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 5))
        assert stage.drop(2) == 2
        assert (len(stage.queue), stage.queue.ready_bytes, stage.queue.pending_count) == (3, 12, 0)
        assert contents_of(stage.get(1)) == [b"0002"]
        assert stage.drop(100) == 2
        assert stage.drop(1) == 0

    def test_purging_leaves_what_is_pending(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 9))
        stage.put(*numbered(9, 12), is_persistent=False)
        tags = tags_of(stage.get(3))
        stage.requeue(one(tags[1]))
        assert stage.purge() == 10
        assert (len(stage.queue), stage.queue.ready_bytes, stage.queue.pending_count) == (0, 0, 2)
        stage.put(b"new")
        stage.requeue(one(tags[2]), one(tags[0]))
        assert contents_of(stage.get(9)) == [b"0000", b"0002", b"new"]

    def test_deleting_leaves_nothing(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 6))
        stage.put(*numbered(6, 9), is_persistent=False)
        stage.get(2)
        stage.delete()
        queue = stage.queue
        assert (len(queue), queue.ready_bytes, queue.pending_count, queue.head()) == (0, 0, 0, None)

    # -- browse and counts -----------------------------------------------------------------------------------------

    def test_browsing_takes_nothing(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 7))
        stage.put(*numbered(7, 9), is_persistent=False)
        tags = tags_of(stage.get(3))
        stage.requeue(one(tags[1]))
        assert stage.browsed() == [b"0001", *numbered(3, 9)]
        assert (len(stage.queue), stage.queue.pending_count) == (7, 2)
        again = stage.get(9)
        assert contents_of(again) == [b"0001", *numbered(3, 9)]
        assert flags_of(again) == [True] + [False] * 6

    def test_browsing_ends_if_the_queue_changes(self, stage: BackingStage) -> None:
        for number in range(6):
            stage.put(*numbered(number, number + 1))
        seen = []
        for slice_ in stage.queue.browse():
            seen.append(slice_)
            if len(seen) == 1:
                stage.drop(3)
        assert len(seen) == 1

    def test_counts_and_bytes_add_up(self, stage: BackingStage) -> None:
        stage.put(b"a" * 10, b"b" * 20)
        stage.put(b"c" * 30, is_persistent=False)
        queue = stage.queue
        assert (len(queue), queue.ready_bytes, queue.pending_count) == (3, 60, 0)
        tags = tags_of(stage.get(2))
        assert (len(queue), queue.ready_bytes, queue.pending_count) == (1, 30, 2)
        stage.requeue(one(tags[1]))
        assert (len(queue), queue.ready_bytes, queue.pending_count) == (2, 50, 1)
        stage.ack(one(tags[0]))
        stage.drop(1)
        assert (len(queue), queue.ready_bytes, queue.pending_count) == (1, 30, 0)
        assert queue.ram_bytes >= 0

    def test_sizes_follow_every_message(self, stage: BackingStage) -> None:
        def reported() -> tuple[int, int, int]:
            sizes = stage.queue.sizes()
            assert sizes.ready_ram <= len(stage.queue)
            assert sizes.pending_ram <= stage.queue.pending_count
            assert sizes.ram_bytes <= stage.queue.ready_bytes + sizes.pending_bytes
            return sizes.pending_bytes, sizes.persistent, sizes.persistent_bytes

        assert reported() == (0, 0, 0)
        stage.put(b"a" * 10, b"b" * 20)
        stage.put(b"c" * 30, b"d" * 40, is_persistent=False)
        stage.put(b"e" * 50)
        assert reported() == (0, 3, 80)
        tags = tags_of(stage.get(4))
        assert reported() == (100, 3, 80)
        stage.requeue(one(tags[1]))
        assert reported() == (80, 3, 80)
        stage.ack(one(tags[0]), one(tags[2]))
        assert reported() == (40, 2, 70)
        stage.drop(1)
        assert reported() == (40, 1, 50)
        stage.purge()
        assert reported() == (40, 0, 0)
        stage.requeue(one(tags[3]))
        assert reported() == (0, 0, 0)

    def test_facts_report_how_many_are_ready(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 5))
        stage.get(2)
        facts = stage.queue.facts()
        assert (facts["ready"], facts["pending"]) == (3, 2)

    def test_a_target_for_memory_may_come_and_go(self, stage: BackingStage) -> None:
        stage.put(*numbered(0, 50))
        stage.queue.set_ram_duration_target(0.0)
        while stage.queue.page():
            stage.after()
        stage.queue.set_ram_duration_target(None)
        stage.put(*numbered(50, 60))
        assert contents_of(stage.get(60)) == numbered(0, 60)
        assert stage.queue.ram_duration() > 0
