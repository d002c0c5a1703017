"""Threads scheduled deterministically: one seed is one run, whatever the interleaving.

    threads = SteppedThreads(seed=7, clock=clock)
    disk = FaultyFiles(MemoryFiles(), pause=threads.pause, on_cut=threads.cut_power)
    threads.run(lambda: workload(disk, threads))

A *seam* is a point where another actor may be scheduled: entering, waiting on and notifying a condition, starting,
joining, running together, and `pause`, which the test disks call before each file operation. At a seam the seed decides
whether to switch, and to which actor. A blocked actor switches to a ready one. If none is ready, the manual clock
advances to the earliest deadline of a wait. Without a deadline the run ends in `Deadlock`, which lists the actors.

When an actor ends in `PowerCut`, or in an error that escapes it, all others are ended: each gets `PowerCut` at its next
seam, unwinds, and `run` raises the first cause. `cut_power` starts this at once, so that no actor runs on while the
first one still unwinds. Actors left over when the main body returns are ended likewise. After `run` no operating-system
thread remains.

Invariant: between two seams only one actor runs, so the sequence of choices depends on the seed alone.
Not covered: races inside one Python statement. Outside a run a condition may be entered, but not waited on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TypeVar

from tools.simulator.actor_schedule import Actor, ActorSchedule, Deadlock
from warren.base.errors import Misuse
from warren.testing.fakes import ManualClock
from warren.testing.memory_files import PowerCut

__all__ = ["Deadlock", "SteppedCondition", "SteppedRunning", "SteppedThreads"]

Result = TypeVar("Result")


class SteppedThreads:
    """Is a `base.threads.Threads`."""

    def __init__(
        self,
        seed: int,
        clock: ManualClock | None = None,
        switch_probability: float = 0.25,
        starve_probability: float = 0.0,
    ) -> None:
        """Who loses the turn may, now and then, be starved: kept from running while others can, as a thread is that the
        system has forgotten between two lines."""
        self.clock = clock or ManualClock()
        self._turns = ActorSchedule(seed, self.clock, switch_probability, starve_probability)

    @property
    def choices(self) -> list[str]:
        """The scheduled actors, in order: two runs of one seed have the same list."""
        return self._turns.choices

    def run(self, main_body: Callable[[], Result]) -> Result:
        """Run the main actor to its end and return its result, or raise the error that ended the run."""
        results: list[Result] = []
        self._turns.run(lambda: results.append(main_body()))
        return results[0]

    def pause(self) -> None:
        """An explicit seam."""
        self._turns.pause()

    def cut_power(self) -> None:
        """End every actor at its next seam."""
        self._turns.end(PowerCut("the power was cut"))

    def condition(self) -> SteppedCondition:
        return SteppedCondition(self._turns)

    def start(self, name: str, body: Callable[[], None]) -> SteppedRunning:
        return SteppedRunning(self._turns, self._turns.start(name, body))

    def breathe(self) -> None:
        """Turns change at steps only."""

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """The first job runs in the caller's own turn, the others each in one of their own."""
        errors: dict[int, BaseException] = {}
        others = [
            self.start(f"job {index}", partial(self._keep_error, job, index, errors))
            for index, job in enumerate(jobs[1:], start=1)
        ]
        for job in jobs[:1]:
            self._keep_error(job, 0, errors)
        for other in others:
            other.join()
        if errors:
            raise errors[min(errors)]

    def _keep_error(self, job: Callable[[], None], index: int, errors: dict[int, BaseException]) -> None:
        try:
            job()
        except BaseException as error:
            errors[index] = error
            if isinstance(error, PowerCut):
                self._turns.end(error)


class SteppedRunning:
    """Is a `base.threads.Running`."""

    __slots__ = ("_actor", "_turns")

    def __init__(self, turns: ActorSchedule, actor: Actor) -> None:
        self._turns = turns
        self._actor = actor

    def join(self, timeout: float | None = None) -> None:
        self._turns.join(self._actor, timeout)

    def is_alive(self) -> bool:
        return not self._actor.has_ended


class SteppedCondition:
    """Is a `base.threads.Condition`."""

    __slots__ = ("_entering", "_is_locked", "_owner", "_turns", "_waiting")

    def __init__(self, turns: ActorSchedule) -> None:
        self._turns = turns
        self._is_locked = False
        self._owner: Actor | None = None  # None while locked: entered outside a run
        self._entering: list[Actor] = []
        self._waiting: list[Actor] = []

    def __enter__(self) -> object:
        self._turns.pause()
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._release()  # also if a wait ended before it had the lock again: no actor can take it by then

    def wait(self, timeout: float | None = None) -> bool:
        self._must_be_mine("wait on")
        me = self._turns.here()
        self._release()
        self._waiting.append(me)
        is_notified = self._turns.block("a notify", timeout)
        if not is_notified and me in self._waiting:  # not so if a notify came between the deadline and our turn
            self._waiting.remove(me)
        self._take()
        return is_notified

    def notify_all(self) -> None:
        self._must_be_mine("notify")
        for actor in self._waiting:
            self._turns.on_ready(actor)
        self._waiting.clear()
        self._turns.pause()

    def _take(self) -> None:
        while self._is_locked:
            if self._is_mine():
                raise Misuse("a condition is not reentrant: this actor has entered it already")
            holder = self._owner.name if self._owner else "code outside the run"
            self._entering.append(self._turns.here())
            self._turns.block(f"a lock that {holder} holds")
        self._is_locked = True
        self._owner = self._turns.current

    def _release(self) -> None:
        self._is_locked = False
        self._owner = None
        for actor in self._entering:
            self._turns.on_ready(actor)
        self._entering.clear()

    def _is_mine(self) -> bool:
        return self._is_locked and self._owner is self._turns.current

    def _must_be_mine(self, verb: str) -> None:
        if not self._is_mine():
            raise Misuse(f"cannot {verb} a condition that was not entered here", "do it inside `with condition:`")
