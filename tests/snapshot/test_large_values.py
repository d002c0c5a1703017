"""A value above the limit of an entry: cut into chunks and put by one session, it is there whole or not at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.snapshot.crash_stage import CrashStage, Open
from tests.snapshot.database_stage import rows
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Misuse
from warren.records.format import ENTRY_BYTES_MAX
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

CHUNK_BYTES = 512 << 10
VALUES = [random.Random(seed).randbytes(ENTRY_BYTES_MAX + seed * CHUNK_BYTES + 7) for seed in (1, 2)]
SEED = 3


def put_chunks(database: Database, value: bytes) -> None:
    session = database.begin()
    session.clear_storage(1)  # of whatever length the value before was
    for number in range(0, len(value), CHUNK_BYTES):
        session.put(1, b"%08d" % number, value[number : number + CHUNK_BYTES])
    session.commit()


def whole(database: Database) -> bytes:
    return b"".join(value for (storage, _), value in sorted(rows(database).items()) if storage == 1)


class Life:
    """One value over another; `acknowledged` of them were."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        database = open_database()
        for value in VALUES:
            put_chunks(database, value)
            self.acknowledged += 1
        database.close()


def stage_of(mode: Mode) -> CrashStage:
    stage = CrashStage(mode)
    stage.reflection = replace(
        stage.reflection, step_bytes=CHUNK_BYTES, chunk_bytes=CHUNK_BYTES, buffer_bytes=2 * CHUNK_BYTES
    )
    return stage


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.PUSH])
def test_a_session_of_several_entries_is_whole_or_not_there_after_a_power_cut(mode: Mode) -> None:
    """C-37: the limit of an entry stays, since blocks and buffers rely on it; a program that cuts a larger value into
    chunks on its own gets all of them or none. What the product cuts itself: LC-02, tests/message_store."""
    count = len(stage_of(mode).play(SEED, Life().body))
    assert count > 30
    for step in range(0, count, 3):
        life, stage = Life(), stage_of(mode)
        stage.play(SEED, life.body, cut_at=step)
        for model in (CrashModel.SYNCED, CrashModel.REORDERED):
            found: list[bytes] = []
            stage.crashed(model, step).play(SEED, lambda opened, _, found=found: found.append(whole(opened())))  # type: ignore[misc]
            allowed = [b"", *VALUES][life.acknowledged :]
            assert found[0] in allowed, (
                f"step {step}, {model.value}: {len(found[0])} bytes, {life.acknowledged} acknowledged"
            )


def test_in_one_piece_it_is_refused_and_says_what_to_do() -> None:
    stage = stage_of(Mode.NOTIFY)
    with stage.open() as database:
        session = database.begin()
        with pytest.raises(Misuse, match="over the limit of 1048576") as misuse:
            session.put(1, b"large", VALUES[0])
        assert misuse.value.hint == "cut it into chunks"
        for value in VALUES:
            put_chunks(database, value)
            assert whole(database) == value
