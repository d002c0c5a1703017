"""What a declaration, a binding and a routed message cost does not grow with what they do not touch: operations are
counted at n and at 4n, times are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.declarations_stage import DeclarationsStage
from tests.broker.exchanges.rows import VHOST, exchange, queue
from tests.server.raw_client import RawClient
from tests.server.served_broker import served_broker
from warren.amqp import methods
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.broker.exchanges import headers as headers_module
from warren.broker.exchanges import routing as routing_module
from warren.broker.exchanges.headers import Headers
from warren.broker.exchanges.routing import Routing
from warren.broker.vhost import TOGETHER
from warren.catalog import queues
from warren.catalog.bindings import BindingRow
from warren.durability.group_commit import GroupCommit
from warren.log.session import Session
from warren.server.server import POOL_SIZE
from warren.snapshot.database import Database

SIZE = 100


class Counted:
    """How often a function is called."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.calls = 0
        real = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return real(*arguments, **named)

        patch.setattr(owner, name, counted)

    def during(self, act: Callable[[], object]) -> int:
        before = self.calls
        act()
        return self.calls - before


# -- dead-letter routes (issue 12, number 18) ------------------------------------------------------------------------


def bound(id_: int, source: int, to_queue: int, **arguments: Any) -> BindingRow:
    return BindingRow(BindingId(id_), VHOST, ExchangeId(source), QueueId(to_queue), None, "", arguments)


