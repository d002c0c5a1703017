"""How often messages were given back, where that is limited (`x-delivery-limit`).

    limit 2     delivered · back · delivered · back · delivered · back ──▶ gone: a dead letter, or nothing

Counts are kept by tag, which a message keeps as long as it is in the queue, and only in memory: a queue that is made
again counts anew. What was never given back takes no room. RabbitMQ also tells consumers the count, in a header
(`x-delivery-count`); here it does not leave the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warren.queues.backing import TagRange


class DeliveryCounts:
    __slots__ = ("_back", "_limit")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._back: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._back)

    def split(self, tags: Sequence[TagRange]) -> tuple[list[TagRange], list[TagRange]]:
        """Those that may not be given back once more, and those that may."""
        limit = self._limit
        if limit is None:
            return [], list(tags)
        over = [tag for tag in _each(tags) if self._back.get(tag, 0) >= limit]
        return _ranges(over), _ranges(tag for tag in _each(tags) if self._back.get(tag, 0) < limit)

    def note(self, back: Sequence[TagRange], gone: Sequence[TagRange]) -> None:
        """They were given back; the others are gone, but for those that are among them, too."""
        if self._limit is None:
            return
        counts = {tag: self._back.get(tag, 0) + 1 for tag in _each(back)}
        self.forget(gone)
        self._back |= counts

    def forget(self, tags: Sequence[TagRange]) -> None:
        """They are gone."""
        if self._back:
            for tag in _each(tags):
                self._back.pop(tag, None)

    def clear(self) -> None:
        self._back.clear()


def _each(tags: Sequence[TagRange]) -> Iterator[int]:
    for first, stop in tags:
        yield from range(first, stop)


def _ranges(tags: Iterator[int] | Sequence[int]) -> list[TagRange]:
    ranges: list[TagRange] = []
    for tag in tags:
        if ranges and ranges[-1][1] == tag:
            ranges[-1] = ranges[-1][0], tag + 1
        else:
            ranges.append((tag, tag + 1))
    return ranges
