"""Equivalence of the arguments of an existing queue."""

from __future__ import annotations

from typing import Any

import pytest

from warren.amqp import types
from warren.amqp.errors import PeerError
from warren.base.ids import QueueId, VhostId
from warren.broker.declarations.errors import check_same_queue
from warren.catalog.queues import QueueRow


def again(there: Any, requested: Any) -> None:
    row = QueueRow(QueueId(1), VhostId(1), "q", False, False, False, {"x-message-ttl": there})
    check_same_queue("queue 'q' in vhost '/'", row, False, False, {"x-message-ttl": requested})


def test_a_number_is_itself_however_wide_it_was_sent() -> None:
    """What differs raises: see the next test."""
    for value in (types.Byte(5), types.UnsignedShort(5), types.Long(5)):
        again(5, value)


@pytest.mark.parametrize(
    ("there", "requested"),
    [(5, 6), (5, "5"), (1, True), ("a", "b"), ([1], [2]), (None, 0), (5, 5.0), (5, types.Float(5))],
)
def test_other_values_differ(there: Any, requested: Any) -> None:
    with pytest.raises(PeerError, match="inequivalent arg 'x-message-ttl' for queue 'q'"):
        again(there, requested)
