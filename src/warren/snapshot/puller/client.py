"""Reflection by another process (`reflection = watch`): main's side of it. Is a `ReflectingOutside`.

    main                                           puller                                  (started by main)
    log ─────────── files, inotify ──────────────▶ reads, applies, flushes
    secondary store ◀── files of the store ─────── the safe snapshot store
    catch_up, flush, pause …  ── reflection.sock ▶

A thread looks each second: what the puller has flushed is seen by readers from then on, and the log is let go of behind
it. It is let go of behind a mark only when both are true: the puller has told it as flushed, so it is synced; and our
own reading has come to it, so whoever reads the store and lays the log's tail over it finds no gap between the two.

A puller that ends by itself is started again after `retry_seconds`, with the same pause and the same safe snapshot
version; until then `failure` says how it ended. Nothing is lost: it goes on behind what it had flushed. Whoever wants
everything durable (`catch_up`) meanwhile waits for the next one. Any other exception of the thread is an alarm as well,
and the thread looks again after a back-off (base/threads).

Always true: the mark that the log was let go of up to <= our reading's mark <= the witness.

Main's hold on one puller process: start it, ask it, notice its end.

    starting ──{"status": "ok"}──▶ ready ──end of its standard output──▶ ended
        └──────{"status": "failed", …}, or its end────────────────────────▲

A thread waits for its line and for its end, so nobody has to look. Its standard input is ours to hold open: when this
process ends, however it ends, so does the puller. What it has to complain about it says on our standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from warren.base.errors import DiskFailure, WarrenError
from warren.base.process import call_in_children, never_destroy
from warren.base.threads import Threads
from warren.files.protocol import join
from warren.snapshot.database import REFLECTION_SOCKET, SECONDARY, STORE
from warren.snapshot.puller.process import PullerRequest
from warren.snapshot.puller.protocol import PullerConfig, mark_from_json
from warren.snapshot.puller.secondary import SecondaryStore
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.store import NO_VERSION, Applied, Version
from warren.workers.control_socket import NoAnswer, NotListening, call, failure_from_json
from warren.workers.process import ChildProcess, Message

_LOG = logging.getLogger(__name__)
READY_SECONDS = 120.0  # only something broken takes so long
STOP_SECONDS = 60.0


class PullerHandle:
    def __init__(self, order: PullerRequest, threads: Threads, on_end: Callable[[], None]) -> None:
        self._path = join(order.directory, REFLECTION_SOCKET)
        self._changed = threads.condition()
        self._on_end = on_end
        self._told: Message | None = None
        self._has_ended = False
        self._process = ChildProcess(["-m", "warren.snapshot.puller.process"])
        self._process.send(order.to_json())  # a child that has exited is reported by `_listen`
        self._listening = threads.start("warren-puller", self._listen)
        call_in_children(self)

    def forked(self) -> None:
        """Close the child's copy of the pipe: the puller ends when the parent does."""
        never_destroy(self)
        self._process.close_input()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def wait_until_ready(self) -> None:
        """Return when it serves. If it can not, it is ended, and the error says why."""
        with self._changed:
            if self._told is None and not self._has_ended:
                self._changed.wait(READY_SECONDS)
            told = self._told
        if told is not None and told.get("status") == "ok":
            return
        self.kill()
        raise failure_from_json(told) if told is not None else self.how_it_ended()

    def ask(self, request: Message, timeout: float) -> Message:
        return call(self._path, request, timeout)

    def stop(self) -> None:
        """Let it reflect, flush and end; if it does not, end it: what it has not flushed is in the log."""
        if not self._has_ended:
            self._process.terminate()
            self._listening.join(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        if not self._has_ended:
            self._process.kill()
        self._listening.join()

    def how_it_ended(self) -> DiskFailure:
        code = self._process.exit_code
        how = "did not get ready" if code is None else f"signal {-code}" if code < 0 else f"status {code}"
        hint = "it is started again by itself; what it had not flushed is in the log"
        return DiskFailure(f"the puller process {self.pid} has ended: {how}", hint)

    def _listen(self) -> None:
        """Until the process has ended. One whose output cannot be read is killed: it could fail unnoticed."""
        try:
            self._read_lines()
        except Exception as error:
            _LOG.error("puller output failed", exc_info=error, extra={"facts": {"pid": self.pid}})
            self._process.kill()
        self._process.wait()
        self._process.close_input()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._on_end()

    def _read_lines(self) -> None:
        while (message := self._process.receive()) is not None:
            with self._changed:
                self._told = self._told or message or None
                self._changed.notify_all()


LOOK_SECONDS = 1.0
STATUS_SECONDS = 5.0
PERSIST_SECONDS = 3600.0  # as long as it takes, if the puller lives


class PullerClient:
    def __init__(self, handed: PullerConfig, store_settings: SnapshotStoreSettings | None = None) -> None:
        self._handed = handed
        self._store_settings = store_settings or SnapshotStoreSettings()
        threads = handed.environment.threads
        self._bell = threads.condition()
        self._turn = threads.condition()  # held by whoever looks: one at a time
        self._is_stopping = self._is_paused = False
        self._safe: Version = NO_VERSION
        self.failure: WarrenError | None = None
        self._task = handed.environment.background.task("puller-watch", "the puller is not watched")
        self._start_failure: WarrenError | None = None  # why the next puller could not be started
        self._puller = self._started()
        try:
            self.store = SecondaryStore.open(
                join(handed.directory, STORE),
                join(handed.directory, SECONDARY),
                handed.timeline,
                self._store_settings,
                threads,
            )
        except BaseException:
            self._puller.kill()
            raise
        self._thread = threads.start("warren-outside", self._run)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def safe(self) -> Version:
        """The safe snapshot version that this side knows of; the puller's own follows the durable epoch."""
        return max(self._safe, self.store.applied.version)

    @property
    def puller_pid(self) -> int:
        return self._puller.pid

    def catch_up(self) -> Applied:
        """Let the puller reflect and flush everything that is durable now, and see it."""
        self._handed.witness()
        self._take(self._ask({"command": "persist"}, PERSIST_SECONDS))
        return self.store.applied

    flush = catch_up  # nothing can be seen from here that is not flushed

    def advance(self, safe: Version) -> None:
        with self._bell:
            self._safe = max(self._safe, safe)
        self._ask({"command": "advance", "version": list(safe)}, STATUS_SECONDS)

    def pause(self) -> None:
        self._ask({"command": "pause"}, PERSIST_SECONDS)
        self._is_paused = True

    def resume(self) -> None:
        self._ask({"command": "resume"}, PERSIST_SECONDS)
        self._is_paused = False

    def stop(self) -> None:
        """Let the puller reflect and flush the rest, let go of the log behind it, and end it."""
        self._end_thread()
        try:
            if self.failure is None:
                self._handed.witness()
                with suppress(NotListening):  # it ended a moment ago: the next start does it
                    self._take(self._puller.ask({"command": "persist"}, PERSIST_SECONDS))
        finally:
            self._puller.stop()

    def end(self) -> None:
        self._end_thread()
        self._puller.kill()
        self.store.close()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _end_thread(self) -> None:
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_stopping and not self._puller.has_ended:
                    self._bell.wait(LOOK_SECONDS)
                if self._is_stopping:
                    return
            if not self._task.run(self._look):
                self.failure = self._task.failure
                with self._bell:
                    self._task.back_off(self._bell, self._handed.environment.clock, lambda: self._is_stopping)

    def _look(self) -> None:
        self.failure = self._what_is_wrong()
        if self._puller.has_ended:
            self._start_again()

    def _what_is_wrong(self) -> WarrenError | None:
        if self._puller.has_ended:
            return self._start_failure or self._puller.how_it_ended()
        try:
            status = self._puller.ask({"command": "status"}, STATUS_SECONDS)
            self._is_paused = status["is_paused"]
            self._take(status)
        except (NoAnswer, NotListening):
            return self.failure  # it is busy, with a `persist` perhaps; or it ends just now, which is told next time
        except WarrenError as error:
            return error
        wrong = status["failure"]
        return None if wrong is None else DiskFailure(wrong["error"], wrong["hint"])

    def _start_again(self) -> None:
        self.failure = self._start_failure or self._puller.how_it_ended()
        with self._bell:
            if not self._is_stopping:
                self._bell.wait(self._handed.settings.retry_seconds)
            if self._is_stopping:
                return
        try:
            puller = self._started()
        except WarrenError as error:
            self.failure = self._start_failure = error
            return
        with self._bell:
            self._puller = puller
            self.failure = self._start_failure = None
            self._bell.notify_all()

    def _started(self) -> PullerHandle:
        handed = self._handed
        order = PullerRequest(
            handed.directory, handed.timeline, handed.settings, self._store_settings, self._is_paused, self._safe
        )
        puller = PullerHandle(order, handed.environment.threads, self._ring)
        puller.wait_until_ready()
        return puller

    def _ring(self) -> None:
        with self._bell:
            self._bell.notify_all()

    # -- both sides ----------------------------------------------------------------------------------------------

    def _ask(self, request: Message, timeout: float) -> Message:
        """Ask the puller; if it has just ended, the next one."""
        clock = self._handed.environment.clock
        deadline_ns = clock.monotonic_ns() + int(READY_SECONDS * 1e9)
        while True:
            puller = self._puller
            try:
                return puller.ask(request, timeout)
            except NotListening:
                with self._bell:
                    while self._puller is puller:
                        if self._is_stopping or clock.monotonic_ns() > deadline_ns:
                            raise
                        self._bell.wait(LOOK_SECONDS)

    def _take(self, answer: Message) -> None:
        """See what is flushed, and let go of the log behind it."""
        flushed = mark_from_json(answer["flushed"])
        with self._turn:
            seen = self.store.catch_up()
            self._handed.release(flushed if flushed.epoch <= seen.epoch else seen)
