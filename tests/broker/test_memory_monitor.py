"""One watermark for all queues: on tiny numbers with queues that only count, and over real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tests.broker.stage import BrokerStage
from warren.base.ids import QueueId
from warren.base.threads import SystemThreads
from warren.broker.memory_monitor import MemoryMonitor, Paged
from warren.queues.settings import VariableQueueSettings

MESSAGE_BYTES = 10


class CountingQueue:
    """So many messages in memory, at such a rate. Is a `Paged`."""

    def __init__(self, number: int, rate: float, step: int = 3) -> None:
        self.id = QueueId(number)
        self.rate = rate
        self.step = step
        self.count = 0
        self.unpageable = 0  # unacknowledged: cannot be paged
        self.targets: list[float | None] = []
        self.monitor: MemoryMonitor | None = None

    def put(self, count: int) -> None:
        self.count += count
        self._report()

    def ram_duration(self) -> float:
        return self.count / self.rate if self.rate else math.inf

    def set_target(self, seconds: float | None) -> None:
        self.targets.append(seconds)

    def page(self) -> bool:
        before = self.count
        self.count = max(self.count - self.step, self._capacity, self.unpageable)
        self._report()
        return self.count < before and self.count > self._capacity

    @property
    def _capacity(self) -> int:
        target = self.targets[-1] if self.targets else None
        return self.count if target is None else int(target * self.rate)

    def _report(self) -> None:
        assert self.monitor is not None
        self.monitor.set_used(self.id, self.count * MESSAGE_BYTES)


def monitored(limit_bytes: int, *queues: CountingQueue) -> MemoryMonitor:
    def every() -> Sequence[Paged]:
        return queues

    monitor = MemoryMonitor(SystemThreads(), limit_bytes, every)
    for each in queues:
        each.monitor = monitor
    return monitor


def test_below_the_limit_no_target_is_set() -> None:
    queue = CountingQueue(1, rate=1.0)
    monitor = monitored(1000, queue)
    queue.put(100)
    monitor.relieve()
    assert (monitor.used_bytes, monitor.is_over, queue.targets) == (1000, False, [])


def test_all_get_the_mean_of_their_durations_times_limit_by_used() -> None:
    busy, slow = CountingQueue(1, rate=10.0), CountingQueue(2, rate=1.0)
    monitor = monitored(1000, busy, slow)
    busy.put(100)  # lasts 10 s
    slow.put(30)  # lasts 30 s
    monitor.relieve()
    assert busy.targets[0] == slow.targets[0] == pytest.approx(20 * 1000 / 1300)
    assert slow.count < 30  # it holds more than its share
    assert busy.count > 80
    assert 900 <= monitor.used_bytes <= 1000


def test_a_queue_at_rest_counts_and_is_paged_first() -> None:
    busy, resting = CountingQueue(1, rate=10.0), CountingQueue(2, rate=0.0)
    monitor = monitored(1000, busy, resting)
    resting.put(50)
    busy.put(60)
    monitor.relieve()
    assert (busy.count, resting.count) == (60, 35)


def test_queues_that_all_rest_are_paged_no_more_than_necessary() -> None:
    queues = [CountingQueue(number, rate=0.0) for number in range(10)]
    monitor = monitored(1000, *queues)
    for each in queues:
        each.put(20)
    monitor.relieve()
    assert 900 <= monitor.used_bytes <= 1000


def test_a_thousand_queues_stay_within_a_tenth_of_the_watermark() -> None:
    queues = [CountingQueue(number, rate=(number % 7) / 3) for number in range(1000)]
    monitor = monitored(100_000, *queues)
    for batch in range(30):
        for number, each in enumerate(queues):
            each.put((number * 31 + batch * 17) % 23)
            monitor.relieve()
            assert monitor.used_bytes <= 110_000
        if batch > 3:
            assert monitor.used_bytes >= 90_000


def test_what_cannot_be_paged_is_not_tried_again_and_again() -> None:
    queue = CountingQueue(1, rate=1.0)
    monitor = monitored(100, queue)
    queue.unpageable = 50
    queue.put(50)
    monitor.relieve()
    targets = len(queue.targets)
    monitor.relieve()
    assert (queue.count, len(queue.targets)) == (50, targets)
    queue.unpageable = 0
    monitor.tick()
    assert queue.count <= 10


def test_the_target_is_lifted_when_there_is_room_again() -> None:
    queue = CountingQueue(1, rate=1.0)
    monitor = monitored(1000, queue)
    queue.put(150)
    monitor.relieve()
    assert queue.targets[-1] is not None
    monitor.tick()
    assert queue.targets[-1] is not None
    queue.put(-60)
    monitor.tick()
    assert queue.targets[-1] is monitor.target is None


def test_a_queue_that_is_gone_takes_nothing() -> None:
    queue = CountingQueue(1, rate=1.0)
    monitor = monitored(1000, queue)
    queue.put(50)
    monitor.forget(queue.id)
    monitor.forget(QueueId(99))
    assert monitor.used_bytes == 0


# -- over real queues ------------------------------------------------------------------------------------------------

TINY = VariableQueueSettings(page_messages_max=10, beta_messages_max=20, delta_read_messages=20, run_messages_max=16)


def test_publishing_pages_and_nothing_is_lost() -> None:
    stage = BrokerStage(memory_watermark_bytes=20_000)
    stage.of_queues = TINY
    stage.up()
    names = [f"queue {number}" for number in range(5)]
    for name in names:
        stage.queue(name)
    sent: dict[str, list[bytes]] = {name: [] for name in names}
    for batch in range(40):
        for name in names:
            contents = [b"%s %03d %02d " % (name.encode(), batch, at) * 2 for at in range(10)]
            stage.put(*contents, to=name)
            sent[name] += contents
            assert stage.vhost.monitor.used_bytes <= 22_000
        stage.clock.advance_ns(100_000_000)
    assert stage.vhost.monitor.used_bytes >= 18_000
    for name in names:
        bodies_read: list[bytes] = []
        while some := stage.get(name, 30):
            bodies_read += some
        assert bodies_read == sent[name]
    stage.down()


def test_one_huge_put_is_bounded_too() -> None:
    stage = BrokerStage(memory_watermark_bytes=20_000)
    stage.of_queues = TINY
    stage.up()
    stage.queue("huge")
    stage.put(*(b"%06d" % number for number in range(20_000)), to="huge")
    assert stage.vhost.monitor.used_bytes <= 22_000
    assert stage.get("huge", 20_000) == [b"%06d" % number for number in range(20_000)]
    stage.down()
