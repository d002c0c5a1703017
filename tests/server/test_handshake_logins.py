"""Logins without a password, and new secrets of open connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import HEADER, RawClient
from tests.server.served_broker import served_broker
from warren.amqp import methods
from warren.app.broker import Broker
from warren.broker.auth.passwords import Hashing, hashed
from warren.catalog import permissions, users, vhosts
from warren.catalog.rows import RowWriter

REFUSAL = "NOT_ALLOWED - New secret was refused by one of the backends"


def answer_to(client: RawClient, mechanism: str, response: bytes = b"") -> methods.Method:
    client.send(HEADER)
    client.expect(methods.ConnectionStart)
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send_method(0, methods.ConnectionStartOk(properties, mechanism, response))
    return client.method()


def test_anonymous_clients_are_the_configured_user(tmp_path: Path) -> None:
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("anonymous_login_user = guest\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf)) as broker, RawClient(broker.port) as client:
        tune = answer_to(client, "ANONYMOUS", b"whoever")
        assert isinstance(tune, methods.ConnectionTune)
        client.send_method(0, methods.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        client.send_method(0, methods.ConnectionOpen("/"))
        client.expect(methods.ConnectionOpenOk)
        client.channel().declare("queue")


@pytest.mark.parametrize("user", ["none", "nobody"])
def test_anonymous_clients_are_refused_without_such_a_user(tmp_path: Path, user: str) -> None:
    with BrokerProcess(tmp_path / "data", "--anonymous-login-user", user) as broker, RawClient(broker.port) as client:
        client.send(HEADER)
        offered = client.expect(methods.ConnectionStart).mechanisms.split()
        assert (b"ANONYMOUS" in offered) == (user == "nobody")
        with RawClient(broker.port) as other:
            close = answer_to(other, "ANONYMOUS")
            assert isinstance(close, methods.ConnectionClose)
            assert close.reply_text.startswith(
                "COMMAND_INVALID - unknown authentication mechanism 'ANONYMOUS'"
                if user == "none"
                else "ACCESS_REFUSED - Login was refused using authentication mechanism ANONYMOUS."
            )


@contextmanager
def ann(tmp_path: Path) -> Iterator[tuple[Broker, RawClient]]:
    """A broker, and a client of the user ann, whose password was changed since the login."""
    with served_broker(tmp_path / "data") as (broker, port), RawClient(port) as client:
        set_password(broker, "old", write="none")
        client.log_in("ann", "old").channel()
        set_password(broker, "new", write="")
        yield broker, client


def set_password(broker: Broker, password: str, write: str) -> None:
    """`write`: for the queues that ann may write to, a pattern."""
    password_hash = hashed(password, broker.environment.rng)

    def work(change: RowWriter) -> None:
        row = users.put(change, "ann", password_hash, Hashing.SCRYPT.value)
        vhost = vhosts.get(change.connection, "/")
        assert vhost is not None
        permissions.put(change, row.id, vhost.id, ".*", write, ".*")

    broker.catalog.change(work)


def test_a_new_secret_is_checked_and_permissions_are_read_again(tmp_path: Path) -> None:
    with ann(tmp_path) as (broker, client):
        set_password(broker, "new", write=".*")
        client.send_method(0, methods.ConnectionUpdateSecret(b"new", "rotation"))
        client.expect(methods.ConnectionUpdateSecretOk)
        client.declare("queue")
        client.send_method(1, methods.ConfirmSelect())
        client.expect(methods.ConfirmSelectOk)
        client.publish(1, "queue", b"m")  # not permitted before
        client.expect(methods.BasicAck)


def test_a_wrong_new_secret_closes_the_connection(tmp_path: Path) -> None:
    with ann(tmp_path) as (_, client):
        client.send_method(0, methods.ConnectionUpdateSecret(b"old", "rotation"))
        close = client.expect(methods.ConnectionClose)
        assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (530, REFUSAL, 10, 70)
