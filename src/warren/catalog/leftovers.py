"""What does not outlive the process that served it: queues and exchanges that are not durable, and exclusive queues.

They are in the catalog like all others, so that names and bindings have one truth. A start removes them, in one change.
"""

from __future__ import annotations

from sqlalchemy import not_, or_, select

from warren.base.ids import ExchangeId, QueueId
from warren.catalog import exchanges, queues
from warren.catalog.change import Change
from warren.catalog.schema import exchanges as exchange_rows
from warren.catalog.schema import queues as queue_rows


def remove_leftovers(change: Change) -> set[QueueId]:
    """The queues that went; whatever is in them goes, too."""
    connection = change.connection
    is_left = or_(not_(queue_rows.c.durable), queue_rows.c.exclusive)
    gone = {QueueId(id_) for id_ in connection.execute(select(queue_rows.c.id).where(is_left)).scalars()}
    for id_ in sorted(gone):
        queues.delete(change, id_)
    passing = select(exchange_rows.c.id).where(not_(exchange_rows.c.durable)).order_by(exchange_rows.c.id)
    for each in list(connection.execute(passing).scalars()):
        exchanges.delete(change, ExchangeId(each))
    return gone
