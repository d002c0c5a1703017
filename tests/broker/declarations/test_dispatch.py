"""Every case of declarations_cases: Warren answers as RabbitMQ does, apart from the differences listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.broker.declarations_cases import CASES, expected_answers, q, x
from tests.broker.declarations_stage import TopologyStage
from warren.amqp import methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.base.errors import Misuse

EXPECTED = expected_answers()
DIFFERENT = {  # and why: docs/compatibility.md
    "ttl void": "ok q 0 0",
    "ttl too large": "ok q 0 0",
    "expires too large": "ok q 0 0",
    "deleted quorum if unused": "ok 0",
}
NO_WAIT = [
    q(no_wait=True),
    x(no_wait=True),
    methods.QueueBind(queue="q", exchange="e", no_wait=True),
    methods.QueuePurge(queue="q", no_wait=True),
    methods.ExchangeBind(source="e", destination="e", no_wait=True),
    methods.ExchangeUnbind(source="e", destination="e", no_wait=True),
    methods.QueueDelete(queue="q", no_wait=True),
    methods.ExchangeDelete(exchange="e", no_wait=True),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[TopologyStage]:
    stage = TopologyStage().up()
    yield stage
    stage.down()


@pytest.fixture
def stage(shared: TopologyStage) -> Iterator[TopologyStage]:
    yield shared
    shared.check()
    shared.clean()


@pytest.mark.parametrize("name", CASES)
def test_we_answer_as_rabbitmq_does(name: str, stage: TopologyStage) -> None:
    answer = stage.case(CASES[name])
    without_right = re.sub(r"ACCESS_REFUSED - (configure|write|read) access", "ACCESS_REFUSED - access", answer)
    plain, mark, _ = EXPECTED[name].partition("~")
    if name in DIFFERENT:
        assert answer == DIFFERENT[name] != plain
    else:
        assert without_right.startswith(plain) if mark else without_right == plain


def test_the_table_has_every_case() -> None:
    assert list(EXPECTED) == list(CASES)


def test_who_does_not_want_an_answer_gets_none_and_it_is_done(stage: TopologyStage) -> None:
    for method in NO_WAIT:
        assert stage.ask(method) is None
    assert stage.ids() == {}
    with pytest.raises(PeerError, match="no queue 'q'"):
        stage.ask(methods.QueuePurge(queue="q", no_wait=True))


def test_a_refusal_says_which_method_it_was(stage: TopologyStage) -> None:
    with pytest.raises(PeerError) as refusal:
        stage.ask(methods.QueuePurge(queue="q"))
    assert (refusal.value.code, refusal.value.class_id, refusal.value.method_id) == (ReplyCode.NOT_FOUND, 50, 30)
    with pytest.raises(PeerError) as refusal:
        stage.ask(x("q"), "n")
    assert (refusal.value.code, refusal.value.class_id, refusal.value.method_id) == (ReplyCode.ACCESS_REFUSED, 40, 10)


def test_a_name_that_cannot_be_kept_is_refused_and_leaves_nothing(stage: TopologyStage) -> None:
    with pytest.raises(PeerError, match="has 3 bytes") as refusal:
        stage.ask(q("a\0b"))
    assert refusal.value.code is ReplyCode.PRECONDITION_FAILED
    assert stage.ids() == {}


def test_a_closed_vhost_closes_the_connections_of_its_clients() -> None:
    stage = TopologyStage().up()
    stage.ask(q())
    stage.vhost.close()
    with pytest.raises(PeerError) as refusal:
        stage.ask(methods.QueuePurge(queue="other"))
    assert refusal.value.code is ReplyCode.CONNECTION_FORCED
    stage.storage.close()
    stage.stop()


def test_other_methods_are_not_asked_here(stage: TopologyStage) -> None:
    with pytest.raises(Misuse, match=r"basic\.get"):
        stage.ask(methods.BasicGet())
