"""The life of one process on a simulated machine: it opens the store, does its lines of a script, and ends.

    World       a disk, a clock, and the model of what must be there; processes come and go
    Life        one process: opened ─▶ compared with the model ─▶ its lines ─▶ closed | killed | power cut

Clients are threads that take turns by the seed of the world; the model is told of every step as soon as it is done,
with no seam between the two. A client that meets an error stops; unless the script asked for faults, it is a violation.

Always true: after `World.live` no thread of the process is left, its locks are free, and `World.disk` is what the next
process finds. A killed process leaves its page cache behind, synced or not; a power cut leaves what the model of
persistence leaves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch, StorageId
from warren.files.protocol import base_name, join
from warren.log.entries import EntryKind
from warren.log.file_header import Purpose
from warren.log.file_record import FileState
from warren.log.layout import MANIFEST
from warren.log.repair import Repair
from warren.log.session import Session
from warren.log.settings import LogSettings
from warren.log.store import LogStore, Machine
from warren.log.verify import verify
from warren.testing.decay import flip_bit
from warren.testing.faulty_files import Fault, FaultyFiles, Kind, Pages
from warren.testing.manual_clock import ManualClock
from warren.testing.memory_files import CrashModel, MemoryFiles
from warren.testing.model import Model, Seen, Violation, Write
from warren.testing.reading import durable_blocks, entries_of, epochs_on_disk, horizon, newest_witness, state_of
from warren.testing.seeded_chance import SeededChance
from warren.testing.stepped_threads import SteppedThreads
from warren.testing.workload import Operation, phases, value_bytes

DIRECTORY = "log"
TAKEN = "taken"
SWITCH_PROBABILITIES = (0.05, 0.25, 0.7)  # threads that rarely change, and threads that hardly come to run


class Killed(BaseException):
    """The process is gone. Only the simulator may catch this."""


class World:
    """A machine, and the model of what must be on its disk."""

    def __init__(self, disk: MemoryFiles, model: Model, settings: LogSettings, seed: int) -> None:
        self.disk = disk
        self.model = model
        self.settings = settings
        self.clock = ManualClock()
        self.chance = SeededChance(seed)
        self.files = FaultyFiles(disk)

    def live(self, operations: Sequence[Operation]) -> None:
        """Let one process do these lines, from opening to its end. Raises `PowerCut` if the power goes meanwhile."""
        switching = SWITCH_PROBABILITIES[self.chance.id64() % len(SWITCH_PROBABILITIES)]
        threads = SteppedThreads(self.chance.id64(), self.clock, switching)
        self.files.pause, self.files.on_cut = threads.pause, threads.cut_power
        try:
            with suppress(Killed):
                threads.run(Life(self, threads).run_all(list(operations)))
        finally:
            self.files.pause = self.files.on_cut = None
            self.files.faults.clear()
            self.disk.forget_locks()
            self.model.witnessed(horizon(self.disk, DIRECTORY))
            self.model.process_died()

    def verify(self) -> None:
        """What a crash has left is no damage, nor is what opening has made of it: ask the store's own judge."""
        threads = SteppedThreads(0, self.clock)
        if self.disk.exists(join(DIRECTORY, MANIFEST)) and not self.model.decayed and not self.model.is_repaired:
            report = threads.run(lambda: verify(self.disk, DIRECTORY, threads))
            if not report.is_good:
                raise Violation(f"verify finds damage: {report.first_damage}")

    def lose_power(self, model: CrashModel, chance: int) -> None:
        """The machine stops and starts again with what is left."""
        self.disk = crashed(self.disk, model, chance)
        self.files.inner = self.disk
        self.restore_power()

    def decay(self, chance: int) -> None:
        """One bit of one durable block flips."""
        blocks = durable_blocks(self.disk, DIRECTORY)
        if blocks:
            rolled = random.Random(chance)
            path, header, writes = rolled.choice(blocks)
            end = rolled.choice((header.body_at, header.end))
            flip_bit(self.disk, path, rolled.randrange(header.offset * 8, end * 8))
            self.model.decay(writes)

    def restore_power(self, steps: int | None = None) -> None:
        """The machine runs again, for so many steps or for good."""
        self.files.is_cut = False
        self.files.cut_fraction = None
        self.files.cut_at = None if steps is None else len(self.files.steps) + steps


def crashed(disk: MemoryFiles, model: CrashModel, chance: int) -> MemoryFiles:
    """What a power cut leaves. It never takes a witness that was synced: else damage would pass for a torn tail."""
    after = disk.crash(model, SeededChance(chance))
    synced = newest_witness(disk.crash(CrashModel.SYNCED, SeededChance(chance)), DIRECTORY)
    if newest_witness(after, DIRECTORY) < synced:
        raise Violation(f"a power cut took the witness of epoch {synced}, which was synced")
    return after


