"""Policies and limits of a running broker: over HTTP, with AMQP clients, and with `kill -9` at the change."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.amqp.errors import ReplyCode

DEAD = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
KILLS = 6
MESSAGES = 2000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def http(broker: BrokerProcess) -> httpx.Client:
    base = f"http://127.0.0.1:{broker.management_port}/api"
    return httpx.Client(base_url=base, auth=("guest", "guest"), timeout=30, trust_env=False)


def put(client: httpx.Client, path: str, **body: Any) -> None:
    answer = client.put(path, json=body)
    assert answer.status_code in (201, 204), answer.text


def ready(broker: BrokerProcess, *names: str) -> list[int]:
    with http(broker) as client:
        return [client.get(f"/queues/%2F/{name}").json()["messages"] for name in names]


def publish(broker: BrokerProcess, queue: str, *bodies: bytes) -> None:
    """Returns when all are confirmed."""
    with RawClient(broker.port) as client:
        client.log_in().channel(confirms=True)
        client.publish(1, queue, *bodies)
        confirmed = 0
        while confirmed < len(bodies):
            ack = client.expect(methods.BasicAck)
            confirmed = ack.delivery_tag if ack.multiple else confirmed + 1


def bodies_of(broker: BrokerProcess, queue: str) -> list[bytes]:
    """All that is ready, consumed."""
    found: list[bytes] = []
    with RawClient(broker.port) as client:
        client.log_in().channel()
        while True:
            client.send_method(1, methods.BasicGet(queue=queue, no_ack=True))
            if isinstance(client.method(), methods.BasicGetEmpty):
                return found
            found.append(client.body())


def declare(broker: BrokerProcess, *names: str) -> None:
    with RawClient(broker.port) as client:
        client.log_in().channel()
        for name in names:
            client.declare(name, durable=True)


@pytest.mark.slow
def test_a_vhost_opens_no_more_connections_than_its_limit(broker: BrokerProcess) -> None:
    with http(broker) as client, RawClient(broker.port) as first:
        first.log_in()
        put(client, "/vhost-limits/%2F/max-connections", value=1)
        with RawClient(broker.port) as second, pytest.raises(AssertionError) as caught:
            second.log_in()
        limit = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached"
        assert str(int(ReplyCode.NOT_ALLOWED)) in str(caught.value) and limit in str(caught.value)
        first.channel()
        assert first.declare("still served").queue == "still served"
        put(client, "/vhost-limits/%2F/max-connections", value=2)
        with RawClient(broker.port) as second:
            second.log_in()
        assert client.delete("/vhost-limits/%2F/max-connections").status_code == 204
        with RawClient(broker.port) as second, RawClient(broker.port) as third:
            second.log_in()
            third.log_in()


@pytest.mark.slow
def test_a_client_cannot_declare_more_queues_than_the_limit(broker: BrokerProcess) -> None:
    with http(broker) as client, RawClient(broker.port) as first:
        first.log_in().channel()
        first.declare("one", durable=True)
        put(client, "/vhost-limits/%2F/max-queues", value=1)
        assert first.declare("one", durable=True).queue == "one"
        first.send_method(1, methods.QueueDeclare(queue="two", exclusive=True))
        close = first.expect(methods.ChannelClose)
        text = "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached"
        assert (close.reply_code, close.reply_text) == (ReplyCode.PRECONDITION_FAILED, text)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client_after:
        client_after.log_in().channel()
        client_after.send_method(1, methods.QueueDeclare(queue="two"))
        assert client_after.expect(methods.ChannelClose).reply_text == text, "limits survive"


@pytest.mark.slow
def test_nothing_is_lost_or_reordered_while_policies_change_under_traffic(broker: BrokerProcess) -> None:
    declare(broker, "q", *(f"other {number}" for number in range(50)))
    is_over, changes, errors = threading.Event(), [0], list[BaseException]()
    definitions = [
        {"max-length": 10**6},
        {"message-ttl": 10**9, **DEAD},
        {"max-length-bytes": 10**9, "overflow": "reject-publish"},
    ]

    def change() -> None:
        try:
            with http(broker) as client:
                while not is_over.is_set():
                    put(client, "/policies/%2F/p", pattern=".*", definition=definitions[changes[0] % 3])
                    changes[0] += 1
        except BaseException as error:
            errors.append(error)
            raise

    changing = threading.Thread(target=change)
    changing.start()
    sent, received = [b"%d" % number for number in range(MESSAGES)], list[bytes]()
    with RawClient(broker.port) as consumer:
        consumer.log_in().channel()
        consumer.send_method(1, methods.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
        consumer.expect(methods.BasicConsumeOk)
        for first in range(0, MESSAGES, 50):
            publish(broker, "q", *sent[first : first + 50])
        received = [consumer.body() for _ in sent]
    is_over.set()
    changing.join(60)
    assert received == sent
    assert changes[0] > 5 and not errors


@pytest.mark.slow
def test_a_policy_that_was_answered_survives_a_kill_and_one_that_was_not_is_whole_or_absent(
    broker: BrokerProcess,
) -> None:
    """Killed while a policy is set that moves messages to another queue: no message is lost, and none is doubled."""
    rng = random.Random(5)
    declare(broker, "q", "dead")
    sent: list[bytes] = []
    for life in range(KILLS):
        more = [b"%d-%d" % (life, number) for number in range(300)]
        publish(broker, "q", *more)
        sent += more
        with http(broker) as client:
            client.delete("/policies/%2F/p")
        publish(broker, "q", b"last %d" % life)
        sent.append(b"last %d" % life)
        answered = _set_until_killed(broker, 10 + life, rng.uniform(0, 0.06))
        broker.start()
        with http(broker) as client:
            policies = [each["definition"] for each in client.get("/policies").json()]
            item = client.get("/queues/%2F/q").json()
        assert policies in ([], [{"max-length": 10 + life, **DEAD}]) and (policies or not answered)
        assert item["effective_policy_definition"] == (policies[0] if policies else {})
        if policies:
            _wait_for_limit(broker, 10 + life)
        assert sum(ready(broker, "q", "dead")) == len(sent)
    assert sorted(bodies_of(broker, "q") + bodies_of(broker, "dead")) == sorted(sent)


def _set_until_killed(broker: BrokerProcess, limit: int, seconds: float) -> bool:
    """Whether the change was answered."""
    answers: list[int] = []

    def change() -> None:
        with http(broker) as client, suppress(httpx.TransportError):
            body = {"pattern": "^q$", "definition": {"max-length": limit, **DEAD}}
            answers.append(client.put("/policies/%2F/p", json=body).status_code)

    changing = threading.Thread(target=change)
    changing.start()
    changing.join(seconds)
    broker.kill()
    changing.join(60)
    return bool(answers)


def _wait_for_limit(broker: BrokerProcess, limit: int) -> None:
    """The start applies what the kill has left to it, by a timer."""
    for _ in range(600):
        if ready(broker, "q")[0] <= limit:
            return
    raise AssertionError(f"the queue is not within its limit of {limit}: {ready(broker, 'q')}")
