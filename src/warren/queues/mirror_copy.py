"""How a mirror copies and compares: messages of one queue beside those of another, however each has cut its slices.

ours    [0 1 2][3 4 5 6]             the same messages, in other pieces:
theirs  [0 1 2 3 4][5 6]             paired as 0…2, 3…4, 5…6
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from warren.base.runs import Publication, Slice
from warren.queues.backing import BackingQueue, Fetched, TagRange

_Standing = tuple[int, int | None, Slice]  # sequence id, tag if it is pending


def paired(ours: Sequence[Fetched], theirs: Sequence[Fetched], skipped: int) -> Iterator[tuple[int, int, int, bool]]:
    """Our tag, theirs, how many, and whether they are alike. The first `skipped` of ours have no partner."""
    partners = iter(theirs)
    partner, done = None, 0
    for each in ours:
        at = min(skipped, len(each.slice))
        skipped -= at
        while at < len(each.slice):
            if partner is None or done == len(partner.slice):
                partner, done = next(partners), 0
            size = min(len(each.slice) - at, len(partner.slice) - done)
            our_contents, their_contents = each.slice.contents or [], partner.slice.contents or []
            is_alike = our_contents[at : at + size] == their_contents[done : done + size]
            yield each.tag + at, partner.tag + done, size, is_alike
            at, done = at + size, done + size


def fetched_whole(queue: BackingQueue, count: int) -> list[Fetched]:
    """So many, in as many calls as it takes; fewer if there are no more."""
    fetched: list[Fetched] = []
    while count > 0 and (found := queue.fetch(count)):
        count -= sum(len(each.slice) for each in found)
        fetched += found
    return fetched


def in_order(pending: Sequence[TagRange], queue: BackingQueue) -> Iterator[tuple[int | None, Slice]]:
    """What is pending and what is ready, in the order in which it came, with contents: tag of the first or None, and
    messages that are one or the other."""
    held: list[_Standing] = []
    for first, stop in pending:
        tag = first
        for slice_ in queue.look([(first, stop)]):
            held.append((slice_.first, tag, slice_))
            tag += len(slice_)
    ready = ((slice_.first, None, slice_) for slice_ in queue.browse())
    for _, tag_or_none, slice_ in heapq.merge(sorted(held, key=_first), ready, key=_first):
        yield tag_or_none, slice_


def _first(each: _Standing) -> int:
    return each[0]


def as_publication(slice_: Slice) -> Publication:
    run = slice_.run
    return Publication(slice_.contents or [], run.is_persistent, run.expires_ms, run.published_ms, origin=run.origin)
