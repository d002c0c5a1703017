"""One server for the tests that only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.management.questions import LIMITED, QUEUE, USERS
from tests.management.stage import ManagementStage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    """As `ask_server.py` prepares RabbitMQ."""
    with ManagementStage(tmp_path_factory.mktemp("management") / "data") as stage:
        stage.vhost("other")
        for user, tag, is_in in USERS:
            stage.user(user, *([tag] if tag else []), vhost="/" if is_in else None)
        stage.user(LIMITED, "management", vhost="/", pattern="")
        stage.queue(QUEUE, "/", b"a", max_length=5)
        yield stage
