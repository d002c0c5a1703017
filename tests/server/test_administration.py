"""Users, vhosts, permissions and limits are changed while clients are connected: pika against a broker in this
process, changed through its `Administration`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.server.loop_stage import SECONDS_MAX, LoopStage, serving
from warren.app.broker import Broker
from warren.base.errors import OutOfRoom, Refused
from warren.base.ids import QueueId
from warren.broker.auth.administration import AccessChange, Administration, Credentials, Patterns
from warren.broker.auth.passwords import Hashing, hashed
from warren.broker.auth.permissions import access_to
from warren.broker.errors import VhostDeleted
from warren.server.handlers import connection as handshake

ALL = Patterns(".*", ".*", ".*")
NOTHING = Patterns("", "", "")


class Stage:
    """The vhost `shop` and the user `ann`, with all permissions there."""

    def __init__(self, loop: LoopStage) -> None:
        self.loop = loop
        self.broker: Broker = loop.broker
        self.administration: Administration = loop.broker.administration
        self.credentials = self.hash("secret")
        self.change(lambda change: change.put_vhost("shop", "", []))
        self.change(lambda change: change.put_user("ann", self.credentials, []))
        self.permit(ALL)

    def hash(self, password: str) -> Credentials:
        return Credentials(hashed(password, self.broker.environment.rng, hashing=Hashing.SHA256), Hashing.SHA256.value)

    def change(self, function: Callable[[AccessChange], Any]) -> Any:
        return self.administration.change(function)

    def permit(self, patterns: Patterns, user: str = "ann", vhost: str = "shop") -> None:
        self.change(lambda change: change.put_permissions(user, vhost, patterns))

    def connect(self, user: str = "ann", vhost: str = "shop", password: str = "secret") -> Any:
        credentials = pika.PlainCredentials(user, password)
        parameters = pika.ConnectionParameters("127.0.0.1", self.loop.port, vhost, credentials, heartbeat=0)
        return pika.BlockingConnection(parameters)

    def refusal(self, **parameters: str) -> str:
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
            self.connect(**parameters)
        return str(refused.value)

    def count(self) -> int:
        return self.loop.call(lambda: len(self.loop.server.connections))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with serving(tmp_path / "data") as loop:
        yield Stage(loop)


def channel_of(connection: Any) -> Any:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def close_reason(connection: Any) -> tuple[int, str]:
    """Why the broker closes the connection."""
    try:
        for _ in range(100):
            connection.process_data_events(SECONDS_MAX / 100)
    except pika.exceptions.ConnectionClosedByBroker as closed:
        return closed.reply_code, closed.reply_text
    raise AssertionError("it stays open")


def run_count(broker: Broker, queue: QueueId) -> int:
    """Rows of messages in the index of a queue."""
    with closing(broker.database.view_now()) as view:
        return sum(row.key[:1] == b"r" for row in view.range(queue, b""))


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        action()
    assert closed.value.reply_code == 403
    return str(closed.value.reply_text)


# -- vhosts -----------------------------------------------------------------------------------------------------------


def test_a_new_vhost_can_be_opened_at_once(stage: Stage) -> None:
    def create(change: AccessChange) -> None:
        change.put_vhost("new", "described", ["a"])
        change.put_permissions("ann", "new", ALL)

    assert "vhost new not found" in stage.refusal(vhost="new")
    stage.change(create)
    with closing(stage.connect(vhost="new")) as connection:
        channel = channel_of(connection)
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"a")
        assert channel.basic_get("q")[2] == b"a"
    row = stage.broker.vhosts.find("new").row
    assert (row.description, row.tags) == ("described", ("a",))


def test_deleting_a_vhost_closes_its_connections_and_ends_what_it_has_in_memory(stage: Stage) -> None:
    connection, other = stage.connect(), stage.connect("guest", "/", "guest")
    channel = channel_of(connection)
    channel.queue_declare("q", durable=True)
    channel.queue_declare("", exclusive=True)
    channel.basic_publish("", "q", b"a" * 1000)
    channel.basic_consume("q", lambda *_: None)
    vhost, server = stage.broker.vhosts.find("shop"), stage.loop.server
    handle = vhost.find_queue("q")
    stage.change(lambda change: change.delete_vhost("shop"))
    assert close_reason(connection) == (320, "CONNECTION_FORCED - vhost 'shop' is deleted")
    assert "vhost shop not found" in stage.refusal()
    assert handle.is_deleted and not server.storage.alive_bytes()
    assert [name for name in server._served if name != "/"] == []
    assert not [each.name for each in threading.enumerate() if each is vhost.timers._thread]
    with pytest.raises(VhostDeleted):
        vhost.find_queue("q")
    stage.loop.wait_until(lambda: len(server.connections) == 1)
    assert not stage.broker.problems
    other.channel().queue_declare("still here")
    other.close()


def test_a_vhost_of_the_same_name_begins_empty(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        channel_of(connection).queue_declare("q", durable=True)
    stage.change(lambda change: change.delete_vhost("shop"))
    stage.change(lambda change: change.put_vhost("shop", "", []))
    assert "access to vhost 'shop' refused for user 'ann'" in stage.refusal()
    stage.permit(ALL)
    with closing(stage.connect()) as connection, pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
        connection.channel().queue_declare("q", passive=True)


def test_a_vhost_deleted_under_traffic_disturbs_no_other(stage: Stage) -> None:
    """Publishers and consumers run in both; everything that was confirmed in the other vhost arrives there."""
    stage.change(lambda change: change.put_vhost("other", "", []))
    stage.permit(ALL, vhost="other")
    is_over = threading.Event()
    published: dict[str, int] = {"shop": 0, "other": 0}
    received: list[bytes] = []
    closed: list[str] = []

    def publish(vhost: str) -> None:
        connection = stage.connect(vhost=vhost)
        channel = channel_of(connection)
        try:
            while not is_over.is_set():
                channel.basic_publish("", "q", str(published[vhost]).encode())
                published[vhost] += 1
            connection.close()
        except pika.exceptions.AMQPError as error:
            closed.append(f"{vhost}: {error}")

    def consume(vhost: str) -> None:
        connection = stage.connect(vhost=vhost)
        channel = connection.channel()
        try:
            for method, _, body in channel.consume("q", inactivity_timeout=0.1):
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                    if vhost == "other":
                        received.append(body)
                elif is_over.is_set():
                    break
            connection.close()
        except pika.exceptions.AMQPError as error:
            closed.append(f"{vhost}: {error}")

    for vhost in published:
        with closing(stage.connect(vhost=vhost)) as connection:
            connection.channel().queue_declare("q", durable=True)
    threads = [threading.Thread(target=work, args=(vhost,)) for vhost in published for work in (publish, consume)]
    for thread in threads:
        thread.start()
    _wait(lambda: min(published.values()) > 20)
    stage.change(lambda change: change.delete_vhost("shop"))
    before = published["other"]
    _wait(lambda: published["other"] > before + 20)
    is_over.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert [int(body) for body in received] == list(range(published["other"]))
    assert len(closed) == 2 and all("vhost 'shop' is deleted" in each for each in closed), closed
    assert not stage.broker.problems


def test_a_thousand_queues_go_with_their_vhost(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        channel = channel_of(connection)
        channel.exchange_declare("all", "fanout", durable=True)
        for number in range(1000):
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", "all")
        channel.basic_publish("all", "", b"a" * 100, pika.BasicProperties(delivery_mode=2))
    vhost = stage.broker.vhosts.find("shop")
    ids = list(vhost.started_queues())
    assert len(ids) == 1000 and all(run_count(stage.broker, id_) == 1 for id_ in ids)
    stage.change(lambda change: change.delete_vhost("shop"))
    assert not stage.broker.catalog.queue_ids() and not any(run_count(stage.broker, id_) for id_ in ids)
    assert not stage.broker.problems


def test_queues_that_were_not_started_go_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "data") as loop:
        stage = Stage(loop)
        with closing(stage.connect()) as connection:
            channel = channel_of(connection)
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"a", pika.BasicProperties(delivery_mode=2))
    monkeypatch.setattr("warren.broker.vhosts.Vhosts.warm_up", lambda self: None)
    with serving(tmp_path / "data") as loop:
        vhost, (id_,) = loop.broker.vhosts.find("shop"), loop.broker.catalog.queue_ids()
        assert not vhost.started_queues() and run_count(loop.broker, id_) == 1
        loop.broker.administration.change(lambda change: change.delete_vhost("shop"))
        assert run_count(loop.broker, id_) == 0


# -- users and permissions --------------------------------------------------------------------------------------------


def test_changed_permissions_count_for_the_next_operation_of_an_open_channel(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        channel = channel_of(connection)
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"a")  # the target is authorized, and cached
        reader, declarer = connection.channel(), connection.channel()
        stage.permit(NOTHING)
        what = refused(lambda: channel.basic_publish("", "q", b"b"))
        assert what == "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost 'shop' refused for user 'ann'"
        assert "read access to queue 'q'" in refused(lambda: reader.basic_get("q"))
        assert "configure access to queue 'r'" in refused(lambda: declarer.queue_declare("r"))
        stage.permit(Patterns("", "", "^q$"))
        assert connection.channel().basic_get("q")[2] == b"a"
        stage.change(lambda change: change.clear_permissions("ann", "shop"))
        assert "read access to queue 'q'" in refused(lambda: connection.channel().basic_get("q"))
        assert "access to vhost 'shop' refused" in stage.refusal()


def test_changed_topic_permissions_count_for_the_next_publish(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        channel = channel_of(connection)
        channel.basic_publish("amq.topic", "a.b", b"a")
        stage.change(lambda change: change.put_topic_permissions("ann", "shop", "amq.topic", "^c", ".*"))
        assert "topic 'a.b'" in refused(lambda: channel.basic_publish("amq.topic", "a.b", b"a"))
        stage.change(lambda change: change.clear_topic_permissions("ann", "shop"))
        channel_of(connection).basic_publish("amq.topic", "a.b", b"a")


def test_permissions_of_another_user_or_vhost_do_not_reach_a_connection(stage: Stage) -> None:
    stage.change(lambda change: change.put_vhost("other", "", []))
    stage.change(lambda change: change.put_user("ben", stage.credentials, []))
    with closing(stage.connect()) as connection:
        channel = channel_of(connection)
        channel.queue_declare("q")
        stage.permit(NOTHING, vhost="other")
        stage.permit(NOTHING, user="ben")
        channel.basic_publish("", "q", b"a")


def test_a_pattern_that_cannot_be_used_changes_nothing(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        for patterns in (Patterns("(", "", ""), Patterns("", "^(a+)+$", "")):
            with pytest.raises(Refused):
                stage.permit(patterns)
        connection.channel().queue_declare("q")


def test_a_deleted_user_is_disconnected(stage: Stage) -> None:
    connection, other = stage.connect(), stage.connect("guest", "/", "guest")
    stage.change(lambda change: change.delete_user("ann"))
    assert close_reason(connection) == (320, "CONNECTION_FORCED - user 'ann' is deleted")
    other.channel().queue_declare("still here")
    other.close()


def test_a_new_password_closes_no_connection(stage: Stage) -> None:
    with closing(stage.connect()) as connection:
        stage.change(lambda change: change.put_user("ann", stage.hash("other"), []))
        connection.channel().queue_declare("q")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            stage.connect()
        stage.connect(password="other").close()


def test_a_refused_part_takes_back_the_whole_change(stage: Stage) -> None:
    def change(change: AccessChange) -> None:
        change.put_vhost("half", "", [])
        change.delete_user("ann")
        change.put_permissions("ann", "half", ALL)

    with closing(stage.connect()) as connection:
        with pytest.raises(Refused, match="user 'ann' not found"):
            stage.change(change)
        connection.channel().queue_declare("q")
        assert "vhost half not found" in stage.refusal(vhost="half")


def test_a_change_on_a_full_disk_is_refused_and_blocks_no_login(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(type(stage.broker.environment.files), "free_bytes", lambda self, path: 0)
        with pytest.raises(OutOfRoom, match="the disk is full"):
            stage.change(lambda change: change.put_vhost("new", "", []))
        stage.connect().close()
    stage.change(lambda change: change.put_vhost("new", "", []))


@pytest.mark.parametrize("kind", ["permissions", "vhost", "user"])
def test_a_change_while_a_client_opens_the_vhost_is_not_missed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The client's permissions were read before the change, and would be used after it."""
    is_read, resumed, real = threading.Event(), threading.Event(), access_to

    def slowly(*arguments: Any) -> Any:
        found = real(*arguments)
        is_read.set()
        assert resumed.wait(SECONDS_MAX)
        return found

    monkeypatch.setattr(handshake, "access_to", slowly)
    outcome: list[str] = []
    client = threading.Thread(target=lambda: outcome.append(_outcome(stage)))
    client.start()
    assert is_read.wait(SECONDS_MAX)
    changes: dict[str, Callable[[AccessChange], Any]] = {
        "permissions": lambda change: change.clear_permissions("ann", "shop"),
        "vhost": lambda change: change.delete_vhost("shop"),
        "user": lambda change: change.delete_user("ann"),
    }
    stage.change(changes[kind])
    resumed.set()
    client.join(SECONDS_MAX)
    expected = {
        "permissions": "access to vhost 'shop' refused for user 'ann'",
        "vhost": "vhost shop not found",
        "user": "user 'ann' is deleted",
    }
    assert expected[kind] in outcome[0]


