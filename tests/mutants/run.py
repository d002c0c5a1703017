"""Does the simulator find what is wrong? Seed one fault after the other and see. `make mutants`

    python -m tests.mutants.run [NAME …]

Each fault runs in a process of its own, in its own workloads, until a state breaks a promise or the budget is used up;
then the same states run without the fault and must pass. A fault of the workload `tests` is caught by tests of the
suite, which `known` names, instead of simulated states. The table says what caught it and after how many states. It
ends with 1 if a mutant lives, or if the product itself fails, and before the first mutant runs if the target of one is
missing: a patch of nothing would pass for caught or for harmless. A mutant that names something that is not there any
more lives: its own error is not a promise that was broken.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice

import pytest
from rich.console import Console
from rich.table import Table

from tests.mutants import broker_states, queue_states
from tests.mutants.broker_faults import BROKER_FAULTS
from tests.mutants.defect_faults import DEFECT_FAULTS
from tests.mutants.faults import FAULTS, QUEUES, TESTS, Fault, without_target
from tests.mutants.queue_faults import QUEUE_FAULTS
from tools.simulator.broker.simulator import BROKER
from tools.simulator.campaign import round_of
from tools.simulator.observations import Violation
from tools.simulator.simulator import Simulator, Spec
from warren.base.errors import Misuse

EVERY_FAULT = (*FAULTS, *QUEUE_FAULTS, *BROKER_FAULTS, *DEFECT_FAULTS)
STATES_MAX = 1500  # of one mutant …
HUNT_SECONDS_MAX = 60  # … and its time
GROUPS_PER_ROUND = 3
ERRORS_OF_A_MUTANT = ("AttributeError", "NameError", "ImportError")  # in its own text, not caused by it
TEST_SECONDS_MAX = 30  # of a test of the suite that a mutant keeps waiting
SECONDS_MAX = 150  # a mutant in which a state does not come to an end is found out too


@dataclass(frozen=True, slots=True)
class Verdict:
    fault: Fault
    caught_by: str  # empty: it lives
    states: int
    seconds: float
    is_product_sound: bool


def states_for(fault: Fault) -> Iterator[Callable[[], None]]:
    """Each raises a `Violation` if something is wrong."""
    if TESTS in fault.workloads:
        return iter([partial(run_test, node) for node in fault.known])
    if QUEUES in fault.workloads:
        return islice(queue_states.states(fault.known), STATES_MAX)
    if BROKER in fault.workloads:
        return islice(broker_states.states(fault.known), STATES_MAX)
    simulator = Simulator()
    return (partial(simulator.run_state, spec) for spec in simulated_states(fault))


def run_test(node: str) -> None:
    """Run a test of the suite, or all of a file, in this process; a failed test is the violation."""
    quiet = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    status = pytest.main([*quiet, f"--timeout={TEST_SECONDS_MAX}", node])
    if status == pytest.ExitCode.TESTS_FAILED:
        raise Violation(node)
    if status != pytest.ExitCode.OK:
        raise Misuse(f"{node} did not run: pytest ended with {status!r}", "correct the node id in defect_faults.py")


def simulated_states(fault: Fault) -> Iterator[Spec]:
    """Those that are known to show it, then a few groups of each round, so that many scripts are tried."""
    groups = (group for seed in count(1) for group in round_of(fault.workloads, seed)[:GROUPS_PER_ROUND])
    return islice(chain(map(Spec.parse, fault.known), chain.from_iterable(groups)), STATES_MAX)


def hunt(fault: Fault) -> tuple[str, int]:
    """Run the mutant: the violation that caught it (empty if none did) and how many states it took."""
    number, deadline = 0, time.monotonic() + HUNT_SECONDS_MAX
    for number, run_state in enumerate(states_for(fault), 1):  # the last number is the answer
        try:
            with fault.seeded():
                run_state()
        except Violation as violation:
            return str(violation).splitlines()[0], number
        if time.monotonic() > deadline:
            break
    return "", number


def is_sound(fault: Fault, states: int) -> bool:
    """Run the same states without the fault."""
    for run_state in islice(states_for(fault), states):
        run_state()
    return True


def run_here(name: str) -> None:
    """The child's part: hunt, then acquit the product; report to the parent in one line."""
    fault = next(fault for fault in EVERY_FAULT if fault.name == name)
    caught_by, states = hunt(fault)
    print(json.dumps({"caught_by": caught_by, "states": states, "is_product_sound": is_sound(fault, states)}))


def run_apart(fault: Fault) -> Verdict:
    start = time.monotonic()
    command = [sys.executable, "-m", "tests.mutants.run", "--here", fault.name]
    try:
        handle = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(fault, "it does not come to an end", 0, time.monotonic() - start, True)
    seconds = time.monotonic() - start
    if handle.returncode:
        print(handle.stderr, file=sys.stderr)
        return Verdict(fault, "", 0, seconds, False)
    verdict = Verdict(fault, **json.loads(handle.stdout.splitlines()[-1]), seconds=seconds)
    if any(error in verdict.caught_by for error in ERRORS_OF_A_MUTANT):
        print(f"{fault.name} fails by itself: {verdict.caught_by}", file=sys.stderr)
        return replace(verdict, caught_by="")
    return verdict


def table_of(verdicts: Sequence[Verdict]) -> Table:
    table = Table("mutant", "caught by", "states", "seconds")
    for verdict in verdicts:
        result = verdict.caught_by or ("LIVES" if verdict.is_product_sound else "FAILED")
        table.add_row(verdict.fault.name, result, str(verdict.states), f"{verdict.seconds:.1f}")
    return table


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--here"]:
        run_here(arguments[1])
        return 0
    chosen = [fault for fault in EVERY_FAULT if not arguments or fault.name in arguments]
    if unknown := sorted(set(arguments) - {fault.name for fault in chosen}):
        print(f"there is no mutant {', '.join(unknown)}", file=sys.stderr)
        return 1
    if missing := without_target(chosen):
        print("\n".join(f"MUTANT WITHOUT A TARGET {line}" for line in missing), file=sys.stderr)
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(run_apart, chosen))
    Console(width=None if sys.stdout.isatty() else 160).print(table_of(verdicts))
    alive = [verdict.fault.name for verdict in verdicts if not verdict.caught_by or not verdict.is_product_sound]
    print(f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants caught" + (f"; alive: {alive}" if alive else ""))
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
