"""The settings of queues that `warren.open` takes. A program without queues loads these names only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from warren.broker.backing_kinds import MakeOne
    from warren.broker.settings import QueueSettings
    from warren.catalog.settings import CatalogSettings
    from warren.message_store.settings import MessageStoreSettings
    from warren.queues.settings import VariableQueueSettings


class QueueOpenOptions(TypedDict, total=False):
    """What `warren.open` takes for queues."""

    queue_settings: QueueSettings
    variable_queue_settings: VariableQueueSettings
    message_store_settings: MessageStoreSettings
    catalog_settings: CatalogSettings
    backing_kinds: Mapping[str, MakeOne]  # other kinds of backing queues, by name (BQ-02)
