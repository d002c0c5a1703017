"""Celery, unchanged: a real worker in its own process takes tasks from the broker and sends results through it.

    worker `tasks`     two processes, results over rpc://: the usual setup
    worker `ordered`   one thread, results in files, since chords need a backend that both sides can read

Each worker lives as long as the session; tests that kill one start their own. Every test runs against RabbitMQ too: it
says what Celery expects.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.interop.brokers import Broker
from tests.interop.celery_app.tasks import FAILURES_BEFORE_SUCCESS, RETRY_SECONDS
from tests.interop.celery_app.worker import Worker

pytestmark = pytest.mark.slow

SECONDS_MAX = 15
MEGABYTE = 1 << 20


@pytest.fixture(scope="session")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("tasks")
    options = ("--pool=prefork", "--concurrency=2")
    with Worker(broker.url, results="rpc://", queue="tasks", directory=directory, options=options) as started:
        yield started
        assert "Connection to broker lost" not in (log := started.log()), log


@pytest.fixture(scope="session")
def ordered_worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("ordered")
    options = ("--pool=threads", "--concurrency=1")
    with Worker(
        broker.url, results=directory.as_uri(), queue="ordered", directory=directory, options=options
    ) as started:
        yield started
        assert "Connection to broker lost" not in (log := started.log()), log


class Gate:
    """Where tasks that hold wait; the test sees them begin and releases them."""

    def __init__(self, app: Any) -> None:
        self.name = f"gate-{uuid.uuid4().hex}"
        self._app = app

    def await_begun(self, count: int = 1) -> list[str]:
        return lines(self._app, f"{self.name}.begun", count)

    def open(self, count: int = 1) -> None:
        with self._app.connection_for_write() as connection, connection.SimpleQueue(self.name) as queue:
            for _ in range(count):
                queue.put("open")


def lines(app: Any, diary: str, count: int) -> list[str]:
    """What tasks have noted, in the order in which they did."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue(diary) as queue:
        for _ in range(count):
            message = queue.get(timeout=SECONDS_MAX)
            message.ack()
            found.append(message.payload)
    return found


def value_of(result: Any) -> Any:
    return result.get(timeout=SECONDS_MAX)


def until(is_so: Callable[[], Any]) -> Any:
    """Poll at least twice and for some seconds; returns the value once it is true."""
    end = time.monotonic() + SECONDS_MAX
    while not (answer := is_so()) and time.monotonic() < end:
        pass
    return answer


def ready_count(app: Any, queue: str) -> int:
    with app.connection_for_read() as connection:
        declared = connection.default_channel.queue_declare(queue, passive=True)
    count: int = declared.message_count
    return count


def test_tasks_run_and_their_results_come_back(worker: Worker) -> None:
    results = [worker.task("add").delay(n, n) for n in range(20)]
    assert [value_of(result) for result in results] == [2 * n for n in range(20)]


