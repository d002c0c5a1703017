"""Subqueues as plain dicts: what an index over them must return."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.base.ids import SequenceId
from warren.base.messages import QueuePlace, Run
from warren.queue_index.row_format import Counters


@dataclass(slots=True)
class RunState:
    """A run that is there, and what its queue knows of it."""

    run: Run
    contents: list[bytes]
    gone: int = 0

    def sizes(self) -> list[int]:
        return [len(content) for at, content in enumerate(self.contents) if not self.gone >> at & 1]


@dataclass(slots=True)
class Queue:
    """A sub-queue as it should be."""

    next: int = 0
    runs: dict[int, RunState] = field(default_factory=dict)
    written: Counters | None = None

    def messages(self) -> dict[int, bytes]:
        return {
            first + at: content
            for first, state in sorted(self.runs.items())
            for at, content in enumerate(state.contents)
            if not state.gone >> at & 1
        }

    def counters(self, delivered_to: int, is_clean: bool) -> Counters:
        sizes = [size for state in self.runs.values() for size in state.sizes()]
        head = min(self.messages(), default=self.next)
        return Counters(
            SequenceId(self.next), SequenceId(head), len(sizes), sum(sizes), SequenceId(delivered_to), is_clean
        )


Model = dict[QueuePlace, Queue]


def copied(model: Model) -> Model:
    """Runs stay the ones that changes have set the epoch of."""
    return {
        place: Queue(
            queue.next,
            {first: RunState(state.run, state.contents, state.gone) for first, state in queue.runs.items()},
            queue.written,
        )
        for place, queue in model.items()
    }


def recovered(queue: Queue) -> Counters:
    """What a start should find: the counters, and the runs behind them."""
    written = queue.written or Counters()
    later = [state for first, state in queue.runs.items() if first >= written.next]
    end = max([written.next, *(state.run.end for state in later)])
    count = written.count + sum(len(state.sizes()) for state in later)
    head = written.head if written.count or not later else min(queue.messages())
    is_clean = written.is_clean and not later
    delivered_to = written.delivered_to if is_clean else end
    size_bytes = written.size_bytes + sum(size for state in later for size in state.sizes())
    return Counters(SequenceId(end), SequenceId(head), count, size_bytes, SequenceId(delivered_to), is_clean)
