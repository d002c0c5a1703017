"""What the message store keeps in memory does not grow with the sessions that have passed through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.message_store.store_stage import A, B, StoreStage
from warren.base.messages import Publication
from warren.message_store.store import MessageStore

TABLES = ("_pending_writes", "_participations", "_unsettled")


@pytest.fixture
def stage() -> Iterator[StoreStage]:
    stage = StoreStage()
    yield stage
    stage.close()


def entries_of(store: MessageStore) -> dict[str, int]:
    return {name: len(getattr(store, name)) for name in TABLES}


def after_sessions(stage: StoreStage, count: int) -> dict[str, int]:
    """Durable sessions, without a collector pass: its full scan comes once an hour."""
    for _ in range(count):
        stage.publish([b"x" * 5000], A, B)
    return entries_of(stage.store)


def test_durable_sessions_leave_nothing_behind_however_many_there_are(stage: StoreStage) -> None:
    few = after_sessions(stage, 25)
    assert after_sessions(stage, 75) == few
    assert few["_unsettled"] <= 1, "the epoch of the last session, not checked yet"


def test_sessions_that_are_not_durable_share_an_entry_for_each_epoch(stage: StoreStage) -> None:
    """As long as the disk takes nothing, one epoch gathers every session."""
    sizes = []
    for count in (25, 75):
        for _ in range(count):
            batch = stage.queues.begin()
            stage.submit(Publication([b"x" * 5000]), A, batch)
            batch.end()
        sizes.append((len(stage.store._unsettled), sum(map(sys.getsizeof, stage.store._unsettled.values()))))
    assert sizes[0] == sizes[1]
    stage.log.flush()
