"""Rows as the catalog gives them, in one line each. Ids say what they are of: queues from 1, exchanges from 100."""

from __future__ import annotations

from typing import Any

from warren.base.ids import BindingId, ExchangeId, QueueId, VhostId
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow

VHOST = VhostId(7)
FIRST_EXCHANGE = 100


def exchange(
    id_: int, type_: str = "direct", name: str | None = None, internal: bool = False, **arguments: Any
) -> ExchangeRow:
    properties = {key.replace("_", "-"): value for key, value in arguments.items()}
    return ExchangeRow(
        ExchangeId(id_), VHOST, f"x{id_}" if name is None else name, type_, True, False, internal, properties
    )


def queue(id_: int, name: str | None = None) -> QueueRow:
    return QueueRow(QueueId(id_), VHOST, name or f"q{id_}", True, False, False)


def binding(id_: int, source: int, target: int, key: str = "", arguments: dict[str, Any] | None = None) -> BindingRow:
    """To a queue or to an exchange, by the target's number."""
    to_queue = QueueId(target) if target < FIRST_EXCHANGE else None
    to_exchange = ExchangeId(target) if target >= FIRST_EXCHANGE else None
    return BindingRow(BindingId(id_), VHOST, ExchangeId(source), to_queue, to_exchange, key, arguments or {})
