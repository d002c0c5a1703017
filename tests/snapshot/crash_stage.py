"""A database on a machine whose power can be cut at any step, of its disk or of its safe snapshot store.

    stage = CrashStage(Mode.PUSH)
    steps = stage.play(7, body)                    threads take turns by the seed; what was done, step by step
    stage.play(7, body, cut_at=20)                 the same again, and the power goes before step 20
    after = stage.crashed(REORDERED, 20)           another machine, with what is left; the first stays for other crashes

The store is no file of the memory disk, but its calls are steps among the disk's: `apply`, `ingest` and `flush` change
turns, are counted, and can be cut before. Limits are so tiny that a session fills a batch, and a large one spills.

Writers keep a model that is as plain as can be: each has a channel and a storage of its own, where its sessions follow
one another, and leaves a mark in a common storage with each. So whatever others do at the same time, what is found must
be the state behind some whole session of each: the last one that was acknowledged, or the one that was under way.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.log.upkeep_stage import laid_out
from tests.snapshot.database_stage import DIRECTORY, DatabaseStage, State
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.ids import TimelineId
from warren.files.protocol import join
from warren.snapshot.database import LOG, Database
from warren.snapshot.reflection import Mode
from warren.snapshot.store import SnapshotStore
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultStep, FaultyFiles
from warren.testing.memory_files import CrashModel, PowerCut

Open = Callable[[], Database]
Body = Callable[[Open, SteppedThreads], None]
Change = tuple[str, bytes, bytes]  # kind, key, value
MARKS = 9  # the storage in which each session leaves a mark


class CrashStage(DatabaseStage):
    def __init__(self, mode: Mode, bulk_bytes: int = 0) -> None:
        tiny = {"step_bytes": 300, "chunk_bytes": 150, "buffer_bytes": 1200, "flush_bytes": 700}
        super().__init__(mode, **tiny, bulk_bytes=bulk_bytes)
        laid_out(self.disk, join(DIRECTORY, LOG))
        self.faults: list[Fault] = []
        self._files: FaultyFiles | None = None

    def play(self, seed: int, body: Body, cut_at: int | None = None, fraction: float | None = None) -> list[FaultStep]:
        """Run the body among threads that take turns, to its end or to the power cut."""
        threads = SteppedThreads(seed, self.clock)
        files = self._files = FaultyFiles(self.disk, self.faults, cut_at=cut_at, cut_fraction=fraction)
        files.pause, files.on_cut = threads.pause, threads.cut_power
        try:
            threads.run(lambda: body(lambda: self.open(files, threads), threads))
        except PowerCut:
            if not files.is_cut:
                raise
        finally:
            files.pause = files.on_cut = self._files = None
            self.disk.forget_locks()
        return files.steps

    def crashed(self, model: CrashModel, seed: int) -> CrashStage:
        other = copy.copy(self)
        other.rng = SeededRandom(seed)
        other.crash(model, seed)
        return other

    def flushed_epoch(self) -> int:
        """Up to where the store has surely everything on its disk."""
        return 0 if self.store is None else self.store.reopened(self.store.applied.timeline).applied.epoch

    def _open_store(self, path: str, timeline: TimelineId) -> SnapshotStore:
        super()._open_store(path, timeline)
        assert self.store is not None
        for name in ("apply", "flush", "ingest"):
            setattr(self.store, name, self._as_step(name, getattr(self.store, name)))
        return self.store

    def _as_step(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            if self._files is None:
                return call(*arguments, **named)
            return self._files._change(name, ("the store",), lambda: call(*arguments, **named))

        return stepped


@dataclass(slots=True)
class Writer:
    """One client, and what must be there of it: `states[n]` behind its n-th session."""

    channel: int
    states: list[State] = field(default_factory=lambda: [{}])
    acknowledged: int = 0

    def write(self, database: Database, changes: list[Change]) -> None:
        """One session, to its acknowledgement."""
        mark = ("put", b"%d-%d" % (self.channel, len(self.states)), b"whole")
        session = database.begin(self.channel)
        storages = [self.storage] * len(changes) + [MARKS]
        for storage, (kind, key, value) in zip(storages, [*changes, mark], strict=True):
            if kind == "put":
                session.put(storage, key, value)
            elif kind == "remove":
                session.remove(storage, key)
            else:
                session.clear_storage(storage)
        self.states.append(changed(self.states[-1], self.storage, changes) | {(MARKS, mark[1]): mark[2]})
        session.commit()
        self.acknowledged += 1

    @property
    def storage(self) -> int:
        return self.channel + 1

    def judge(self, found: State) -> str:
        """What is wrong with what is found; empty if it is the state behind a session that may be the last."""
        own = {name: value for name, value in found.items() if self._is_mine(*name)}
        allowed = self.states[self.acknowledged :]
        if own in allowed:
            return ""
        return f"writer {self.channel}, {self.acknowledged} acknowledged: {own} is none of {allowed}"

    def go_on_from(self, found: State) -> Writer:
        """The writer after a restart: what is there now is what was acknowledged."""
        own = {name: value for name, value in found.items() if self._is_mine(*name)}
        reached = self.states.index(own, self.acknowledged)
        return Writer(self.channel, self.states[: reached + 1], reached)

    def _is_mine(self, storage: int, key: bytes) -> bool:
        return storage == self.storage or (storage == MARKS and key.startswith(b"%d-" % self.channel))


def changed(state: State, storage: int, changes: list[Change]) -> State:
    """Later over earlier; a clear takes what is there of its storage."""
    state = dict(state)
    for kind, key, value in changes:
        if kind == "put":
            state[storage, key] = value
        elif kind == "remove":
            state.pop((storage, key), None)
        else:
            state = {name: row for name, row in state.items() if name[0] != storage}
    return state


def changes_of(rng: random.Random) -> list[Change]:
    """A small session; now and then a clear, and now and then one that is larger than the buffer."""
    if rng.random() < 0.12:
        return [("clear", b"", b""), ("put", b"behind it", rng.randbytes(9))]
    size = rng.choice([8, 40, 40, 500])
    return [
        ("put", b"key-%d" % rng.randrange(6), rng.randbytes(size))
        if rng.random() < 0.75
        else ("remove", b"key-%d" % rng.randrange(6), b"")
        for _ in range(rng.randrange(1, 4))
    ]
