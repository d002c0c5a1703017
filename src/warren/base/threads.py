"""The seam to threads: locks, conditions, and starting something that runs beside us.

Product code never imports `threading`; it asks a `Threads`. On a machine that is `SystemThreads`. In the simulator it
is `testing.stepped_threads`, which runs one thread at a time and chooses the next by a seed, so that one seed is one
run, whatever the interleaving.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from time import sleep
from types import TracebackType
from typing import Protocol


class Condition(Protocol):
    """A lock with a waiting room. Held with `with`; reentrant it is not."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock, sleep until notified or `timeout` seconds have passed, take the lock again."""
        ...

    def notify_all(self) -> None: ...


class StartedThread(Protocol):
    """Something that was started."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Threads(Protocol):
    def condition(self) -> Condition: ...

    def start(self, name: str, body: Callable[[], None]) -> StartedThread:
        """Run `body` beside us. An error that escapes `body` is the body's own fault: it must have said so itself."""
        ...

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run all jobs at once, return when every one has ended, then raise the first error if there was one."""
        ...

    def breathe(self) -> None:
        """In the middle of long work: let whoever waits for the interpreter have it first."""
        ...


class SystemThreads:
    """Real threads; `together` keeps a small pool and runs the last job in the caller's own thread."""

    def __init__(self, pool_size_max: int = 16) -> None:
        self._pool_size_max = pool_size_max
        self._pool: ThreadPoolExecutor | None = None

    def condition(self) -> Condition:
        return threading.Condition(threading.Lock())

    def start(self, name: str, body: Callable[[], None]) -> StartedThread:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        if len(jobs) == 1:
            jobs[0]()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._pool_size_max, thread_name_prefix="warren-together")
        futures = [self._pool.submit(job) for job in jobs[1:]]
        try:
            jobs[0]()
        finally:
            wait(futures)
        for future in futures:
            future.result()

    def breathe(self) -> None:
        sleep(0)
