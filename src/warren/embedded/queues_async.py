"""A queue for coroutines: the same calls, without blocking the event loop.

A call that may wait for the disk runs in a thread; concurrent calls share syncs. Waiting for a message takes no thread:
each coroutine is a waiting getter of the queue and is woken individually.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from itertools import islice

from warren.base.threads import Threads
from warren.broker.consumers import Delivery, Outcome
from warren.embedded.messages import Message, MessageBatch, Settled
from warren.embedded.queues import Queue

_PIECE_ROWS = 512


class AsyncQueue:
    """Returned by `db.aqueue(name)`."""

    def __init__(self, inner: Queue) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    async def put(self, body: bytes, *, ttl: float | None = None, priority: int = 0, persistent: bool = True) -> None:
        """Durable when it returns."""
        await asyncio.to_thread(self.inner.put, body, ttl=ttl, priority=priority, persistent=persistent)

    async def put_many(
        self, bodies: Iterable[bytes], *, ttl: float | None = None, priority: int = 0, persistent: bool = True
    ) -> int:
        return await asyncio.to_thread(self.inner.put_many, bodies, ttl=ttl, priority=priority, persistent=persistent)

    async def get(self, timeout: float | None = 0.0) -> Message | None:
        delivery = await self._delivered(1, timeout, None)
        return None if delivery is None else Message.of(self.inner, delivery)

    async def get_many(self, count: int, timeout: float | None = 0.0, *, bytes_max: int | None = None) -> MessageBatch:
        return MessageBatch(self.inner, await self._delivered(count, timeout, bytes_max))

    async def ack(self, what: Settled) -> int:
        return await asyncio.to_thread(self.inner.ack, what)

    async def nack(self, what: Settled, requeue: bool = True) -> int:
        return await asyncio.to_thread(self.inner.nack, what, requeue)

    async def length(self) -> int:
        return await asyncio.to_thread(len, self.inner)

    async def sync(self) -> None:
        await asyncio.to_thread(self.inner.sync)

    async def purge(self) -> int:
        return await asyncio.to_thread(self.inner.purge)

    async def delete(self) -> int:
        return await asyncio.to_thread(self.inner.delete)

    async def browse(self) -> AsyncIterator[bytes]:
        """Bodies of ready messages, in order, without removing them. Ends early if the queue changes meanwhile."""
        bodies = self.inner.browse()
        while piece := await asyncio.to_thread(lambda: list(islice(bodies, _PIECE_ROWS))):
            for body in piece:
                yield body

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until none is ready. Acknowledge each."""
        while (message := await self.get()) is not None:
            yield message

    # -- helpers -------------------------------------------------------------------------------------------------

    async def _delivered(self, count: int, timeout: float | None, bytes_max: int | None) -> Delivery | None:
        handle, queue_api = self.inner.handle, self.inner.queue_api
        delivery = await asyncio.to_thread(queue_api.get, handle, count, bytes_max)
        if delivery is not None or timeout == 0.0:
            return delivery
        waiting = WaitingCoroutine(self.inner.threads, asyncio.get_running_loop(), count, bytes_max)
        try:
            await asyncio.to_thread(queue_api.wait, handle, waiting)
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting.woken.wait(), timeout)
        except BaseException:  # cancelled: nothing here waits for the disk
            queue_api.give_back(handle, waiting.go())
            queue_api.stop_waiting(handle, waiting)
            raise
        outcome = waiting.go()
        if outcome is None:
            await asyncio.to_thread(queue_api.stop_waiting, handle, waiting)
        elif isinstance(outcome, BaseException):
            raise outcome
        return outcome


class WaitingCoroutine:
    """A `Getter` for a coroutine that waits for a message."""

    def __init__(self, threads: Threads, loop: asyncio.AbstractEventLoop, count: int, bytes_max: int | None) -> None:
        self.count = count
        self.bytes_max = bytes_max
        self.woken = asyncio.Event()
        self._loop = loop
        self._lock = threads.condition()
        self._outcome: Outcome | None = None
        self._has_gone = False

    def deliver(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._has_gone:
                return False
            try:
                self._loop.call_soon_threadsafe(self.woken.set)
            except RuntimeError:  # the loop was closed meanwhile
                return False
            self._outcome = outcome
            return True

    def go(self) -> Outcome | None:
        """Accept nothing more; the outcome so far."""
        with self._lock:
            self._has_gone = True
            return self._outcome
