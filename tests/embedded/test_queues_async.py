"""`warren.open(path).aqueue(name)`: queues for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import warren
from warren.base.errors import Misuse
from warren.base.threads import SystemThreads
from warren.broker.errors import QueueDeleted
from warren.embedded.database import Warren
from warren.embedded.queues_async import WaitingCoroutine


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Warren]:
    with warren.open(str(tmp_path / "db")) as opened:
        yield opened


def test_coroutines_use_the_same_queue(db: Warren) -> None:
    async def use() -> list[bytes]:
        jobs = db.aqueue("jobs")
        await asyncio.gather(*(jobs.put(b"%02d" % number) for number in range(20)))
        assert await jobs.put_many([b"x", b"y"]) == 2
        assert (jobs.name, await jobs.length()) == ("jobs", 22)
        browsed = [body async for body in jobs.browse()]
        message = await jobs.get()
        assert message is not None
        await jobs.nack(message)
        batch = await jobs.get_many(20)
        assert await jobs.ack(batch) == 20
        rest = [message.body async for message in jobs]
        assert (rest, await jobs.get(), len(await jobs.get_many(3, timeout=0.01))) == ([b"x", b"y"], None, 0)
        await jobs.sync()
        return browsed

    assert sorted(asyncio.run(use())[:20]) == [b"%02d" % number for number in range(20)]
    assert asyncio.run(db.aqueue("jobs").purge()) == 0
    assert asyncio.run(db.aqueue("jobs").delete()) == 2
    assert db.queues() == []


def test_waiting_takes_no_thread(db: Warren) -> None:
    """More coroutines wait than there are threads to run calls in, and the puts still get through."""

    async def use() -> list[bytes]:
        jobs = db.aqueue("jobs")
        getters = [asyncio.create_task(jobs.get(timeout=30)) for _ in range(100)]
        while len(jobs.inner.handle.serving().getters) < 100:
            await asyncio.sleep(0.001)
        await jobs.put_many([b"%02d" % number for number in range(100)])
        bodies = [message.body for message in await asyncio.gather(*getters) if message is not None]
        assert len(jobs.inner) == 0
        return bodies

    assert sorted(asyncio.run(use())) == [b"%02d" % number for number in range(100)]


def test_who_is_cancelled_takes_nothing_along(db: Warren) -> None:
    async def use() -> int:
        jobs = db.aqueue("jobs")
        task = asyncio.create_task(jobs.get(timeout=None))
        while not len(jobs.inner.handle.serving().getters):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(jobs.inner.handle.serving().getters) == 0
        task = asyncio.create_task(jobs.get(timeout=None))
        while not len(jobs.inner.handle.serving().getters):
            await asyncio.sleep(0.001)
        jobs.inner.put(b"1")  # it is handed over while the loop does something else, and then it is cancelled
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(jobs.inner)

    assert asyncio.run(use()) == 1


def test_errors_reach_the_waiter(db: Warren) -> None:
    async def use() -> None:
        jobs = db.aqueue("jobs")
        task = asyncio.create_task(jobs.get(timeout=30))
        while not len(jobs.inner.handle.serving().getters):
            await asyncio.sleep(0.001)
        await jobs.delete()
        with pytest.raises(QueueDeleted):
            await task
        with pytest.raises(Misuse):
            await db.aqueue("other").put("text")  # type: ignore[arg-type]

    asyncio.run(use())


def test_a_loop_that_was_closed_takes_nothing() -> None:
    loop = asyncio.new_event_loop()
    waiting = WaitingCoroutine(SystemThreads(), loop, 1, None)
    loop.close()
    assert not waiting.deliver(RuntimeError("without a waiter"))
    assert waiting.go() is None
