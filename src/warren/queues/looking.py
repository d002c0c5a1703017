"""Looking at a queue without changing it: browsing what is ready, and asking about one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from warren.base.ids import SequenceId
from warren.base.runs import QueuePlace, Run, Slice
from warren.queues.contents import ContentReader
from warren.queues.lanes import SubQueues
from warren.queues.pending_acks import PendingAcks
from warren.queues.residence import MessageStatus, PersistTo, status_of

MESSAGES_MAX = 1024  # that are read together


def browse(lanes: SubQueues, reader: ContentReader, is_changed: Callable[[], bool]) -> Iterator[Slice]:
    """What is ready, in order, with contents, until it changes. Contents are read when their turn has come."""
    for slices in _ready(lanes):
        for slice_ in slices:
            for start in range(slice_.start, slice_.stop, MESSAGES_MAX):
                stop, contents = min(slice_.stop, start + MESSAGES_MAX), slice_.contents
                held = None if contents is None else contents[start - slice_.start : stop - slice_.start]
                part = Slice(slice_.run, start, stop, held)
                part.contents = reader.read([part])[0]
                yield part
                if is_changed():
                    return


def status(
    place: QueuePlace,
    sequence_id: SequenceId,
    lanes: SubQueues,
    pending: PendingAcks,
    delivered_to: SequenceId,
    embed_below: int,
) -> MessageStatus | None:
    """All that is known of one message; None if it is gone, or never was."""
    in_memory = chain(lanes, pending)
    found = _holder(in_memory, sequence_id)
    is_in_delta = found is None
    if found is None:
        found = _holder(chain.from_iterable(lanes.delta.walk(MESSAGES_MAX)), sequence_id)
    if found is None:
        return None
    to = _persist_to(found.run, sequence_id, embed_below)
    return status_of(place, found, sequence_id, delivered_to, to, is_in_delta)


def _ready(lanes: SubQueues) -> Iterator[list[Slice]]:
    yield [*lanes.q4, *lanes.q3]
    yield from lanes.delta.walk(MESSAGES_MAX)
    yield [*lanes.q2, *lanes.q1]


def _holder(slices: Iterator[Slice], sequence_id: SequenceId) -> Slice | None:
    return next((slice_ for slice_ in slices if slice_.first <= sequence_id < slice_.end), None)


def _persist_to(run: Run, sequence_id: SequenceId, embed_below: int) -> PersistTo:
    if not run.is_persistent:
        return PersistTo.TRANSIENT_STORE
    index = sequence_id - run.first
    is_large = bool(run.stored) or run.size_of(index, index + 1) >= embed_below
    return PersistTo.MESSAGE_STORE if is_large else PersistTo.QUEUE_INDEX
