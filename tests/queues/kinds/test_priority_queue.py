"""A queue with priorities, made of queues without (BQ-05, BQ-06)."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.queues.backing_stage import BackingStage, changes_to_nowhere, contents_of, one, tags_of
from tests.queues.levels_machine import LevelsMachine
from tests.queues.proxy_kinds import LEVELS, VariableQueues
from warren.base.errors import Misuse
from warren.base.messages import Publication
from warren.queues.backing_queue import LEVEL_SHIFT
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.kinds.priority_queue import PriorityQueue


class PagedLevel(MemoryQueue):
    """A memory queue that records calls about memory, and has paging steps to do."""

    def __init__(self, name: str, log: list[str], steps: int = 0, seconds: float = math.inf) -> None:
        super().__init__()
        self.name, self.log, self.steps, self.seconds = name, log, steps, seconds

    def set_ram_duration_target(self, seconds: float | None) -> None:
        self.log.append(f"{self.name} target {seconds}")

    def ram_duration(self) -> float:
        return self.seconds

    def page(self) -> bool:
        if not self.steps:
            return False
        self.log.append(f"{self.name} pages")
        self.steps -= 1
        return bool(self.steps)


def priorities(*published: tuple[bytes, int], levels: int = 3) -> BackingStage:
    stage = BackingStage(PriorityQueue([MemoryQueue() for _ in range(levels)]))
    for content, priority in published:
        stage.queue.publish(Publication([content], priority=priority), changes_to_nowhere())
    return stage


def test_bq_06_the_highest_priority_comes_first_and_within_one_the_oldest() -> None:
    stage = priorities((b"low", 0), (b"high", 2), (b"middle", 1), (b"high too", 2), (b"low too", 0))
    assert stage.browsed() == [b"high", b"high too", b"middle", b"low", b"low too"]
    assert [contents_of(stage.get(1)) for _ in range(2)] == [[b"high"], [b"high too"]]
    assert contents_of(stage.get(9)) == [b"middle", b"low", b"low too"]


def test_a_priority_above_the_highest_level_counts_as_the_highest() -> None:
    stage = priorities((b"two", 2), (b"two hundred", 200))
    assert stage.queue.facts()["ready_at_2"] == 2


def test_bq_05_a_call_about_tags_goes_to_the_levels_they_belong_to() -> None:
    """BQ-05, BQ-06: the proxy intercepts the call, splits it, and defers to what is behind it."""
    levels = [MemoryQueue() for _ in range(3)]
    stage = BackingStage(PriorityQueue(levels))
    for priority in (0, 2, 2, 0):
        stage.queue.publish(Publication([b"%d" % priority], priority=priority), changes_to_nowhere())
    tags = tags_of(stage.get(9))
    assert [tag >> LEVEL_SHIFT for tag in tags] == [2, 2, 0, 0]
    assert [level.pending_count for level in levels] == [2, 0, 2]
    assert stage.ack(one(tags[3]), one(tags[0])) == 2
    assert [level.pending_count for level in levels] == [1, 0, 1]
    assert [slice_.contents for slice_ in stage.queue.read_pending([one(tags[2]), one(tags[1])])] == [[b"0"], [b"2"]]
    assert stage.requeue(one(tags[2]), one(tags[1])) == 2
    assert [len(level) for level in levels] == [1, 0, 1]


def test_a_wrong_tag_of_one_level_leaves_the_others_as_they_were() -> None:
    stage = priorities((b"low", 0), (b"high", 2))
    tags = tags_of(stage.get(2))
    for wrong in (one(1 << LEVEL_SHIFT), one(7 << LEVEL_SHIFT), (tags[1], tags[0] + 1), one(-1)):
        with pytest.raises(Misuse):
            stage.ack(one(tags[0]), wrong)
        with pytest.raises(Misuse):
            stage.queue.read_pending([one(tags[0]), wrong])
        assert stage.queue.pending_count == 2
    assert stage.ack(*map(one, tags)) == 2


def test_a_limit_of_bytes_holds_across_levels() -> None:
    stage = priorities((b"low" * 4, 0), (b"high", 2), (b"", 1), (b"middle", 1))
    assert contents_of(stage.get(9, bytes_max=10)) == [b"high", b"", b"middle"]
    assert contents_of(stage.get(9, bytes_max=1)) == [b"low" * 4]


def test_a_limit_of_bytes_is_not_passed_by_a_smaller_message_of_a_lower_level() -> None:
    stage = priorities((b"x", 0), (b"high", 2), (b"h" * 50, 2))
    assert contents_of(stage.get(9, bytes_max=10)) == [b"high"]


def test_dropping_takes_what_would_be_delivered_next() -> None:
    """As RabbitMQ does: over the limit a queue loses its highest priorities first."""
    stage = priorities((b"low", 0), (b"high", 2), (b"middle", 1))
    head = stage.queue.head()
    assert head is not None and head.size_bytes == len(b"high")
    assert stage.drop(2) == 2
    assert stage.browsed() == [b"low"]


def test_each_level_shows_its_head_when_it_is_reached() -> None:
    """What has expired is judged there: an expired message of a low level waits behind a higher one that has not."""
    stage = priorities()
    queue = stage.queue
    for priority, expires_ms in ((0, 5), (2, 50), (0, 0)):
        queue.publish(Publication([b"x"], expires_ms=expires_ms, priority=priority), changes_to_nowhere())
    seen = []
    while (head := queue.head()) is not None:
        seen.append(head.run.expires_ms)
        stage.drop(1)
    assert seen == [50, 5, 0]


def test_a_browser_stops_when_any_level_changes() -> None:
    stage = priorities((b"low", 0), (b"high", 2))
    seen = []
    for slice_ in stage.queue.browse():
        seen.append(slice_.contents)
        stage.queue.publish(Publication([b"middle"], priority=1), changes_to_nowhere())
    assert seen == [[b"high"]]


def test_every_level_gets_the_target_and_the_lowest_is_paged_first() -> None:
    log: list[str] = []
    queue = PriorityQueue([PagedLevel(name, log, steps) for name, steps in (("low", 2), ("middle", 0), ("high", 2))])
    queue.set_ram_duration_target(3.0)
    assert log == ["low target 3.0", "middle target 3.0", "high target 3.0"]
    log.clear()
    while queue.page():
        pass
    assert log == ["low pages", "low pages", "high pages", "high pages"]


def test_the_duration_is_that_of_all_levels_at_the_rates_of_all() -> None:
    """100 bytes at 50 a second and 300 at 100 a second: 400 bytes at 150 a second."""
    levels = [PagedLevel("low", [], seconds=2.0), PagedLevel("rests", []), PagedLevel("high", [], seconds=3.0)]
    queue = PriorityQueue(levels)
    assert queue.ram_duration() == 2.0, "nothing is in memory: the shortest"
    queue.publish(Publication([b"x" * 100]), changes_to_nowhere())
    queue.publish(Publication([b"x" * 300], priority=2), changes_to_nowhere())
    assert queue.ram_duration() == pytest.approx(400 / 150)
    levels[0].seconds = 0.0
    assert queue.ram_duration() == 0.0
    levels[0].seconds = levels[2].seconds = math.inf
    assert queue.ram_duration() == math.inf


def test_a_queue_has_at_least_one_level_and_at_most_256() -> None:
    for count in (0, 257):
        with pytest.raises(Misuse, match=f"not {count}"):
            PriorityQueue([MemoryQueue()] * count)


class PriorityMachine(LevelsMachine):
    levels = 3

    def make(self) -> BackingStage:
        return BackingStage(PriorityQueue([MemoryQueue() for _ in range(3)]))


class PriorityOfVariableMachine(PriorityMachine):
    """In the log, paged after each call, and opened again after a crash."""

    def make(self) -> BackingStage:
        self.below = VariableQueues(LEVELS)
        return self._opened()

    def _opened(self) -> BackingStage:
        priority = PriorityQueue(self.below.queues)
        priority.set_ram_duration_target(0.0)
        return BackingStage(priority, self.below.index.begin, self.below.after)

    @rule()
    def crash_and_open(self) -> None:
        self.below.open()
        self.stage = self._opened()
        self.model.crash()
        self.pending = {}


@pytest.mark.parametrize("machine", [PriorityMachine, PriorityOfVariableMachine])
def test_bq_06_priorities_equal_a_list_for_each_level(machine: type[PriorityMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
