"""States in which faults of turns, confirms and topology must show: those that are known, then, seed by seed, the end
of a life, and cuts where an epoch has just been written: what is reported too early is not durable there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

from tools.simulator.broker.simulator import BROKER, BrokerSimulator, broker_steps
from tools.simulator.campaign import NEVER, group_at
from tools.simulator.simulator import Persistence, Spec

STRIDE = 4


def states(known: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Each raises a `Violation` if something is wrong."""
    for spec in known:
        yield partial(BrokerSimulator().run_state, Spec.parse(spec))
    for seed in count(1):
        steps = broker_steps(seed)
        written = [at for at, step in enumerate(steps) if step.operation == "write" and "epoch" in step.path]
        for step in (NEVER, *written[seed % STRIDE :: STRIDE]):
            group = group_at(BROKER, seed, step)
            yield partial(BrokerSimulator().run_state, next(s for s in group if s.persistence is Persistence.SYNCED))
