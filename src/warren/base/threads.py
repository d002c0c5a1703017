"""The seam to threads: locks, conditions, and starting something that runs beside us.

Product code never imports `threading`; it asks a `Threads`. On a machine that is `SystemThreads`. In the simulator it
is `testing.stepped_threads`, which runs one thread at a time and chooses the next by a seed, so that one seed is one
run, whatever the interleaving.

Something done again and again beside a piece of work: a lease that is renewed, a progress that is asked for.

with repeatedly(threads, "warren-pin", 20.0, renew):
    work()

The first time comes when so many seconds have passed. The call runs in a thread of its own; when the body ends, one
under way is waited for, and none follows. A call that raises is logged, and the next one comes in its time
(base/threads).

Background tasks: one policy for every loop, timer and callback that has no caller to raise to.

    round ──good──▶ the alarm is cleared
      └──any exception──▶ logged with its traceback ──▶ alarm: API, health check, metric ──▶ next round after a back-off

    background = Background()                     one registry for each open database, in its `Machine`
    task = background.task("upkeep", "garbage is not cleared away")
    task.run(one_round)                           False if it failed: wait `retry_seconds`, then try again

A repeated error is counted and not logged again. The back-off doubles up to half a minute, but not for errors of the
disk: one that is full or does not answer may work again at any moment.

Where continuing is unsafe the owner of the task ends the process instead, by its own failure path: the group commit
fails for good (`GroupCommit.fail`), and the server stops confirming (`Server.fail`).

Invariants
* An alarm is there exactly as long as the last round of its task failed.
* Only `Exception` is handled: what ends a process or a simulated machine (`BaseException`) passes.
* Registering, raising and clearing take no lock: each is one operation on a dict, which the interpreter does whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from time import sleep
from types import TracebackType
from typing import Protocol

from warren.base.environment import Clock
from warren.base.errors import DiskFailure, InternalError, OutOfRoom, WarrenError


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


_LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0
_DOUBLINGS_MAX = 8

OnFailure = Callable[[str, Exception], None]


def _ignore(name: str, error: Exception) -> None:
    """The alarm is enough."""


class Background:
    """The background tasks of one open database: which of them fail now, and how often each has failed."""

    def __init__(self, on_failure: OnFailure = _ignore) -> None:
        """`on_failure` is called with each exception, in the thread that met it."""
        self._on_failure = on_failure
        self._failing: dict[BackgroundTask, None] = {}
        self._failures: dict[str, int] = {}

    def task(self, name: str, effect: str, retry_seconds: float = RETRY_SECONDS) -> BackgroundTask:
        """`effect`: what does not happen while the task fails. It begins the text of the alarm."""
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
        """One round; whether it was good."""
        try:
            work()
        except Exception as error:
            self.failed(error)
            return False
        self.succeeded()
        return True

    def failed(self, error: Exception) -> None:
        """Raise the alarm: a round has failed."""
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
        """How long to wait before the next round."""
        return min(self._retry_seconds * (1 << self._doublings), max(RETRY_SECONDS_MAX, self._retry_seconds))

    def back_off(self, bell: Condition, clock: Clock, is_cut_short: Callable[[], bool]) -> None:
        """With the condition held: sleep for `retry_seconds`, however often the condition is notified."""
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
    """The error itself, or a `InternalError` for an exception that nothing in Warren raises on purpose."""
    if isinstance(error, WarrenError):
        return error
    fault = InternalError(
        f"unexpected {error!r}", "this is a defect of Warren: please report it, with the traceback in the log"
    )
    fault.__cause__ = error
    return fault


@contextmanager
def repeatedly(threads: Threads, name: str, seconds: float, call: Callable[[], object]) -> Iterator[None]:
    bell, is_over = threads.condition(), False
    task = Background().task(name, "a repeated call is not done")

    def run() -> None:
        while True:
            with bell:
                if not is_over:
                    bell.wait(seconds)
                if is_over:
                    return
            task.run(call)

    thread = threads.start(name, run)
    try:
        yield
    finally:
        with bell:
            is_over = True
            bell.notify_all()
        thread.join()
