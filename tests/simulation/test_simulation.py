"""On every commit: crash every step of one script of each workload, in every model. `make simulate` for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.simulator.campaign import round_of, run
from tools.simulator.simulator import Persistence, Spec, run_state
from tools.simulator.workload_shapes import SHAPES

SEED = 7
WHOLE = ("append", "rotate", "compact", "purge", "repair", "recover")  # every step of these …
IN_PART = [name for name in SHAPES if name not in WHOLE]  # … and of the others every sixth
ONCE_FAILED = [
    line.split()[0]
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_step_of_any_workload_breaks_a_promise_in_any_model(capsys: pytest.CaptureFixture[str]) -> None:
    groups = round_of(WHOLE, SEED) + round_of(IN_PART, SEED)[::6]
    *_, tally = run(groups)
    with capsys.disabled():
        print(f"\n  crash simulation: {tally}")
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.states == sum(map(len, groups)) > 4000
    assert {spec.persistence for group in groups for spec in group} == set(Persistence)


@pytest.mark.parametrize("spec", ONCE_FAILED)
def test_a_state_that_once_failed_stays_right(spec: str) -> None:
    run_state(Spec.parse(spec))
