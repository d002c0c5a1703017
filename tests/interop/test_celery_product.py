"""Celery asks a broker for its name, and sets the prefetch count of a running worker in one of two ways.

    RabbitMQ 3.3 … 3.x     basic.qos with global: the channel's consumers share the count, those that are there too
    anything else          basic.qos without, which to AMQP means the same

Under either name a raised prefetch count must take effect, or tasks that wait for their ETA would block the worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.interop import brokers
from tests.interop.brokers import Broker
from tests.interop.celery_app.worker import Worker

pytestmark = pytest.mark.slow

SECONDS_MAX = 15
WAITING_SECONDS = 4


@pytest.fixture(scope="module", params=[("Warren", ""), ("RabbitMQ", "3.10.8")], ids=["by_its_name", "as_rabbitmq"])
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Broker]]:
    product, version = request.param
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WARREN_PRODUCT", product)
        environment.setenv("WARREN_PRODUCT_VERSION", version)
        broker = brokers.start(brokers.WARREN, tmp_path_factory.mktemp("named"))
    yield product, broker
    broker.stop()


@pytest.fixture(scope="module")
def worker(named: tuple[str, Broker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    _, broker = named
    directory, options = tmp_path_factory.mktemp("worker"), ("--pool=threads", "--concurrency=2")
    with Worker(broker.url, results="rpc://", queue="tasks", directory=directory, options=options) as started:
        yield started


def test_celery_takes_the_way_that_belongs_to_the_name(named: tuple[str, Broker], worker: Worker) -> None:
    product, _ = named
    with worker.app.connection_for_read() as connection:
        assert connection.connection.server_properties["product"] == product
        assert connection.qos_semantics_matches_spec == (product != "RabbitMQ")


def test_a_worker_gets_more_when_it_has_raised_its_prefetch(worker: Worker) -> None:
    waiting = [worker.task("moment").apply_async(countdown=WAITING_SECONDS) for _ in range(8)]
    ends = time.monotonic() + WAITING_SECONDS - 0.5
    assert worker.task("add").delay(1, 1).get(timeout=SECONDS_MAX) == 2
    assert time.monotonic() < ends
    assert len([result.get(timeout=SECONDS_MAX) for result in waiting]) == 8
