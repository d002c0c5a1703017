"""A Celery application whose module opens a store: `celery -A tests.app.celery_on_a_store worker` loads it in the main
process and forks its pool afterwards. test_forked_store.py starts it and names the broker and the directory."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutdown

import warren

app = Celery("celery_on_a_store", broker=os.environ["STORE_BROKER"], backend="rpc://")
app.conf.update(worker_send_task_events=False, broker_connection_retry_on_startup=True)
db = warren.open(os.environ["STORE_DIRECTORY"])
users = db.kv("users")


def write() -> None:
    users[b"child"] = b"child"


def ready(**_: Any) -> None:
    users[b"ready"] = b"parent"


def shut_down(**_: Any) -> None:
    users[b"shut down"] = b"parent"
    db.close()


app.task(name="write")(write)
worker_ready.connect(ready)
worker_shutdown.connect(shut_down)