class Life:
    """One process. Its lines are done by the methods named `_do_…`."""

    def __init__(self, world: World, threads: SteppedThreads) -> None:
        self._world = world
        self._model = world.model
        self._threads = threads
        self._sessions: dict[int, Session] = {}
        self._expects_errors = False

    def run_all(self, operations: list[Operation]) -> Callable[[], None]:
        def body() -> None:
            self._store = self._opened()
            for is_everybodys, group in phases(operations):
                if is_everybodys:
                    self._run(group)
                else:
                    self._run_beside(group)

        return body

    def _opened(self) -> LogStore:
        world = self._world
        highest, contents = epochs_on_disk(world.disk, DIRECTORY)
        store = self._open_or_repair(Machine(world.files, world.clock, self._threads, world.chance))
        entries = entries_of(world.disk, DIRECTORY, store.manifest.state, bool(self._model.decayed))
        first_epoch, state = store.commit.open_epoch, state_of(store.snapshot())
        self._model.compare(Seen(store.durable, first_epoch, highest, state, entries, contents))
        self._check_taken()
        store.call_when_durable(self._model.confirm)
        return store

    def _check_taken(self) -> None:
        for path, contents in self._model.taken.items():
            if self._world.disk.contents(path) != contents:
                raise Violation(f"{path}, a link that somebody took, is not what it was")

    def _open_or_repair(self, machine: Machine) -> LogStore:
        """A store that has decayed may say so, and is repaired; any other must open."""
        settings = self._world.settings
        try:
            return LogStore.open(DIRECTORY, settings, machine)
        except Damage as error:
            if not self._model.decayed:
                raise Violation(f"the store does not open: {error}") from error
        self._model.is_repaired = True
        Repair(machine.files, DIRECTORY, machine.clock, machine.threads, machine.chance).run()
        return LogStore.open(DIRECTORY, settings, machine)

    # -- whose turn it is ----------------------------------------------------------------------------------------

    def _run_beside(self, operations: list[Operation]) -> None:
        lines: dict[str, list[Operation]] = {}
        for operation in operations:
            lines.setdefault(operation.client, []).append(operation)
        others = [self._threads.start(name, partial(self._run, own)) for name, own in list(lines.items())[1:]]
        self._run(next(iter(lines.values())))
        for other in others:
            other.join()

    def _run(self, operations: list[Operation]) -> None:
        for operation in operations:
            try:
                getattr(self, "_do_" + operation.verb.replace("-", "_"))(operation)
            except WarrenError as error:
                if self._expects_errors:
                    return
                raise Violation(f"'{operation}' raised {type(error).__name__}: {error}") from error

    # -- what clients do -----------------------------------------------------------------------------------------

    def _do_begin(self, operation: Operation) -> None:
        number = operation.number(0)
        self._sessions[number] = self._store.begin(operation.number(1))
        self._model.begin(number)

    def _do_put(self, operation: Operation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        key, value = operation.arguments[2].encode(), value_bytes(operation.arguments[3])
        self._sessions[number].put(storage, key, value)
        self._model.write(number, Write(EntryKind.PUT, storage, key, value))

    def _do_many(self, operation: Operation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        key, value = operation.arguments[2:4]
        rows = [(f"{key}.{index}".encode(), f"{value}.{index}".encode()) for index in range(operation.number(4))]
        self._sessions[number].put_many(storage, [key for key, _ in rows], [value for _, value in rows])
        for row in rows:
            self._model.write(number, Write(EntryKind.PUT, storage, *row))

    def _do_remove(self, operation: Operation) -> None:
        number, storage, key = operation.number(0), StorageId(operation.number(1)), operation.arguments[2].encode()
        self._sessions[number].remove(storage, key)
        self._model.write(number, Write(EntryKind.REMOVE, storage, key))

    def _do_clear(self, operation: Operation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        self._sessions[number].clear_storage(storage)
        self._model.write(number, Write(EntryKind.CLEAR_STORAGE, storage))

    def _do_end(self, operation: Operation) -> None:
        number = operation.number(0)
        self._model.ending(number)
        self._model.ended(number, self._sessions[number].end())

    def _do_wait(self, operation: Operation) -> None:
        epoch = self._sessions[operation.number(0)].epoch or Epoch(0)
        self._store.wait(epoch)
        self._model.confirm(epoch)

    def _do_commit(self, operation: Operation) -> None:
        self._do_end(operation)
        self._do_wait(operation)

    def _do_abort(self, operation: Operation) -> None:
        self._sessions[operation.number(0)].abort()
        self._model.aborted(operation.number(0))

    def _do_flush(self, operation: Operation) -> None:
        self._store.flush()

    def _do_rotate(self, operation: Operation) -> None:
        self._model.confirm(self._store.rotate().epoch)

    def _do_compact(self, operation: Operation) -> None:
        self._store.compact()

    def _do_purge(self, operation: Operation) -> None:
        self._model.is_purged = True
        self._store.purge()

    def _do_link(self, operation: Operation) -> None:
        """Somebody, a backup perhaps, links every sealed file of the log into a directory of his own."""
        files = self._world.files
        files.make_directories(TAKEN)
        for record in self._store.manifest.state.of_state(FileState.SEALED):
            taken = join(TAKEN, base_name(record.name))
            if record.purpose is Purpose.LOG and not files.exists(taken):
                files.link(join(DIRECTORY, record.name), taken)
                files.sync_directory(TAKEN)
                self._model.taken[taken] = self._world.disk.contents(taken)

    # -- what happens to everybody -------------------------------------------------------------------------------

    def _do_advance(self, operation: Operation) -> None:
        self._world.clock.advance_ns(operation.number(0) * 1_000_000)
        for _ in range(8):
            self._threads.pause()

    def _do_check(self, operation: Operation) -> None:
        """Nobody writes: what the store shows now must be everything that has ended."""
        snapshot = self._store.refresh()
        self._model.confirm_ended()
        self._model.judge_state(state_of(snapshot))

    def _do_reopen(self, operation: Operation) -> None:
        self._store.close()
        self._model.confirm_ended()

    def _do_kill(self, operation: Operation) -> None:
        raise Killed

    def _do_power_cut(self, operation: Operation) -> None:
        raise Killed  # the rest is the world's to do

    def _do_decay(self, operation: Operation) -> None:
        raise Killed

    def _do_fail(self, operation: Operation) -> None:
        kind, act, path, pages, times = operation.arguments
        self._expects_errors = True
        fault = Fault(_kind(kind), act, path, times=int(times), pages=Pages[pages.upper()])
        self._world.files.faults.append(fault)


def _kind(word: str) -> Kind:
    return Kind[word.upper().replace("-", "_")]
