"""The conformance suite over every backing queue, and that they are all one interface (BQ-01)."""

from __future__ import annotations

import inspect

import pytest

from tests.queues.backing_kinds import KINDS
from tests.queues.backing_stage import BackingStage
from tests.queues.backing_suite import BackingSuite
from warren.queues.backing_queue import BackingQueue


@pytest.fixture(params=list(KINDS))
def stage(request: pytest.FixtureRequest) -> BackingStage:
    return KINDS[request.param]()


class TestEveryBackingQueue(BackingSuite):
    """The tests are the suite's."""


def test_bq_01_every_kind_has_every_method_of_the_protocol(stage: BackingStage) -> None:
    """BQ-01: a backing queue is an interface; what the protocol names each kind has, with the same arguments."""
    queue = type(stage.queue)
    for name, method in inspect.getmembers(BackingQueue, inspect.isfunction):
        if not name.startswith("_") or name == "__len__":
            assert list(inspect.signature(getattr(queue, name)).parameters) == list(
                inspect.signature(method).parameters
            ), f"{queue.__name__}.{name}"
