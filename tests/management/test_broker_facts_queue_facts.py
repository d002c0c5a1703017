"""Queue facts: correct numbers, and no SQL statement per queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.management.stage import ManagementStage
from warren.base.errors import WarrenError
from warren.broker.errors import QueueDeleted, QueueDown
from warren.queues.backing_queue import Fetched


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL statements executed meanwhile."""
    seen: list[str] = []

    def record_statement(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", record_statement)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record_statement)


def request(stage: ManagementStage, path: str = "/api/queues/%2F") -> dict[str, Any]:
    return {item["name"]: item for item in stage.get(path).json()}


def test_messages_are_ready_and_unacknowledged_together(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        handle = stage.queue("orders", "/", b"a", b"bc", b"def")
        open_vhost = stage.vhosts.find("/")
        assert open_vhost.queue_api.get(handle, 1) is not None
        item = request(stage)["orders"]
        assert (item["messages"], item["messages_ready"], item["messages_unacknowledged"]) == (3, 2, 1)
        assert (item["message_bytes_ready"], item["state"], item["consumers"]) == (5, "running", 0)
        assert item["memory"] > 0
        parts = ("", "_ready", "_unacknowledged", "_ram", "_persistent", "_paged_out")
        assert [item[f"message_bytes{part}"] for part in parts] == [6, 5, 1, 6, 6, 0]
        counts = ("_ram", "_ready_ram", "_unacknowledged_ram", "_persistent", "_paged_out")
        assert [item[f"messages{count}"] for count in counts] == [3, 2, 1, 3, 0]
        samples = stage.metrics()
        for name, value in [("bytes", 6), ("unacked_bytes", 1), ("persistent_bytes", 6), ("ram_bytes", 6)]:
            assert f"rabbitmq_queue_messages_{name} {value}.0" in samples
        assert stage.get("/api/overview").json()["queue_totals"]["messages"] == 3


class _Idle:
    """Is a `Consumer` that takes nothing."""

    priority = 0
    is_exclusive = False
    is_auto_ack = False

    def room(self) -> int:
        return 0

    def room_bytes(self) -> int:
        return 0

    def take(self, incarnation: int, fetched: list[Fetched]) -> None: ...

    def cancelled(self, why: WarrenError) -> None: ...


def test_consumers_are_counted(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        handle = stage.queue("orders")
        with handle.lock:
            for _ in range(3):
                handle.serving().consumers.add(_Idle())
        assert request(stage)["orders"]["consumers"] == 3
        assert stage.get("/api/overview").json()["object_totals"]["consumers"] == 3
        assert "rabbitmq_consumers 3.0" in stage.metrics()


def test_a_list_of_many_queues_needs_no_more_sql_than_one_of_few(tmp_path: Path) -> None:
    """Lists stay fast with thousands of queues: there is no statement per queue."""
    with ManagementStage(tmp_path / "data") as stage:
        counted = []
        for count in (3, 60):
            for number in range(count):
                stage.queue(f"queue-{number}")
            with statements() as seen:
                assert len(stage.get("/api/queues").json()) == count
            counted.append(len(seen))
        assert counted[0] == counted[1]
        with statements() as again:
            stage.get("/api/queues")
        assert not [statement for statement in again if "FROM queues" in statement], "nothing was declared meanwhile"


def test_a_queue_that_is_declared_or_deleted_is_seen_at_once(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        first = stage.queue("first")
        assert set(request(stage)) == {"first"}
        stage.queue("second")
        assert set(request(stage)) == {"first", "second"}
        stage.vhosts.find("/").delete_queue(first)
        assert set(request(stage)) == {"second"}
        assert stage.get("/api/queues/%2F/first").status_code == 404


def test_reading_facts_starts_no_queue_and_counts_its_messages(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        stage.queue("plain", "/", b"a", b"bc")
        ranked = stage.queue("ranked", "/", b"a", max_priority=3)
        stage.put(stage.vhosts.find("/"), ranked, b"xyz")
        stage.queue("empty")
    with ManagementStage(tmp_path / "data") as stage:
        open_vhost = stage.vhosts.find("/")
        for _ in range(2):
            item = {name: (each["messages"], each["message_bytes_ready"]) for name, each in request(stage).items()}
            assert item == {"plain": (2, 3), "ranked": (2, 4), "empty": (0, 0)}
            resting = request(stage)["ranked"]
            parts = ("", "_unacknowledged", "_ram", "_persistent", "_paged_out")
            assert [resting[f"message_bytes{part}"] for part in parts] == [4, 0, 0, 4, 4]
        assert open_vhost.started_queues() == {}
        assert open_vhost.queue_api.get(open_vhost.find_queue("plain"), 1) is not None
        item_now = request(stage)["plain"]
        assert (item_now["messages_ready"], item_now["messages_unacknowledged"]) == (1, 1)


def test_a_queue_that_is_down_is_shown_as_down(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        handle = stage.queue("broken", "/", b"a")
        with handle.lock:
            handle.end(QueueDown("it failed too often"))
        assert request(stage)["broken"]["state"] == "down"


def test_a_queue_that_is_being_deleted_is_not_listed_any_more(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        handle = stage.queue("going")
        with handle.lock:
            handle.end(QueueDeleted(handle.name))  # its row is still in the catalog
        assert request(stage) == {}
        assert stage.get("/api/queues/%2F/going").status_code == 404


def test_queues_of_one_vhost_are_not_those_of_another(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        stage.vhost("a/b")
        stage.queue("mine", "a/b", b"x")
        stage.queue("home")
        assert set(request(stage, "/api/queues/a%2Fb")) == {"mine"}
        assert [item["vhost"] for item in stage.get("/api/queues").json()] == ["/", "a/b"]
        assert stage.get("/api/queues/a%2Fb/mine").json()["messages"] == 1
        assert stage.get("/api/queues/%2F/mine").status_code == 404
