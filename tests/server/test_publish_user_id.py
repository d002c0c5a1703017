"""The user id of a message: the publisher's own, unless its user may impersonate others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.amqp.content import Properties

REFUSAL = "PRECONDITION_FAILED - user_id property set to 'joe' but authenticated user was 'guest'"


@pytest.fixture(params=["administrator", "administrator,impersonator"])
def tags(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(tmp_path: Path, tags: str) -> Iterator[RawClient]:
    with BrokerProcess(tmp_path / "data", "--default-user-tags", tags) as broker, RawClient(broker.port) as client:
        client.log_in().channel(confirms=True).declare("queue")
        yield client


def test_a_foreign_user_id_closes_the_channel_unless_the_user_may_impersonate(client: RawClient, tags: str) -> None:
    """Messages before it in the same write are accepted; those behind it are not."""
    own, foreign = Properties(user_id="guest"), Properties(user_id="joe")
    method = methods.BasicPublish(routing_key="queue")
    messages = [client.message(1, method, b"m", each) for each in (Properties(), own, foreign, Properties())]
    client.send(b"".join(messages))
    if "impersonator" in tags:
        assert client.expect(methods.BasicAck).delivery_tag == 4
        return
    close = next(method for method in iter(client.method, None) if isinstance(method, methods.ChannelClose))
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (406, REFUSAL, 60, 40)
    client.send_method(1, methods.ChannelCloseOk())
    assert client.channel().declare("queue").message_count == 2
