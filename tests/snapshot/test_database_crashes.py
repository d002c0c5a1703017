"""The power is cut at every step of a database's life: of the log, of the buffer's files, of the store.

    two writers ∥ rotations, flushes, purges, a pause in which the buffer spills ─▶ stop ─▶ open ─▶ more of it

The life is played once to count its steps, then once for each step at which the power goes. What is left of the disk is
judged three times (all, synced, reordered); the store stands at any batch behind its last flush. A state that fails
prints itself: `check_state(way, seed, step)` plays it again.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

from tests.snapshot.crash_stage import CrashStage, Open, Writer, changes_of
from tests.snapshot.database_stage import State, rows
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import OutOfRoom
from warren.log.file_record import FileState
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

SESSIONS = 4  # of each writer in each life
SEED = 11
BULK_BYTES = 400  # a session or so: tables and batches follow one another
WAYS = {
    "notify": (Mode.NOTIFY, 0),
    "tables": (Mode.NOTIFY, BULK_BYTES),
    "push": (Mode.PUSH, 0),
    "push and tables": (Mode.PUSH, 300),
    "push-threaded": (Mode.PUSH_THREADED, 0),
    "push-threaded and tables": (Mode.PUSH_THREADED, 300),
}


class Lives:
    """Two lives of one database, the first ended by a stop."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.writers = [Writer(0), Writer(1)]

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        for life in range(2):
            database = open_database()
            chances = [random.Random(f"{self._seed} {life} {writer.channel}") for writer in self.writers]
            others = [
                threads.start(f"writer {writer.channel}", partial(write, database, writer, rng))
                for writer, rng in zip(self.writers, chances, strict=True)
            ]
            look_after(database)
            for other in others:
                other.join()
            database.log.purge()
            if life == 0:
                database.close()


def write(database: Database, writer: Writer, rng: random.Random) -> None:
    for _ in range(SESSIONS):
        writer.write(database, changes_of(rng))


def look_after(database: Database) -> None:
    reflection = database.reflection
    assert reflection is not None
    database.log.rotate()
    reflection.flush()
    reflection.pause()  # with a push, entries gather in the buffer now
    database.log.rotate()
    reflection.resume()
    with suppress(OutOfRoom):  # of a buffer that cannot spill, in a test for that: the next one continues
        database.catch_up()
    database.log.purge()
    reflection.flush()
    database.log.rotate()
    database.log.purge()


def check_state(way: str, seed: int, step: int) -> list[str]:
    """Cut the power before one step, or half way through it; whatever is wrong in any model."""
    lives, stage = Lives(seed), CrashStage(*WAYS[way])
    stage.play(seed, lives.body, cut_at=step, fraction=0.5 if step % 2 else None)
    wrong: list[str] = []
    for index, model in enumerate(CrashModel):
        try:
            after = stage.crashed(model, step)
            if (step + index) % 7 == 0:  # the start may be cut short, too
                after.play(step, lambda open_database, _: open_database().abandon(), cut_at=step % 37)
                after = after.crashed(model, step)
            check_restart(after, lives.writers, stage.flushed_epoch(), continues=(step + index) % 3 == 0)
        except Exception as error:
            wrong.append(f"{way}, seed {seed}, step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def check_restart(stage: CrashStage, writers: list[Writer], flushed: int, continues: bool) -> None:
    """Open on what is left, and judge it; then write more, stop, and open once more."""

    def body(open_database: Open, _: SteppedThreads) -> None:
        database = open_database()
        check_opened(database, flushed)
        found = rows(database)
        wrong = [problem for writer in writers if (problem := writer.judge(found))]
        assert not wrong, wrong
        again = [writer.go_on_from(found) for writer in writers]
        assert found == expected(again), "nothing is there that was never written"
        if continues:
            for writer in again:
                writer.write(database, [("put", b"after", b"it")])
            database.close()
            database = open_database()
            assert rows(database) == expected(again)
            assert database.store.applied.epoch == database.log.durable

    stage.play(flushed, body)


def check_opened(database: Database, flushed: int) -> None:
    state = database.log.manifest.state
    assert not database.problems, database.problems
    assert database.store.applied.epoch <= database.log.durable
    assert state.reflected <= flushed, f"reflected up to {state.reflected}, flushed up to {flushed}"
    gone = [record.last_epoch for record in state.of_state(FileState.DOOMED)]
    assert all(last <= flushed for last in gone), f"files up to {gone} were purged, flushed up to {flushed}"


def expected(writers: list[Writer]) -> State:
    return {name: value for writer in writers for name, value in writer.states[-1].items()}


FEEDS = pytest.mark.parametrize("way", WAYS)


@FEEDS
@pytest.mark.slow
def test_a_power_cut_at_any_step_loses_nothing_that_was_acknowledged(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """X-03, X-04, C-15: the log goes only behind what the store has flushed, and what it had not is brought again."""
    count = count_steps(way)
    steps = range(0, count, 2 if way.endswith("and tables") else 1)  # those are mixtures of two others
    wrong = [problem for step in steps for problem in check_state(way, SEED, step)]
    with capsys.disabled():
        print(f"\n  {way}: {3 * len(steps)} states, at steps of {count}")
    assert not wrong, "\n".join(wrong)


@FEEDS
def test_a_power_cut_at_some_steps_of_another_life_loses_nothing(way: str) -> None:
    wrong = [
        problem for step in range(5, count_steps(way, SEED + 1), 16) for problem in check_state(way, SEED + 1, step)
    ]
    assert not wrong, "\n".join(wrong)


def count_steps(way: str, seed: int = SEED) -> int:
    """Play it once, uncut, and see that everything that is to be cut short happens in it."""
    lives, stage = Lives(seed), CrashStage(*WAYS[way])
    steps = stage.play(seed, lives.body)
    assert [writer.acknowledged for writer in lives.writers] == [2 * SESSIONS] * 2
    assert {step.operation for step in steps} >= {"flush", "remove", "rename"}
    if "tables" in way:
        assert sum(step.operation == "ingest" for step in steps) >= 2
    else:
        assert any(step.operation == "apply" for step in steps)
        assert any("buffer/" in step.path for step in steps), "something was spilled"
    return len(steps)
