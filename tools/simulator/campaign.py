"""Campaigns: a given number of crash states, on all cores. `make simulate N=…`

    python -m tools.simulator.campaign --states 20000 [--seed S] [--workload NAME] [--repro SPEC] [--script FILE]

Workloads are scripts for the log store (`workload_shapes`), and `broker`: AMQP clients of the whole broker
(`broker.simulator`). A round takes every tenth step of it, since its states take longer.

A round takes one script of every workload and every operation of it that changes the disk — write, sync, rename, link,
remove, allocate, create — and crashes there in every model of persistence: `all`, `synced`, `killed` once, `reordered`
twice. The next round does the same with the next seed. Groups of states are shuffled, so that a campaign which ends in
mid-round has covered some of everything.

The exit code is 0 if no promise was broken, else 1, with a line per violation that begins with a spec for `--repro`.
That prints the script; saved and shrunk by hand it is run again with `--script FILE`: all its steps, or one of them
with `--repro FILE-NAME:0/STEP/MODEL/CHANCE`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.simulator.broker.simulator import BROKER, BrokerSimulator, broker_steps
from tools.simulator.observations import Violation
from tools.simulator.simulator import CUT_FRACTIONS, Persistence, Simulator, Spec, run_state, steps_of
from tools.simulator.workload import parse, text
from tools.simulator.workload_shapes import SAVED, SHAPES, generate
from warren.base.errors import Misuse

PROGRESS_SECONDS = 5.0
VIOLATIONS_MAX = 20  # enough for a diagnosis
NEVER = 10**6
PER_STEP = (*Persistence, Persistence.REORDERED)
BROKER_STRIDE = 10
WORKLOADS = (*SHAPES, BROKER)


@dataclass(slots=True)
class CampaignTally:
    states: int = 0
    seconds: float = 0.0
    workloads: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.states / self.seconds if self.seconds else 0.0
        summary = f"{len(self.violations)} violations" if self.violations else "no violation"
        return f"{self.states} states of {len(self.workloads)} workloads, {rate:.0f} states/s, {summary}"


def round_of(workloads: Sequence[str], seed: int) -> list[list[Spec]]:
    """Every step of one script per workload, in every model. The specs of a group share their run-up."""
    groups = [group_at(name, seed, step) for name in workloads for step in _steps_to_crash(name, seed)]
    random.Random(seed).shuffle(groups)
    return groups


def _steps_to_crash(workload: str, seed: int) -> Iterable[int]:
    """Each step, and the end. A workload that fails without any crash runs up to its failure, which is reported."""
    try:
        if workload == BROKER:
            return range(seed % BROKER_STRIDE, len(broker_steps(seed)) + 1, BROKER_STRIDE)
        return range(len(steps_of(workload, seed)) + 1)
    except Exception:
        return [NEVER]


def group_at(workload: str, seed: int, step: int) -> list[Spec]:
    rng = random.Random(f"{workload} {seed} {step}")
    variant = rng.randrange(len(CUT_FRACTIONS))
    chances = [len(CUT_FRACTIONS) * rng.randrange(1 << 16) + variant for _ in PER_STEP]
    # `killed` comes last: it consumes the run-up.
    pairs = sorted(zip(PER_STEP, chances, strict=True), key=lambda pair: pair[0] is Persistence.KILLED)
    return [Spec(workload, seed, step, persistence, number) for persistence, number in pairs]


def rounds(workloads: Sequence[str], seed: int) -> Iterator[list[Spec]]:
    for number in count(seed):
        yield from round_of(workloads, number)


def limited(groups: Iterable[list[Spec]], states: int) -> Iterator[list[Spec]]:
    for group in groups:
        yield group[:states]
        states -= len(group)
        if states <= 0:
            return


def run_group(group: list[Spec]) -> list[tuple[Spec, str]]:
    """Each state and its violation, empty if there is none."""
    simulator = BrokerSimulator() if group and group[0].workload == BROKER else Simulator()
    results = []
    for spec in group:
        try:
            simulator.run_state(spec)
        except Violation as violation:
            results.append((spec, str(violation)))
        else:
            results.append((spec, ""))
    return results


def _default_sigterm() -> None:
    """A pool ends its processes by SIGTERM, but the parent process may have a handler that ignores it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run(groups: Iterable[list[Spec]], processes: int | None = None) -> Iterator[CampaignTally]:
    """Run the groups on all cores; the tally after each."""
    tally = CampaignTally()
    start = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes or os.cpu_count(), _default_sigterm) as pool:
        for results in pool.imap_unordered(run_group, groups, chunksize=2):
            tally.states += len(results)
            tally.workloads |= {spec.workload for spec, _ in results}
            tally.violations += [what for _, what in results if what]
            tally.seconds = time.monotonic() - start
            yield tally
            if len(tally.violations) >= VIOLATIONS_MAX:
                return


def watched(tallies: Iterable[CampaignTally], states: int) -> CampaignTally:
    """Show progress: a bar on a terminal, else a line every PROGRESS_SECONDS."""
    tally = CampaignTally()
    columns = (TextColumn("crash states"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("states", total=states)
        printed_at = 0.0
        for tally in tallies:
            bar.update(task, completed=tally.states)
            if bar.disable and tally.seconds - printed_at >= PROGRESS_SECONDS:
                printed_at = tally.seconds
                print(f"  … {tally}", flush=True)
    return tally


def reproduce(spec: Spec) -> int:
    """Show a state: its script, the step at which it stops, and the violation."""
    is_broker = spec.workload == BROKER
    steps = broker_steps(spec.seed) if is_broker else steps_of(spec.workload, spec.seed)
    if not is_broker:
        print(text(generate(spec.workload, spec.seed)), end="")
    print(
        f"-- stopped at step {spec.step} of {len(steps)}: {steps[spec.step] if spec.step < len(steps) else 'the end'}"
    )
    try:
        BrokerSimulator().run_state(spec) if is_broker else run_state(spec)
    except Violation:
        traceback.print_exc()
        return 1
    print(f"{spec}: no violation")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.simulator.campaign", description="crash simulation")
    parser.add_argument("--states", type=int, default=20_000, help="how many crash states")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    parser.add_argument(
        "--workload", action="append", choices=sorted(WORKLOADS), help="only this one (may be repeated)"
    )
    parser.add_argument("--repro", metavar="SPEC", help="show one state, as a violation names it")
    parser.add_argument("--script", type=Path, help="a saved script instead of the workloads")
    options = parser.parse_args(arguments)
    if options.script:
        SAVED[options.script.name] = parse(options.script.read_text())
    if options.repro:
        return reproduce(Spec.parse(options.repro))
    workloads = [options.script.name] if options.script else options.workload or list(WORKLOADS)
    groups = limited(rounds(workloads, options.seed), options.states)
    tally = watched(run(groups), options.states)
    print(tally)
    for violation in tally.violations:
        print(f"  {violation}")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Misuse as error:
        sys.exit(str(error))
