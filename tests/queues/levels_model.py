"""A queue with priorities as plainly as can be: a list for each level, one entry for each message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Entry:
    content: bytes
    is_persistent: bool = True
    is_pending: bool = False
    is_delivered: bool = False
    is_copied: bool = False  # to a second queue, which cannot know whether it was delivered


class LevelsModel:
    def __init__(self, levels: int = 1) -> None:
        self.levels: list[list[Entry]] = [[] for _ in range(levels)]

    def publish(self, contents: list[bytes], priority: int = 0, is_persistent: bool = True) -> None:
        self.levels[min(priority, len(self.levels) - 1)] += [Entry(content, is_persistent) for content in contents]

    def crash(self) -> None:
        """Transient messages are gone, what was pending is ready, and all of it counts as delivered."""
        self.levels = [[entry for entry in level if entry.is_persistent] for level in self.levels]
        for level in self.levels:
            for entry in level:
                entry.is_pending, entry.is_delivered = False, True

    def ready(self) -> list[Entry]:
        """In the order of delivery."""
        return [entry for level in reversed(self.levels) for entry in level if not entry.is_pending]

    def fetch(self, count: int, bytes_max: int | None = None) -> list[tuple[Entry, bool]]:
        """Each with whether it was delivered before."""
        fetched: list[tuple[Entry, bool]] = []
        room = bytes_max
        for entry in self.ready()[:count]:
            if room is not None:
                room -= len(entry.content)
                if room < 0 and fetched:
                    break
            fetched.append((entry, entry.is_delivered))
            entry.is_pending = entry.is_delivered = True
        return fetched

    def remove(self, entries: list[Entry]) -> None:
        gone = set(map(id, entries))
        self.levels = [[entry for entry in level if id(entry) not in gone] for level in self.levels]

    def drop(self, count: int) -> int:
        dropped = self.ready()[:count]
        self.remove(dropped)
        return len(dropped)

    def pending(self) -> list[Entry]:
        return [entry for level in self.levels for entry in level if entry.is_pending]
