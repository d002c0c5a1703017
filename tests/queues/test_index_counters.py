"""Counters of a queue: what is on disk, and what a start reads."""

from __future__ import annotations

from tests.queues.backing_stage import one, tags_of
from tests.queues.variable_stage import PLACE, VariableStage
from warren.base.ids import SequenceId
from warren.queue_index.row_format import ack_key, counters_key, decode_counters, run_key


def rows(stage: VariableStage) -> set[bytes]:
    return {key for (_, key) in stage.index.rows if key != counters_key(0)}


def test_a_run_goes_with_the_last_of_its_messages() -> None:
    stage = VariableStage()
    stage.backing.put(b"a", b"b", b"c")
    tags = tags_of(stage.backing.get(3))
    stage.backing.ack(one(tags[1]))
    assert rows(stage) == {run_key(0, 0), ack_key(0, 0)}
    stage.backing.ack(one(tags[0]))
    assert dict(stage.queue.index_counters) == {0: 0b011}
    stage.backing.ack(one(tags[2]))
    assert (rows(stage), dict(stage.queue.index_counters)) == (set(), {})


def test_a_run_that_goes_whole_never_has_a_row_of_what_is_gone() -> None:
    stage = VariableStage()
    stage.backing.put(b"a", b"b", b"c")
    (fetched,) = stage.backing.get(3)
    before = stage.index.epoch
    stage.backing.ack(fetched.tags)
    assert (stage.index.epoch, rows(stage)) == (before + 1, set())


def test_what_is_gone_is_known_after_a_start() -> None:
    stage = VariableStage()
    stage.backing.put(*(b"%d" % number for number in range(6)))
    tags = tags_of(stage.backing.get(6))
    stage.backing.ack(one(tags[1]), one(tags[4]))
    stage.stop_and_open()
    stage.backing.get(6)
    stage.backing.ack(one(0), (2, 4), one(5))
    assert rows(stage) == set()


def test_the_head_is_the_run_of_the_first_message_that_is_there() -> None:
    stage = VariableStage()
    for first in (0, 3, 6):
        stage.backing.put(*(b"%d" % number for number in range(first, first + 3)))
    stage.backing.get(7)
    for acked, head in (((0, 2), 0), ((2, 4), 3), ((6, 7), 3), ((4, 6), 6)):
        stage.backing.ack(acked)
        counters = decode_counters(PLACE, stage.index.rows[PLACE.queue, counters_key(0)][0])
        assert (counters.head, counters.next, counters.delivered_to, counters.is_clean) == (head, 9, 7, False)
    assert (counters.count, counters.size_bytes) == (2, 2)
    stage.backing.drop(2)
    counters = stage.queue.index_counters.counters(None, is_clean=True)
    assert (counters.head, counters.count, counters.is_clean) == (SequenceId(9), 0, True)
