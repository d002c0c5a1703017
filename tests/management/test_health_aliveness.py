"""The aliveness test goes through the queue, and not past it."""

from __future__ import annotations

from pathlib import Path

from tests.management.stage import ManagementStage
from warren.broker.errors import QueueDown
from warren.management.health import QUEUE

PATH = "/api/aliveness-test/%2F"


def test_a_message_goes_through_a_queue_that_is_really_there(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        stage.user("prober", "management", vhost="/")
        for _ in range(3):
            assert stage.get(PATH, user="prober").json() == {"status": "ok"}
        item = stage.get(f"/api/queues/%2F/{QUEUE}").json()
        assert (item["messages"], item["durable"]) == (0, False)
        open_vhost = stage.vhosts.find("/")
        with open_vhost.lock:
            exchange = open_vhost.routing.exchange("")
            assert exchange is not None
            assert len(open_vhost.routing.publish(exchange.id, QUEUE).queues) == 1, "clients could publish to it"


def test_a_queue_that_is_down_fails_the_test(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage, stage.local() as client:
        assert client.get(PATH).status_code == 200
        handle = stage.vhosts.find("/").find_queue(QUEUE)
        with handle.lock:
            handle.end(QueueDown("it failed too often"))
        response = client.get(PATH)
        assert (response.status_code, response.json()["status"]) == (503, "failed")


def test_the_permissions_of_amqp_are_checked(tmp_path: Path) -> None:
    with ManagementStage(tmp_path / "data") as stage:
        stage.user("elsewhere", "management", vhost="/", pattern="^orders$")
        assert stage.get(PATH, user="elsewhere").status_code == 401
        assert stage.get("/api/queues").json() == [], "and nothing was created"
