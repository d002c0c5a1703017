"""Scheduler of the actors behind `stepped_threads`: which one runs.

    current   the actor that runs
    ready     actors that can run
    blocked   actors that wait for a wake-up or for a deadline

Exactly one actor runs; every other one sleeps on the lock of its worker. A switch chooses an actor, releases its lock
and sleeps on the own one. Workers, the operating-system threads under the actors, are reused within a run and ended
with it, so a thousand runs leave no thread behind.

Once there is a `cause` (a power cut, an error that escaped, a deadlock) every blocked actor is ready again, and each
actor gets `PowerCut` when it is scheduled: it can unwind, but not wait.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from warren.base.errors import Misuse
from warren.testing.fakes import ManualClock
from warren.testing.memory_files import PowerCut

STARVING_TURNS = 60


class Deadlock(Misuse):
    """No actor can run, and no deadline will change that."""


class Actor:
    """One body that takes turns."""

    __slots__ = ("baton", "body", "deadline_ns", "has_ended", "is_woken", "joiners", "name", "waits_for")

    def __init__(self, name: str, body: Callable[[], None], baton: threading.Lock) -> None:
        self.name = name
        self.body = body
        self.baton = baton
        self.has_ended = False
        self.joiners: list[Actor] = []
        self.waits_for = ""
        self.deadline_ns: int | None = None
        self.is_woken = False


class ActorThread:
    """An operating-system thread and the actor it lends itself to."""

    __slots__ = ("actor", "baton", "thread")

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.actor: Actor | None = None
        self.thread: threading.Thread | None = None


class ActorSchedule:
    """Chooses by seed, and keeps the list of its choices."""

    def __init__(
        self, seed: int, clock: ManualClock, switch_probability: float, starve_probability: float = 0.0
    ) -> None:
        self.current: Actor | None = None
        self.cause: BaseException | None = None
        self.choices: list[str] = []
        self._random = random.Random(seed).random
        self._clock = clock
        self._switch_probability = switch_probability
        self._starve_probability = starve_probability
        self._starving: Actor | None = None
        self._starving_turns = 0  # that it will have to wait while others can go on
        self._ready: list[Actor] = []
        self._blocked: dict[Actor, None] = {}  # in the order they came
        self._living: dict[Actor, None] = {}
        self._workers: list[ActorThread] = []
        self._idle: list[ActorThread] = []

    def run(self, body: Callable[[], None]) -> None:
        """Let `body` be the main actor; return when it and all it started have ended, or raise the cause."""
        if self.current is not None:
            raise Misuse("a run is under way already")
        baton = threading.Lock()
        baton.acquire()
        main = self.current = Actor("main", body, baton)
        self.cause = None
        try:
            body()
        except BaseException as error:
            if self.current is not main:  # an interrupt from the keyboard, out of turn: the others can not be ended
                raise
            self.end(error)
        cause = self.cause
        self._end_the_others(main)
        self.current = None
        if cause is not None:
            raise cause

    def start(self, name: str, body: Callable[[], None]) -> Actor:
        if self.current is None:
            raise Misuse(f"cannot start {name!r} outside a run", "call it from inside SteppedThreads.run")
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = ActorThread()
            worker.thread = threading.Thread(target=self._work, args=(worker,), name="stepped", daemon=True)
            worker.thread.start()
            self._workers.append(worker)
        actor = worker.actor = Actor(name, body, worker.baton)
        self._living[actor] = None
        self._ready.append(actor)
        self.pause()
        return actor

    def join(self, actor: Actor, timeout: float | None = None) -> None:
        self.pause()
        if not actor.has_ended:
            me = self.here()
            actor.joiners.append(me)
            if not self.block(f"the end of {actor.name}", timeout):
                actor.joiners.remove(me)  # or its end would wake us from whatever we wait for by then

    def pause(self) -> None:
        """A seam: another actor may be scheduled."""
        current = self.current
        if current is None:
            return
        self._unwind_if_ended()
        if self._random() < self._switch_probability:
            self._wake_expired()
            if self._ready:
                if self._starve_probability and self._random() < self._starve_probability:
                    self._starving, self._starving_turns = current, STARVING_TURNS
                self._ready.append(current)
                self._hand_over(current)
                self._unwind_if_ended()

    def block(self, waits_for: str, timeout: float | None = None) -> bool:
        """Sleep until `on_ready` is called (True) or `timeout` seconds have passed (False)."""
        self._unwind_if_ended()
        is_woken = self._sleep(waits_for, timeout)
        self._unwind_if_ended()
        return is_woken

    def on_ready(self, actor: Actor) -> None:
        if actor in self._blocked:
            del self._blocked[actor]
            actor.is_woken = True
            self._ready.append(actor)

    def here(self) -> Actor:
        if self.current is None:
            raise Misuse("a wait is only possible inside a run", "call it from inside SteppedThreads.run")
        return self.current

    def end(self, cause: BaseException) -> None:
        """End every actor at its next seam. The first cause counts."""
        if self.cause is None:
            self.cause = cause
        self._ready.extend(self._blocked)
        self._blocked.clear()

    def _unwind_if_ended(self) -> None:
        if self.cause is not None:
            raise PowerCut(f"{self.here().name} is ended: {self.cause!r}")

    def _sleep(self, waits_for: str, timeout: float | None = None) -> bool:
        actor = self.here()
        actor.waits_for = waits_for
        actor.deadline_ns = None if timeout is None else self._clock.monotonic_ns() + int(timeout * 1e9)
        actor.is_woken = False
        self._blocked[actor] = None
        self._hand_over(actor)
        return actor.is_woken

    def _hand_over(self, actor: Actor) -> None:
        chosen = self._choose()
        if chosen is not actor:
            self.current = chosen
            chosen.baton.release()
            actor.baton.acquire()

    def _choose(self) -> Actor:
        """Take one of those that are ready; let time pass until there is one."""
        if self._blocked:
            self._wake_expired()
        while not self._ready:
            self._let_time_pass()
        ready = self._ready
        index = int(self._random() * len(ready))
        if self._starving_turns:
            self._starving_turns -= 1
            if ready[index] is self._starving:
                index -= 1  # another actor, if there is one
        ready[index], ready[-1] = ready[-1], ready[index]
        chosen = ready.pop()
        self.choices.append(chosen.name)
        return chosen

    def _let_time_pass(self) -> None:
        deadlines_ns = [actor.deadline_ns for actor in self._blocked if actor.deadline_ns is not None]
        if deadlines_ns:
            self._clock.advance_ns(max(0, min(deadlines_ns) - self._clock.monotonic_ns()))
            self._wake_expired()
        else:
            waiting = "".join(f"\n  {actor.name} waits for {actor.waits_for}" for actor in self._blocked)
            self.end(Deadlock(f"no actor can run:{waiting}", "each wait needs a notify or a timeout"))

    def _wake_expired(self) -> None:
        now_ns = self._clock.monotonic_ns()
        expired = [actor for actor in self._blocked if actor.deadline_ns is not None and actor.deadline_ns <= now_ns]
        for actor in expired:
            del self._blocked[actor]
            self._ready.append(actor)

    def _work(self, worker: ActorThread) -> None:
        while True:
            worker.baton.acquire()
            actor = worker.actor
            if actor is None:
                return
            try:
                if self.cause is None:
                    actor.body()
            except BaseException as error:
                self.end(error)
            self._leave(actor, worker)

    def _leave(self, actor: Actor, worker: ActorThread) -> None:
        actor.has_ended = True
        del self._living[actor]
        for joiner in actor.joiners:
            self.on_ready(joiner)
        self._idle.append(worker)
        self.current = chosen = self._choose()
        chosen.baton.release()  # from here on this thread touches nothing but its own lock

    def _end_the_others(self, main: Actor) -> None:
        """Give each actor that is left its turn to unwind, then end the workers."""
        self.end(PowerCut("the main body has ended"))
        while self._living:
            last = next(reversed(self._living))
            last.joiners.append(main)
            self._sleep(f"the end of {last.name}")
        for worker in self._workers:
            worker.actor = None
            worker.baton.release()
            assert worker.thread is not None
            worker.thread.join()
        self._workers.clear()
        self._idle.clear()
