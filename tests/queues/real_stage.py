"""A variable queue over the real index and the real message stores, on a database on a memory disk."""

from __future__ import annotations

from dataclasses import replace

from tests.message_store.store_stage import StoreStage
from tests.queues.variable_stage import SECOND_NS, TINY
from tests.snapshot.database_stage import DatabaseStage
from warren.base.ids import Epoch, QueueId
from warren.base.messages import QueuePlace, Run
from warren.queue_index.batch import IndexBatch
from warren.queue_index.cleaner import Cleaner
from warren.queue_index.index import MESSAGES
from warren.queues.contents import Stores
from warren.queues.variable_queue import VariableQueue
from warren.testing.memory_files import CrashModel

PLACE = QueuePlace(QueueId(7 << 32))


class RealStage:
    """Is a `queue_machine.Stage`."""

    def __init__(self) -> None:
        disk = DatabaseStage()
        disk.log_settings = replace(disk.log_settings, retention_seconds=0.0, retention_bytes=0)
        self._below = StoreStage(disk, chunk_bytes=100)
        self._crashes = 0
        self._open()

    def _open(self) -> VariableQueue:
        below = self._below
        stores = below.stores
        self._cleaning = Cleaner(
            below.database,
            below.log.stream(MESSAGES, is_referring=True),
            lambda: [PLACE.queue],
            below.queues.stream_lock,
        )
        found = Stores(
            below.queues,
            stores.persistent,
            stores.transient,
            lambda: self._below.log.durable,
            lambda: self._below.database.indexed,
            self._note_dead,
        )
        self.queue = VariableQueue(PLACE, True, found, below.stage.clock, TINY)
        batch = self.begin()
        self.queue.resume(batch)
        below.log.wait(batch.end())
        return self.queue

    def _note_dead(self, run: Run, size_bytes: int, is_all: bool) -> None:
        if run.stored:
            self._below.stores.persistent.note_dead(run.stored, size_bytes, is_all)
        else:
            self._cleaning.note_dead(size_bytes)

    def begin(self) -> IndexBatch:
        return self._below.queues.begin()

    def durable_epoch(self) -> Epoch:
        return self._below.log.durable

    def settle(self) -> None:
        self._below.log.wait(self.queue.subqueues.delta.newest)

    def pass_time(self) -> None:
        self._below.stage.clock.advance_ns(SECOND_NS)

    def stop_and_open(self) -> VariableQueue:
        batch = self.begin()
        self.queue.stop(batch)
        self._below.log.wait(batch.end())
        self._below.reopen()
        return self._open()

    def crash_and_open(self) -> VariableQueue:
        self._crashes += 1
        self._below.stores.close()
        self._below.database.abandon()
        self._below.stage.crash(list(CrashModel)[self._crashes % len(CrashModel)], self._crashes)
        self._below.open()
        return self._open()

    def close(self) -> None:
        self._below.close()

    # -- garbage ---------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Files end here: what is in them may be collected."""
        database = self._below.database
        database.settle()
        database.log.rotate()
        database.settle()
        if database.reflection is not None:
            database.reflection.flush()

    def clean(self) -> int:
        """Of files that are mostly garbage what is alive is written again; how many files went."""
        done = self._cleaning.run()
        self._below.log.purge()
        return done.files

    def collect(self) -> None:
        self._below.stores.collector.run()
        self._below.stores.transient_collector.run()
