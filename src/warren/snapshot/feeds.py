"""How entries that became durable reach the version buffer: pulled from the log's files, or pushed from memory.

    notify          the commit rings a bell; the reflection's thread reads the new blocks from the files   (LogTail)
    push            whoever led the commit adds the epoch's blocks to the buffer before anybody returns to his caller
    push-threaded   he leaves the epoch's bytes in a queue, and the reflection's thread adds them
    watch           another process watches the log's directory and reads the files; no feed of ours (outside, puller)
    spark           tables are made elsewhere when somebody asks (sync_orders); pulled only where a read needs it now

Pulling couples least: the log knows of it as a bell, and bytes wait in the page cache. Pushing reads nothing, and holds
the bytes of an epoch in memory until they are added. All hand over the same blocks (a test compares).

Always true: `gather` answers with an epoch up to which every entry is in the buffer; nothing is handed over before it
is durable, because the commit calls only then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from warren.base.errors import WarrenError
from warren.base.ids import ChannelId, Epoch
from warren.durability.participant import Part
from warren.log.tail import LogTail, blocks_of_part
from warren.snapshot.version_apply import VersionApply

ChannelOf = Callable[[Part], ChannelId]


class Mode(StrEnum):
    NOTIFY = "notify"
    PUSH = "push"
    PUSH_THREADED = "push-threaded"
    WATCH = "watch"
    SPARK = "spark"
    OFF = "off"


class Feed(Protocol):
    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[Part]) -> None:
        """From the thread of whoever led the commit."""
        ...

    def gather(self, durable: Epoch) -> Epoch:
        """From the reflection's thread: bring the next step into the buffer; the epoch up to which all is in it."""
        ...

    def rewind(self, after: Epoch) -> None:
        """The store went back to this epoch: bring what is behind it once more, from the files."""
        ...


class PullFeed:
    def __init__(self, tail: LogTail, applying: VersionApply, step_bytes: int) -> None:
        self._tail = tail
        self._applying = applying
        self._step_bytes = step_bytes

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[Part]) -> None:
        """The bell is rung; nothing else is needed."""

    def gather(self, durable: Epoch) -> Epoch:
        up_to = self._tail.epoch_within(durable, self._step_bytes)
        for block in self._tail.read(up_to):
            self._applying.add(block)
        return up_to

    def rewind(self, after: Epoch) -> None:
        self._tail.rewind(after)


class PushFeed:
    """Everything up to where `pull` has read was not pushed, and comes from there. So does what the buffer had no room
    for: whoever commits is not to fail for it, and no epoch is to be passed over."""

    def __init__(self, applying: VersionApply, channel_of: ChannelOf, pull: PullFeed, begun: Epoch) -> None:
        self._applying = applying
        self._channel_of = channel_of
        self._pull = pull
        self._added = self._pulled = begun
        self._missed: deque[Epoch] = deque()  # behind each of these an epoch was not added

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[Part]) -> None:
        try:
            for part in parts:
                for block in blocks_of_part(self._channel_of(part), part):
                    self._applying.add(block)
        except WarrenError:
            self._missed.append(self._added)  # the pull meets the same error, if it lasts, where it can be told
        self._added = epoch

    def gather(self, durable: Epoch) -> Epoch:
        added = self._added  # first: whoever sees an epoch here sees as well whether it was missed
        if self._missed and not self._is_behind:
            self.rewind(self._missed.popleft())
        if self._pulled < added and self._is_behind:
            self._pulled = self._pull.gather(added)
            self._is_behind = self._pulled < added
            return self._pulled
        return added

    def rewind(self, after: Epoch) -> None:
        self._pull.rewind(after)
        self._pulled, self._is_behind = after, True

    _is_behind = False


class QueuedFeed:
    """A push that waits in a queue. A deque takes and gives from two threads without a lock."""

    def __init__(self, inner: PushFeed) -> None:
        self._inner = inner
        self._queue: deque[tuple[Epoch, Sequence[Part]]] = deque()

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[Part]) -> None:
        self._queue.append((epoch, parts))

    def gather(self, durable: Epoch) -> Epoch:
        while self._queue:
            self._inner.epoch_is_durable(*self._queue.popleft())
        return self._inner.gather(durable)

    def rewind(self, after: Epoch) -> None:
        self._inner.rewind(after)


def make_feed(mode: Mode, tail: LogTail, applying: VersionApply, channel_of: ChannelOf, step_bytes: int) -> Feed:
    """The feed of a mode. Before pushes can be relied upon everything older has been pulled: `tail.after` says so."""
    pull = PullFeed(tail, applying, step_bytes)
    if mode is Mode.PUSH:
        return PushFeed(applying, channel_of, pull, tail.after)
    if mode is Mode.PUSH_THREADED:
        return QueuedFeed(PushFeed(applying, channel_of, pull, tail.after))
    return pull
