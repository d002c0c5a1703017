"""Threads: locks, starting threads, and the error policy of everything that runs in the background.

Product code never imports `threading`: it receives a `Threads`. `SystemThreads` is the real one. The simulator's
`stepped_threads` runs one thread at a time and picks the next by a seed, so one seed is one interleaving.

Background tasks: one policy for every loop, timer and callback that has no caller to raise to.

    round ──good──▶ the alarm is cleared
      └──any exception──▶ logged with its traceback ──▶ alarm: API, health check, metric ──▶ next round after a back-off

    background = Background()                     one registry for each open database, in its `Environment`
    task = background.task("upkeep", "garbage is not cleared away")
    task.run(one_round)                           False if it failed: wait `retry_seconds`, then try again

A repeated error is counted and not logged again. The back-off doubles up to 30 seconds, except for disk errors: a disk
that is full or does not respond may recover at any moment.

`BackgroundLoop` is a thread that runs rounds of one task: on request, and periodically. `repeatedly` runs one for the
duration of a `with` block.

Where continuing is unsafe the owner of the task ends the process instead, by its own failure path: the group commit
fails for good (`GroupCommit.fail`), and the server stops confirming (`Server.fail`).

Invariants
* An alarm exists exactly as long as the last round of its task failed.
* Only `Exception` is handled; `BaseException`, which ends a process or a simulated machine, passes.
* Registering, raising and clearing take no lock: each is a single dict operation, which is atomic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from time import sleep
from types import TracebackType
from typing import Protocol

from warren.base.environment import Clock, SystemClock
from warren.base.errors import DiskFailure, InternalError, OutOfRoom, WarrenError


class Condition(Protocol):
    """A lock that threads can wait on, as `threading.Condition`. Not reentrant."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, sleep until notified or until `timeout` seconds have passed, acquire the lock again."""
        ...

    def notify_all(self) -> None: ...


class StartedThread(Protocol):
    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Threads(Protocol):
    def condition(self) -> Condition: ...

    def start(self, name: str, body: Callable[[], None]) -> StartedThread:
        """Run `body` in a new thread. `body` must handle its errors: nothing reports an exception that escapes it."""
        ...

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run all jobs concurrently, wait for all of them, then raise the first error, if any."""
        ...

    def breathe(self) -> None:
        """Called in the middle of long work: yield the interpreter to threads that wait for it."""
        ...


class SystemThreads:
    """Real threads. `together` uses a small pool, and runs the first job in the caller's thread."""

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


_LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0
_DOUBLINGS_MAX = 8

OnFailure = Callable[[str, Exception], None]


def _ignore(name: str, error: Exception) -> None:
    """The default: the alarm suffices."""


class Background:
    """The background tasks of one open database: the failing ones, and the count of failures of each."""

    def __init__(self, on_failure: OnFailure = _ignore) -> None:
        """`on_failure` is called with each exception, in the thread where it was raised."""
        self._on_failure = on_failure
        self._failing: dict[BackgroundTask, None] = {}
        self._failures: dict[str, int] = {}

    def task(self, name: str, effect: str, retry_seconds: float = RETRY_SECONDS) -> BackgroundTask:
        """`effect`: what does not happen while the task fails. The alarm's text begins with it."""
        self._failures.setdefault(name, 0)
        return BackgroundTask(self, name, effect, retry_seconds)

    def failing(self) -> list[BackgroundTask]:
        """Tasks whose last round failed."""
        return list(self._failing)

    def alarms(self) -> list[str]:
        return [alarm for task in self.failing() for alarm in task.alarms()]

    def failures(self) -> dict[str, int]:
        """Failed rounds since the start, by the name of the task."""
        return dict(self._failures)

    def raise_alarm(self, task: BackgroundTask, error: Exception) -> None:
        """For `BackgroundTask`."""
        self._failing[task] = None
        self._failures[task.name] += 1
        self._on_failure(task.name, error)

    def clear_alarm(self, task: BackgroundTask) -> None:
        """For `BackgroundTask`."""
        self._failing.pop(task, None)


