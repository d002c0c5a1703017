"""One RabbitMQ for all who only want to talk to it: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.bench.peers import Peer, start_rabbitmq


@pytest.fixture(scope="package")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with start_rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as peer:
        yield peer
