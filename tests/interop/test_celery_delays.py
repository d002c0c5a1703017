"""Celery with quorum queues, where it leaves delays to the broker.

    celery_delayed_27 ─▶ … ─▶ celery_delayed_1 ─▶ celery_delayed_0 ─▶ celery_delayed_delivery ─▶ the queue of the task

A task that shall run in n seconds is published with the bits of n in its routing key. Level i is a topic exchange: if
bit i is set, it routes to a queue whose messages expire after 2^i seconds and are dead-lettered to the level below, if
not, straight there by a binding between exchanges. So one task tries topics, expiry, dead letters and such bindings
together, in a topology that Celery made and not we.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.interop.brokers import Broker
from tests.interop.celery_app.tasks import FAILURES_BEFORE_SUCCESS, RETRY_SECONDS
from tests.interop.celery_app.worker import Worker

pytestmark = pytest.mark.slow

SECONDS_MAX = 60  # passes only if a task never runs


@pytest.fixture(scope="session")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("quorum")
    with Worker(
        broker.url,
        results="rpc://",
        queue="delayed",
        directory=directory,
        options=("--pool=threads", "--concurrency=2"),
        queue_type="quorum",
    ) as started:
        yield started


def test_tasks_run_from_a_quorum_queue(worker: Worker) -> None:
    results = [worker.task("add").delay(n, n) for n in range(10)]
    assert [result.get(timeout=SECONDS_MAX) for result in results] == [2 * n for n in range(10)]


def test_the_broker_keeps_tasks_until_their_time(worker: Worker) -> None:
    began = time.time()
    results = [(seconds, worker.task("moment").apply_async(countdown=seconds)) for seconds in (3, 1, 2)]
    assert worker.task("add").delay(1, 1).get(timeout=SECONDS_MAX) == 2
    assert list(worker.inspect().scheduled().values()) == [[]]
    for seconds, result in results:  # how long behind their time they run is the machine's business
        assert seconds - 0.1 <= result.get(timeout=SECONDS_MAX) - began


def test_a_task_that_fails_is_tried_again_by_way_of_the_broker(worker: Worker) -> None:
    began = time.monotonic()
    assert worker.task("insist").delay().get(timeout=SECONDS_MAX) == FAILURES_BEFORE_SUCCESS
    assert time.monotonic() - began >= RETRY_SECONDS * FAILURES_BEFORE_SUCCESS
