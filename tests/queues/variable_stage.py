"""A variable queue over plain stores, with short words for what the seed's examples do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.queues.backing_stage import BackingStage
from tests.queues.plain_index import PlainIndex, PlainStore, PlainTransientStore
from warren.base.ids import QueueId
from warren.base.messages import QueuePlace, Slice
from warren.queue_index.batch import IndexBatch
from warren.queues.contents import NoteDead, Stores
from warren.queues.invariants import check
from warren.queues.settings import VariableQueueSettings
from warren.queues.variable_queue import VariableQueue
from warren.testing.fakes import ManualClock

PLACE = QueuePlace(QueueId(7))
SECOND_NS = 1_000_000_000
TINY = VariableQueueSettings(
    queue_index_embed_msgs_below=32,
    run_messages_max=6,
    run_bytes_max=200,
    page_messages_max=5,
    beta_messages_max=4,
    delta_read_messages=4,
    read_ahead_bytes_max=24,
    counters_every_runs=3,
)


@dataclass
class VariableStage:
    settings: VariableQueueSettings = field(default_factory=VariableQueueSettings)
    is_durable: bool = True
    is_prompt: bool = True
    is_persistent: bool = True  # what is put by tests that put both kinds
    lags: bool = False  # the index shows what is durable only when it is applied

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.index = PlainIndex(self.clock, self.is_prompt, self.lags)
        self.large = PlainStore()
        self.note_dead: NoteDead = lambda run, size_bytes, is_all: None
        self.open()

    def open(self) -> VariableQueue:
        """Start, over what is on disk."""
        self.transient = PlainTransientStore()
        index = self.index
        index.apply()
        stores = Stores(
            index,
            self.large,
            self.transient,
            lambda: index.durable_epoch,
            lambda: index.applied_epoch if self.lags else index.durable_epoch,
            self.note_dead,
        )
        self.queue = VariableQueue(PLACE, self.is_durable, stores, self.clock, self.settings)
        self.backing = BackingStage(self.queue, self.index.begin, lambda: check(self.queue))
        batch = self.index.begin()
        self.queue.resume(batch)
        batch.end()
        self.index.settle()
        return self.queue

    def stop_and_open(self) -> VariableQueue:
        batch = self.index.begin()
        self.queue.stop(batch)
        batch.end()
        self.index.settle()
        return self.open()

    def crash_and_open(self) -> VariableQueue:
        self.index.crash()
        return self.open()

    def begin(self) -> IndexBatch:
        return self.index.begin()

    # -- inspection ------------------------------------------------------------------------------------------------

    def subqueues(self) -> dict[str, list[int]]:
        """Sequence ids in each subqueue that has any, counted from one as the seed does."""
        subqueues = self.queue.subqueues
        delta = [slice_ for some in subqueues.delta.walk(1000) for slice_ in some]
        found = {
            "q4": _ids(list(subqueues.q4)),
            "q3": _ids(list(subqueues.q3)),
            "delta": _ids(delta),
            "q2": _ids(list(subqueues.q2)),
            "q1": _ids(list(subqueues.q1)),
        }
        return {name: ids for name, ids in found.items() if ids}


def _ids(slices: list[Slice]) -> list[int]:
    return [number + 1 for slice_ in slices for number in range(slice_.first, slice_.end)]
