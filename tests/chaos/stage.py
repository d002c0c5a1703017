"""A whole broker in this process, with real sockets and its management, in which one background task can be broken.

with ChaosStage(directory) as stage:
    with stage.broken(stage.broker.database.reflection, "_apply_and_flush"):   raises ValueError at each call
        stage.check_alarm("reflection")                              API, health check, metric, log
        stage.check_service()                                        a publish is confirmed, and got
    stage.check_recovery("reflection")
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
import uvloop

from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.app.broker import open_broker
from warren.app.lifecycle import LoopCallbacks
from warren.catalog import permissions, users, vhosts
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.management import http_server

SECONDS_MAX = 60.0
DEFECT = "planted by the chaos tests"
QUEUE = "chaos"
Result = TypeVar("Result")


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class ChaosStage:
    def __init__(self, directory: Path) -> None:
        environment = Environment.real()
        choices = OptionValues(data_dir=str(directory), port=0, management_port=0, prometheus_port=0)
        self.broker = open_broker(configuration_of(environment.files, choices, {}), environment=environment)
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="chaos-loop")
        self._thread.start()
        self.run(self._start(str(directory)))
        self.publisher = RawClient(self.port).log_in().channel(confirms=True)
        self.publisher.send_method(1, methods.QueueDeclare(queue=QUEUE, durable=True))
        self.publisher.expect(methods.QueueDeclareOk)
        self._tag = 0

    async def _start(self, directory: str) -> None:
        self.callbacks = LoopCallbacks(self.loop, self.broker)
        _, self.port = await self.broker.server.start()
        self.management = await http_server.start(self.broker, "127.0.0.1", 0, 0, f"{directory}/warren.sock")

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS_MAX)

    def __enter__(self) -> ChaosStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.publisher.socket.close()
        self.run(self.management.stop())
        self.run(self.broker.server.stop(0.0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.broker.close()

    # -- breaking ------------------------------------------------------------------------------------------------

    @contextmanager
    def broken(self, owner: Any, name: str, is_done_first: bool = False) -> Iterator[list[int]]:
        """Calls of this method raise, before they have done anything or when they have. What is yielded counts them."""
        before, calls = getattr(owner, name), list[int]()

        def fail(*arguments: Any, **named: Any) -> Any:
            if is_done_first:
                before(*arguments, **named)
            calls.append(1)
            raise ValueError(DEFECT)

        setattr(owner, name, fail)
        try:
            yield calls
        finally:
            setattr(owner, name, before)

    # -- what is seen of it --------------------------------------------------------------------------------------

    def get(self, path: str) -> httpx.Response:
        host, port = self.management.addresses[http_server.HTTP]
        auth = httpx.BasicAuth("guest", "guest")
        return httpx.get(f"http://{host}:{port}/api/{path}", auth=auth, timeout=SECONDS_MAX, trust_env=False)

    def metric(self, name: str, task: str) -> float:
        host, port = self.management.addresses[http_server.PROMETHEUS]
        text = httpx.get(f"http://{host}:{port}/metrics", timeout=SECONDS_MAX, trust_env=False).text
        values = [line.split()[-1] for line in text.splitlines() if line.startswith(f'{name}{{task="{task}"}}')]
        return float(values[0]) if values else -1.0

    def unhealthy_tasks(self) -> set[str]:
        response = self.get("health/checks/alarms")
        alarms = response.json().get("alarms", [])
        assert response.status_code == (503 if alarms else 200)
        return {alarm["task"] for alarm in alarms if alarm["resource"] == "background"}

    def problems(self) -> list[str]:
        return [problem for problem in self.get("overview").json()["problems"] if DEFECT in problem]

    def check_alarm(self, task: str) -> None:
        """It is an alarm, in every place where an operator looks."""
        until(lambda: task in self.unhealthy_tasks(), f"no health check fails for {task}")
        until(lambda: bool(self.problems()), f"/api/overview has no problem for {task}")
        until(lambda: self.metric("warren_background_failing", task) == 1, f"no metric for {task}")

    def check_recovery(self, task: str) -> None:
        """The alarm is cleared; the count of failures stays."""
        until(lambda: task not in self.unhealthy_tasks(), f"{task} stays unhealthy")
        until(lambda: not self.problems(), f"the problem of {task} stays")
        assert self.metric("warren_background_failing", task) == 0
        assert self.metric("warren_background_failures_total", task) >= 1

    # -- traffic -------------------------------------------------------------------------------------------------

    def publish(self) -> methods.Method:
        """A message on the standing connection; how it is answered."""
        self._tag += 1
        self.publisher.publish(1, QUEUE, b"message %d" % self._tag)
        return self.publisher.method()

    def check_service(self) -> None:
        """A message is confirmed, and a client that connects now gets it."""
        answer = self.publish()
        assert isinstance(answer, methods.BasicAck) and answer.delivery_tag == self._tag
        with RawClient(self.port).log_in().channel() as client:
            client.send_method(1, methods.BasicGet(queue=QUEUE, no_ack=True))
            client.expect(methods.BasicGetOk)
            assert client.body().startswith(b"message")

    def vhost(self, name: str) -> None:
        """With everything permitted to the user guest."""
        broker = self.broker
        row = broker.catalog.change(lambda change: vhosts.declare(change, name))
        with broker.catalog.reading() as connection:
            guest = users.get(connection, "guest")
        assert guest is not None
        broker.catalog.change(lambda change: permissions.put(change, guest.id, row.id, ".*", ".*", ".*"))
        broker.vhosts.open(row)
