"""One process on a simulated machine: it opens the store, executes its lines of a script, and ends.

    opened (or repaired, if the disk has decayed) ─▶ compared with the model ─▶ its lines ─▶ closed | killed | power cut

Clients are threads scheduled by the seed of the machine. The model records every operation as soon as it is done, with
no seam in between. A client stops at an error; unless the script injects faults, the error is a violation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tools.simulator.log_inspection import check_numbers, entries_of, epochs_on_disk, records_of, state_of
from tools.simulator.observations import ReopenedState, Violation, Write
from tools.simulator.stepped_threads import SteppedThreads
from tools.simulator.workload import ScriptOperation, phases, value_bytes
from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch, StorageId
from warren.files.environment import Environment
from warren.files.protocol import base_name, join
from warren.log.check.repair import Repair
from warren.log.file_record import FileKind, FileState
from warren.log.session import Session
from warren.log.settings import EntryKind
from warren.log.store import LogStore
from warren.testing.faulty_files import Fault, FaultKind, Pages

if TYPE_CHECKING:
    from tools.simulator.simulated_machine import SimulatedMachine


DIRECTORY = "log"
TAKEN = "taken"


class Killed(BaseException):
    """The process is gone. Only the simulator may catch this."""


class SimulatedProcess:
    """One process. Its lines are done by the methods named `_do_…`."""

    def __init__(self, machine: SimulatedMachine, threads: SteppedThreads) -> None:
        self._machine = machine
        self._model = machine.model
        self._threads = threads
        self._sessions: dict[int, Session] = {}
        self._expects_errors = False

    def run_all(self, operations: list[ScriptOperation]) -> Callable[[], None]:
        def body() -> None:
            self._store = self._opened()
            for is_everybodys, group in phases(operations):
                if is_everybodys:
                    self._run(group)
                else:
                    self._run_beside(group)

        return body

    def _opened(self) -> LogStore:
        machine = self._machine
        check_numbers(machine.disk, DIRECTORY)
        highest, contents = epochs_on_disk(machine.disk, DIRECTORY)
        store = self._open_or_repair(Environment(machine.files, machine.clock, self._threads, machine.rng))
        entries = entries_of(machine.disk, DIRECTORY, store.manifest.state, bool(self._model.decayed))
        first_epoch, state = store.commit.open_epoch, state_of(store.snapshot())
        records = records_of(store)
        self._model.compare(ReopenedState(store.durable, first_epoch, highest, state, entries, contents, records))
        self._check_taken()
        store.commit.call_when_durable(self._model.confirm)
        return store

    def _check_taken(self) -> None:
        for path, contents in self._model.taken.items():
            if self._machine.disk.contents(path) != contents:
                raise Violation(f"{path}, a hard link, has changed")

    def _open_or_repair(self, environment: Environment) -> LogStore:
        """A decayed store may report damage, and is repaired; any other must open."""
        settings = self._machine.settings
        try:
            return LogStore.open(DIRECTORY, settings, environment)
        except Damage as error:
            if not self._model.decayed:
                raise Violation(f"the store does not open: {error}") from error
        self._model.is_repaired = True
        Repair(environment.files, DIRECTORY, environment.clock, environment.threads, environment.rng).run()
        return LogStore.open(DIRECTORY, settings, environment)

    # -- whose turn it is ----------------------------------------------------------------------------------------

    def _run_beside(self, operations: list[ScriptOperation]) -> None:
        lines: dict[str, list[ScriptOperation]] = {}
        for operation in operations:
            lines.setdefault(operation.client, []).append(operation)
        others = [self._threads.start(name, partial(self._run, own)) for name, own in list(lines.items())[1:]]
        self._run(next(iter(lines.values())))
        for other in others:
            other.join()

    def _run(self, operations: list[ScriptOperation]) -> None:
        for operation in operations:
            try:
                getattr(self, "_do_" + operation.verb.replace("-", "_"))(operation)
            except WarrenError as error:
                if self._expects_errors:
                    return
                raise Violation(f"'{operation}' raised {type(error).__name__}: {error}") from error

    # -- what clients do -----------------------------------------------------------------------------------------

    def _do_begin(self, operation: ScriptOperation) -> None:
        number = operation.number(0)
        self._sessions[number] = self._store.begin(operation.number(1))
        self._model.begin(number)

    def _do_stream(self, operation: ScriptOperation) -> None:
        number, name = operation.number(0), operation.arguments[1]
        self._sessions[number] = self._store.stream(name, 0 if name == "shared" else None).begin()
        self._model.begin(number, name)

    def _do_record(self, operation: ScriptOperation) -> None:
        value = value_bytes(operation.arguments[1])
        self._sessions[operation.number(0)].record(value)
        self._model.write(operation.number(0), Write(EntryKind.RECORD, 0, b"", value))

    def _do_base(self, operation: ScriptOperation) -> None:
        number = operation.number(0)
        name, lsn = self._model.sessions[number].stream, self._sessions[number].first_lsn
        assert lsn is not None, "a base moves to a session that has ended"
        self._model.base_moves(name, number)
        self._store.stream(name).move_base(lsn)
        self._model.base_moved(name)

    def _do_put(self, operation: ScriptOperation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        key, value = operation.arguments[2].encode(), value_bytes(operation.arguments[3])
        self._sessions[number].put(storage, key, value)
        self._model.write(number, Write(EntryKind.PUT, storage, key, value))

    def _do_many(self, operation: ScriptOperation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        key, value = operation.arguments[2:4]
        rows = [(f"{key}.{index}".encode(), f"{value}.{index}".encode()) for index in range(operation.number(4))]
        self._sessions[number].put_many(storage, [key for key, _ in rows], [value for _, value in rows])
        for row in rows:
            self._model.write(number, Write(EntryKind.PUT, storage, *row))

    def _do_remove(self, operation: ScriptOperation) -> None:
        number, storage, key = operation.number(0), StorageId(operation.number(1)), operation.arguments[2].encode()
        self._sessions[number].remove(storage, key)
        self._model.write(number, Write(EntryKind.REMOVE, storage, key))

    def _do_clear(self, operation: ScriptOperation) -> None:
        number, storage = operation.number(0), StorageId(operation.number(1))
        self._sessions[number].clear_storage(storage)
        self._model.write(number, Write(EntryKind.CLEAR_STORAGE, storage))

    def _do_end(self, operation: ScriptOperation) -> None:
        number = operation.number(0)
        self._model.ending(number)
        self._model.ended(number, self._sessions[number].end())

    def _do_wait(self, operation: ScriptOperation) -> None:
        epoch = self._sessions[operation.number(0)].epoch or Epoch(0)
        self._store.wait(epoch)
        self._model.confirm(epoch)

    def _do_commit(self, operation: ScriptOperation) -> None:
        self._do_end(operation)
        self._do_wait(operation)

    def _do_abort(self, operation: ScriptOperation) -> None:
        self._sessions[operation.number(0)].abort()
        self._model.aborted(operation.number(0))

    def _do_flush(self, operation: ScriptOperation) -> None:
        self._store.flush()

    def _do_rotate(self, operation: ScriptOperation) -> None:
        self._model.confirm(self._store.rotate().epoch)

    def _do_compact(self, operation: ScriptOperation) -> None:
        self._store.compact()

    def _do_purge(self, operation: ScriptOperation) -> None:
        self._model.is_purged = True
        self._store.purge()

    def _do_link(self, operation: ScriptOperation) -> None:
        """Link every sealed file of the log into another directory, like a backup."""
        files = self._machine.files
        files.make_directories(TAKEN)
        for record in self._store.manifest.state.of_state(FileState.SEALED):
            taken = join(TAKEN, base_name(record.name))
            if record.purpose is FileKind.LOG and not files.exists(taken):
                files.link(join(DIRECTORY, record.name), taken)
                files.sync_directory(TAKEN)
                self._model.taken[taken] = self._machine.disk.contents(taken)

    # -- operations on all clients -------------------------------------------------------------------------------

    def _do_advance(self, operation: ScriptOperation) -> None:
        self._machine.clock.advance_ns(operation.number(0) * 1_000_000)
        for _ in range(8):
            self._threads.pause()

    def _do_check(self, operation: ScriptOperation) -> None:
        """No client writes: the store must show every session that has ended."""
        snapshot = self._store.refresh()
        self._model.confirm_ended()
        self._model.check_state(state_of(snapshot))

    def _do_reopen(self, operation: ScriptOperation) -> None:
        self._store.close()
        self._model.confirm_ended()

    def _do_kill(self, operation: ScriptOperation) -> None:
        raise Killed

    def _do_power_cut(self, operation: ScriptOperation) -> None:
        raise Killed  # the rest is the world's to do

    def _do_decay(self, operation: ScriptOperation) -> None:
        raise Killed

    def _do_fail(self, operation: ScriptOperation) -> None:
        kind, act, path, pages, times = operation.arguments
        self._expects_errors = True
        fault = Fault(_kind(kind), act, path, times=int(times), pages=Pages[pages.upper()])
        self._machine.files.faults.append(fault)


def _kind(word: str) -> FaultKind:
    return FaultKind[word.upper().replace("-", "_")]
