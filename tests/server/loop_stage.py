"""A broker in this process, with its event loop in a thread that a test can pause.

While the loop is paused, bytes of several clients arrive; afterwards it reads them in one poll, in the order in which
they were sent, so they are in one request batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import uvloop

from warren.app.broker import Broker, open_broker
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment

SECONDS_MAX = 20.0
Result = TypeVar("Result")


class LoopStage:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.broker = broker
        self.server = broker.server
        self.port = port
        self._loop = loop

    @contextmanager
    def paused(self) -> Iterator[None]:
        reached, resumed = threading.Event(), threading.Event()

        def pause() -> None:
            reached.set()
            resumed.wait(SECONDS_MAX)

        self._loop.call_soon_threadsafe(pause)
        assert reached.wait(SECONDS_MAX)
        try:
            yield
        finally:
            resumed.set()

    def call(self, function: Callable[[], Result]) -> Result:
        """In the loop's thread."""

        async def called() -> Result:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(SECONDS_MAX)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """The condition is evaluated in the loop's thread."""

        async def waited() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(waited(), self._loop).result(SECONDS_MAX)

    def length(self, queue: str) -> tuple[int, int]:
        """Ready and unacknowledged messages of a queue in the vhost /."""
        handle = self.broker.server.vhosts.find("/").find_queue(queue)
        with handle.lock:
            backing = handle.serving().backing
            return len(backing), backing.pending_count


@contextmanager
def serving(directory: Path) -> Iterator[LoopStage]:
    environment = Environment.real()
    broker = open_broker(configuration_of(environment.files, OptionValues(data_dir=str(directory), port=0), {}))
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(broker.server.start(), loop).result(SECONDS_MAX)
        yield LoopStage(broker, loop, port)
    finally:
        asyncio.run_coroutine_threadsafe(broker.server.stop(0.0), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        broker.close()
