"""Main's side of reflection by another process (`reflection = watch`). Is a `ReflectionClient`.

    main                                           puller                                  (started by main)
    log ─────────── files, inotify ──────────────▶ reads, applies, flushes
    secondary store ◀── files of the store ─────── the safe snapshot store
    catch_up, flush, pause …  ── reflection.sock ▶

A thread polls each second: what the puller has flushed becomes visible to readers, and the log up to it may be purged.
Two conditions hold for that mark: the puller has reported it as flushed, so it is synced; and the secondary has reached
it, so there is no gap between the store and the tail of the log that is overlaid on it.

    PullerHandle     starting ──{"status": "ok"}──▶ ready ──end of its standard output──▶ ended
                         └──────{"status": "failed", …}, or its end────────────────────────▲

A thread waits for the puller's line and for its end. Main keeps the puller's standard input open: when main ends,
however it ends, so does the puller. Its errors go to main's standard error.

A puller that ends is started again after `retry_seconds`, with the same pause and the same safe snapshot version; until
then `failure` says how it ended. Nothing is lost: it continues after what it had flushed. `catch_up` waits for the next
puller meanwhile. Any other exception of the thread is an alarm as well, and is followed by a back-off (base/threads).

Invariant: the mark up to which the log was released <= the mark of the secondary <= the durable epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import DiskFailure, WarrenError
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
READY_SECONDS = 120.0  # far above a normal start
STOP_SECONDS = 60.0


class PullerHandle:
    def __init__(self, request: PullerRequest, threads: Threads, on_end: Callable[[], None]) -> None:
        self._path = join(request.directory, REFLECTION_SOCKET)
        self._changed = threads.condition()
        self._on_end = on_end
        self._answer: Message | None = None
        self._has_ended = False
        self._process = ChildProcess(["-m", "warren.snapshot.puller.process"])
        self._process.send(request.to_json())  # a child that has exited is reported by `_listen`
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
        """Return when it serves. If it cannot, it is killed, and the error says why."""
        with self._changed:
            if self._answer is None and not self._has_ended:
                self._changed.wait(READY_SECONDS)
            answer = self._answer
        if answer is not None and answer.get("status") == "ok":
            return
        self.kill()
        raise failure_from_json(answer) if answer is not None else self.end_error()

    def call(self, request: Message, timeout: float) -> Message:
        return call(self._path, request, timeout)

    def stop(self) -> None:
        """Let it reflect, flush and end; kill it if it does not: what it has not flushed is in the log."""
        if not self._has_ended:
            self._process.terminate()
            self._listening.join(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        if not self._has_ended:
            self._process.kill()
        self._listening.join()

    def end_error(self) -> DiskFailure:
        code = self._process.exit_code
        how = "did not get ready" if code is None else f"signal {-code}" if code < 0 else f"status {code}"
        hint = "it is restarted; what it had not flushed is in the log"
        return DiskFailure(f"the puller process {self.pid} has ended: {how}", hint)

    def _listen(self) -> None:
        """Read until the process has ended. If its output cannot be read it is killed: it could fail unnoticed."""
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
                self._answer = self._answer or message or None
                self._changed.notify_all()


POLL_SECONDS = 1.0
STATUS_SECONDS = 5.0
PERSIST_SECONDS = 3600.0  # as long as it takes while the puller lives


class PullerClient:
    def __init__(self, config: PullerConfig, store_settings: SnapshotStoreSettings | None = None) -> None:
        self._config = config
        self._store_settings = store_settings or SnapshotStoreSettings()
        threads = config.environment.threads
        self._bell = threads.condition()
        self._lock = threads.condition()  # held while the secondary catches up
        self._is_stopping = self._is_paused = False
        self._safe: Version = NO_VERSION
        self.failure: WarrenError | None = None
        self._task = config.environment.background.task("puller-watch", "the puller is not monitored")
        self._start_failure: WarrenError | None = None  # why the next puller could not be started
        self._puller = self._start_puller()
        try:
            self.store = SecondaryStore.open(
                join(config.directory, STORE),
                join(config.directory, SECONDARY),
                config.timeline,
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
        """The safe snapshot version known here; the puller's own follows the durable epoch."""
        return max(self._safe, self.store.applied.version)

    @property
    def puller_pid(self) -> int:
        return self._puller.pid

    def catch_up(self) -> Applied:
        """Let the puller reflect and flush everything that is durable now, and read it."""
        self._config.witness()
        self._catch_up(self._call({"command": "persist"}, PERSIST_SECONDS))
        return self.store.applied

    flush = catch_up  # the secondary sees flushed rows only

    def advance(self, safe: Version) -> None:
        with self._bell:
            self._safe = max(self._safe, safe)
        self._call({"command": "advance", "version": list(safe)}, STATUS_SECONDS)

    def pause(self) -> None:
        self._call({"command": "pause"}, PERSIST_SECONDS)
        self._is_paused = True

    def resume(self) -> None:
        self._call({"command": "resume"}, PERSIST_SECONDS)
        self._is_paused = False

    def stop(self) -> None:
        """Let the puller reflect and flush the rest, release the log up to it, and end the puller."""
        self._end_thread()
        try:
            if self.failure is None:
                self._config.witness()
                with suppress(NotListening):  # it has just ended: the next start does it
                    self._catch_up(self._puller.call({"command": "persist"}, PERSIST_SECONDS))
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
                    self._bell.wait(POLL_SECONDS)
                if self._is_stopping:
                    return
            if not self._task.run(self._poll):
                self.failure = self._task.failure
                with self._bell:
                    self._task.back_off(self._bell, self._config.environment.clock, lambda: self._is_stopping)

    def _poll(self) -> None:
        self.failure = self._poll_failure()
        if self._puller.has_ended:
            self._restart()

    def _poll_failure(self) -> WarrenError | None:
        if self._puller.has_ended:
            return self._start_failure or self._puller.end_error()
        try:
            status = self._puller.call({"command": "status"}, STATUS_SECONDS)
            self._is_paused = status["is_paused"]
            self._catch_up(status)
        except (NoAnswer, NotListening):
            return self.failure  # busy, perhaps with `persist`; or just ending, which the next poll reports
        except WarrenError as error:
            return error
        wrong = status["failure"]
        return None if wrong is None else DiskFailure(wrong["error"], wrong["hint"])

    def _restart(self) -> None:
        self.failure = self._start_failure or self._puller.end_error()
        with self._bell:
            if not self._is_stopping:
                self._bell.wait(self._config.settings.retry_seconds)
            if self._is_stopping:
                return
        try:
            puller = self._start_puller()
        except WarrenError as error:
            self.failure = self._start_failure = error
            return
        with self._bell:
            self._puller = puller
            self.failure = self._start_failure = None
            self._bell.notify_all()

    def _start_puller(self) -> PullerHandle:
        config = self._config
        request = PullerRequest(
            config.directory, config.timeline, config.settings, self._store_settings, self._is_paused, self._safe
        )
        puller = PullerHandle(request, config.environment.threads, self._ring)
        puller.wait_until_ready()
        return puller

    def _ring(self) -> None:
        with self._bell:
            self._bell.notify_all()

    # -- both sides ----------------------------------------------------------------------------------------------

    def _call(self, request: Message, timeout: float) -> Message:
        """Send a command to the puller; if it has just ended, to the next one."""
        clock = self._config.environment.clock
        deadline_ns = clock.monotonic_ns() + int(READY_SECONDS * 1e9)
        while True:
            puller = self._puller
            try:
                return puller.call(request, timeout)
            except NotListening:
                with self._bell:
                    while self._puller is puller:
                        if self._is_stopping or clock.monotonic_ns() > deadline_ns:
                            raise
                        self._bell.wait(POLL_SECONDS)

    def _catch_up(self, answer: Message) -> None:
        """Catch up with what is flushed, and release the log up to it."""
        flushed = mark_from_json(answer["flushed"])
        with self._lock:
            seen = self.store.catch_up()
            self._config.release(flushed if flushed.epoch <= seen.epoch else seen)
