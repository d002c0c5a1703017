"""A client that lacks one right a method needs is refused; one with exactly these rights is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.broker.declarations_cases import args, q, x
from tests.broker.declarations_stage import DeclarationsStage
from warren.amqp import methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import Method
from warren.broker.auth.permissions import Access
from warren.broker.vhost import Client, Owner

Need = tuple[str, str]  # the right, and for which name
RIGHTS = ("configure", "write", "read")


class Operation(NamedTuple):
    method: Method
    needs: set[Need]
    name: str


_DEAD = {"x_dead_letter_exchange": "dead"}
OPERATIONS = [
    Operation(q("new"), {("configure", "new")}, "declare"),
    Operation(q("there", durable=True), {("configure", "there")}, "declare again"),
    Operation(q("new", **args(**_DEAD)), {("configure", "new"), ("read", "new"), ("write", "dead")}, "dead letters"),
    Operation(
        q("new", **args(x_dead_letter_exchange="")),
        {("configure", "new"), ("read", "new"), ("write", "amq.default")},
        "dead letters by default",
    ),
    Operation(q("there", passive=True), set(), "look"),
    Operation(methods.QueueDelete(queue="there"), {("configure", "there")}, "delete"),
    Operation(methods.QueueDelete(queue="none"), {("configure", "none")}, "delete nothing"),
    Operation(methods.QueuePurge(queue="there"), {("read", "there")}, "purge"),
    Operation(methods.QueueBind(queue="there", exchange="e"), {("write", "there"), ("read", "e")}, "bind"),
    Operation(methods.QueueUnbind(queue="there", exchange="e"), {("write", "there"), ("read", "e")}, "unbind"),
    Operation(x("new"), {("configure", "new")}, "make"),
    Operation(x("e"), {("configure", "e")}, "make again"),
    Operation(
        x("new", arguments={"alternate-exchange": "other"}),
        {("configure", "new"), ("read", "new"), ("write", "other")},
        "make with alternate",
    ),
    Operation(x("e", passive=True), set(), "passive exchange"),
    Operation(methods.ExchangeDelete(exchange="e"), {("configure", "e")}, "unmake"),
    Operation(methods.ExchangeBind(source="e", destination="d"), {("write", "d"), ("read", "e")}, "tie"),
    Operation(methods.ExchangeUnbind(source="e", destination="d"), {("write", "d"), ("read", "e")}, "untie"),
]
NAMES = ("new", "there", "none", "e", "d", "dead", "other", "amq.default")
EVERY = {(right, name) for right in RIGHTS for name in NAMES}


@pytest.fixture(scope="module")
def shared() -> Iterator[DeclarationsStage]:
    stage = DeclarationsStage().up()
    yield stage
    stage.down()


@pytest.fixture
def stage(shared: DeclarationsStage) -> Iterator[DeclarationsStage]:
    _set(shared)
    yield shared
    shared.clean()


def _set(stage: DeclarationsStage) -> None:
    for method in (q("there", durable=True), x("e"), x("d")):
        stage.request(method)


def granting(needs: set[Need]) -> Client:
    named = {right: [name for right_name, name in sorted(needs) if right_name == right] for right in RIGHTS}
    patterns = [f"^({'|'.join(named[right])})$" if named[right] else "" for right in RIGHTS]
    return Client(Access("ann", "/", patterns[0], patterns[1], patterns[2], {}), Owner("of ann"))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_a_user_is_refused_exactly_if_it_lacks_a_right(operation: Operation, stage: DeclarationsStage) -> None:
    before = stage.seen()
    for need in sorted(operation.needs):
        with pytest.raises(PeerError) as refusal:
            stage.declarations.answer(granting(EVERY - {need}), operation.method)
        assert refusal.value.code is ReplyCode.ACCESS_REFUSED
        assert f"{need[0]} access to" in refusal.value.explanation
        assert f"'{need[1]}' in vhost '/' refused for user 'ann'" in refusal.value.explanation
        assert stage.seen() == before, "what was refused was not done"
    assert stage.declarations.answer(granting(operation.needs), operation.method) is not None


def test_the_rights_of_every_method_are_checked() -> None:
    methods_used = {type(each.method) for each in OPERATIONS}
    ours = {spec.made_by for spec in methods.METHODS.values() if spec.class_id in (40, 50)}
    assert methods_used == {each for each in ours if each.SPEC.sender.name == "CLIENT"}
