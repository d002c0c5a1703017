"""Arguments of queues, in RabbitMQ's words."""

from __future__ import annotations

from typing import Any

import pytest

from warren.broker.queue_arguments import STREAM_ADVICE, Address, BadArgument, Overflow, QueueArguments


def test_arguments_are_read_as_they_were_sent() -> None:
    arguments = QueueArguments(60_000, 1000, 10, 2000, Overflow.REJECT_PUBLISH, "dead", 5, "memory")
    assert arguments.to_table() == {
        "x-message-ttl": 60_000,
        "x-expires": 1000,
        "x-max-length": 10,
        "x-max-length-bytes": 2000,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-max-priority": 5,
        "x-backing": "memory",
    }
    assert QueueArguments.from_table(arguments.to_table()) == arguments
    assert QueueArguments.from_table({}).to_table() == {}
    assert QueueArguments.from_table({"x-colour": "red"}) == QueueArguments()


@pytest.mark.parametrize(
    ("table", "address"),
    [
        ({"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}, Address("dlx", "dead")),
        ({"x-dead-letter-exchange": "dlx"}, Address("dlx", None)),
        ({"x-dead-letter-exchange": ""}, Address("", None)),
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""}, Address("", "")),
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, Address("", "dead")),
        ({}, None),
    ],
)
def test_dead_letters_go_to_an_exchange_with_a_key_or_with_their_own(
    table: dict[str, Any], address: Address | None
) -> None:
    arguments = QueueArguments.from_table(table)
    assert arguments.dead_letters_to == address
    assert arguments.to_table() == table
    assert QueueArguments(dead_letter="dead").dead_letters_to == Address("", "dead")


REFUSED = [  # each with what RabbitMQ 3.10 says
    ({"x-message-ttl": -1}, "{value_negative,-1}"),
    ({"x-message-ttl": "60000"}, '"expected integer, got longstr"'),
    ({"x-message-ttl": True}, '"expected integer, got bool"'),
    ({"x-message-ttl": 1 << 50}, f"{{value_too_large,{1 << 50}}}"),
    ({"x-expires": 0}, "{value_zero,0}"),
    ({"x-max-length": 1.5}, '"expected integer, got double"'),
    ({"x-max-length-bytes": -5}, "{value_negative,-5}"),
    ({"x-max-priority": 256}, "{max_value_exceeded,256}"),
    ({"x-overflow": "spill"}, "invalid_overflow"),
    ({"x-overflow": 5}, "{unacceptable_type,signedint}"),
    ({"x-dead-letter-exchange": 5}, "{unacceptable_type,signedint}"),
    ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 7}, "{unacceptable_type,signedint}"),
    ({"x-dead-letter-routing-key": "dead"}, "routing_key_but_no_dlx_defined"),
    ({"x-queue-type": "strange"}, "\"unsupported queue type 'strange'\""),
    ({"x-queue-type": "stream"}, f"\"unsupported queue type 'stream'{STREAM_ADVICE}\""),
    ({"x-queue-type": "bogus"}, "\"unsupported queue type 'bogus'\""),
    ({"x-queue-type": 5}, "{unacceptable_type,signedint}"),
    ({"x-queue-mode": "odd"}, "\"unsupported queue mode 'odd'\""),
    ({"x-queue-version": 3}, "\"unsupported queue version '3'\""),
    ({"x-single-active-consumer": "yes"}, "{unacceptable_type,longstr}"),
    ({"x-delivery-limit": 5}, ""),
    ({"x-max-age": "1h"}, ""),
    ({"x-queue-type": "quorum", "x-max-priority": 3}, ""),
    ({"x-queue-type": "quorum", "x-queue-mode": "lazy"}, ""),
    ({"x-queue-type": "quorum", "x-delivery-limit": -1}, "{value_negative,-1}"),  # there it is a limit of none
    ({"x-queue-type": "quorum", "x-dead-letter-strategy": "odd"}, "invalid_dlx_strategy"),
]


@pytest.mark.parametrize(("table", "reason"), REFUSED, ids=str)
def test_senseless_values_are_refused_by_name_and_value(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadArgument) as refused:
        QueueArguments.from_table(table)
    name, value = list(table.items())[-1]
    assert (refused.value.name, refused.value.value, refused.value.reason) == (name, value, reason)
    assert refused.value.what == f"{name} cannot be {value!r}"


@pytest.mark.parametrize(
    "table",
    [
        {"x-queue-type": "classic", "x-queue-mode": "lazy", "x-queue-version": 2},
        {"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx", "x-dead-letter-strategy": "at-least-once"},
        {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-message-ttl": 5, "x-consumer-timeout": 5},
        {"x-single-active-consumer": True, "x-colour": "red", "x-consumer-timeout": 1000},
    ],
)
def test_what_changes_nothing_is_taken(table: dict[str, Any]) -> None:
    arguments = QueueArguments.from_table(table)
    assert arguments.is_single_active is table.get("x-single-active-consumer", False)
    assert arguments.delivery_limit == table.get("x-delivery-limit")
    assert QueueArguments.from_table(arguments.to_table()) == arguments
