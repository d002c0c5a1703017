"""The simulator: one spec is one run, a planted bug is found and named, and a sound store passes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS, TESTS, Fault, Patch
from tools.simulator import campaign
from tools.simulator.observations import Violation
from tools.simulator.simulated_machine import SimulatedMachine
from tools.simulator.simulator import CUT_FRACTIONS, Persistence, Simulator, Spec, run_state, steps_of
from tools.simulator.workload import ScriptOperation
from tools.simulator.workload_shapes import SAVED, SHAPES
from warren.base.errors import Misuse
from warren.durability.group_commit import GroupCommit
from warren.durability.log_file import EpochWrite, LogFile


def test_a_spec_is_read_as_it_is_written() -> None:
    spec = Spec("append", 17, 42, Persistence.REORDERED, 3)
    assert Spec.parse(str(spec)) == spec
    assert str(spec) == "append:17/42/reordered/3"


@pytest.mark.parametrize("wrong", ["", "append:1/2/all", "append:1/2/some/3", "append/1/2/all/3", "append:x/2/all/3"])
def test_what_is_no_spec_is_refused(wrong: str) -> None:
    with pytest.raises(Misuse, match="workload:seed/step/model/chance"):
        Spec.parse(wrong)


@pytest.mark.parametrize("workload", [name for name in SHAPES if name != "create"])
def test_one_seed_is_one_sequence_of_steps(workload: str) -> None:
    first = steps_of(workload, 11)
    steps_of.cache_clear()
    assert steps_of(workload, 11) == first
    assert {"write", "sync", "rename", "create", "allocate"} <= {step.operation for step in first}


def test_the_workloads_together_take_every_kind_of_step() -> None:
    kinds = {
        step.operation for name in ("recycle", "purge", "repair") for seed in range(3) for step in steps_of(name, seed)
    }
    assert {"write", "sync", "rename", "link", "remove", "allocate", "create", "sync_directory"} <= kinds


def test_a_run_up_that_is_used_again_gives_what_a_fresh_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last life of each state ends says whether two runs were the same."""
    group = campaign.group_at("rotate", 3, 40)
    kept: list[list[str]] = []
    for simulators in ([Simulator()] * len(group), [Simulator() for _ in group]):
        traces: list[str] = []
        monkeypatch.setattr(SimulatedMachine, "run_process", _tracing(SimulatedMachine.run_process, traces))
        for simulator, spec in zip(simulators, group, strict=True):
            traces.append("--")
            simulator.run_state(spec)
        monkeypatch.undo()
        kept.append([trace for trace in traces if not trace.startswith("run-up")])
    assert kept[0] == kept[1]


def _tracing(run_process: Callable[[SimulatedMachine, Sequence[ScriptOperation]], None], traces: list[str]) -> object:
    def traced(machine: SimulatedMachine, operations: Sequence[ScriptOperation]) -> None:
        is_run_up = any(operation.client in "ab" for operation in operations)
        try:
            run_process(machine, operations)
        finally:
            model = {n: (s.standing.value, s.epoch) for n, s in machine.model.sessions.items()}
            traces.append(f"{'run-up' if is_run_up else 'after'} {model}")

    return traced


def test_a_group_of_a_campaign_shares_its_run_up_and_has_every_model() -> None:
    group = campaign.group_at("append", 1, 9)
    assert len({spec.run_up for spec in group}) == 1
    assert {spec.persistence for spec in group} == set(Persistence)
    assert group[-1].persistence is Persistence.KILLED


def test_a_planted_bug_is_found_and_named_by_its_spec() -> None:
    target = f"{LogFile.__module__}:{LogFile.__name__}.write_through"
    lying = Fault("lying sync", "", (), (Patch(target, lambda real: _lie),))
    spec = Spec("append", 1, 10**6, Persistence.SYNCED, 8)
    run_state(spec)
    with lying.seeded(), pytest.raises(Violation, match="append:1/1000000/synced/8: the store does not open"):
        run_state(spec)


def _lie(participant: LogFile, part: EpochWrite) -> None:
    """It only writes."""
    participant.write(part)


def test_an_error_of_the_product_is_a_violation_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(participant: LogFile, part: EpochWrite) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(LogFile, "write_through", broken)
    with pytest.raises(Violation, match="append:1/30/all/0: KeyError: 'oops'"):
        run_state(Spec("append", 1, 30, Persistence.ALL, 0))


def test_a_campaign_counts_states_and_reports_violations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaign.main(["--states", "12", "--workload", "append"]) == 0
    assert capsys.readouterr().out.startswith("12 states of 1 workloads")
    monkeypatch.setattr(LogFile, "write_through", _lie)
    assert campaign.main(["--states", "30", "--workload", "append"]) == 1
    out = capsys.readouterr().out
    assert "violations" in out.splitlines()[0]
    assert campaign.main(["--repro", out.splitlines()[1].split(": ")[0].strip()]) == 1


def test_a_saved_script_runs_like_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "small.txt"
    saved.write_text("a begin 1 0\na put 1 1 k v\na commit 1\n")
    assert campaign.main(["--script", str(saved), "--states", "10"]) == 0
    assert campaign.main(["--script", str(saved), "--repro", "small.txt:0/12/synced/5"]) == 0
    assert "-- stopped at step 12 of" in capsys.readouterr().out
    SAVED.clear()


def test_a_campaign_of_a_workload_that_fails_without_a_crash_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(commit: GroupCommit, parts: list[EpochWrite]) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(GroupCommit, "_write_and_sync", broken)
    steps_of.cache_clear()
    groups = campaign.round_of(["append"], 12345)
    *_, tally = campaign.run(groups, processes=1)
    assert len(tally.violations) == tally.states == len(groups[0])
    assert "KeyError: 'oops'" in tally.violations[0]


def test_every_fault_has_a_target_and_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 12
    for fault in FAULTS:
        assert set(fault.workloads) <= {*SHAPES, TESTS}
        with fault.seeded():
            pass


def test_every_fault_is_named_in_the_failure_model() -> None:
    page = (Path(__file__).parents[3] / "docs" / "failure_model.md").read_text()
    assert not [fault.name for fault in FAULTS if f"`{fault.name}`" not in page]


def test_a_fault_without_a_target_refuses_to_start() -> None:
    for target in ("warren.log.store:LogStore.fly", "warren.log.sky:fly", "warren.log.store:Sky.fly"):
        with (
            pytest.raises(Misuse, match="there is no"),
            Fault("x", "", (), (Patch(target, lambda real: real),)).seeded(),
        ):
            pass


def test_the_cut_comes_before_the_step_or_in_it() -> None:
    fractions = [Spec("append", 1, 0, Persistence.ALL, rng).cut_fraction for rng in range(8)]
    assert fractions == [*CUT_FRACTIONS, *CUT_FRACTIONS]
    assert [Spec("append", 1, 0, Persistence.ALL, 4 * n).cuts_recovery for n in range(3)] == [False, True, False]


def test_a_campaign_ends_in_a_process_with_its_own_handler_for_sigterm() -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        tallies = campaign.run([campaign.group_at("append", 1, step) for step in range(40)], processes=2)
        assert next(iter(tallies)).states > 0
        tallies.close()  # type: ignore[attr-defined]
    finally:
        signal.signal(signal.SIGTERM, before)