def _outcome(stage: Stage) -> str:
    try:
        stage.connect().close()
    except pika.exceptions.AMQPError as error:
        return str(error)
    return "opened"


# -- limits -----------------------------------------------------------------------------------------------------------


def test_connections_of_a_user_are_limited(stage: Stage) -> None:
    stage.change(lambda change: change.set_user_limit("ann", "max-connections", 1))
    text = "connection refused for user 'ann': user connection limit (1) is reached"
    with closing(stage.connect()), closing(stage.connect("guest", "/", "guest")):
        assert text in stage.refusal()
        stage.change(lambda change: change.set_user_limit("ann", "max-connections", 2))
        stage.connect().close()
    stage.loop.wait_until(lambda: not stage.loop.server.connections)
    stage.change(lambda change: change.set_user_limit("ann", "max-connections", 0))
    assert "user connection limit (0) is reached" in stage.refusal()
    stage.change(lambda change: change.clear_user_limit("ann", "max-connections"))
    stage.connect().close()


def test_channels_of_a_user_are_limited_over_all_its_connections(stage: Stage) -> None:
    first, second = stage.connect(), stage.connect()
    channel = first.channel()
    stage.change(lambda change: change.set_user_limit("ann", "max-channels", 1))  # reaches open connections
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        second.channel()
    assert closed.value.args == (
        530,
        "NOT_ALLOWED - number of channels opened for user 'ann' has reached the maximum allowed user limit of (1)",
    )
    channel.close()
    first.channel()
    stage.change(lambda change: change.set_user_limit("ann", "max-channels", -1))
    first.channel()
    first.close()


def _wait(condition: Callable[[], bool]) -> None:
    bell = threading.Event()
    for _ in range(int(SECONDS_MAX / 0.02)):
        if condition():
            return
        bell.wait(0.02)
    raise AssertionError("it does not come true")
