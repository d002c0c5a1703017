"""rabbitmqadmin, as Debian ships it with RabbitMQ, asks Warren's management."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.management.stage import PASSWORD, ManagementStage

RABBITMQ_HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # of test12
PATTERNS = ["configure=", "write=^a", "read=.*"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path_factory.mktemp("rabbitmqadmin") / "data") as new_stage:
        new_stage.vhost("a/b")
        new_stage.queue("orders", "/", b"a", b"b")
        new_stage.queue("bills", "a/b", b"c")
        yield new_stage


def admin(stage: ManagementStage, *words: str) -> subprocess.CompletedProcess[str]:
    host, port = stage.serving.addresses["http"]
    command = ["rabbitmqadmin", "-H", host, "-P", str(port), "-u", "admin", "-p", PASSWORD, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def listed(stage: ManagementStage, *words: str) -> Any:
    done = admin(stage, "-f", "raw_json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_queues_are_listed(stage: ManagementStage) -> None:
    found = listed(stage, "list", "queues", "vhost", "name", "messages", "consumers")
    assert [(each["vhost"], each["name"], each["messages"]) for each in found] == [
        ("/", "orders", 2),
        ("a/b", "bills", 1),
    ]
    (one,) = listed(stage, "-V", "a/b", "list", "queues", "name")
    assert one["name"] == "bills"


def test_the_server_shows_itself(stage: ManagementStage) -> None:
    (overview,) = listed(stage, "show", "overview")
    assert (overview["queue_totals"]["messages"], overview["object_totals"]["queues"]) == (3, 2)
    assert [each["name"] for each in listed(stage, "list", "vhosts")] == ["/", "a/b"]
    assert listed(stage, "list", "nodes")[0]["running"] is True


def test_a_table_is_drawn(stage: ManagementStage) -> None:
    done = admin(stage, "list", "queues", "name", "messages")
    assert done.returncode == 0
    assert "| orders | 2        |" in done.stdout


def test_users_vhosts_and_permissions_are_declared_listed_and_deleted(stage: ManagementStage) -> None:
    declared = [
        (["declare", "vhost", "name=shop"], "vhost declared"),
        (["declare", "user", "name=ann", "password=secret", "tags=monitoring"], "user declared"),
        (["declare", "user", "name=ben", f"password_hash={RABBITMQ_HASH}", "tags="], "user declared"),
        (
            ["declare", "permission", "vhost=shop", "user=ann", "configure=", "write=^a", "read=.*"],
            "permission declared",
        ),
        (["declare", "user", "name=ann", "password=other", "tags=management"], "user declared"),
    ]
    for words, expected in declared:
        done = admin(stage, *words)
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    users = {each["name"]: each for each in listed(stage, "list", "users")}
    assert (users["ann"]["tags"], users["ben"]["password_hash"]) == (["management"], RABBITMQ_HASH)
    assert "shop" in [each["name"] for each in listed(stage, "list", "vhosts")]
    found = [each for each in listed(stage, "list", "permissions") if each["user"] == "ann"]
    assert found == [{"user": "ann", "vhost": "shop", "configure": "", "write": "^a", "read": ".*"}]
    deleted = [
        (["delete", "permission", "vhost=shop", "user=ann"], "permission deleted"),
        (["delete", "user", "name=ann"], "user deleted"),
        (["delete", "user", "name=ben"], "user deleted"),
        (["delete", "vhost", "name=shop"], "vhost deleted"),
    ]
    for words, expected in deleted:
        done = admin(stage, *words)
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    assert [each["name"] for each in listed(stage, "list", "users")] == ["admin"]
    assert [each["name"] for each in listed(stage, "list", "vhosts")] == ["/", "a/b"]
    done = admin(stage, "delete", "user", "name=ann")
    assert done.returncode != 0 and "Not found: /api/users/ann" in done.stderr


def test_a_wrong_password_is_reported_as_such(stage: ManagementStage) -> None:
    done = admin(stage, "-p", "wrong", "list", "queues")
    assert done.returncode != 0
    assert "Access refused" in done.stdout + done.stderr
