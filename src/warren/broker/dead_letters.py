"""Messages that a queue lets go of and another one takes: expired, over the limit, rejected.

    dequeue here ─┐
                  ├─ one session (DESIGN rule 24): in one queue or in the other, whenever the power goes
    publish there ┘

What moved carries a note of its deaths, newest first, as RabbitMQ's `x-death` does: in which queue, why, how often. It
stands in the origin of its run, in place of the exchange, which is the default one for every such move:

    dead-letter:12:expired:1,7:rejected:3            queue 12 let it expire, before that somebody rejected it in 7

A message that goes round in a circle by itself is dropped: the target is among its deaths, and nobody has rejected it
since (or there). Rejections are somebody's decision, so they may go round as often as they like.

A moved message has no time of its own any more, else it would expire again at once. Where the target is not there, or
is full and refuses, the message is gone, for the reason for which it left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from warren.base.ids import QueueId
from warren.base.runs import Origin, Publication, Slice
from warren.queue_index.why import Why

PREFIX = "dead-letter:"
DEATHS_MAX = 64  # in a note; the oldest are forgotten
_WORDS = {Why.EXPIRED: "expired", Why.OVER_LIMIT: "maxlen", Why.REJECTED: "rejected"}
_REASONS = {word: why for why, word in _WORDS.items()}


class Death(NamedTuple):
    queue: QueueId
    why: Why
    times: int


def deaths_of(origin: Origin) -> list[Death]:
    """Newest first; none for what never was dead-lettered."""
    if not origin.exchange.startswith(PREFIX):
        return []
    told = (each.split(":") for each in origin.exchange[len(PREFIX) :].split(","))
    return [Death(QueueId(int(queue)), _REASONS[word], int(count)) for queue, word, count in told]


def with_death(deaths: list[Death], queue: QueueId, why: Why) -> list[Death]:
    """One more: the same queue and reason are counted, and come first."""
    before = next((each.times for each in deaths if (each.queue, each.why) == (queue, why)), 0)
    others = [each for each in deaths if (each.queue, each.why) != (queue, why)]
    return [Death(queue, why, before + 1), *others][:DEATHS_MAX]


def is_circle(deaths: list[Death], target: QueueId) -> bool:
    """Whether the target had it before, and it came round by itself. `deaths` has the present one in front."""
    if deaths[0].why is Why.REJECTED:
        return False
    since = [each.queue for each in deaths].index(target) if any(each.queue == target for each in deaths) else None
    return since is not None and all(each.why is not Why.REJECTED for each in deaths[: since + 1])


def moved(slice_: Slice, deaths: list[Death], target_name: str, now_ms: int) -> Publication:
    """The messages of a slice, as the target gets them."""
    assert slice_.contents is not None, "what is moved was fetched, or looked at"
    note = PREFIX + ",".join(f"{each.queue}:{_WORDS[each.why]}:{each.times}" for each in deaths)
    origin = replace(slice_.run.origin, exchange=note, routing_key=target_name)
    return Publication(slice_.contents, slice_.run.is_persistent, 0, now_ms, origin=origin)
