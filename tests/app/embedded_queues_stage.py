"""Queues of `warren.open` on a memory disk: the same classes, wired by the same code, with limits as small as they go.

    stage = EmbeddedQueuesStage(); db = stage.up()
    stage.down()                              a clean stop
    stage.cut_the_power(SYNCED, 7)            then `up` again

The catalog's SQL is in memory only: every start rebuilds it from the log. Nothing runs in the background: tests call
upkeep, and timers are checked in `pass_ms`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.broker.plain_queues import Standing
from tests.broker.queue_crash_stage import EVERYTHING, TINY_QUEUES, found_of
from tests.log.upkeep_stage import laid_out
from tests.snapshot.database_stage import DIRECTORY, DatabaseStage
from warren.base.threads import StartedThread, SystemThreads
from warren.broker.queue_api import SettleCall
from warren.broker.queue_handle import QueueHandle
from warren.catalog.settings import CatalogSettings
from warren.embedded.database import QueueOpenOptions, Warren
from warren.embedded.queue_assembly import OpenQueues
from warren.files.protocol import join
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings
from warren.snapshot.database import LOG
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import CrashModel

NEVER = 1e6  # seconds
SIDE: QueueOpenOptions = {
    "queue_settings": QueueSettings(
        cleaning_seconds=NEVER, memory_tick_seconds=NEVER, put_count_max=4, restarts_max=1000
    ),
    "variable_queue_settings": TINY_QUEUES,
    "message_store_settings": MessageStoreSettings(read_cache_bytes=0, transient_file_bytes=600, gc_seconds=NEVER),
    "catalog_settings": CatalogSettings(connect="sqlite:///:memory:"),
}


class _Asleep:
    """A thread that never gets a turn. Is a `StartedThread`."""

    def join(self, timeout: float | None = None) -> None:
        """There is no thread to wait for."""

    def is_alive(self) -> bool:
        return False


class WithoutClockwork(SystemThreads):
    """Timers are checked when a test calls for it."""

    def start(self, name: str, body: Callable[[], None]) -> StartedThread:
        return _Asleep() if name == "warren-timetable" else super().start(name, body)


class EmbeddedQueuesStage(DatabaseStage):
    def __init__(self) -> None:
        super().__init__(Mode.NOTIFY, step_bytes=300, chunk_bytes=150, buffer_bytes=1200, flush_bytes=700)
        laid_out(self.disk, join(DIRECTORY, LOG))

    def up(self) -> Warren:
        self.database = self.open()
        self.db = Warren(self.database, self.environment(threads=WithoutClockwork()), None, SIDE)
        self.queues: OpenQueues = self.db.queue_room.queues
        return self.db

    def down(self) -> None:
        self.check()
        self.db.close()

    def cut_the_power(self, model: CrashModel, seed: int) -> None:
        """Nothing is written any more; the threads that look for garbage end."""
        queues = self.queues
        queues.confirms.stop()
        queues.storage.upkeep.stop()
        worker = queues.storage.stores._worker
        assert worker is not None
        worker.stop()
        queues.catalog.close()
        self.database.abandon()
        self.crash(model, seed)

    # -- what is asked of it -------------------------------------------------------------------------------------

    def handles(self) -> list[QueueHandle]:
        return [self.queues.vhost.find_queue(name) for name in self.db.queues()]

    def found(self) -> Standing:
        """Everything that is there, expired or not. It is ready again afterwards."""
        standing: Standing = {}
        for handle in self.handles():
            count = self.queues.queue_api.length(handle)
            fetched, _ = self.queues.vhost.execute([handle], lambda work: handle.serving().get(EVERYTHING, None, work))  # noqa: B023
            standing[handle.name] = tuple(found_of(fetched))
            assert count == len(standing[handle.name]), "whatever is counted can be got"
            if fetched:
                settling = SettleCall(handle.serving().incarnation, [each.tags for each in fetched])
                self.queues.queue_api.requeue(handle, settling)
        return standing

    def newest(self) -> int:
        return max((handle.epoch for handle in self.handles()), default=0)

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ns(ms * 1_000_000)
        while self.queues.vhost.timers.run_due():
            continue

    def page(self, name: str, target_seconds: float) -> None:
        handle = self.queues.vhost.find_queue(name)
        handle.set_target(target_seconds)
        while handle.page():
            continue

    def tidy(self) -> int:
        """Everything that upkeep can do; how many files of the message stores went."""
        storage, log, reflection = self.queues.storage, self.database.log, self.database.reflection
        assert reflection is not None
        self.database.settle()
        log.rotate()
        self.database.settle()
        reflection.flush()
        storage.cleaning.run()
        released = 0
        while went := len(storage.stores.collector.run().released):
            released += went
        storage.stores.transient_collector.run()
        log.purge()
        return released

    def check(self) -> None:
        problems = [*self.db.alarms(), *self.queues.vhost.problems]
        assert not problems, problems
