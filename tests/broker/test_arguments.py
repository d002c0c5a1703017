"""Arguments of queues, in RabbitMQ's words."""

from __future__ import annotations

from typing import Any

import pytest

from warren.base.errors import Refused
from warren.broker.arguments import Overflow, QueueArguments


def test_arguments_are_read_as_they_were_told() -> None:
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


def test_only_the_default_exchange_leads_to_a_queue() -> None:
    table = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}
    assert QueueArguments.from_table(table).dead_letter is None


@pytest.mark.parametrize(
    "table",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "60000"},
        {"x-message-ttl": True},
        {"x-expires": 0},
        {"x-max-length": 1.5},
        {"x-max-length-bytes": -5},
        {"x-max-priority": 256},
        {"x-overflow": "spill"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 7},
    ],
)
def test_senseless_values_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        QueueArguments.from_table(table)
