"""What the message store keeps in memory does not grow with the sessions that have passed through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.message_store.store_stage import A, B, StoreStage
from warren.base.messages import Publication
from warren.message_store.store import MessageStore

TABLES = ("_flying", "_joined", "_unsettled")


@pytest.fixture
def stage() -> Iterator[StoreStage]:
    stage = StoreStage()
    yield stage
    stage.close()


def entries_of(store: MessageStore) -> dict[str, int]:
    return {name: len(getattr(store, name)) for name in TABLES}


def after_sessions(stage: StoreStage, count: int) -> dict[str, int]:
    """Durable ones, while the collector asks for nothing: its census comes once an hour."""
    for _ in range(count):
        stage.publish([b"x" * 5000], A, B)
    return entries_of(stage.store)


def test_durable_sessions_leave_nothing_behind_however_many_there_are(stage: StoreStage) -> None:
    few = after_sessions(stage, 25)
    assert after_sessions(stage, 75) == few
    assert few["_unsettled"] <= 1, "the epoch of the last session, which nobody has asked about yet"


def test_sessions_that_are_not_durable_share_an_entry_for_each_epoch(stage: StoreStage) -> None:
    """As long as the disk takes nothing, one epoch gathers every session."""
    kept = []
    for count in (25, 75):
        for _ in range(count):
            changes = stage.queues.begin()
            stage.submit(Publication([b"x" * 5000]), A, changes)
            changes.end()
        kept.append((len(stage.store._unsettled), sum(map(sys.getsizeof, stage.store._unsettled.values()))))
    assert kept[0] == kept[1]
    stage.log.flush()
