"""Anything may happen to a queue, in any order: the variable queue does what the plain one does.

Every message has contents of its own, so a message is known by them. Epochs become durable when a rule says so; a crash
leaves what some epoch from the last durable one on had left. What must always be true is checked after every rule.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.queues.backing_stage import changes_to_nowhere, one
from warren.base.ids import Epoch
from warren.base.messages import Publication
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import Fetched, TagRange
from warren.queues.invariants import check
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.variable_queue import VariableQueue

SIZES = (8, 9, 31, 32, 33, 90, 260)  # around the limits of the tiny settings
COUNTS = st.integers(0, 12)
QUOTAS = st.integers(0, 8)
PICKS = st.lists(st.integers(0, 40), max_size=5, unique=True)
PUBLICATIONS = st.lists(st.sampled_from(SIZES), min_size=1, max_size=9)


class Stage(Protocol):
    queue: VariableQueue

    def begin(self) -> IndexBatch: ...

    def durable_epoch(self) -> Epoch: ...

    def settle(self) -> None: ...

    def stop_and_open(self) -> VariableQueue: ...

    def crash_and_open(self) -> VariableQueue: ...

    def pass_time(self) -> None: ...

    def close(self) -> None: ...


class QueueMachine(RuleBasedStateMachine):
    stage_of: ClassVar[type]

    def __init__(self) -> None:
        super().__init__()
        self.stage: Stage = self.stage_of()
        self.model = MemoryQueue()
        self.serial = 0
        self.pending: dict[bytes, tuple[int, int]] = {}  # contents → tags, of the queue and of the model
        self.alive: dict[bytes, bool] = {}  # every message that is not gone → is it persistent?
        self.delivered: set[bytes] = set()
        self.images: dict[Epoch, list[bytes]] = {self.stage.durable_epoch(): []}  # persistent ones, after each epoch

    def teardown(self) -> None:
        self.stage.close()

    @property
    def queue(self) -> VariableQueue:
        return self.stage.queue

    # -- messages --------------------------------------------------------------------------------------------------

    @rule(sizes=PUBLICATIONS, is_persistent=st.booleans(), fan_out=st.sampled_from([1, 1, 1, 2]))
    def publish(self, sizes: list[int], is_persistent: bool, fan_out: int) -> None:
        batch = self.stage.begin()
        self._publish(sizes, is_persistent, batch, fan_out)
        self._end(batch)

    @rule(sizes=PUBLICATIONS, is_persistent=st.booleans())
    def publish_and_abort(self, sizes: list[int], is_persistent: bool) -> None:
        batch = self.stage.begin()
        self.queue.publish(Publication(self._contents(sizes), is_persistent), batch)
        batch.abort()

    @rule(count=COUNTS, bytes_max=st.sampled_from([None, None, 0, 20, 100]))
    def fetch(self, count: int, bytes_max: int | None) -> None:
        self._fetch(count, bytes_max)

    @rule(picks=PICKS)
    def ack(self, picks: list[int]) -> None:
        batch = self.stage.begin()
        self._ack(picks, batch)
        self._end(batch)

    @rule()
    def ack_everything(self) -> None:
        batch = self.stage.begin()
        self._ack(list(range(len(self.pending))), batch)
        self._end(batch)

    @rule(picks=PICKS)
    def requeue(self, picks: list[int]) -> None:
        self._requeue(self._chosen(picks))

    @rule(steps=st.integers(2, 4), quotas=st.tuples(QUOTAS, QUOTAS))
    def requeue_around_paging(self, steps: int, quotas: tuple[int, int]) -> None:
        """Some of what is pending, then page, then others that stood between."""
        waiting = list(self.pending)
        for start in range(steps):
            self._requeue(waiting[start::steps])
            check(self.queue)
            self.queue.subqueues.push_alphas_to_betas(8, 8 * quotas[0])
            self.queue.subqueues.push_betas_to_deltas(quotas[1])
            check(self.queue)

    def _requeue(self, chosen: list[bytes]) -> None:
        batch = self.stage.begin()
        ours, theirs = self._tags(chosen)
        assert self.queue.requeue(ours, batch) == self.model.requeue(theirs, changes_to_nowhere())
        self._end(batch)
        for content in chosen:
            del self.pending[content]

    @rule(count=COUNTS)
    def drop(self, count: int) -> None:
        batch = self.stage.begin()
        ahead = self._ready()[:count]
        dropped = self.queue.drop(count, DequeueReason.OVER_LIMIT, batch)
        assert dropped == self.model.drop(count, DequeueReason.OVER_LIMIT, changes_to_nowhere()) == len(ahead)
        self._gone(ahead)
        self._end(batch)

    @rule()
    @precondition(lambda self: self.serial % 5 == 0)
    def purge(self) -> None:
        batch = self.stage.begin()
        ahead = self._ready()
        assert self.queue.purge(batch) == self.model.purge(changes_to_nowhere()) == len(ahead)
        self._gone(ahead)
        self._end(batch)

    @rule(sizes=PUBLICATIONS, is_persistent=st.booleans(), count=COUNTS, picks=PICKS)
    def all_in_one_session(self, sizes: list[int], is_persistent: bool, count: int, picks: list[int]) -> None:
        batch = self.stage.begin()
        self._publish(sizes, is_persistent, batch)
        self._fetch(count, None)
        self._ack(picks, batch)
        self._publish(sizes, is_persistent, batch)
        self._end(batch)

    @rule()
    def browse(self) -> None:
        browsed = [content for slice_ in self.queue.browse() for content in slice_.contents or []]
        assert browsed == self._ready()

    @rule(picks=PICKS)
    def read_pending(self, picks: list[int]) -> None:
        chosen = self._chosen(picks)
        ours, _ = self._tags(chosen)
        assert [content for slice_ in self.queue.read_pending(ours) for content in slice_.contents or []] == chosen

    # -- memory and disk -------------------------------------------------------------------------------------------

    @rule(quota_q1=QUOTAS, quota_q4=QUOTAS)
    def push_alphas_to_betas(self, quota_q1: int, quota_q4: int) -> None:
        assert self.queue.subqueues.push_alphas_to_betas(quota_q1, quota_q4) <= quota_q1 + quota_q4

    @rule(quota=QUOTAS)
    def push_betas_to_deltas(self, quota: int) -> None:
        assert self.queue.subqueues.push_betas_to_deltas(quota) <= quota

    @rule()
    def page_everything(self) -> None:
        self.stage.settle()
        self.queue.set_ram_duration_target(0.0)
        while self.queue.page():
            check(self.queue)
        assert self.queue.subqueues.ram_count + self.queue.pending.ram_count == 0

    @rule(seconds=st.sampled_from([None, 0.0, 0.5, 3.0]))
    def set_target(self, seconds: float | None) -> None:
        self.queue.set_ram_duration_target(seconds)

    @rule()
    def page(self) -> None:
        self.queue.page()

    @rule()
    def pass_time(self) -> None:
        self.stage.pass_time()

    @rule()
    def settle(self) -> None:
        self.stage.settle()
        check(self.queue, is_deep=True)

    # -- ends and beginnings ---------------------------------------------------------------------------------------

    @rule()
    def stop_and_open(self) -> None:
        survivors = [content for content, is_persistent in self.alive.items() if is_persistent]
        self.stage.stop_and_open()
        self._begin_again(survivors, self.delivered)

    @rule()
    def crash_and_open(self) -> None:
        durable = self.stage.durable_epoch()
        self.stage.crash_and_open()
        found = [content for slice_ in self.queue.browse() for content in slice_.contents or []]
        oldest = max((epoch for epoch in self.images if epoch <= durable), default=durable)  # cleaning has its own
        possible = [image for epoch, image in self.images.items() if epoch >= oldest]
        assert found in possible, f"{found} is what no epoch from {durable} on has left: {possible}"
        self._begin_again(found, set(found))

    def _begin_again(self, survivors: list[bytes], delivered: set[bytes]) -> None:
        """The model anew: what was delivered before stands in front, and was fetched and requeued."""
        self.model, nowhere = MemoryQueue(), changes_to_nowhere()
        self.alive = dict.fromkeys(survivors, True)
        self.pending = {}
        self.delivered = delivered & set(survivors)
        self.images = {self.stage.durable_epoch(): list(survivors)}
        self.model.publish(Publication(survivors), nowhere)
        self.model.requeue([fetched.tags for fetched in self.model.fetch(len(self.delivered))], nowhere)

    # -- what must be true -----------------------------------------------------------------------------------------

    @invariant()
    def is_as_it_should_be(self) -> None:
        check(self.queue)
        queue, model = self.queue, self.model
        assert (len(queue), queue.ready_bytes, queue.pending_count) == (
            len(model),
            model.ready_bytes,
            model.pending_count,
        )
        reported, plain = queue.sizes(), model.sizes()
        assert (reported.pending_bytes, reported.persistent, reported.persistent_bytes) == (
            plain.pending_bytes,
            plain.persistent,
            plain.persistent_bytes,
        )
        assert reported.ready_ram <= len(queue) and reported.pending_ram <= queue.pending_count
        assert reported.ram_bytes <= queue.ready_bytes + reported.pending_bytes
        heads = queue.head(), model.head()
        assert [head and head.run.size_of(head.start, head.start + 1) for head in heads[:1]] == [
            head and head.size_bytes for head in heads[1:]
        ]

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _contents(self, sizes: list[int]) -> list[bytes]:
        self.serial += len(sizes)
        return [b"%08d" % (self.serial - at) + bytes(size - 8) for at, size in enumerate(reversed(sizes))][::-1]

    def _publish(self, sizes: list[int], is_persistent: bool, batch: IndexBatch, fan_out: int = 1) -> None:
        publication = Publication(self._contents(sizes), is_persistent, fan_out=fan_out)
        self.queue.publish(publication, batch)
        self.model.publish(publication, changes_to_nowhere())
        self.alive.update(dict.fromkeys(publication.contents, is_persistent))

    def _fetch(self, count: int, bytes_max: int | None) -> None:
        ours, theirs = self.queue.fetch(count, bytes_max), self.model.fetch(count, bytes_max)
        assert _flat(ours) == _flat(theirs)
        for (content, _), tag, other in zip(_flat(ours), _tags(ours), _tags(theirs), strict=True):
            self.pending[content] = (tag, other)
            self.delivered.add(content)

    def _ack(self, picks: list[int], batch: IndexBatch) -> None:
        chosen = self._chosen(picks)
        ours, theirs = self._tags(chosen)
        assert self.queue.ack(ours, DequeueReason.ACKED, batch) == self.model.ack(
            theirs, DequeueReason.ACKED, changes_to_nowhere()
        )
        for content in chosen:
            del self.pending[content]
        self._gone(chosen)

    def _chosen(self, picks: list[int]) -> list[bytes]:
        waiting = list(self.pending)
        return [waiting[pick] for pick in picks if pick < len(waiting)]

    def _tags(self, contents: list[bytes]) -> tuple[list[TagRange], list[TagRange]]:
        tags = [self.pending[content] for content in contents]
        return [one(ours) for ours, _ in tags], [one(theirs) for _, theirs in tags]

    def _ready(self) -> list[bytes]:
        return [content for slice_ in self.model.browse() for content in slice_.contents or []]

    def _gone(self, contents: list[bytes]) -> None:
        for content in contents:
            del self.alive[content]

    def _end(self, batch: IndexBatch) -> None:
        epoch = batch.end()
        if epoch:
            self.images[epoch] = [content for content, is_persistent in self.alive.items() if is_persistent]


def _flat(fetched: list[Fetched]) -> list[tuple[bytes, bool]]:
    return [(content, each.is_redelivered) for each in fetched for content in each.slice.contents or []]


def _tags(fetched: list[Fetched]) -> list[int]:
    return [tag for each in fetched for tag in range(*each.tags)]
