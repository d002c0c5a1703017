"""How many of the messages that come a queue takes: all of them, unless it was asked to refuse what is over its limit.

A batch is judged as if its messages came one by one: the first ones are taken, as many as fit. Whoever sent the others
is told so; what other queues do with them is their business.
"""

from __future__ import annotations

from dataclasses import replace

from warren.base.ids import SequenceId
from warren.base.runs import Publication, Run, Slice, sizes_of
from warren.broker.arguments import Overflow
from warren.broker.limits import count_fitting
from warren.broker.queue import Queue
from warren.broker.work import Work


def admit(queue: Queue, publication: Publication, work: Work) -> int:
    """Put as many of the first messages as it takes; how many."""
    arguments, count = queue.arguments, len(publication.contents)
    if arguments.is_bounded and arguments.overflow is not Overflow.DROP_HEAD:
        coming = Run(SequenceId(0), count, sizes_of(publication.contents))
        fits = count_fitting(arguments, len(queue.backing), queue.backing.ready_bytes, Slice(coming, 0, count, None))
        if fits < count:
            if fits:
                queue.put(replace(publication, contents=publication.contents[:fits]), work)
            return fits
    queue.put(publication, work)
    return count
