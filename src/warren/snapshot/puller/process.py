"""The puller: a process that owns the safe snapshot store and pulls the log into it (`reflection = watch`).

    main                                             puller: python -m warren.snapshot.puller.process
    PullerRequest (one line of JSON)     ──stdin──▶  takes store.lock, opens the store, listens at reflection.sock
    {"status": "ok"} | {"status": "failed", …}  ◀──  stdout, one line
    log/  ─────────────── inotify, files, up to the durable epoch ──▶  version buffer ──▶ store ──▶ flush
    reflection.sock       status, pause, resume, persist, advance, stop

The puller holds no lock of the log and changes nothing there. It reads only epochs that the epoch file records as
durable. Main purges the log only up to the mark that the puller has reported as flushed, so nothing is purged that the
puller still has to read. It ends with main: at the end of standard input, at once, like a kill, since what is not
flushed is still in the log; on SIGTERM or the command `stop` after everything is reflected and flushed. A fault in one
of its threads ends it as well, with a trace on standard error; main raises an alarm and starts another one.

Where inotify does not work (some network disks), `poll_seconds` makes it poll the files instead.
Elsewhere: checking and rebuilding the store (database, before the puller starts), reading it (secondary).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from traceback import format_exception
from typing import Any

from warren.base.errors import Damage, DiskFailure, WarrenError
from warren.base.ids import Epoch, TimelineId
from warren.base.threads import StartedThread, SystemThreads
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.manifest import ManifestState
from warren.log.read.read_only import changes, open_for_reading
from warren.log.read.tail import Ends, LogTail
from warren.log.retention import check_not_gone
from warren.snapshot.apply import VersionApply
from warren.snapshot.database import BUFFER, LOG, REFLECTION_SOCKET, STORE, take_store_lock
from warren.snapshot.puller.protocol import control_handlers, mark_to_json
from warren.snapshot.reflection import Mode, PullFeed, Reflection, ReflectionSettings
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import NO_VERSION, Applied, Version
from warren.snapshot.version_buffer.memory_buffer import open_version_buffer
from warren.workers.control_socket import ControlServer, failure_to_json
from warren.workers.process import Message, RequestReader, send_message

FAULT = 70  # exit status after a fault in a thread


@dataclass(frozen=True, slots=True)
class PullerRequest:
    """The settings that main starts it with."""

    directory: str
    timeline: TimelineId
    reflection: ReflectionSettings
    store: SnapshotStoreSettings
    is_paused: bool = False
    safe: Version = NO_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PullerRequest:
        settings = ReflectionSettings(**{**raw["reflection"], "reflection": Mode(raw["reflection"]["reflection"])})
        major, minor = raw["safe"]
        store = SnapshotStoreSettings(**raw["store"])
        return cls(raw["directory"], TimelineId(raw["timeline"]), settings, store, raw["is_paused"], (major, minor))


class PullerStop:
    """Set to end the puller; also by a signal handler, which may take no lock."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True


class EndingThreads(SystemThreads):
    """A thread that fails ends the process, which would otherwise look healthy."""

    def start(self, name: str, body: Callable[[], None]) -> StartedThread:
        def guarded() -> None:
            try:
                body()
            except BaseException as error:
                sys.stderr.write(f"warren puller: {name} failed\n{''.join(format_exception(error))}")
                sys.stderr.flush()
                os._exit(FAULT)

        return super().start(name, guarded)


class WatchedLog:
    """The log as another process sees it, reopened by each `refresh`."""

    def __init__(self, environment: Environment, directory: str, timeline: TimelineId) -> None:
        self._files = environment.files
        self.directory = directory
        self._timeline = timeline
        self._log = open_for_reading(environment.files, directory)
        self._check_timeline()

    @property
    def state(self) -> ManifestState:
        return self._log.state

    def durable_ends(self) -> Ends:
        return self._log.durable_ends()

    def refresh(self, after: Epoch) -> Epoch:
        """The durable epoch; an error if epochs after `after` are gone."""
        self._log = open_for_reading(self._files, self.directory)
        self._check_timeline()
        if self._log.durable > after:
            check_not_gone(self._log.state, Epoch(after + 1), ())
        return self._log.durable

    def _check_timeline(self) -> None:
        if self._log.state.timeline.id != self._timeline:
            raise Damage(f"the log in {self.directory} is of another timeline than when the puller was started")