def test_arguments_and_results_of_a_megabyte_pass_unchanged(worker: Worker) -> None:
    value = {"text": "ü" * (MEGABYTE // 2), "numbers": list(range(1000))}
    assert value_of(worker.task("echo").delay(value)) == value


def test_an_error_in_a_task_is_raised_where_its_result_is_fetched(worker: Worker) -> None:
    with pytest.raises(ValueError, match="burrow is full"):
        value_of(worker.task("fail").delay("burrow is full"))


def test_a_task_that_fails_is_tried_again_after_its_countdown(worker: Worker) -> None:
    began = time.monotonic()
    assert value_of(worker.task("insist").delay()) == FAILURES_BEFORE_SUCCESS
    assert time.monotonic() - began >= RETRY_SECONDS * FAILURES_BEFORE_SUCCESS


def test_a_task_that_has_expired_does_not_run(worker: Worker) -> None:
    with pytest.raises(TaskRevokedError, match="expired"):
        value_of(worker.task("moment").apply_async(expires=datetime.now(UTC) - timedelta(seconds=1)))


def test_tasks_with_a_countdown_or_an_eta_run_then_and_not_before(worker: Worker) -> None:
    eta = time.time() + 1
    results = [worker.task("moment").apply_async(countdown=1) for _ in range(3)]
    results += [worker.task("moment").apply_async(eta=datetime.fromtimestamp(eta, UTC)) for _ in range(3)]
    assert all(eta <= value_of(result) + 0.05 for result in results)


def test_tasks_that_wait_for_their_time_leave_the_worker_free_for_others(worker: Worker) -> None:
    """For each of them the worker raises its prefetch count, and that must reach the consumer it already has."""
    waiting = [worker.task("moment").apply_async(countdown=3) for _ in range(8)]
    ends = time.monotonic() + 2.5
    assert value_of(worker.task("add").delay(1, 1)) == 2
    assert time.monotonic() < ends
    (scheduled,) = worker.inspect().scheduled().values()
    assert {each["request"]["id"] for each in scheduled} == {result.id for result in waiting}
    assert len([value_of(result) for result in waiting]) == 8


def test_a_busy_worker_takes_no_more_than_it_may_prefetch(worker: Worker) -> None:
    """Two run, two more are fetched (a multiplier of one for two processes); the prefetch count has fallen back."""
    gate = Gate(worker.app)
    blocked = [worker.task("hold").delay(gate.name) for _ in range(7)]
    begun = gate.await_begun(2)
    (active,) = worker.inspect().active().values()
    assert sorted(each["id"] for each in active) == sorted(begun)
    (reserved,) = until(lambda: [found for found in worker.inspect().reserved().values() if len(found) >= 2])
    assert {each["id"] for each in reserved} == {result.id for result in blocked[2:4]}
    assert ready_count(worker.app, worker.queue) == 3
    gate.open(7)
    assert [value_of(result) for result in blocked] == [False] * 7


def test_a_chain_hands_each_result_to_the_next(worker: Worker) -> None:
    add = worker.task("add")
    assert value_of(chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()) == 10


def test_a_group_has_one_result_for_each_of_its_tasks(worker: Worker) -> None:
    add = worker.task("add")
    assert value_of(group(add.s(n, 100) for n in range(10)).apply_async()) == [n + 100 for n in range(10)]


def test_a_chord_runs_its_body_when_all_tasks_of_its_header_are_done(ordered_worker: Worker) -> None:
    add, total = ordered_worker.task("add"), ordered_worker.task("total")
    assert value_of(chord([add.s(n, n) for n in range(5)])(total.s())) == 20


def test_a_chord_within_a_chain_gets_what_came_before(ordered_worker: Worker) -> None:
    add, total = ordered_worker.task("add"), ordered_worker.task("total")
    assert value_of((add.s(1, 1) | group(add.s(10), add.s(20)) | total.s() | add.s(100)).apply_async()) == 134


def test_what_is_urgent_overtakes_what_came_before_it(ordered_worker: Worker) -> None:
    gate = Gate(ordered_worker.app)
    diary, note = f"{gate.name}.diary", ordered_worker.task("note")
    ordered_worker.task("hold_late").delay(gate.name)
    gate.await_begun()
    for priority in (1, 1, 5, 9, 0, 5):
        note.apply_async((diary, f"{priority}"), priority=priority)
    gate.open()
    assert lines(ordered_worker.app, diary, 6) == ["9", "5", "5", "1", "1", "0"]


def test_events_report_the_states_of_a_task(worker: Worker) -> None:
    seen: list[dict[str, Any]] = []
    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(connection, handlers={"*": seen.append})
        with receiver.consumer_context(wakeup=True) as (receiving, _, _):
            result = worker.task("add").delay(20, 22)
            while not any(event["type"] == "task-succeeded" and event["uuid"] == result.id for event in seen):
                receiving.drain_events(timeout=SECONDS_MAX)
    incarnation = [event for event in seen if event.get("uuid") == result.id]
    assert [event["type"] for event in incarnation] == ["task-received", "task-started", "task-succeeded"]
    assert {event["hostname"] for event in incarnation} == {worker.name}
    assert incarnation[-1]["result"] == "42"


def test_workers_answer_a_ping_and_name_their_queues(worker: Worker, ordered_worker: Worker) -> None:
    assert worker.inspect().ping() == {worker.name: {"ok": "pong"}}
    everyone = worker.app.control.inspect(timeout=2)
    queues = {name: [queue["name"] for queue in found] for name, found in everyone.active_queues().items()}
    assert (queues[worker.name], queues[ordered_worker.name]) == (["tasks"], ["ordered"])


def test_a_rate_limit_set_from_afar_slows_the_worker_down(worker: Worker) -> None:
    control, moment = worker.app.control, worker.task("moment")
    (answer,) = control.rate_limit("moment", "2/s", destination=[worker.name], reply=True, timeout=5)
    assert "ok" in answer[worker.name]
    moments = [value_of(result) for result in [moment.delay() for _ in range(3)]]
    control.rate_limit("moment", None, destination=[worker.name], reply=True, timeout=5)
    assert max(moments) - min(moments) > 0.6  # a second, had the first not been late


def test_a_revoked_task_does_not_run(worker: Worker) -> None:
    result = worker.task("add").apply_async((1, 1), countdown=1)
    worker.app.control.revoke(result.id, destination=[worker.name], reply=True, timeout=5)
    with pytest.raises(TaskRevokedError):
        value_of(result)


def test_a_running_task_is_ended_from_afar(worker: Worker) -> None:
    gate = Gate(worker.app)
    result = worker.task("hold").delay(gate.name)
    gate.await_begun()
    worker.app.control.revoke(result.id, terminate=True, destination=[worker.name], reply=True, timeout=5)
    with pytest.raises(TaskRevokedError, match="terminated"):
        value_of(result)


def test_a_queue_is_added_and_cancelled_remotely(worker: Worker) -> None:
    control, queue = worker.app.control, f"extra-{uuid.uuid4().hex}"
    control.add_consumer(queue, destination=[worker.name], reply=True, timeout=5)
    assert value_of(worker.task("add").apply_async((1, 2), queue=queue)) == 3
    control.cancel_consumer(queue, destination=[worker.name], reply=True, timeout=5)
    assert until(lambda: [each["name"] for each in worker.inspect().active_queues()[worker.name]] == [worker.queue])
    worker.task("add").apply_async((1, 2), queue=queue)
    assert ready_count(worker.app, queue) == 1


def test_a_worker_shuts_down_on_request(broker: Broker, tmp_path: Path) -> None:
    options = ("--pool=solo",)
    with Worker(broker.url, results="rpc://", queue="brief", directory=tmp_path, options=options) as worker:
        worker.app.control.shutdown(destination=[worker.name])
        assert worker.exit_code() == 0


def test_a_late_acknowledged_task_of_a_killed_worker_runs_again_elsewhere(
    broker: Broker, worker: Worker, tmp_path: Path
) -> None:
    gate, control = Gate(worker.app), worker.app.control
    queue = f"doomed-{uuid.uuid4().hex}"
    options = ("--pool=threads", "--concurrency=1", "--queues", queue)
    with Worker(broker.url, results="rpc://", queue="tasks", name=queue, directory=tmp_path, options=options) as doomed:
        result: AsyncResult[bool] = worker.task("hold_late").apply_async((gate.name,), queue=queue)
        gate.await_begun()
        doomed.kill()
        control.add_consumer(queue, destination=[worker.name], reply=True, timeout=5)
        assert gate.await_begun() == [result.id]
        gate.open()
        assert value_of(result) is True
        control.cancel_consumer(queue, destination=[worker.name], reply=True, timeout=5)
