"""Every case of declarations_cases: Warren answers as RabbitMQ does, apart from the differences listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.broker.declarations_cases import CASES, expected_answers, q, x
from tests.broker.declarations_stage import DeclarationsStage
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
def shared() -> Iterator[DeclarationsStage]:
    stage = DeclarationsStage().up()
    yield stage
    stage.down()


@pytest.fixture
def stage(shared: DeclarationsStage) -> Iterator[DeclarationsStage]:
    yield shared
    shared.check()
    shared.clean()


@pytest.mark.parametrize("name", CASES)
def test_we_answer_as_rabbitmq_does(name: str, stage: DeclarationsStage) -> None:
    answer = stage.case(CASES[name])
    without_right = re.sub(r"ACCESS_REFUSED - (configure|write|read) access", "ACCESS_REFUSED - access", answer)
    plain, mark, _ = EXPECTED[name].partition("~")
    if name in DIFFERENT:
        assert answer == DIFFERENT[name] != plain
    else:
        assert without_right.startswith(plain) if mark else without_right == plain


def test_the_table_has_every_case() -> None:
    assert list(EXPECTED) == list(CASES)


def test_nowait_is_executed_without_an_answer(stage: DeclarationsStage) -> None:
    for method in NO_WAIT:
        assert stage.request(method) is None
    assert stage.ids() == {}
    with pytest.raises(PeerError, match="no queue 'q'"):
        stage.request(methods.QueuePurge(queue="q", no_wait=True))


def test_a_refusal_names_its_method(stage: DeclarationsStage) -> None:
    with pytest.raises(PeerError) as refusal:
        stage.request(methods.QueuePurge(queue="q"))
    assert (refusal.value.code, refusal.value.class_id, refusal.value.method_id) == (ReplyCode.NOT_FOUND, 50, 30)
    with pytest.raises(PeerError) as refusal:
        stage.request(x("q"), "n")
    assert (refusal.value.code, refusal.value.class_id, refusal.value.method_id) == (ReplyCode.ACCESS_REFUSED, 40, 10)


def test_a_name_that_cannot_be_stored_is_refused_and_leaves_nothing(stage: DeclarationsStage) -> None:
    with pytest.raises(PeerError, match="has 3 bytes") as refusal:
        stage.request(q("a\0b"))
    assert refusal.value.code is ReplyCode.PRECONDITION_FAILED
    assert stage.ids() == {}


def test_a_closed_vhost_closes_the_connections_of_its_clients() -> None:
    stage = DeclarationsStage().up()
    stage.request(q())
    stage.vhost.close()
    with pytest.raises(PeerError) as refusal:
        stage.request(methods.QueuePurge(queue="other"))
    assert refusal.value.code is ReplyCode.CONNECTION_FORCED
    stage.storage.close()
    stage.stop()


def test_other_methods_are_not_handled_here(stage: DeclarationsStage) -> None:
    with pytest.raises(Misuse, match=r"basic\.get"):
        stage.request(methods.BasicGet())
