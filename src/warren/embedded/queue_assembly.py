"""The queues of a database, assembled: catalog, storage, every vhost, and the thread that confirms durable puts.

    embedded   opened at the first use of a queue; uses vhost "/" only, which is created if it is missing
    broker     opened at the start, before listening; the first start creates its user and vhost here (app/broker)

Queues that are not durable, left by an earlier process, are removed first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from warren.broker.confirms import Confirms
from warren.broker.memory_monitor import MemoryMonitor
from warren.broker.queue_api import QueueApi
from warren.broker.sql_backing import SQL, SqlKind
from warren.broker.storage import MakeOne, QueueStorage
from warren.broker.vhost import Vhost
from warren.broker.vhosts import Vhosts
from warren.catalog import vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.database import place_of
from warren.catalog.rebuild import remove_leftovers
from warren.catalog.settings import CatalogSettings
from warren.files.environment import Environment
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.snapshot.database import Database

HOME = "/"


def make_home(catalog: Catalog) -> None:
    catalog.change(lambda change: vhosts.declare(change, HOME))


class OpenQueues:
    """Open when constructed; closed before the database."""

    def __init__(
        self,
        database: Database,
        environment: Environment,
        queue_settings: QueueSettings | None = None,
        variable_queue_settings: VariableQueueSettings | None = None,
        message_store_settings: MessageStoreSettings | None = None,
        catalog_settings: CatalogSettings | None = None,
        backing_kinds: Mapping[str, MakeOne] | None = None,
        prepare: Callable[[Catalog], None] = make_home,
    ) -> None:
        """`prepare` writes catalog rows that must exist before the vhosts are opened."""
        self.settings = settings = queue_settings or QueueSettings()
        of_queues = variable_queue_settings or VariableQueueSettings()
        of_stores = message_store_settings or MessageStoreSettings()
        self._owner = database.log.owner
        self.clock = environment.clock
        self.threads = environment.threads
        self._close = ExitStack()
        with ExitStack() as opened:
            of_catalog = catalog_settings or CatalogSettings()
            place = place_of(environment.files, environment.rng, database.directory, of_catalog)
            self.catalog = Catalog.open(database, place, environment.threads, of_catalog.is_forced)
            opened.callback(self.catalog.close)
            prepare(self.catalog)
            gone = self.catalog.change(remove_leftovers)
            log = database.log
            sql = SqlKind(environment.files, environment.threads, database.directory, self.catalog.queue_ids, log.wait)
            opened.callback(sql.close)
            kinds = {SQL: sql.make, **(backing_kinds or {})}
            self.storage = QueueStorage(database, self.catalog, settings, of_queues, of_stores, kinds)
            opened.callback(self.storage.close)
            self.storage.forget(gone)
            self.vhosts = Vhosts(self.storage, environment, settings)
            opened.callback(self.vhosts.close)
            self.confirms = Confirms(environment.threads, database.log.wait, environment.background)
            opened.callback(self.confirms.stop)
            self.storage.begin_upkeep(settings.cleaning_seconds)
            self.vhosts.begin()
            self._close = opened.pop_all()

    def check(self) -> None:
        """Raise in a forked child."""
        self._owner.check()

    @property
    def vhost(self) -> Vhost:
        """The home vhost."""
        self.check()
        return self.vhosts.find(HOME)

    @property
    def queue_api(self) -> QueueApi:
        self.check()
        return self.vhosts.find(HOME).queue_api

    @property
    def monitor(self) -> MemoryMonitor:
        return self.vhosts.monitor

    def alarms(self) -> list[str]:
        return [*self.catalog.problems, *self.storage.alarms(), *self.vhosts.problems()]

    def close(self) -> None:
        if self._owner.is_this:
            self._close.close()
