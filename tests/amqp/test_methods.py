"""The table of methods: complete, both ways, and exact about what is wrong."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.amqp_samples import ANY_METHOD, field_names
from warren.amqp import methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import METHODS, Sender
from warren.base.errors import Misuse

OF_CLASS = {10: 14, 20: 6, 30: 2, 40: 8, 50: 10, 60: 18, 85: 2, 90: 6}


def test_every_method_of_the_standard_and_of_rabbitmq_is_there() -> None:
    counted = {class_id: sum(1 for each, _ in METHODS if each == class_id) for class_id in OF_CLASS}
    assert counted == OF_CLASS
    assert len(METHODS) == sum(OF_CLASS.values())


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        ((10, 11), "connection.start-ok"),
        ((10, 70), "connection.update-secret"),
        ((20, 21), "channel.flow-ok"),
        ((40, 51), "exchange.unbind-ok"),
        ((60, 72), "basic.get-empty"),
        ((60, 100), "basic.recover-async"),
        ((85, 10), "confirm.select"),
    ],
)
def test_a_method_has_the_name_it_has_in_the_standard(ids: tuple[int, int], name: str) -> None:
    assert METHODS[ids].name == name


def test_only_four_methods_carry_content() -> None:
    carrying = {spec.name for spec in METHODS.values() if spec.has_content}
    assert carrying == {"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}


def test_what_is_answered_has_its_answer_in_the_table() -> None:
    """A synchronous method has an -ok of its class; so no sender waits for a method that does not exist."""
    names = {spec.name for spec in METHODS.values()}
    waiting = {spec.name for spec in METHODS.values() if spec.is_synchronous}
    assert {f"{name}-ok" for name in waiting} <= names
    answers = {name for name in names if name.endswith("-ok")}
    assert answers == {f"{name}-ok" for name in waiting}


def test_answers_come_from_the_other_side() -> None:
    for spec in METHODS.values():
        if spec.is_synchronous and spec.sender is not Sender.BOTH:
            answer = next(each for each in METHODS.values() if each.name == f"{spec.name}-ok")
            assert {spec.sender, answer.sender} == {Sender.CLIENT, Sender.SERVER}


@given(ANY_METHOD)
def test_a_method_that_is_written_reads_the_same(method: methods.Method) -> None:
    assert methods.decode(methods.encode(method)) == method


def test_neighbouring_bits_share_an_octet_lowest_first() -> None:
    raw = methods.encode(methods.QueueDeclare(queue="q", durable=True, no_wait=True))
    assert raw == b"\x00\x32\x00\x0a" + b"\x00\x00" + b"\x01q" + b"\x12" + b"\x00\x00\x00\x00"
    assert methods.encode(methods.BasicNack(7, multiple=True, requeue=True))[-1] == 3


def test_bits_that_no_field_has_are_ignored() -> None:
    raw = methods.encode(methods.BasicAck(7, multiple=False))
    assert methods.decode(raw[:-1] + b"\xfe") == methods.BasicAck(7, multiple=False)


def test_a_method_is_frozen_and_has_no_room_for_more() -> None:
    ack = methods.BasicAck(7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ack.delivery_tag = 8  # type: ignore[misc]
    assert not hasattr(ack, "__dict__")


def test_methods_with_the_same_fields_are_not_equal() -> None:
    ack: methods.Method = methods.BasicAck(7)
    assert ack != methods.BasicReject(7, requeue=False)


def test_every_method_cut_anywhere_or_too_long_is_a_frame_error_that_names_it() -> None:
    for spec in METHODS.values():
        raw = methods.encode(spec.made_by())
        for wrong in [raw[:cut] for cut in range(4, len(raw))] + [raw + b"\x00"]:
            with pytest.raises(PeerError, match=spec.name) as caught:
                methods.decode(wrong)
            assert caught.value.code is ReplyCode.FRAME_ERROR
            assert (caught.value.class_id, caught.value.method_id) == (spec.class_id, spec.method_id)


def test_a_method_that_does_not_exist_is_an_invalid_command() -> None:
    with pytest.raises(PeerError, match="no method 99 of class 60") as caught:
        methods.decode(b"\x00\x3c\x00\x63")
    assert caught.value.code is ReplyCode.COMMAND_INVALID


@given(st.sampled_from(list(METHODS)), st.binary(max_size=80))
def test_whatever_bytes_follow_the_ids_the_answer_is_a_method_or_a_refusal(ids: tuple[int, int], rest: bytes) -> None:
    payload = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + rest
    try:
        method = methods.decode(payload)
    except PeerError:
        return
    assert methods.decode(methods.encode(method)) == method


def test_a_number_that_does_not_fit_is_the_callers_mistake() -> None:
    with pytest.raises(Misuse, match=r"basic\.qos: 70000 is no short"):
        methods.encode(methods.BasicQos(0, 70000))


def test_fields_stand_in_the_order_of_the_standard() -> None:
    assert field_names(methods.BasicDeliver.SPEC.fields) == [
        "consumer_tag",
        "delivery_tag",
        "redelivered",
        "exchange",
        "routing_key",
    ]
    assert field_names(methods.QueueUnbind.SPEC.fields) == ["ticket", "queue", "exchange", "routing_key", "arguments"]
