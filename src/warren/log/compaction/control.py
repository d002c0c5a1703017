"""Maintenance thread of a log store, and the `ctrl` directory through which other processes request a compaction.

    ctrl/start_compaction    creating this file requests a compaction; it is deleted when seen, so that one created
                             during a run starts another run
    ctrl/compaction_result   the result, one JSON object (`comaction_result`, limestone's spelling, is a link to it)

An empty request means: compact. Otherwise it is one JSON object: {"order": {…}} for a compaction to be done elsewhere,
{"accept": {…}} to put it in force, {"cancel": {…}} to abandon it (log/compaction/handover). A `request` in it is
repeated in the result, so that each client finds the answer to its own.

`CompactionThread` starts when opening ends, and ends with `close` or when the store is no longer referenced: so two
compactions never run at once. It also compacts when too much of the log may be superseded, purges free files, and
creates the disk reserve again when the disk has room. A poll that fails is an alarm until a later one succeeds
(base/threads), and its work is retried less often meanwhile; a request is always answered.

`request_compaction` is the client. It writes the request under a name of its own and renames it, so that the store
never sees half of it. One request at a time: if another one is pending, the client waits until the store has taken it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import ref

from warren.base.environment import Clock
from warren.base.errors import Refused, WarrenError
from warren.base.threads import Background, Threads
from warren.files import atomic
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.log.compaction.compaction import NOTHING_TO_DO
from warren.log.compaction.handover import CompactionJob
from warren.log.disk_reserve import DiskReserve
from warren.log.file_record import CTRL, MANIFEST

START = "start_compaction"
RESULT = "compaction_result"
RESULT_ALIAS = "comaction_result"
REQUEST_BYTES_MAX = 1 << 20


class CompactionOrdering(Protocol):
    """Compaction in other processes (log/compaction/handover)."""

    def order(self, places: int, seconds: float) -> CompactionJob | None: ...

    def accept(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]: ...

    def cancel(self, name: str) -> None: ...

    def is_active(self) -> bool: ...


class MaintainedStore(Protocol):
    """The store, as the thread uses it; tests have fakes of it."""

    def compact(self) -> dict[str, Any]: ...

    def is_compaction_due(self) -> bool: ...

    def purge(self) -> object: ...

    def is_short_of_room(self) -> bool:
        """Whether history is to be purged before anything else is done."""
        ...

    @property
    def handover(self) -> CompactionOrdering: ...

    @property
    def disk_reserve(self) -> DiskReserve: ...


class CompactionThread:
    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        threads: Threads,
        maintained: MaintainedStore,
        poll_seconds: float,
        background: Background | None = None,
    ) -> None:
        self._files = files
        self._home = join(directory, CTRL)
        self._clock = clock
        self._maintained = ref(maintained)
        self._poll_seconds = poll_seconds
        self._due_ns = 0  # a poll that failed is repeated then, or when there is a request
        self._bell = threads.condition()
        self._is_stopping = self._is_rung = False
        background = background or Background()
        self._task = background.task("compaction", "the log is not compacted or purged", poll_seconds)
        files.make_directories(self._home)
        self._thread = threads.start("warren-compaction", self._run)

    def ring(self) -> None:
        """Poll at once, also behind a poll that failed."""
        with self._bell:
            self._is_rung, self._due_ns = True, 0
            self._bell.notify_all()

    def stop(self, abandon: Callable[[], None] = lambda: None) -> None:
        """End the thread; `abandon` ends the job it may be waiting for."""
        with self._bell:
            self._is_stopping = True
            self._bell.notify_all()
        abandon()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def alarms(self) -> list[str]:
        return self._task.alarms()

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._is_stopping and not self._is_rung:
                    self._bell.wait(self._poll_seconds)
                self._is_rung = False
                if self._is_stopping:
                    return
            if not self._poll():
                return

    def _poll(self) -> bool:
        """Poll once. False: the store is no longer referenced, unclosed."""
        maintained = self._maintained()
        if maintained is None:
            return False
        try:
            if self._clock.monotonic_ns() >= self._due_ns or self._files.exists(join(self._home, START)):
                self._maintain(maintained)
                self._task.succeeded()
        except Exception as error:
            self._task.failed(error)
            self._due_ns = self._clock.monotonic_ns() + int(self._task.retry_seconds * 1e9)
        return True

    def _maintain(self, maintained: MaintainedStore) -> None:
        if maintained.is_short_of_room():
            maintained.purge()
        maintained.disk_reserve.lay()
        start = join(self._home, START)
        if self._files.exists(start):
            raw = self._read(start)
            self._files.remove(start)
            self._write_result(answered(maintained, raw))
            return
        if maintained.is_compaction_due() and not maintained.handover.is_active():
            maintained.compact()
        maintained.purge()

    def _read(self, path: str) -> bytes:
        file = self._files.open(path)
        try:
            return file.read_at(0, min(self._files.stat(path).size_bytes, REQUEST_BYTES_MAX))
        finally:
            file.close()

    def _write_result(self, result: dict[str, Any]) -> None:
        answer = {"finished_ns": self._clock.wall_ns(), **result}
        path, alias = join(self._home, RESULT), join(self._home, RESULT_ALIAS)
        atomic.replace(self._files, path, [json.dumps(answer).encode() + b"\n"])
        if self._files.exists(alias):
            self._files.remove(alias)
        self._files.link(path, alias)


def answered(maintained: MaintainedStore, raw: bytes) -> dict[str, Any]:
    """Execute a request. The client waits for an answer, so every failure becomes one."""
    request: dict[str, Any] = {}
    try:
        request = _request_of(raw)
        return {"status": "ok", **_named(request), **_done(maintained, request)}
    except WarrenError as error:
        return {"status": "failed", **_named(request), "error": error.what, "hint": error.hint}
    except Exception as error:
        hint = "this is a fault of warren: please report it"
        return {"status": "failed", **_named(request), "error": f"{error!r}", "hint": hint}


def _request_of(raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        return {}
    try:
        request = json.loads(raw)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise Refused(f"{CTRL}/{START} must be empty or a JSON object", "an empty file requests a compaction")
    return request


def _named(request: dict[str, Any]) -> dict[str, Any]:
    return {"request": request["request"]} if isinstance(request.get("request"), str) else {}


def _done(maintained: MaintainedStore, request: dict[str, Any]) -> dict[str, Any]:
    handover = maintained.handover
    match request:
        case {"order": {"places": int(places), "seconds": int(seconds)}}:
            order = handover.order(places, seconds)
            return {"order": order.to_json()} if order else dict(NOTHING_TO_DO)
        case {"accept": {"name": str(name), "made": list(results)}} if all(isinstance(each, dict) for each in results):
            result = handover.accept(name, results)
        case {"cancel": {"name": str(name)}}:
            handover.cancel(name)
            return {"message": "cancelled"}
        case _ if set(request) <= {"request"}:
            result = maintained.compact()
        case _:
            raise Refused(f"{CTRL}/{START} requests {sorted(request)}", "it may request order, accept or cancel")
    maintained.purge()
    return result


POLL_SECONDS = 0.05


def request_compaction(
    environment: Environment, directory: str, wanted: dict[str, Any], timeout_seconds: float
) -> dict[str, Any]:
    """The answer of the store running in a directory. A request that no store takes is withdrawn."""
    if not environment.files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    return _Request(environment, directory, wanted).answered(timeout_seconds)


class _Request:
    def __init__(self, environment: Environment, directory: str, wanted: dict[str, Any]) -> None:
        self._environment = environment
        self._files = environment.files
        self._home = join(directory, CTRL)
        self._start, self._result = join(self._home, START), join(self._home, RESULT)
        self._name = f"{environment.rng.id64():016x}"
        self._raw = json.dumps({"request": self._name, **wanted}).encode()

    def answered(self, timeout_seconds: float) -> dict[str, Any]:
        deadline_ns = self._environment.clock.monotonic_ns() + int(timeout_seconds * 1e9)
        is_sent = False
        bell = self._environment.threads.condition()
        while True:
            if not is_sent and not self._files.exists(self._start):
                self._write()
                is_sent = True
            answer = self._answer()
            if answer is not None:
                return answer
            if self._environment.clock.monotonic_ns() >= deadline_ns:
                break
            with bell:
                bell.wait(POLL_SECONDS)
        if not is_sent or self._withdrawn():
            hint = "start it, or compact the stopped directory with `warren log compact`"
            raise Refused(f"no store took the request within {timeout_seconds:g} s: is one running there?", hint)
        raise Refused(
            f"the compaction was not done within {timeout_seconds:g} s", f"its result will be in {self._result}"
        )

    def _write(self) -> None:
        self._files.make_directories(self._home)
        own = f"{self._start}.{self._name}"
        file = self._files.create(own)
        try:
            file.write_at(0, [self._raw])
        finally:
            file.close()
        self._files.rename(own, self._start)

    def _withdrawn(self) -> bool:
        """Withdraw the request, if no store has taken it."""
        if not self._files.exists(self._start):
            return False
        self._files.remove(self._start)
        return True

    def _answer(self) -> dict[str, Any] | None:
        if not self._files.exists(self._result):
            return None
        file = self._files.open(self._result)
        try:
            answer = json.loads(file.read_at(0, self._files.stat(self._result).size_bytes))
        finally:
            file.close()
        return answer if answer.get("request") == self._name else None
