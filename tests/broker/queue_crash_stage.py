"""All of the queue side on a machine whose power can be cut at any step: catalog, index, message stores, queues.

    stage = QueueCrashStage()
    steps = stage.play(7, lives.body)                  clients and upkeep alternate by the seed
    stage.play(7, lives.body, cut_at=20)               the same again, and the power goes before step 20
    after = stage.crashed(REORDERED, 20)               what is left; `stage.kill()`: the process alone is dead

Files are of 4 KiB, runs of four messages, queues keep two positions in memory when they are paged, contents from 100
bytes on go to the message store: so few messages roll, page, move and collect. A commit of SQL and a batch of the store
are steps like those of the disk.

No background work: garbage collection and expiry run only when a client or the upkeep calls them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from tests.broker.plain_queues import Found, Standing, short
from tests.catalog.catalog_stage import CatalogCrashStage
from tests.snapshot.crash_stage import Open
from warren.base.threads import Threads
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_api import QueueApi, SettleCall
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import QueueStorage
from warren.broker.vhost import Vhost
from warren.catalog import vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.rebuild import remove_leftovers
from warren.message_store.settings import MessageStoreSettings
from warren.queues.backing_queue import Fetched
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.snapshot.database import Database
from warren.testing.memory_files import CrashModel

EVERYTHING = 1 << 30
TINY_QUEUES = VariableQueueSettings(
    queue_index_embed_msgs_below=100,
    run_messages_max=4,
    page_messages_max=3,
    beta_messages_max=2,
    delta_read_messages=2,
    read_ahead_bytes_max=200,
    counters_every_runs=3,
)
TINY_STORES = MessageStoreSettings(read_cache_bytes=0, transient_file_bytes=600)
SETTINGS = QueueSettings(restarts_max=1000)


@dataclass(slots=True)
class Broker:
    """One run of the process, open."""

    database: Database
    catalog: Catalog
    storage: QueueStorage
    vhost: Vhost
    queue_api: QueueApi
    done: Counter[str]  # what upkeep has done

    def declare(self, name: str, durable: bool, arguments: QueueArguments) -> QueueHandle:
        return self.vhost.declare_queue(name, durable, arguments)

    def close(self) -> None:
        self.vhost.close()
        self.storage.close()
        self.catalog.close()
        self.database.close()

    # -- what a test checks --------------------------------------------------------------------------------------

    def take_all(self, handle: QueueHandle) -> list[Fetched]:
        """Everything that is there, expired or not."""
        return self.vhost.execute([handle], lambda work: handle.serving().get(EVERYTHING, None, work))[0]

    def found(self) -> Standing:
        """What every queue holds; it is ready again afterwards."""
        standing: Standing = {}
        for name in self.vhost.queue_names():
            handle = self.vhost.find_queue(name)
            count = self.queue_api.length(handle)
            fetched = self.take_all(handle)
            standing[name] = tuple(found_of(fetched))
            assert count == len(standing[name]), f"{name}: {count} were counted, and {short(standing[name])} is there"
            if fetched:
                self.queue_api.requeue(
                    handle, SettleCall(handle.serving().incarnation, [each.tags for each in fetched])
                )
        return standing

    def check(self) -> None:
        """No component reports a problem."""
        all_problems = [*self.vhost.problems, *self.catalog.problems, *self.storage.alarms(), *self.database.problems]
        all_problems += [*self.storage.stores.collector.alarms(), *self.storage.stores.transient_collector.alarms()]
        assert not all_problems, all_problems

    # -- what an operator, or time, does -------------------------------------------------------------------------

    def page(self, handle: QueueHandle) -> None:
        """Page out everything that may be paged."""
        handle.set_target(0.0)
        while handle.page():
            continue
        handle.set_target(None)

    def seal(self) -> None:
        """What is written so far is in sealed files, and the store has it on its disk: it may be judged."""
        self.database.make_durable()
        self.database.log.rotate()
        self.reflect()

    def pause(self) -> None:
        """The store receives nothing any more: writes are in the log only, until `reflect`."""
        assert self.database.reflection is not None
        self.database.reflection.pause()

    def reflect(self) -> None:
        assert self.database.reflection is not None
        self.database.reflection.resume()
        self.database.catch_up()
        self.database.reflection.flush()

    def clean(self) -> None:
        cleaned = self.storage.cleaning.run()
        self.done.update({"files cleaned": cleaned.files, "runs written again": cleaned.runs})

    def collect(self) -> int:
        """How many files of the message stores went."""
        stores = self.storage.stores
        durable_run, transient = stores.collector.run(), stores.transient_collector.run()
        self.done.update({"files collected": len(durable_run.released), "units moved": durable_run.copied_units})
        return len(durable_run.released) + len(transient.released)

    def tidy(self) -> None:
        """All that upkeep can do."""
        self.seal()
        self.clean()
        while self.collect():
            continue
        self.seal()
        self.clean()
        self.database.log.purge()


def found_of(fetched: list[Fetched]) -> Iterator[Found]:
    for each in fetched:
        assert each.slice.contents is not None, "what is fetched has contents"
        yield from ((body, each.is_redelivered) for body in each.slice.contents)


def ranges_of(tags: list[int]) -> list[tuple[int, int]]:
    """Tags as ranges, those that follow one another as one."""
    grouped = groupby(enumerate(sorted(tags)), key=lambda pair: pair[1] - pair[0])
    runs = [[tag for _, tag in group] for _, group in grouped]
    return [(run[0], run[-1] + 1) for run in runs]


class QueueCrashStage(CatalogCrashStage):
    routing: Routing | None = None  # None: from the catalog

    def up(self, open_database: Open, threads: Threads) -> Broker:
        database = open_database()
        catalog = self.open_catalog(database, threads)
        home = catalog.change(lambda change: vhosts.declare(change, "/"))
        catalog.change(remove_leftovers)
        storage = QueueStorage(database, catalog, SETTINGS, TINY_QUEUES, TINY_STORES)
        vhost = Vhost(home, storage, database.log.environment, SETTINGS, routing=self.routing)
        return Broker(database, catalog, storage, vhost, vhost.queue_api, Counter())

    def crashed(self, model: CrashModel, seed: int) -> QueueCrashStage:
        other = super().crashed(model, seed)
        assert isinstance(other, QueueCrashStage)
        return other

    def kill(self) -> None:
        """The process is dead, the machine is not: files and SQL are as they were, the store forgets its memory."""
        self.disk.forget_locks()
        if self.store is not None:
            self.store = self.store.crash(self.rng)
