"""The tasks of the interoperability tests, and the setup of their application.

    test process ── build(…) ──▶ publishes tasks, awaits results
    worker       ── build(…) ──▶ celery -A tests.interop.celery_app.app worker

Both sides build the same application, so that a task is known by its function here and by its name there. A task that
is to be in the middle of its work holds: it says `begun` on one queue and waits on another until the test opens the
gate. So tests meet a busy worker without guessing how long anything takes.
Left out: how a worker runs as a process (worker.py).
"""

from __future__ import annotations

import time
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

PRIORITY_MAX = 9
HOLD_SECONDS_MAX = 30
FAILURES_BEFORE_SUCCESS = 2
RETRY_SECONDS = 1


class NotYet(Exception):
    """What the task that is tried again fails with."""


def add(left: int, right: int) -> int:
    return left + right


def echo(value: Any) -> Any:
    return value


def total(numbers: list[int]) -> int:
    return sum(numbers)


def fail(text: str) -> None:
    raise ValueError(text)


def moment() -> float:
    return time.time()


def insist(task: Any) -> int:
    """How often it was tried before, once that was often enough."""
    tried: int = task.request.retries
    if tried < FAILURES_BEFORE_SUCCESS:
        raise NotYet(tried)
    return tried


def note(task: Any, diary: str, line: str) -> None:
    with task.app.connection_for_write() as connection, connection.SimpleQueue(diary) as queue:
        queue.put(line)


def wait_at_gate(task: Any, gate: str) -> bool:
    """Report the begin, wait for the gate, and return whether the broker had delivered this task before."""
    note(task, f"{gate}.begun", task.request.id)
    with task.app.connection_for_read() as connection, connection.SimpleQueue(gate) as queue:
        queue.get(timeout=HOLD_SECONDS_MAX).ack()
    delivered_before: bool = task.request.delivery_info["redelivered"]
    return delivered_before


def build(broker: str, results: str, queue: str, queue_type: str = "classic") -> Celery:
    """An application with all tasks. `results` is the address of the result backend, `queue` where its tasks go.

    If that queue is a quorum queue, Celery leaves delays to the broker, and such a queue knows no priorities.
    """
    app = Celery("interop", broker=broker, backend=results, set_as_current=False)
    arguments: dict[str, Any] = {"x-queue-type": queue_type}
    if queue_type == "classic":
        arguments["x-max-priority"] = PRIORITY_MAX
    app.conf.update(
        task_default_queue=queue,
        task_queues=[Queue(queue, Exchange(queue, "topic"), queue, queue_arguments=arguments)],
        task_track_started=True,
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_heartbeat=5,  # so that a few pass each way while the tests run
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        result_chord_retry_interval=0.2,
        control_queue_expires=20,
    )
    for function in (add, echo, total, fail, moment):
        app.task(name=function.__name__)(function)
    app.task(name="insist", bind=True, autoretry_for=(NotYet,), retry_kwargs={"countdown": RETRY_SECONDS})(insist)
    app.task(name="note", bind=True, acks_late=True)(note)
    app.task(name="hold", bind=True)(wait_at_gate)
    app.task(name="hold_late", bind=True, acks_late=True)(wait_at_gate)
    return app