class Puller:
    def __init__(self, request: PullerRequest, environment: Environment, ended: PullerStop) -> None:
        self._request = request
        self._environment = environment
        self._ended = ended
        self._lock = take_store_lock(environment, request.directory, f"warren puller of process {os.getppid()}")
        self._log = WatchedLog(environment, join(request.directory, LOG), request.timeline)
        self._store = RocksDbStore.open(
            join(request.directory, STORE), request.timeline, request.store, threads=environment.threads
        )
        self._flushed = self._store.applied  # what the store holds on opening is on disk
        self._durable = self._log.refresh(self._flushed.epoch)
        if self._flushed.epoch > self._durable:
            raise Damage(f"the store has come to epoch {self._flushed.epoch}, the log is durable to {self._durable}")
        self._buffer = open_version_buffer(
            request.reflection.buffer,
            environment,
            join(request.directory, BUFFER),
            request.timeline,
            request.reflection.buffer_bytes,
        )
        self._reflection = self._make_reflection()
        self._server = ControlServer(
            join(request.directory, REFLECTION_SOCKET),
            {**control_handlers(self._reflection, self._facts), "advance": self._advance, "stop": self._stop},
            environment.threads,
            environment.clock,
            takes_over=True,
            background=environment.background,
        )

    def _make_reflection(self) -> Reflection:
        request, environment = self._request, self._environment
        settings, store = request.reflection, self._store
        applying = VersionApply(environment.threads, request.timeline, self._buffer, store, settings.chunk_bytes)
        seen = self._log
        self._tail = LogTail(
            environment.files, seen.directory, lambda: seen.state, store.applied.epoch, seen.durable_ends
        )
        feed = PullFeed(self._tail, applying, settings.step_bytes)
        reflection = Reflection(
            environment.threads,
            environment.clock,
            settings,
            feed,
            applying,
            store,
            self._refresh,
            self._has_flushed,
            background=environment.background,
        )
        if request.is_paused:
            reflection.pause()
        reflection.advance(request.safe)
        return reflection

    def run(self) -> None:
        """Pull until it is stopped; then reflect the rest, flush, close."""
        for _ in self._changes():
            self._reflection.epoch_is_durable(self._durable, ())  # it refreshes the durable epoch itself
        try:
            self._reflection.stop()
        finally:
            self._server.close()
            self._buffer.close()
            self._store.close()
            self._lock.release()

    def _changes(self) -> Iterator[None]:
        """One per possible change of the log, until the end."""
        seconds = self._request.reflection.poll_seconds
        pausing = self._environment.threads.condition()
        if not seconds:
            with _watch_errors(self._log.directory):
                yield from changes(self._log.directory, self._ended)
            return
        while not self._ended.is_set():
            yield
            with pausing:
                pausing.wait(seconds)

    def _refresh(self) -> Epoch:
        self._durable = self._log.refresh(self._tail.after)
        return self._durable

    def _has_flushed(self, mark: Applied) -> None:
        self._flushed = mark

    def _facts(self) -> Message:
        return {
            "mode": str(self._request.reflection.reflection),
            "pid": os.getpid(),
            "durable": self._durable,
            "applied": mark_to_json(self._store.applied),
            "flushed": mark_to_json(self._flushed),
        }

    def _advance(self, request: Message) -> Message:
        major, minor = request["version"]
        self._reflection.advance((int(major), int(minor)))
        return {}

    def _stop(self, request: Message) -> Message:
        self._ended.set()
        return {}


@contextmanager
def _watch_errors(directory: str) -> Iterator[None]:
    """Errors of inotify: no such directory, or too many watches."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        hint = "raise fs.inotify.max_user_instances and max_user_watches, or set `poll_seconds`"
        raise DiskFailure(f"{directory} cannot be watched: {error}", hint) from error


def main() -> None:
    environment, ended = replace(Environment.real(), threads=EndingThreads()), PullerStop()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both processes: main decides
    request = PullerRequest.from_json(RequestReader(environment.threads).next())
    try:
        puller = Puller(request, environment, ended)
        send_message({"status": "ok"})
        puller.run()
    except WarrenError as error:
        sys.stderr.write(f"warren puller: {error}\n")
        send_message(failure_to_json(error))
        sys.stderr.flush()
        os._exit(1)  # without closing: what was not flushed is in the log


if __name__ == "__main__":
    main()
