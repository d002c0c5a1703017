"""States in which faults of the queue side must show: "17/120" is seed 17, the power cut at step 120.

Whatever the crash test finds wrong is a violation; so is a life that does not come to its end without a cut. Steps move
when the product does: then those behind an edit of the manifest are tried first, where files are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.broker.test_queue_crashes import SEEDS, check_state, played
from tools.simulator.observations import Violation

STRIDE = 7
STEPS_MAX = 500
EDITS_MAX = 40


def states(known: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Those that are known to show it, then each life behind its edits, and at some of its steps."""
    for state in known:
        seed, step = map(int, state.split("/"))
        yield partial(run, seed, step)
    for number in range(EDITS_MAX):
        for seed in SEEDS:
            yield partial(run_behind_edit, seed, number)
    for offset in range(STRIDE):
        for step in range(offset, STEPS_MAX, STRIDE):
            for seed in SEEDS:
                yield partial(run, seed, step)


def run(seed: int, step: int) -> None:
    try:
        wrong = check_state(seed, step)
    except Exception as error:
        wrong = [f"seed {seed}, step {step}, before the cut: {type(error).__name__}: {error}"]
    if wrong:
        raise Violation(wrong[0])


def run_behind_edit(seed: int, number: int) -> None:
    """Cut the power right behind the n-th time that the manifest is synced, if there is such a time."""
    try:
        steps, _ = played(seed)
    except Exception as error:
        raise Violation(f"seed {seed}, without a cut: {type(error).__name__}: {error}") from error
    synced = [at for at, step in enumerate(steps) if step.operation == "sync" and step.path.endswith("manifest")]
    if number < len(synced):
        run(seed, synced[number] + 1)
