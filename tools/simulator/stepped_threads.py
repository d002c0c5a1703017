"""Threads that take turns: one seed is one run, whatever the interleaving.

    threads = SteppedThreads(seed=7, clock=clock)
    disk = FaultyFiles(MemoryFiles(), pause=threads.pause, on_cut=threads.cut_power)
    threads.run(lambda: workload(disk, threads))

A *seam* is a place where the turn may change: entering, waiting on and notifying a condition, starting, joining,
running together, and `pause`, which the test disks call before each file operation. At a seam the seed says whether to
change, and to whom. An actor that can not go on hands over to one that can. When none can, time passes: the manual
clock jumps to the earliest deadline of a wait. Without a deadline the run ends in `Deadlock`, which lists who waits.

When one actor ends in `PowerCut`, or in an error that it should have kept to itself, all others are ended: each gets
`PowerCut` at its next seam, unwinds, and `run` raises the first cause. `cut_power` begins this at once, so that nobody
runs on while the first one still unwinds. Actors left over when the main body returns are ended likewise. After `run`
no operating-system thread remains.

Always true: between two seams nobody else runs, so the sequence of choices depends on the seed alone.
Not here: races inside one Python statement. Outside a run a condition may be entered (nobody else is there), no more.
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
        """Who got each turn, in order: two runs of one seed have the same list."""
        return self._turns.choices

    def run(self, main_body: Callable[[], Result]) -> Result:
        """Run the main actor to its end and return what it returns, or raise what ended the run."""
        results: list[Result] = []
        self._turns.run(lambda: results.append(main_body()))
        return results[0]

    def pause(self) -> None:
        """A seam of its own, for whoever wants to give others a turn."""
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

    __slots__ = ("_at_the_door", "_is_held", "_owner", "_turns", "_waiting")

    def __init__(self, turns: ActorSchedule) -> None:
        self._turns = turns
        self._is_held = False
        self._owner: Actor | None = None  # None while held: by whoever is outside a run
        self._at_the_door: list[Actor] = []
        self._waiting: list[Actor] = []

    def __enter__(self) -> object:
        self._turns.pause()
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._release()  # also when a wait was ended before it had the lock again: by then nobody can take it

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
        while self._is_held:
            if self._is_mine():
                raise Misuse("a condition is not reentrant: it is held here already")
            holder = self._owner.name if self._owner else "somebody outside the run"
            self._at_the_door.append(self._turns.here())
            self._turns.block(f"a lock that {holder} holds")
        self._is_held = True
        self._owner = self._turns.current

    def _release(self) -> None:
        self._is_held = False
        self._owner = None
        for actor in self._at_the_door:
            self._turns.on_ready(actor)
        self._at_the_door.clear()

    def _is_mine(self) -> bool:
        return self._is_held and self._owner is self._turns.current

    def _must_be_mine(self, verb: str) -> None:
        if not self._is_mine():
            raise Misuse(f"cannot {verb} a condition that is not held here", "do it inside `with condition:`")
