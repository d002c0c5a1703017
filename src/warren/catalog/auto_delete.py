"""Exchanges that go with the last binding from them. One that goes takes the bindings to it along, and these may have
been the last ones of other exchanges: so it goes on, from exchange to exchange, in the same change.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from warren.base.ids import ExchangeId, QueueId
from warren.catalog import exchanges
from warren.catalog.change import Change
from warren.catalog.schema import bindings
from warren.catalog.schema import exchanges as exchange_rows


def sources_of(
    connection: Connection, *, queue: QueueId | None = None, exchange: ExchangeId | None = None
) -> list[int]:
    """The exchanges that hand on to this queue, or to this exchange."""
    is_bound = bindings.c.queue_id == queue if queue is not None else bindings.c.exchange_id == exchange
    return list(connection.execute(select(bindings.c.source_id).where(is_bound).distinct()).scalars())


def is_source(connection: Connection, id_: int) -> bool:
    """Whether anything is bound from this exchange."""
    asked = select(bindings.c.id).where(bindings.c.source_id == id_).limit(1)
    return connection.execute(asked).one_or_none() is not None


def remove_unused(change: Change, candidates: Iterable[int]) -> list[ExchangeId]:
    """Those of these exchanges, and of the ones before them, that have lost their last binding and go with it."""
    gone: list[ExchangeId] = []
    left = list(candidates)
    while left:
        id_ = ExchangeId(left.pop())
        if not _is_auto_delete(change.connection, id_) or is_source(change.connection, id_):
            continue
        left += sources_of(change.connection, exchange=id_)
        exchanges.delete(change, id_)
        gone.append(id_)
    return gone


def _is_auto_delete(connection: Connection, id_: ExchangeId) -> bool:
    """False, too, for one that is not there any more."""
    asked = select(exchange_rows.c.auto_delete).where(exchange_rows.c.id == id_)
    return bool(connection.execute(asked).scalar())
