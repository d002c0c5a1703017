"""The broker in the simulator: clients by a seed, one step, one kind of crash, and the recovery from it.

    run-up      clients work (`workload`) until the power cut, or the kill, at step n
    aftermath   the disk is opened, in some states cut again and opened again; an inspector compares it with the
                expected messages; in some states it then drains everything, and the next process finds only the rest

A state is named by its spec as in `simulator`: `broker:seed/step/model/chance`. The run-up is cached for the next state
that differs only in what the disk keeps.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from tools.simulator.broker.checker import Inspector, check_restarted
from tools.simulator.broker.environment import Begin, BrokerEnvironment, SimulatedBroker
from tools.simulator.broker.expected_messages import ExpectedMessages
from tools.simulator.broker.workload import BrokerWorkload
from tools.simulator.observations import Violation
from tools.simulator.simulator import Persistence, Spec
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import CrashModel, PowerCut

BROKER = "broker"
RESTART_STEPS = 60  # about as many as a start has


@lru_cache(maxsize=64)
def broker_steps(seed: int) -> tuple[FaultStep, ...]:
    """Every operation that changes a disk when clients work undisturbed."""
    return tuple(BrokerEnvironment().play(seed, BrokerWorkload(seed).body))


class BrokerSimulator:
    """Runs states. Keeps the last run-up for the next state that can use it."""

    def __init__(self) -> None:
        self._run_up: tuple[str, int, int, float | None] | None = None
        self._environment = BrokerEnvironment()
        self._expected = ExpectedMessages()

    def run_state(self, spec: Spec) -> None:
        """Raises `Violation`, naming the spec, if the broker breaks a promise in this state."""
        try:
            with _quiet():
                self._run_state(spec)
        except (Exception, PowerCut) as error:
            self._run_up = None
            prefix = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            raise Violation(f"{spec}: {prefix}{error}") from error

    def _run_state(self, spec: Spec) -> None:
        if self._run_up != spec.run_up:
            self._environment, workload = BrokerEnvironment(), BrokerWorkload(spec.seed)
            self._run_up = spec.run_up
            self._environment.play(spec.seed, workload.body, spec.step, spec.cut_fraction)
            self._expected = workload.expected
            self._expected.restarted()
        environment, rng = self._environment, random.Random(f"{spec}")
        if spec.persistence is Persistence.KILLED:
            self._run_up = None  # the next process changes this very disk
            environment.kill()
        else:
            environment = environment.crashed(CrashModel(spec.persistence.value), spec.rng)
        if spec.cuts_recovery:
            environment.play(spec.rng, _begin_only, rng.randrange(RESTART_STEPS))
            environment = environment.crashed(rng.choice(list(CrashModel)), rng.randrange(1 << 30))
        Aftermath(self._expected, rng.random() < 0.25).play(environment, spec.rng)


class Aftermath:
    def __init__(self, expected: ExpectedMessages, drains: bool) -> None:
        self._expected = expected
        self._drains = drains
        self._left: dict[str, list[bytes]] = {}

    def play(self, environment: BrokerEnvironment, seed: int) -> None:
        environment.play(seed, self._body)

    def _body(self, begin: Begin) -> None:
        incarnation = begin()
        incarnation.serve([[self._inspect]], stops=self._drains)
        if problems := incarnation.problems():
            raise Violation(f"problems after the start: {problems}")
        if self._drains:
            begin().serve([[self._inspect_drained]], stops=False)

    def _inspect(self, incarnation: SimulatedBroker) -> None:
        inspector = Inspector(incarnation)
        inspector.inspect(self._expected)
        inspector.probe(self._expected)
        check_restarted(self._expected, inspector.standing)
        if self._drains:
            self._left = inspector.drain()

    def _inspect_drained(self, incarnation: SimulatedBroker) -> None:
        inspector = Inspector(incarnation)
        known = copy.copy(self._expected)
        known.queues = {name: queue for name, queue in known.queues.items() if name in self._left}
        inspector.inspect(known)
        found = {name: inspector.own(name) for name in self._left}
        if found != self._left or any(inspector.standing.queues.values()):
            raise Violation(f"{self._left} was left, and {found} is there beside {inspector.standing.queues}")


def _begin_only(begin: Begin) -> None:
    incarnation = begin()
    incarnation.vhosts.warm_up()


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable the event log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
