"""A simulated machine: a disk, a clock, and the model of the expected state; it runs one process after another.

Invariants: after `run_process` no thread of the process is left, its locks are free, and `disk` is what the next
process finds. A killed process leaves its page cache behind, synced or not; a power cut leaves what the model of
persistence leaves; decay flips a bit of a block that is certainly on the disk.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

from tools.simulator.corruption import flip_bit
from tools.simulator.log_inspection import durable_blocks, horizon, newest_witness
from tools.simulator.model import Model
from tools.simulator.observations import Violation
from tools.simulator.simulated_process import DIRECTORY, Killed, SimulatedProcess
from tools.simulator.stepped_threads import SteppedThreads
from tools.simulator.workload import ScriptOperation
from warren.files.protocol import join
from warren.log.check.verify import verify
from warren.log.file_record import MANIFEST
from warren.log.settings import LogSettings
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import CrashModel, MemoryFiles

# Threads that rarely change, that hardly come to run, and that are forgotten between two lines: (switch, starve).
TEMPERS = ((0.05, 0.0), (0.25, 0.0), (0.7, 0.0), (0.4, 0.1))


class SimulatedMachine:
    """A machine, and the model of what must be on its disk."""

    def __init__(self, disk: MemoryFiles, model: Model, settings: LogSettings, seed: int) -> None:
        self.disk = disk
        self.model = model
        self.settings = settings
        self.clock = ManualClock()
        self.rng = SeededRandom(seed)
        self.files = FaultyFiles(disk)

    def run_process(self, operations: Sequence[ScriptOperation]) -> None:
        """Let one process do these lines, from opening to its end. Raises `PowerCut` if the power goes meanwhile."""
        switching, starving = TEMPERS[self.rng.id64() % len(TEMPERS)]
        threads = SteppedThreads(self.rng.id64(), self.clock, switching, starving)
        self.files.pause, self.files.on_cut = threads.pause, threads.cut_power
        try:
            with suppress(Killed):
                threads.run(SimulatedProcess(self, threads).run_all(list(operations)))
        finally:
            self.files.pause = self.files.on_cut = None
            self.files.faults.clear()
            self.disk.forget_locks()
            self.model.witnessed(horizon(self.disk, DIRECTORY))
            self.model.process_died()

    def verify(self) -> None:
        """Leftovers of a crash are not damage, nor are changes by opening: decided by the store's own recovery."""
        threads = SteppedThreads(0, self.clock)
        if self.disk.exists(join(DIRECTORY, MANIFEST)) and not self.model.decayed and not self.model.is_repaired:
            report = threads.run(lambda: verify(self.disk, DIRECTORY, threads))
            if not report.is_good:
                raise Violation(f"verify finds damage: {report.first_damage}")

    def lose_power(self, model: CrashModel, rng: int) -> None:
        """Stop the machine and start it again with the remaining disk."""
        self.disk = crashed(self.disk, model, rng)
        self.files.inner = self.disk
        self.restore_power()

    def decay(self, rng: int) -> None:
        """One bit of one durable block flips."""
        blocks = durable_blocks(self.disk, DIRECTORY)
        if blocks:
            rolled = random.Random(rng)
            path, header, writes = rolled.choice(blocks)
            end = rolled.choice((header.body_at, header.end))
            flip_bit(self.disk, path, rolled.randrange(header.offset * 8, end * 8))
            self.model.decay(writes)

    def restore_power(self, steps: int | None = None) -> None:
        """The machine runs again, for so many steps or for good."""
        self.files.is_cut = False
        self.files.cut_fraction = None
        self.files.cut_at = None if steps is None else len(self.files.steps) + steps


def crashed(disk: MemoryFiles, model: CrashModel, rng: int) -> MemoryFiles:
    """What a power cut leaves. It never takes a witness that was synced: else damage would pass for a torn tail."""
    after = disk.crash(model, SeededRandom(rng))
    synced = newest_witness(disk.crash(CrashModel.SYNCED, SeededRandom(rng)), DIRECTORY)
    if newest_witness(after, DIRECTORY) < synced:
        raise Violation(f"a power cut took the witness of epoch {synced}, which was synced")
    return after
