"""Invariants of a variable queue between two calls, as one function (upstream's `a/1`, C-04).

Tests and the simulator call it after every change. It reads every slice, so the product does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from warren.base.messages import Slice
from warren.queues.pending_acks import PendingAcks
from warren.queues.subqueues import SubQueue
from warren.queues.variable_queue import VariableQueue


def check(queue: VariableQueue, is_deep: bool = False) -> None:
    """`is_deep`: read delta as well, which needs everything written to be durable."""
    _check_shape(queue)
    _check_order(queue)
    _check_residence(queue)
    _check_counts(queue)
    if is_deep:
        _check_delta(queue)


def _check_shape(queue: VariableQueue) -> None:
    subqueues = queue.subqueues
    assert not subqueues.q1.count or subqueues.q3.count, "q1 may fill only behind q3"
    assert not subqueues.q2.count or subqueues.delta.count, "q2 may fill only behind delta"
    assert not subqueues.delta.count or subqueues.q3.count, "delta never holds the head of the queue"
    assert subqueues.q3.count or subqueues.q4.count or not len(queue), "if q3 and q4 are empty the queue is"
    assert subqueues.delta.start + subqueues.delta.count <= subqueues.delta.end, "delta is too short for what it holds"
    assert not subqueues.delta.missing, "messages are missing from the index"


def _check_order(queue: VariableQueue) -> None:
    """q4 < q3 < delta < q2 < q1, and nothing is ready and pending at once."""
    subqueues = queue.subqueues
    edges = [(slice_.first, slice_.end) for slice_ in (*subqueues.q4, *subqueues.q3)]
    if subqueues.delta.count:
        edges.append((subqueues.delta.start, subqueues.delta.end))
    edges += [(slice_.first, slice_.end) for slice_ in (*subqueues.q2, *subqueues.q1)]
    assert all(first < end for first, end in edges), f"an empty slice: {edges}"
    assert all(before[1] <= after[0] for before, after in pairwise(edges)), f"out of order: {edges}"
    assert not edges or edges[-1][1] <= queue.index_counters.next, "a sequence id that was not given yet"
    both = sorted([*((s.first, s.end) for s in queue.subqueues), *((s.first, s.end) for s in queue.pending)])
    assert all(before[1] <= after[0] for before, after in pairwise(both)), f"ready and pending: {both}"
    assert all(slice_.end <= queue.index_counters.delivered_to for slice_ in queue.pending), (
        "a pending message was delivered"
    )
    fresh = [*subqueues.q2, *subqueues.q1]
    assert not fresh or not queue.subqueues.q4.count or fresh[0].first >= queue.subqueues.q4.last.end


def _check_residence(queue: VariableQueue) -> None:
    subqueues = queue.subqueues
    for slice_ in (*subqueues.q1, *subqueues.q4):
        assert slice_.contents is not None, f"{slice_} in q1 or q4 is no alpha"
    for slice_ in (*subqueues.q2, *subqueues.q3):
        assert slice_.contents is None or slice_.run.is_persistent, f"{slice_} in q2 or q3 has contents in memory"
        assert slice_.contents is not None or slice_.run.stored or slice_.run.epoch, f"{slice_} has no contents at all"
    for slice_ in (*subqueues, *queue.pending):
        assert slice_.contents is None or len(slice_.contents) == len(slice_), f"{slice_} has too few contents"


def _check_counts(queue: VariableQueue) -> None:
    subqueues, pending, index_counters = queue.subqueues, queue.pending, queue.index_counters
    for subqueue in (subqueues.q1, subqueues.q2, subqueues.q3, subqueues.q4, pending):
        _check_counts_of(subqueue)
    ready = sum(map(len, subqueues)) + subqueues.delta.count
    assert len(queue) == ready, f"{len(queue)} ready, but {ready} found"
    persistent = [slice_ for slice_ in (*subqueues, *pending) if slice_.run.is_persistent]
    count = sum(map(len, persistent))
    assert count <= index_counters.count <= count + subqueues.delta.count, (
        f"{index_counters.count} on disk, {count} in memory"
    )
    for first, gone in index_counters:
        assert gone > 0, f"nothing is gone of the run at {first}"
    for slice_ in persistent:
        gone = dict(index_counters).get(slice_.run.first, 0)
        assert not gone >> slice_.start & (1 << len(slice_)) - 1, f"{slice_} is both gone and present"


def _check_counts_of(subqueue: SubQueue | PendingAcks) -> None:
    slices: Iterable[Slice] = list(subqueue)
    in_ram = [slice_ for slice_ in slices if slice_.contents is not None]
    found = [sum(map(len, slices)), sum(s.run.size_of(s.start, s.stop) for s in slices)]
    found += [sum(map(len, in_ram)), sum(sum(map(len, s.contents or ())) for s in in_ram)]
    counted = [subqueue.count, subqueue.size_bytes, subqueue.ram_count, subqueue.ram_bytes]
    assert counted == found, f"counts {counted} of slices {found}"


def _check_delta(queue: VariableQueue) -> None:
    subqueues, delta = queue.subqueues, queue.subqueues.delta
    slices = [slice_ for some in delta.walk(1000) for slice_ in some]
    assert sum(map(len, slices)) == delta.count, f"delta counts {delta.count}, reading it finds {slices}"
    assert sum(slice_.size_bytes for slice_ in slices) == delta.size_bytes, "bytes of delta"
    assert all(before.end <= after.first for before, after in pairwise(slices)), f"delta is out of order: {slices}"
    persistent = [slice_ for slice_ in (*subqueues, *queue.pending, *slices) if slice_.run.is_persistent]
    counted = queue.index_counters.count, queue.index_counters.size_bytes
    assert counted == (sum(map(len, persistent)), sum(slice_.size_bytes for slice_ in persistent)), (
        f"the index counters have {counted}"
    )