def bound_routing(count: int) -> Routing:
    """The default exchange, a fanout exchange with so many queues, and one without any."""
    routing = Routing()
    for row in (exchange(1, name=""), exchange(2, "fanout"), exchange(3, "fanout")):
        routing.add_exchange(row)
    for number in range(count):
        routing.add_queue(queue(100 + number, f"q{number}"))
        routing.add_binding(bound(10_000 + number, 2, 100 + number))
    return routing


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_declaration_and_a_binding_elsewhere_keep_the_reachable_queues(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    routing, dead = bound_routing(count), ExchangeId(2)
    walked = Counted(monkeypatch, routing_module, "destination_of")
    assert walked.during(lambda: routing.reachable(dead)) == count

    def declare() -> None:
        routing.add_queue(queue(9_000, "new"))
        assert len(routing.reachable(dead)) == len(routing.reachable(dead, "any key")) == count

    routing.reachable(dead, "any key")
    assert walked.during(declare) == 0
    routing.add_binding(bound(90_000, 3, 9_000))
    assert walked.during(lambda: routing.reachable(dead)) == 0


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_binding_to_the_exchange_itself_adds_one_queue(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    routing, dead = bound_routing(count), ExchangeId(2)
    routing.add_queue(queue(9_000, "new"))
    routing.reachable(dead)
    walked = Counted(monkeypatch, routing_module, "destination_of")

    def bind() -> None:
        routing.add_binding(bound(90_000, 2, 9_000))
        assert len(routing.reachable(dead)) == count + 1

    assert walked.during(bind) == 1


# -- headers exchanges (issue 12, number 19) -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["all", "any"])
@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_message_is_compared_with_the_bindings_that_share_a_header_with_it(
    monkeypatch: pytest.MonkeyPatch, count: int, kind: str
) -> None:
    """Every message has another value, so that no memory of earlier messages helps."""
    matcher = Headers()
    for number in range(count):
        shared = {"type": "order"} if kind == "all" else {}
        matcher.add(bound(number + 1, 1, number + 1, **{"x-match": kind, **shared, "customer": number}))
    compared = Counted(monkeypatch, headers_module, "_matches")
    for number in range(0, count, count // 10):
        sent = {"type": "order", "customer": number}
        assert compared.during(lambda: matcher.match("", sent)) <= 2  # noqa: B023 - called at once
        assert [to.queue for to in matcher.match("", sent)] == [number + 1]


# -- declarations, starts and stops (issue 12, number 22) ------------------------------------------------------------


class Costs:
    """Sessions of the log, views of the store and syncs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._counted = [
            Counted(patch, Session, "__init__"),
            Counted(patch, Database, "view_at"),
            Counted(patch, Database, "view_now"),
            Counted(patch, GroupCommit, "_write_and_sync"),
        ]

    def during(self, act: Callable[[], object]) -> tuple[int, int, int]:
        before = [each.calls for each in self._counted]
        act()
        sessions, at, now, syncs = (each.calls - was for each, was in zip(self._counted, before, strict=True))
        return sessions, at + now, syncs


def declare_all(stage: DeclarationsStage, first: int, count: int) -> None:
    for number in range(first, first + count):
        stage.request(methods.QueueDeclare(queue=f"q{number}", durable=True))


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_durable_declaration_is_one_session_and_one_sync_and_reads_no_store(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stage = DeclarationsStage().up()
    declare_all(stage, 0, count)
    sessions, views, syncs = Costs(monkeypatch).during(lambda: declare_all(stage, count, 64))
    assert (views, syncs) == (0, 64)
    assert sessions <= 64 + 3  # ids are reserved for 32 declarations at a time
    stage.down()


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_queues_that_never_had_a_message_write_nothing_at_a_stop_and_a_start(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stage = DeclarationsStage().up()
    declare_all(stage, 0, count)
    costs = Costs(monkeypatch)
    assert costs.during(stage.vhost.close) == (0, 0, 0)
    stage.storage.close()
    stage.stop()
    stage.up()
    sessions, _, syncs = costs.during(lambda: start_all(stage))
    assert (sessions, syncs) == (0, 0)
    stage.down()


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_queues_are_stopped_and_started_many_in_one_session(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    stage = DeclarationsStage().up()
    declare_all(stage, 0, count)
    names = [f"q{number}" for number in range(count)]
    stage.put(b"1", to=names)
    assert all(stage.get(name) == [b"1"] for name in names)
    costs = Costs(monkeypatch)
    sessions, views, _ = costs.during(stage.vhost.close)
    assert (sessions, views) == (count // TOGETHER, 0)
    stage.storage.close()
    stage.stop()
    stage.up()
    sessions, views, syncs = costs.during(lambda: start_all(stage))
    assert sessions == syncs == count // TOGETHER
    assert views == count  # one for each queue: where it stands
    assert [stage.length(name) for name in names] == [0] * count
    stage.put(b"2", to="q0")
    assert stage.get("q0") == [b"2"]
    stage.down()


def start_all(stage: DeclarationsStage) -> None:
    with stage.storage.catalog.reading() as connection:
        rows = queues.every(connection)
    for start in range(0, len(rows), TOGETHER):
        stage.vhost.start_queues(rows[start : start + TOGETHER])
    assert len(stage.vhost.handles()) == len(rows)


def test_declarations_of_many_clients_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one sync is under way the others gather, as many as the server has threads."""
    clients = POOL_SIZE - 1
    syncs, may_sync, sync = list[int](), threading.Event(), GroupCommit._write_and_sync

    def waiting(*arguments: Any) -> None:
        syncs.append(1)
        assert may_sync.wait(30)
        sync(*arguments)

    with served_broker(tmp_path / "data") as (broker, port), ExitStack() as stack:
        connected = [stack.enter_context(RawClient(port).log_in().channel()) for _ in range(clients)]
        monkeypatch.setattr(GroupCommit, "_write_and_sync", waiting)
        connected[0].send_method(1, methods.QueueDeclare(queue="q0", durable=True))
        while not syncs:
            time.sleep(0.001)
        for number, client in enumerate(connected[1:], 1):
            client.send_method(1, methods.QueueDeclare(queue=f"q{number}", durable=True))
        deadline = time.monotonic() + 30
        while len(broker.catalog._waiting) < clients - 1:
            assert time.monotonic() < deadline, "they do not wait together"
            time.sleep(0.001)
        may_sync.set()
        for client in connected:
            client.expect(methods.QueueDeclareOk)
        assert len(syncs) <= 4