class BackgroundTask:
    """One loop, timer or kind of callback. Its rounds do not overlap."""

    __slots__ = ("_background", "_doublings", "_retry_seconds", "effect", "failure", "name")

    def __init__(self, background: Background, name: str, effect: str, retry_seconds: float) -> None:
        self.name = name
        self.effect = effect
        self.failure: WarrenError | None = None  # of the last round
        self._background = background
        self._retry_seconds = retry_seconds
        self._doublings = 0

    def run(self, work: Callable[[], object]) -> bool:
        """Run one round; returns whether it succeeded."""
        try:
            work()
        except Exception as error:
            self.failed(error)
            return False
        self.succeeded()
        return True

    def failed(self, error: Exception) -> None:
        """Raise the alarm after a failed round."""
        failure = as_warren_error(error)
        if self.failure is None or self.failure.what != failure.what:
            facts = {"task": self.name, "effect": self.effect, "error": failure.what}
            _LOG.error("background task failed", exc_info=error, extra={"facts": facts})
        if isinstance(failure, DiskFailure | OutOfRoom):
            self._doublings = 0
        elif self.failure is not None:
            self._doublings = min(self._doublings + 1, _DOUBLINGS_MAX)
        self.failure = failure
        self._background.raise_alarm(self, error)

    def succeeded(self) -> None:
        """Clear the alarm, if there is one."""
        if self.failure is None:
            return
        _LOG.info("background task recovered", extra={"facts": {"task": self.name}})
        self.failure, self._doublings = None, 0
        self._background.clear_alarm(self)

    @property
    def retry_seconds(self) -> float:
        """Delay before the next round after a failure."""
        return min(self._retry_seconds * (1 << self._doublings), max(RETRY_SECONDS_MAX, self._retry_seconds))

    def back_off(self, bell: Condition, clock: Clock, is_cut_short: Callable[[], bool]) -> None:
        """With the condition held: sleep for `retry_seconds`, regardless of notifications, or until `is_cut_short`."""
        due_ns = clock.monotonic_ns() + int(self.retry_seconds * 1e9)
        while not is_cut_short() and (left_ns := due_ns - clock.monotonic_ns()) > 0:
            if not bell.wait(left_ns / 1e9):
                return

    def alarms(self) -> list[str]:
        failure = self.failure
        if failure is None:
            return []
        return [f"{self.effect}: {failure.what}; {failure.hint}" if failure.hint else f"{self.effect}: {failure.what}"]


def as_warren_error(error: Exception) -> WarrenError:
    """The error itself, or an `InternalError` for an exception that Warren does not raise on purpose."""
    if isinstance(error, WarrenError):
        return error
    fault = InternalError(
        f"unexpected {error!r}", "this is a defect of Warren: please report it, with the traceback in the log"
    )
    fault.__cause__ = error
    return fault


class BackgroundLoop:
    """A thread that runs rounds of a task: when one is requested, and every `wait_seconds`.

    After a failed round the thread waits for the task's back-off, which only `run_and_wait` and `stop` cut short.
    `condition` guards the flags and counters; it is notified by requests and at the end of each round.
    """

    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        task: BackgroundTask,
        run_once: Callable[[bool], object],
        repeats_failed: bool = False,
    ) -> None:
        """`run_once` receives whether the round was requested. `repeats_failed`: a failed round requests another."""
        self._threads = threads
        self._clock = clock
        self._task = task
        self._run_once = run_once
        self._repeats_failed = repeats_failed
        self._thread: StartedThread | None = None
        self._is_running = self._is_awaited = False
        self.condition = threads.condition()
        self.is_requested = self.is_stopping = False
        self.rounds = 0  # that have ended

    def start(self, name: str, wait_seconds: float) -> None:
        self._thread = self._threads.start(name, lambda: self._run(wait_seconds))

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def request(self) -> None:
        """Request a round."""
        with self.condition:
            self.is_requested = True
            self.condition.notify_all()

    def run_and_wait(self) -> None:
        """Request a round; return when a round that began after this call has ended."""
        with self.condition:
            awaited = self.rounds + (2 if self._is_running else 1)
            self.is_requested = self._is_awaited = True
            self.condition.notify_all()
            while self.rounds < awaited and not self.is_stopping:
                self.condition.wait()

    def stop(self) -> None:
        """End the thread after the current round."""
        with self.condition:
            self.is_stopping = True
            self.condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self, wait_seconds: float) -> None:
        while True:
            with self.condition:
                if not self.is_requested and not self.is_stopping:
                    self.condition.wait(wait_seconds)
                is_requested, self.is_requested, self._is_awaited = self.is_requested, False, False
                if self.is_stopping:
                    return
                self._is_running = True
            is_good = self._task.run(partial(self._run_once, is_requested))
            with self.condition:
                self._is_running = False
                self.rounds += 1
                self.condition.notify_all()
                if not is_good:
                    self._task.back_off(self.condition, self._clock, lambda: self.is_stopping or self._is_awaited)
                    self.is_requested = self.is_requested or self._repeats_failed


@contextmanager
def repeatedly(threads: Threads, name: str, seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call something every `seconds` in a thread while the body of the `with` runs: renew a lease, poll progress.

        with repeatedly(threads, "warren-pin", 20.0, renew):
            work()

    The first call comes after `seconds`. When the body ends, a call that is running is waited for and none follows. A
    call that raises is logged; the next one comes in its time.
    """
    task = Background().task(name, "a repeated call is not done", retry_seconds=0.0)
    loop = BackgroundLoop(threads, SystemClock(), task, lambda is_requested: call())
    loop.start(name, seconds)
    try:
        yield
    finally:
        loop.stop()
