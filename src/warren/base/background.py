"""Background tasks: one policy for every loop, timer and callback that has no caller to raise to.

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
from collections.abc import Callable

from warren.base.clock import Clock
from warren.base.errors import DiskFailure, InternalError, OutOfRoom, WarrenError
from warren.base.threads import Condition

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
