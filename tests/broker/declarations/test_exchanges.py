"""Declaring and deleting exchanges, and auto-delete with the last binding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.declarations_cases import q, x
from tests.broker.declarations_stage import DeclarationsStage
from warren.amqp import methods
from warren.amqp.errors import PeerError


@pytest.fixture
def stage() -> Iterator[DeclarationsStage]:
    stage = DeclarationsStage().up()
    yield stage
    stage.check()
    stage.down()


def names(stage: DeclarationsStage) -> list[str]:
    known = stage.vhost.routing._exchanges.values()
    return sorted(each.row.name for each in known if each.row.name and not each.row.name.startswith("amq."))


def test_a_new_exchange_routes_at_once(stage: DeclarationsStage) -> None:
    for method in (q(), x(), methods.QueueBind(queue="q", exchange="e", routing_key="k")):
        stage.request(method)
    row = stage.vhost.routing.exchange("e")
    assert row is not None
    assert stage.vhost.routing.publish(row.id, "k").queues == (stage.ids()["q"],)
    stage.request(methods.ExchangeDelete(exchange="e"))
    assert names(stage) == []
    stage.request(q(passive=True))


def test_a_long_chain_goes_with_its_end(stage: DeclarationsStage) -> None:
    """Step by step, so that no depth is too deep; one change, so that no crash leaves half of it."""
    length = 60
    stage.request(q())
    for number in range(length):
        stage.request(x(f"e{number:02}", auto_delete=True))
        if number:
            stage.request(methods.ExchangeBind(source=f"e{number - 1:02}", destination=f"e{number:02}"))
    stage.request(x("kept"))
    stage.request(methods.ExchangeBind(source="kept", destination="e00"))
    stage.request(methods.QueueBind(queue="q", exchange=f"e{length - 1:02}"))
    assert len(names(stage)) == length + 1
    applied = stage.storage.catalog.applied
    stage.request(methods.QueueDelete(queue="q"))
    assert names(stage) == ["kept"]
    assert stage.storage.catalog.applied > applied


def test_a_cycle_of_exchanges_stays_until_it_is_broken(stage: DeclarationsStage) -> None:
    for name in ("e", "f"):
        stage.request(x(name, auto_delete=True))
    stage.request(methods.ExchangeBind(source="e", destination="f"))
    stage.request(methods.ExchangeBind(source="f", destination="e"))
    assert names(stage) == ["e", "f"]
    stage.request(methods.ExchangeUnbind(source="e", destination="f"))
    assert names(stage) == []


def test_deleting_an_exchange_takes_those_before_it_along(stage: DeclarationsStage) -> None:
    for method in (
        x("first", auto_delete=True),
        x("last"),
        q(),
        methods.ExchangeBind(source="first", destination="last"),
        methods.QueueBind(queue="q", exchange="last"),
        methods.ExchangeDelete(exchange="last"),
    ):
        stage.request(method)
    assert names(stage) == []
    assert list(stage.ids()) == ["q"]


def test_an_exchange_bound_to_itself_goes_once(stage: DeclarationsStage) -> None:
    stage.request(x(auto_delete=True))
    stage.request(methods.ExchangeBind(source="e", destination="e"))
    stage.request(methods.ExchangeUnbind(source="e", destination="e"))
    assert names(stage) == []
    stage.request(x(auto_delete=True))
    stage.request(methods.ExchangeBind(source="e", destination="e"))
    stage.request(methods.ExchangeDelete(exchange="e"))
    assert names(stage) == []


def test_what_was_refused_is_not_there(stage: DeclarationsStage) -> None:
    with pytest.raises(PeerError, match="amq"):
        stage.request(x("amq.mine"))
    with pytest.raises(PeerError, match="invalid exchange type 'x-mine'"):
        stage.request(x("mine", "x-mine"))
    assert names(stage) == []
