"""A broker without its management, in this process and with a real loop, disk and sockets: tests can inject faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from warren.app.broker import Broker, open_broker
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment

SECONDS_MAX = 20.0


@contextmanager
def served_broker(directory: Path) -> Iterator[tuple[Broker, int]]:
    """The broker and its port; stopped and closed at the end."""
    environment = Environment.real()
    broker = open_broker(
        configuration_of(environment.files, OptionValues(data_dir=str(directory), port=0), {}), environment=environment
    )
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(broker.server.start(), loop).result(SECONDS_MAX)
        yield broker, port
    finally:
        asyncio.run_coroutine_threadsafe(broker.server.stop(0.0), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        broker.close()
