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

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from warren.base.ids import ChannelId, Epoch, StreamId
from warren.base.threads import Threads
from warren.durability.participant import EpochWrite
from warren.log.tail import LogTail, blocks_of_part
from warren.snapshot.version_apply import VersionApply

_LOG = logging.getLogger(__name__)
ChannelOf = Callable[[EpochWrite], ChannelId]


class Mode(StrEnum):
    NOTIFY = "notify"
    PUSH = "push"
    PUSH_THREADED = "push-threaded"
    WATCH = "watch"
    SPARK = "spark"
    OFF = "off"


APPLIED_HERE = frozenset({Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED})  # by a thread of this process, without orders


class Feed(Protocol):
    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """From the thread of whoever led the commit."""
        ...

    def gather(self, durable: Epoch) -> Epoch:
        """From the reflection's thread: bring the next step into the buffer; the epoch up to which all is in it."""
        ...

    def rewind(self, after: Epoch) -> None:
        """The store went back to this epoch: bring what is behind it once more, from the files."""
        ...


class PullFeed:
    def __init__(
        self, tail: LogTail, applying: VersionApply, step_bytes: int, breathe: Callable[[], None] = lambda: None
    ) -> None:
        self._tail = tail
        self._applying = applying
        self._step_bytes = step_bytes
        self._breathe = breathe  # between two blocks: whoever commits goes first

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        """The bell is rung; nothing else is needed."""

    def gather(self, durable: Epoch) -> Epoch:
        up_to = self._tail.epoch_within(durable, self._step_bytes)
        for block in self._tail.read(up_to):
            self._applying.add(block)
            self._breathe()
        return up_to

    def rewind(self, after: Epoch) -> None:
        self._tail.rewind(after)

    @property
    def referring(self) -> frozenset[StreamId]:
        return self._tail.referring


class PushFeed:
    """What is not pushed is pulled: what came before it was made, what the buffer had no room for (whoever commits is
    not to fail for that), and what is more than `room_bytes` between two gatherings: a large backlog is better made
    into tables (bulk). From the first epoch that is not pushed on all are pulled, until the pull is at the newest."""

    def __init__(
        self,
        threads: Threads,
        applying: VersionApply,
        channel_of: ChannelOf,
        pull: PullFeed,
        begun: Epoch,
        room_bytes: int,
    ) -> None:
        self._lock = threads.condition()
        self._applying = applying
        self._channel_of = channel_of
        self._pull = pull
        self._newest = begun  # the last epoch that became durable
        self._room_bytes = room_bytes  # 0: without limit
        self._bytes = 0  # pushed since the last gathering
        self._from: Epoch | None = None  # behind this epoch nothing is pushed
        self._is_pulling = False

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        with self._lock:
            self._bytes += size_of_parts(parts)
            if self._room_bytes and self._bytes > self._room_bytes:
                self._push_no_more()
            try:
                for part in parts if self._from is None else ():
                    for block in blocks_of_part(self._channel_of(part), part, self._pull.referring):
                        self._applying.add(block)
            except Exception as error:  # the commit must not fail: the pull meets the same error, if it lasts
                _LOG.warning(
                    "epoch not pushed, it is read from the log", exc_info=error, extra={"facts": {"epoch": epoch}}
                )
                self._push_no_more()
            self._newest = epoch

    def epoch_was_let_go(self, epoch: Epoch) -> None:
        """It became durable, and nobody kept its bytes."""
        with self._lock:
            self._push_no_more()
            self._newest = epoch

    def gather(self, durable: Epoch) -> Epoch:
        with self._lock:
            self._bytes, newest, begun = 0, self._newest, self._from
            if begun is None:
                return newest
            if not self._is_pulling:  # what was pushed is applied first; then nothing is in the buffer
                self._pull.rewind(begun)
                self._is_pulling = True
                return begun
        reached = self._pull.gather(newest)
        with self._lock:
            if reached >= self._newest:
                self._from, self._is_pulling = None, False
        return reached

    def rewind(self, after: Epoch) -> None:
        with self._lock:
            self._pull.rewind(after)
            self._from, self._is_pulling = after, True

    def _push_no_more(self) -> None:
        if self._from is None:
            self._from = self._newest


class QueuedFeed:
    """A push that waits in a queue, and no more of it than there is room for: the rest is let go of, and pulled. A
    deque takes and gives from two threads without a lock."""

    def __init__(self, inner: PushFeed, room_bytes: int) -> None:
        self._inner = inner
        self._room_bytes = room_bytes
        self._queue: deque[tuple[Epoch, Sequence[EpochWrite] | None]] = deque()
        self._bytes = 0  # queued since the last gathering

    def epoch_is_durable(self, epoch: Epoch, parts: Sequence[EpochWrite]) -> None:
        self._bytes += size_of_parts(parts)
        is_too_much = self._room_bytes and self._bytes > self._room_bytes
        self._queue.append((epoch, None if is_too_much else parts))

    def gather(self, durable: Epoch) -> Epoch:
        self._bytes = 0
        while self._queue:
            epoch, parts = self._queue.popleft()
            if parts is None:
                self._inner.epoch_was_let_go(epoch)
            else:
                self._inner.epoch_is_durable(epoch, parts)
        return self._inner.gather(durable)

    def rewind(self, after: Epoch) -> None:
        self._inner.rewind(after)


def size_of_parts(parts: Sequence[EpochWrite]) -> int:
    return sum(len(piece) for part in parts for piece in part.pieces)


def make_feed(
    mode: Mode,
    threads: Threads,
    tail: LogTail,
    applying: VersionApply,
    channel_of: ChannelOf,
    step_bytes: int,
    room_bytes: int,
) -> Feed:
    """The feed of a mode. Before pushes can be relied upon everything older has been pulled: `tail.after` says so."""
    pull = PullFeed(tail, applying, step_bytes, threads.breathe)
    if mode not in (Mode.PUSH, Mode.PUSH_THREADED):
        return pull
    push = PushFeed(threads, applying, channel_of, pull, tail.after, room_bytes)
    return push if mode is Mode.PUSH else QueuedFeed(push, room_bytes)
