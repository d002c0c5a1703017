"""The two message stores of a broker, wired: one for what must survive, one for what need not.

    persistent   stream "bodies" of the log        index: counts in memory, moved units in storage 3
    transient    <directory>/transient             index: in memory; everything is deleted at the start

One thread collects the garbage of both. The index is handed in: any that passes the suite will do.
"""

from __future__ import annotations

from collections.abc import Mapping

from warren.files.protocol import join
from warren.log.store import LogStore
from warren.message_store.format import CHUNK_BYTES
from warren.message_store.gc import Collector
from warren.message_store.gc_worker import CollectorThread
from warren.message_store.index import LocationIndex
from warren.message_store.ledger import FileStatistics
from warren.message_store.liveness import CountCheck, Liveness, ReferenceCheck
from warren.message_store.log_heap import LogBodyFiles
from warren.message_store.memory_index import MemoryIndex
from warren.message_store.plain_heap import TransientBodyFiles
from warren.message_store.settings import MessageStoreSettings
from warren.message_store.store import MessageStore
from warren.message_store.transient import TransientStore

TRANSIENT = "transient"


class MessageStorePair:
    def __init__(
        self,
        log: LogStore,
        directory: str,
        liveness: Liveness,
        index: LocationIndex,
        settings: MessageStoreSettings,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._threads = log.machine.threads
        self._clock = log.machine.clock
        self._background = log.machine.background
        self._settings = settings
        self._worker: CollectorThread | None = None
        self._heaps = self._open_heaps(log, directory)
        kept, plain = self._heaps
        lock = self._threads.condition
        ledger = FileStatistics(lock())
        ledger.begin(kept.present_file())
        self.persistent = MessageStore(kept, index, ledger, self._threads, lambda: log.durable, settings, chunk_bytes)
        judge = ReferenceCheck(liveness, index)
        told = self.persistent
        self.collector = Collector(kept, index, judge, ledger, lock(), told.is_settled, told.ended)
        memory, of_plain = MemoryIndex(lock()), FileStatistics(lock())
        self.transient = TransientStore(plain, memory, of_plain, lock(), chunk_bytes)
        judge_of_plain = CountCheck(memory)
        paged = self.transient
        self.transient_collector = Collector(
            plain, memory, judge_of_plain, of_plain, lock(), paged.is_settled, paged.ended
        )

    def begin(self) -> None:
        """Let garbage be collected: every file gets a census, and two at a time are joined where it is worth it."""
        collectors = (self.collector, self.transient_collector)
        settings = self._settings
        seconds = settings.gc_seconds, settings.gc_census_seconds
        self._worker = CollectorThread(self._threads, self._clock, self._background, collectors, *seconds)

    def collect_soon(self, is_much_dead: bool = False) -> None:
        """Look for garbage now. `is_much_dead`: more than was noted, like the runs of a queue that was deleted."""
        if is_much_dead:
            self.collector.count_again()
        if self._worker is not None:
            self._worker.ring()

    def collect(self) -> None:
        """Have garbage collected now, as far as it is worth it; it is done when this returns."""
        if self._worker is not None:
            self._worker.turn()

    def alarms(self) -> list[str]:
        return self._worker.alarms() if self._worker is not None else []

    def facts(self) -> Mapping[str, int]:
        """Of both, by their names."""
        told = {"persistent": self.persistent.facts(), "transient": self.transient.facts()}
        return {f"{store}_{name}": value for store, facts in told.items() for name, value in facts.items()}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        for heap in self._heaps:
            heap.close()

    def _open_heaps(self, log: LogStore, directory: str) -> tuple[LogBodyFiles, TransientBodyFiles]:
        settings, kept_bytes = self._settings, self._settings.read_cache_bytes
        transient = join(directory, TRANSIENT)
        return LogBodyFiles(log, kept_bytes), TransientBodyFiles(
            log.machine, transient, settings.transient_file_bytes, kept_bytes
        )
