"""The variable queue from outside: what is written when, what a start finds, what an abort leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.queues.backing_stage import contents_of, flags_of, numbered, one, tags_of
from tests.queues.variable_stage import PLACE, TINY, VariableStage
from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import SequenceId
from warren.base.messages import Publication, Run
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import counters_key
from warren.queues.invariants import check
from warren.queues.settings import VariableQueueSettings
from warren.queues.variable_queue import PersistTo, Residence


def runs_on_disk(stage: VariableStage) -> list[Run]:
    return [found.run for found in stage.index.scan(PLACE, SequenceId(0), SequenceId(1 << 40), stage.index.epoch)]


# -- publishing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_durable", "is_persistent", "expected"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_vq_02_persistent_is_what_both_queue_and_message_want(
    is_durable: bool, is_persistent: bool, expected: bool
) -> None:
    """VQ-01, VQ-02: it is decided first, for queue and message together; only then is anything written."""
    stage = VariableStage(is_durable=is_durable)
    stage.backing.put(b"small", b"x" * 5000, is_persistent=is_persistent)
    assert {slice_.run.is_persistent for slice_ in stage.queue.subqueues} == {expected}
    assert sum(run.count for run in runs_on_disk(stage)) == (2 if expected else 0)
    assert len(stage.large.units) == (1 if expected else 0)


def test_vq_04_a_persistent_message_is_on_disk_at_once() -> None:
    """VQ-04: written when it is published, with all the memory in the world, and alive after a crash."""
    stage = VariableStage()
    stage.backing.put(b"one", b"two")
    assert stage.queue.subqueues.ram_count == 2
    stage.crash_and_open()
    assert contents_of(stage.backing.get(9)) == [b"one", b"two"]


def test_vq_05_small_contents_go_to_the_index_and_large_ones_to_the_store() -> None:
    """VQ-05, VQ-06: `queue_index_embed_msgs_below`, at n - 1, n and n + 1; a run never has small and large ones."""
    limit = VariableQueueSettings().queue_index_embed_msgs_below
    assert limit == 4096
    stage = VariableStage()
    stage.backing.put(*(b"x" * size for size in (limit - 1, limit, limit + 1, 1, 2)))
    assert [(run.first, run.count, bool(run.stored)) for run in runs_on_disk(stage)] == [
        (0, 1, False),
        (1, 2, True),
        (3, 2, False),
    ]
    assert [len(content) for content in stage.large.units[b"unit 0"]] == [limit, limit + 1]


@pytest.mark.parametrize("size", [99, 100, 101])
def test_vq_06_the_limit_for_embedding_is_an_option(size: int) -> None:
    """VQ-06: messages of one size, around a limit that was set."""
    stage = VariableStage(replace(TINY, queue_index_embed_msgs_below=100))
    stage.backing.put(b"x" * size)
    assert [bool(run.stored) for run in runs_on_disk(stage)] == [size >= 100]


def test_contents_for_several_queues_go_to_the_store_at_any_size() -> None:
    stage = VariableStage()
    batch = stage.begin()
    stage.queue.publish(Publication([b"a", b"b"], fan_out=2), batch)
    batch.end()
    assert stage.large.units == {b"unit 0": [b"a", b"b"]}


def test_parts_of_one_publication_are_reported_apart_by_the_store() -> None:
    stage = VariableStage(replace(TINY, run_messages_max=2))
    contents = [bytes([number]) * 40 for number in range(5)]
    stage.backing.put(*contents)
    stage.queue.subqueues.push_alphas_to_betas(9, 9)
    assert contents_of(stage.backing.get(5)) == contents


def test_runs_are_cut_at_so_many_messages_and_so_many_bytes() -> None:
    stage = VariableStage()
    stage.backing.put(*[b"12345678"] * 40_000)
    stage.backing.put(*[b"x" * 4000] * 200)
    counts = [run.count for run in runs_on_disk(stage)]
    assert counts == [16384, 16384, 40_000 - 2 * 16384, 131, 69]
    check(stage.queue)


def test_vq_03_every_stored_field_of_a_message_can_be_read() -> None:
    """VQ-03: seq_id, msg_id, msg, is_persistent, is_delivered, msg_in_store, index_on_disk, persist_to, msg_props."""
    stage = VariableStage()
    stage.backing.put(b"small", expires_ms=5, published_ms=4)
    stage.backing.put(b"x" * 5000)
    stage.backing.put(b"light", is_persistent=False)
    stage.backing.get(1)
    reported = [stage.queue.status(SequenceId(number)) for number in range(3)]
    small, large, light = (status for status in reported if status is not None)
    assert [(s.seq_id, s.msg_id.place, s.msg_id.sequence_id) for s in (small, large, light)] == [
        (0, PLACE, 0),
        (1, PLACE, 1),
        (2, PLACE, 2),
    ]
    assert [s.msg for s in (small, large, light)] == [b"small", b"x" * 5000, b"light"]
    assert [s.is_persistent for s in (small, large, light)] == [True, True, False]
    assert [s.is_delivered for s in (small, large, light)] == [True, False, False]
    assert [s.msg_in_store for s in (small, large, light)] == [False, True, False]
    assert [s.index_on_disk for s in (small, large, light)] == [True, True, False]
    assert [s.persist_to for s in (small, large, light)] == [
        PersistTo.QUEUE_INDEX,
        PersistTo.MESSAGE_STORE,
        PersistTo.TRANSIENT_STORE,
    ]
    props = small.msg_props
    assert (props.size_bytes, props.expires_ms, props.published_ms) == (5, 5, 4)
    stage.backing.ack((0, 1))
    assert stage.queue.status(SequenceId(0)) is None


def test_vq_03_the_status_follows_a_message_through_paging_and_requeue() -> None:
    """VQ-03: without contents in memory, with positions on disk only, delivered and given back, behind a restart."""
    stage = VariableStage(TINY)
    stage.backing.put(*numbered(0, 12))
    fetched = stage.backing.get(1)
    stage.backing.requeue(*(each.tags for each in fetched))
    again, ready = (stage.queue.status(SequenceId(number)) for number in (0, 1))
    assert again is not None and ready is not None
    assert (again.is_delivered, ready.is_delivered) == (True, False)
    assert (again.msg, ready.msg) == tuple(numbered(0, 2))
    stage.queue.subqueues.push_alphas_to_betas(12, 12)
    paged = stage.queue.status(SequenceId(1))
    assert paged is not None
    assert (paged.msg, paged.index_on_disk, paged.residence) == (None, True, Residence.GAMMA)
    stage.stop_and_open()
    first, last = (stage.queue.status(SequenceId(number)) for number in (0, 11))
    assert first is not None and last is not None
    assert (first.msg, first.residence, first.is_delivered) == (None, Residence.GAMMA, True)
    assert (last.msg, last.residence, last.is_delivered) == (None, Residence.DELTA, False)


# -- starting again ------------------------------------------------------------------------------------------------


def test_vq_15_what_a_start_finds_comes_through_q3() -> None:
    """VQ-10, VQ-15, VQ-25: after a restart everything is delta, and the first of it is read into q3, not q4."""
    stage = VariableStage(TINY)
    for first in range(0, 12, 3):
        stage.backing.put(*numbered(first, first + 3))
    stage.stop_and_open()
    assert stage.subqueues() == {"q3": [1, 2, 3, 4, 5, 6], "delta": [7, 8, 9, 10, 11, 12]}
    check(stage.queue, is_deep=True)
    assert contents_of(stage.backing.get(12)) == numbered(0, 12)


def test_after_a_clean_stop_only_what_was_delivered_is_flagged() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(0, 6))
    tags = tags_of(stage.backing.get(4))
    stage.backing.ack(one(tags[1]))
    stage.stop_and_open()
    fetched = stage.backing.get(6)
    assert contents_of(fetched) == [b"0000", b"0002", b"0003", b"0004", b"0005"]
    assert flags_of(fetched) == [True, True, True, False, False]


def test_after_a_crash_everything_is_flagged() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(0, 3))
    stage.stop_and_open()
    stage.crash_and_open()
    assert flags_of(stage.backing.get(3)) == [True] * 3


def test_transient_messages_are_gone_after_a_restart_and_their_ids_are_not_in_the_way() -> None:
    stage = VariableStage()
    stage.backing.put(b"a")
    stage.backing.put(b"b", is_persistent=False)
    stage.backing.put(b"c")
    stage.stop_and_open()
    stage.backing.put(b"d")
    assert contents_of(stage.backing.get(9)) == [b"a", b"c", b"d"]
    check(stage.queue, is_deep=True)


def test_counters_are_written_with_every_dequeue_and_every_so_many_runs() -> None:
    stage = VariableStage(replace(TINY, counters_every_runs=3))
    reported = []
    for number in range(7):
        stage.backing.put(b"x")
        if number == 6:
            stage.backing.get(1)
            stage.backing.ack((0, 1))
        if stage.index.rows[PLACE.queue, counters_key(0)][1] == stage.index.epoch:
            reported.append(number)
    assert reported == [2, 5, 6]


def test_what_a_start_finds_is_right_though_the_counters_are_old() -> None:
    stage = VariableStage(replace(TINY, counters_every_runs=100))
    for number in range(10):
        stage.backing.put(*numbered(number, number + 1))
    stage.crash_and_open()
    assert (len(stage.queue), stage.queue.ready_bytes) == (10, 40)


# -- damage and aborts -----------------------------------------------------------------------------------------------


def test_damage_is_reported_and_what_can_be_read_is_served() -> None:
    stage = VariableStage(TINY)
    for number in range(4):
        stage.backing.put(*numbered(number, number + 1))
    stage.queue.subqueues.push_alphas_to_betas(0, 4)
    stage.index.damaged.add((PLACE.queue, 2))
    assert contents_of(stage.backing.get(4)) == numbered(0, 2)
    with pytest.raises(Damage):
        stage.queue.fetch(1)
    assert stage.queue.drop(1, DequeueReason.REJECTED, stage.begin()) == 1
    assert contents_of(stage.queue.fetch(4)) == [b"0003"]


def test_runs_that_delta_cannot_find_are_counted_and_the_others_served() -> None:
    stage = VariableStage(TINY)
    for number in range(8):
        stage.backing.put(*numbered(number, number + 1))
    stage.queue.subqueues.push_alphas_to_betas(0, 8)
    stage.queue.subqueues.push_betas_to_deltas(7)
    stage.index.damaged.add((PLACE.queue, 5))
    assert contents_of(stage.queue.fetch(8)) == [*numbered(0, 5), *numbered(6, 8)]
    assert (stage.queue.facts()["missing"], len(stage.queue), stage.queue.index_counters.count) == (1, 0, 8)


def test_a_run_that_could_not_be_read_is_there_again_when_it_can_be() -> None:
    """Also if everything else was acknowledged meanwhile, and the queue was started again in between."""
    stage = VariableStage(TINY)
    for number in range(8):
        stage.backing.put(*numbered(number, number + 1))
    stage.index.damaged.add((PLACE.queue, 5))
    for _ in range(2):
        queue = stage.stop_and_open()
        batch = stage.begin()
        queue.ack([fetched.tags for fetched in queue.fetch(8)], DequeueReason.ACKED, batch)
        batch.end()
        assert (len(queue), queue.facts()["missing"]) == (0, 1)
    stage.index.damaged.clear()
    queue = stage.stop_and_open()
    assert (len(queue), queue.facts()["missing"]) == (1, 0)
    assert contents_of(queue.fetch(8)) == numbered(5, 6)


def test_what_was_published_by_aborted_changes_never_was() -> None:
    stage = VariableStage(TINY)
    stage.backing.put(*numbered(0, 3))
    batch = stage.begin()
    stage.queue.publish(Publication(numbered(3, 12)), batch)
    stage.queue.publish(Publication(numbered(12, 14), is_persistent=False), batch)
    batch.abort()
    check(stage.queue)
    assert (len(stage.queue), stage.queue.ready_bytes) == (3, 12)
    stage.backing.put(*numbered(3, 5))
    stage.crash_and_open()
    assert contents_of(stage.backing.get(9)) == numbered(0, 5)


def test_what_was_acknowledged_by_aborted_changes_is_pending_again() -> None:
    stage = VariableStage(TINY)
    stage.backing.put(*numbered(0, 9))
    tags = tags_of(stage.backing.get(6))
    stage.backing.ack(one(tags[2]))
    batch = stage.begin()
    stage.queue.ack([one(tags[1]), one(tags[3])], DequeueReason.ACKED, batch)
    stage.queue.publish(Publication(numbered(9, 12)), batch)
    stage.queue.ack([one(tags[0])], DequeueReason.REJECTED, batch)
    batch.abort()
    check(stage.queue)
    assert (len(stage.queue), stage.queue.pending_count) == (3, 5)
    for tag in (tags[0], tags[1], tags[3]):
        stage.backing.ack(one(tag))
    check(stage.queue)
    stage.crash_and_open()
    assert contents_of(stage.backing.get(9)) == numbered(4, 9)


def test_transient_messages_that_were_acknowledged_together_with_others_cannot_be_brought_back() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(0, 1))
    batch = stage.begin()
    stage.queue.publish(Publication(numbered(1, 2), is_persistent=False), batch)
    batch.end()
    stage.backing.get(1)
    stage.backing.get(1)
    batch = stage.begin()
    stage.queue.ack([(0, 2)], DequeueReason.ACKED, batch)
    batch.abort()
    assert stage.queue.has_diverged


def test_a_queue_whose_drop_was_not_written_refuses_to_continue() -> None:
    stage = VariableStage()
    stage.backing.put(*numbered(0, 3))
    tags = tags_of(stage.backing.get(2))
    batch = stage.begin()
    stage.queue.drop(1, DequeueReason.OVER_LIMIT, batch)
    batch.abort()
    for call in (
        lambda: stage.queue.fetch(1),
        lambda: stage.queue.publish(Publication([b"x"]), stage.begin()),
        lambda: stage.queue.ack([one(tags[1])], DequeueReason.ACKED, stage.begin()),
        lambda: stage.queue.requeue([one(tags[1])], stage.begin()),
        lambda: stage.queue.drop(1, DequeueReason.ACKED, stage.begin()),
        lambda: stage.queue.purge(stage.begin()),
    ):
        with pytest.raises(Refused, match="open the queue again"):
            call()
    stage.open()
    assert contents_of(stage.backing.get(9)) == numbered(0, 3)


def test_a_wrong_tag_leaves_the_changes_empty() -> None:
    stage = VariableStage()
    stage.backing.put(b"a")
    batch = stage.begin()
    with pytest.raises(Misuse):
        stage.queue.ack([(5, 6)], DequeueReason.ACKED, batch)
    assert batch.end() == 0


def test_garbage_is_reported_when_it_is_garbage() -> None:
    stage = VariableStage()
    reported: list[tuple[int, int, bool]] = []
    stage.note_dead = lambda run, size_bytes, is_all: reported.append((run.first, size_bytes, is_all))
    stage.open()
    stage.backing.put(*numbered(0, 4))
    stage.backing.get(4)
    batch = stage.begin()
    stage.queue.ack([(0, 3)], DequeueReason.ACKED, batch)
    assert reported == []
    batch.end()
    stage.backing.ack((3, 4))
    assert reported == [(0, 12, False), (0, 4, True)]
