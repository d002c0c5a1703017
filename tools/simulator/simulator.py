"""The simulator: one workload, one step, one kind of crash, and the recovery from it.

    run-up      the workload runs on a simulated disk until the power cut (or the kill) at step n
    aftermath   the disk is opened, compared with the model, written to; a second power cut, in half of the states
                during recovery; it is opened, compared, written to, closed; opened and compared once more

A *state* is named by its spec, `workload:seed/step/model/chance`, and a spec is a repro: everything else follows from
it. The models of persistence are those of `memory_crash` and `killed`: the process dies, the machine does not, so that
the next process reads unsynced bytes, and loses them in a later power cut.

The chance number selects how much of the step is done (modulo 4), the step of the second power cut, and what a
reordering disk keeps. `Simulator` caches the last run-up: states that differ only in what the disk keeps share it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from tools.simulator.model import Model
from tools.simulator.observations import Violation
from tools.simulator.simulated_machine import SimulatedMachine, crashed
from tools.simulator.simulated_process import DIRECTORY
from tools.simulator.stepped_threads import SteppedThreads
from tools.simulator.workload import Script, ScriptOperation
from tools.simulator.workload_shapes import ScriptDraft, generate
from warren.base.errors import Misuse
from warren.base.ids import ChannelId, StreamId, TimelineId
from warren.durability.timeline import Timeline
from warren.files.protocol import join
from warren.log.file_record import DIRECTORIES
from warren.log.manifest import Manifest, ManifestState, StreamRecord
from warren.log.settings import LogSettings
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultStep
from warren.testing.memory_files import CrashModel, MemoryFiles, PowerCut

CUT_FRACTIONS = (None, 1.0, 0.3, 0.7)
RECOVERY_STEPS = 60  # about as many as opening and a few sessions have
CONTAINER_BYTES = 4096  # far below what a real store uses: files shall grow often and be read fast


class Persistence(Enum):
    """What of the disk the next process finds."""

    ALL = "all"
    SYNCED = "synced"
    REORDERED = "reordered"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, order=True)
class Spec:
    workload: str
    seed: int
    step: int
    persistence: Persistence
    rng: int

    def __str__(self) -> str:
        return f"{self.workload}:{self.seed}/{self.step}/{self.persistence.value}/{self.rng}"

    @classmethod
    def parse(cls, spec: str) -> Spec:
        try:
            head, step, persistence, rng = spec.strip().split("/")
            workload, seed = head.split(":")
            return cls(workload, int(seed), int(step), Persistence(persistence), int(rng))
        except ValueError as error:
            raise Misuse(f"{spec!r} is no state", "write it as workload:seed/step/model/chance") from error

    @property
    def cut_fraction(self) -> float | None:
        """None: the power goes before the step. Else in it, when so much of a write is done."""
        return CUT_FRACTIONS[self.rng % len(CUT_FRACTIONS)]

    @property
    def cuts_recovery(self) -> bool:
        return bool(self.rng // len(CUT_FRACTIONS) % 2)

    @property
    def verifies(self) -> bool:
        return self.rng // len(CUT_FRACTIONS) % 8 < 2

    @property
    def run_up(self) -> tuple[str, int, int, float | None]:
        return self.workload, self.seed, self.step, self.cut_fraction


def run_state(spec: Spec) -> None:
    """Raises `Violation`, naming the spec, if the store breaks a promise in this state."""
    Simulator().run_state(spec)


@lru_cache(maxsize=64)
def steps_of(workload: str, seed: int) -> tuple[FaultStep, ...]:
    """Every operation that changes the disk when the workload runs undisturbed."""
    machine = _machine(generate(workload, seed))
    _play(machine, generate(workload, seed))
    return tuple(machine.files.steps)


class Simulator:
    """Runs states. Keeps the last run-up for the next state that can use it."""

    def __init__(self) -> None:
        self._run_up: tuple[str, int, int, float | None] | None = None
        self._machine: SimulatedMachine | None = None

    def run_state(self, spec: Spec) -> None:
        try:
            with _quiet_generators():
                self._run_state(spec)
        except (Exception, PowerCut) as error:
            self._run_up = None
            prefix = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            raise Violation(f"{spec}: {prefix}{error}") from error

    def _run_state(self, spec: Spec) -> None:
        rng = random.Random(f"{spec}")
        machine = self._world_at(spec)
        if spec.persistence is Persistence.KILLED:
            self._run_up = None  # the next process changes this very disk
        else:
            machine = _after(machine, spec, rng)
        if spec.verifies:
            machine.verify()
        _aftermath(machine, rng, rng.randrange(RECOVERY_STEPS) if spec.cuts_recovery else None)
        if spec.verifies:
            machine.verify()

    def _world_at(self, spec: Spec) -> SimulatedMachine:
        if self._run_up != spec.run_up or self._machine is None:
            script = generate(spec.workload, spec.seed)
            self._machine = _machine(script)
            self._machine.files.cut_at, self._machine.files.cut_fraction = spec.step, spec.cut_fraction
            with suppress(PowerCut):
                _play(self._machine, script)
            self._run_up = spec.run_up
        return self._machine


@contextmanager
def _quiet_generators() -> Iterator[None]:
    """A generator that was running when the power went is closed when it is collected: then the power is still gone,
    which needs no report."""
    default_hook = sys.unraisablehook
    sys.unraisablehook = lambda prefix: None if isinstance(prefix.exc_value, PowerCut) else default_hook(prefix)
    try:
        yield
    finally:
        sys.unraisablehook = default_hook


def _play(machine: SimulatedMachine, script: Script) -> None:
    for lines in script.processes():
        machine.run_process(lines)
        match lines[-1]:
            case ScriptOperation(verb="power-cut", arguments=(model, rng)):
                machine.lose_power(CrashModel(model), int(rng))
            case ScriptOperation(verb="decay", arguments=(rng,)):
                machine.decay(int(rng))


def _after(machine: SimulatedMachine, spec: Spec, rng: random.Random) -> SimulatedMachine:
    """A world of its own that begins with what the crash left."""
    disk = crashed(machine.disk, CrashModel(spec.persistence.value), spec.rng)
    return SimulatedMachine(disk, machine.model.copy(), machine.settings, rng.randrange(1 << 30))


def _aftermath(machine: SimulatedMachine, rng: random.Random, cut_at: int | None) -> None:
    """Open, compare, write; crash, at a given step of this; open, compare, write; close; open, compare."""
    machine.restore_power(cut_at)
    with suppress(PowerCut):
        machine.run_process(_more_lines(machine, rng, "kill"))
    machine.lose_power(rng.choice(list(CrashModel)), rng.randrange(1 << 30))
    machine.run_process(_more_lines(machine, rng, "reopen"))
    machine.run_process([])


def _more_lines(machine: SimulatedMachine, rng: random.Random, ending: str) -> Sequence[ScriptOperation]:
    channels = machine.settings.channel_count
    draft = ScriptDraft(str(rng.random()), channels, sessions=max(machine.model.sessions, default=0))
    draft.sessions("xy", 1)
    if any(session.stream for session in machine.model.sessions.values()):
        draft.stream_session("x", "own", "end")
    if rng.random() < 0.5:
        for verb in rng.choice((["rotate"], ["compact"], ["compact", "purge"])):
            draft.add("x", verb)
        draft.session("x", ("end",))
    draft.all_clients(ending)
    return draft.operations


def _machine(script: Script) -> SimulatedMachine:
    given = script.settings
    settings = LogSettings(
        channel_count=given.get("channels", 1),
        max_write_buffers=given.get("buffers", 10),
        block_bytes=given.get("block", 1 << 20),
        merge_memory_bytes=given.get("memory", 512 << 20),
        rotate_bytes=given.get("rotate_bytes", 64 << 20),
        recycle_files=bool(given.get("recycle", 0)),
        retention_seconds=0.0,
        snapshot_at_stop=bool(given.get("snapshot", 0)),
        compaction_garbage_ratio=0.0,
        use_worker_process=False,
    )
    disk = MemoryFiles()
    if not given.get("fresh", 0):
        _lay_out(disk)
    return SimulatedMachine(disk, Model(), settings, given.get("seed", 0))


def _lay_out(disk: MemoryFiles) -> None:
    """A store whose containers are small, as no setting would allow."""
    for name in DIRECTORIES:
        disk.make_directories(join(DIRECTORY, name))
    streams = {StreamId(0): StreamRecord(StreamId(0), "kv", ChannelId(0), is_records=False)}
    state = ManifestState(Timeline(TimelineId(1)), CONTAINER_BYTES, 2, streams=streams)
    Manifest(disk, DIRECTORY, SteppedThreads(0), SeededRandom(0), state).close()
