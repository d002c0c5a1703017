"""Warren inside a program: `warren.open(path)`, with no broker, no socket and no other process.

>>> import warren, tempfile
>>> with warren.open(tempfile.mkdtemp()) as db:
...     users = db.kv("users")
...     users[b"ada"] = b"countess"
...     users.put_many({b"alan": b"baker", b"grace": b"admiral"})
...     list(users.range(b"a", b"b"))
[(b'ada', b'countess'), (b'alan', b'baker')]

    kv, akv            key-value storages, for threads and for coroutines; they read the latest state
    snapshot()         the whole database as of one moment
    queue, aqueue      durable queues in the same directory (embedded/queues), opened at first use

* A storage gets its number from the log when it is first named: a position in the log, 64 bits, never used twice. Names
  and numbers are entries of the log, in storage 0, which is reserved for them.
* `akv` runs each call in a thread, so that the event loop continues. Concurrent calls share syncs, as threads do.
  Ranges are read in pieces, one thread call per piece.
* A program without queues loads no queue modules: the settings of queues are imported for types only.
* One process owns the directory. In a forked child every operation raises `ForkedProcess`, and `close` does nothing
  (base/environment).

`open_database` opens a database on a real machine, with RocksDB, table processes and the configured version buffer; the
broker uses it too. The simulator opens its own, on fakes. `served` is the control socket of a database that reflects in
this process, for `warren reflection`; in mode `watch` the puller serves the same commands at the same path
(snapshot/puller/process).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, TypedDict, Unpack

from warren.base.environment import OwningProcess
from warren.base.errors import Misuse
from warren.base.ids import TimelineId
from warren.config.options import directory_path
from warren.files.environment import Environment
from warren.files.local import restrict
from warren.files.protocol import join
from warren.log.session import Session
from warren.log.settings import LogSettings
from warren.snapshot.database import BUFFER, LOG, REFLECTION_SOCKET, SECONDARY, SET_ASIDE, STORE, TABLES, Database
from warren.snapshot.key_values import KeyValues, Pairs, ReadKeyValues, WriteSession
from warren.snapshot.puller.client import PullerClient
from warren.snapshot.puller.protocol import control_handlers, mark_to_json
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.rocksdb.options import SnapshotStoreSettings, check_process
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import ReadView, SnapshotStore, StoreReader
from warren.snapshot.tables.bulk import ProcessTables
from warren.snapshot.version_buffer.buffer import VersionBuffer
from warren.snapshot.version_buffer.memory_buffer import open_version_buffer
from warren.workers.control_socket import ControlServer
from warren.workers.process import Message
from warren.workers.tasks import Progress

if TYPE_CHECKING:
    from warren.broker.storage import MakeOne
    from warren.catalog.settings import CatalogSettings
    from warren.embedded.queues import OpenQueueNames, Queue, QueueOptions
    from warren.embedded.queues_async import AsyncQueue
    from warren.message_store.settings import MessageStoreSettings
    from warren.queues.settings import QueueSettings, VariableQueueSettings


_PIECE_ROWS = 512


class AsyncKeyValues:
    def __init__(self, inner: KeyValues) -> None:
        self.inner = inner

    async def get(self, key: bytes) -> bytes | None:
        return await asyncio.to_thread(self.inner.get, key)

    async def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return await asyncio.to_thread(self.inner.get_many, keys)

    async def put(self, key: bytes, value: bytes) -> None:
        await asyncio.to_thread(self.inner.put, key, value)

    async def put_many(self, pairs: Pairs) -> None:
        await asyncio.to_thread(self.inner.put_many, pairs)

    async def put_if(self, key: bytes, value: bytes, expected: bytes | None) -> bool:
        return await asyncio.to_thread(self.inner.put_if, key, value, expected)

    async def discard(self, *keys: bytes) -> None:
        await asyncio.to_thread(self.inner.discard, *keys)

    async def clear(self) -> None:
        await asyncio.to_thread(self.inner.clear)

    def range(
        self, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """As of its first step."""
        return _pieces(self.inner.range(low, high, reverse))

    def prefix(self, start: bytes, reverse: bool = False) -> AsyncIterator[tuple[bytes, bytes]]:
        return _pieces(self.inner.prefix(start, reverse))


async def _pieces(rows: Iterator[tuple[bytes, bytes]]) -> AsyncIterator[tuple[bytes, bytes]]:
    while piece := await asyncio.to_thread(lambda: list(islice(rows, _PIECE_ROWS))):
        for row in piece:
            yield row


class QueueOpenOptions(TypedDict, total=False):
    """Keywords of `warren.open` for queues."""

    queue_settings: QueueSettings
    variable_queue_settings: VariableQueueSettings
    message_store_settings: MessageStoreSettings
    catalog_settings: CatalogSettings
    backing_kinds: Mapping[str, MakeOne]  # other kinds of backing queues, by name (BQ-02)


# Created with mode 0700. A directory with a wider mode, from a copy or an older version, is restricted at the start.
# The last three belong to queues, whose modules a program without queues does not load.
_OWN_DIRECTORIES = (LOG, STORE, BUFFER, TABLES, SET_ASIDE, SECONDARY, "catalog", "transient", "sql_queues")


def open_database(
    path: str,
    environment: Environment,
    log_settings: LogSettings | None,
    settings: ReflectionSettings,
    progress: Progress = lambda share: None,
    store_settings: SnapshotStoreSettings | None = None,
) -> Database:
    """Open a directory, or create it. No other process may have it open."""

    def open_store(directory: str, timeline: TimelineId) -> SnapshotStore:
        return RocksDbStore.open(directory, timeline, store_settings, environment.threads)

    def open_buffer(directory: str, timeline: TimelineId) -> VersionBuffer:
        return open_version_buffer(settings.buffer, environment, directory, timeline, settings.buffer_bytes)

    check_process(path)
    for name in _OWN_DIRECTORIES:
        restrict(join(path, name))
    puller = partial(PullerClient, store_settings=store_settings)
    return Database.open(
        path, open_store, log_settings, settings, environment, progress, ProcessTables(), puller, open_buffer
    )


def served(database: Database, environment: Environment, settings: ReflectionSettings) -> ControlServer | None:
    """Serve the control socket, unless the puller does."""
    if settings.reflection is Mode.WATCH:
        return None

    def status() -> Message:
        applied = database.store.applied
        flushed = applied._replace(epoch=database.log.manifest.state.reflected)
        return {
            "mode": str(settings.reflection),
            "pid": os.getpid(),
            "durable": database.log.durable,
            "applied": mark_to_json(applied),
            "flushed": mark_to_json(flushed),
        }

    path = join(database.directory, REFLECTION_SOCKET)
    orders = control_handlers(database.reflection, status)
    if database.orders is not None:  # jobs of `warren pipeline sync`
        orders.update(database.orders.handlers())
    return ControlServer(
        path, orders, environment.threads, environment.clock, takes_over=True, background=environment.background
    )


NAMES = 0  # the storage in which names are kept
_NUMBER_BYTES = 8
_NAME_BYTES_MAX = 255
_SETTINGS_CLASS = re.compile(r"\w+Settings\b")


class OpenOptions(QueueOpenOptions, total=False):
    """Keywords of `warren.open`."""

    log_settings: LogSettings | None
    reflection: ReflectionSettings | None
    progress: Progress  # called with the finished share of the replay
    retention_seconds: float | None  # this and the next override those of `log_settings`
    retention_bytes: int | None


def open_embedded(
    path: str | PathLike[str],
    log_settings: LogSettings | None = None,
    reflection: ReflectionSettings | None = None,
    progress: Progress = lambda share: None,
    retention_seconds: float | None = None,
    retention_bytes: int | None = None,
    **queue_side: Unpack[QueueOpenOptions],
) -> Warren:
    """Open a directory, or create it. No other process may have it open. Keywords: `OpenOptions`. The two limits of
    retention, if given, override those of `log_settings`."""
    directory = directory_path(path)
    _check_settings({"log_settings": log_settings, "reflection": reflection, **queue_side})
    environment, settings = Environment.real(), reflection or ReflectionSettings()
    log_settings = log_settings or LogSettings()
    if retention_seconds is not None:
        log_settings = replace(log_settings, retention_seconds=retention_seconds)
    if retention_bytes is not None:
        log_settings = replace(log_settings, retention_bytes=retention_bytes)
    database = open_database(directory, environment, log_settings, settings, progress)
    try:
        return Warren(database, environment, served(database, environment, settings), queue_side)
    except BaseException:
        database.close()
        raise


class Warren:
    """An open directory. Use `warren.open`."""

    def __init__(
        self,
        database: Database,
        environment: Environment,
        control: ControlServer | None = None,
        queue_side: QueueOpenOptions | None = None,
    ) -> None:
        self.database = database
        self._environment = environment
        self._control = control
        self._queue_side: QueueOpenOptions = queue_side or {}
        self._room: OpenQueueNames | None = None
        self._room_lock = environment.threads.condition()
        self._is_closed = False
        self._writing = WriteSession(
            database.begin,
            database.log.wait,
            environment.threads.condition(),
            database.make_durable,
            database.log.owner.check,
        )

    def kv(self, name: str) -> KeyValues:
        """The storage of this name; created if it is missing."""
        raw = _name(name)
        number = self._number_of(raw)
        while number is None:
            self._make(raw)
            number = self._number_of(raw)
        return KeyValues(number, name, self._hold_now, self._writing)

    def akv(self, name: str) -> AsyncKeyValues:
        """The same for coroutines."""
        return AsyncKeyValues(self.kv(name))

    def names(self) -> list[str]:
        """The names of all storages."""
        with self._hold_now() as reading:
            return [row.key.decode() for row in reading.range(NAMES)]

    # -- queues --------------------------------------------------------------------------------------------------

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> Queue:
        """The queue of this name; created if it is missing, refused if it exists with other options. Durable when it
        returns. Options: `embedded.queues.QueueOptions`."""
        return self.queue_room.declare(name, options)

    def aqueue(self, name: str, **options: Unpack[QueueOptions]) -> AsyncQueue:
        """The same for coroutines."""
        from warren.embedded.queues_async import AsyncQueue

        return AsyncQueue(self.queue(name, **options))

    def find_queue(self, name: str) -> Queue:
        """The queue of this name, with any options; refused if there is none."""
        return self.queue_room.find(name)

    def queues(self) -> list[str]:
        """The names of all queues."""
        return self.queue_room.names()

    def publish(
        self,
        bodies: bytes | Iterable[bytes],
        queues: Iterable[str],
        *,
        ttl: float | None = None,
        priority: int = 0,
        persistent: bool = True,
    ) -> int:
        """Put one message, or many, into several queues: into all of them or none, stored once. Durable when it
        returns; the number of messages."""
        room = self.queue_room
        count, epoch = room.publish(bodies, queues, ttl, priority, persistent)
        room.wait(epoch)
        return count

    def publish_later(
        self,
        bodies: bytes | Iterable[bytes],
        queues: Iterable[str],
        *,
        ttl: float | None = None,
        priority: int = 0,
        persistent: bool = True,
    ) -> Future[None]:
        """The same without waiting for the disk: the future is done when it is durable."""
        room = self.queue_room
        return room.when_durable(room.publish(bodies, queues, ttl, priority, persistent)[1])

    @property
    def queue_room(self) -> OpenQueueNames:
        """The queues of this database; opened at first use."""
        self.database.log.owner.check()
        room = self._room
        if room is not None and not self._is_closed:
            return room
        from warren.embedded.queue_assembly import OpenQueues
        from warren.embedded.queues import OpenQueueNames

        with self._room_lock:
            if self._is_closed:
                raise Misuse("the database is closed", "open it again")
            if self._room is None:
                self._room = OpenQueueNames(OpenQueues(self.database, self._environment, **self._queue_side))
            return self._room

    # -- all of it -----------------------------------------------------------------------------------------------

    def snapshot(self) -> StoreMoment:
        """The whole database as of now, unchanged until it is closed."""
        return StoreMoment(self.database.view_now(), self.database.log.owner)

    def alarms(self) -> list[str]:
        room = self._room
        own = [*self.database.alarms(), *(room.queues.alarms() if room is not None else [])]
        return list(dict.fromkeys([*own, *self._environment.background.alarms()]))  # most tasks are in both

    def close(self) -> None:
        """Close it; a second call does nothing, nor does a call in a forked child."""
        if not self.database.log.owner.is_this:
            return
        with self._room_lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            if self._room is not None:
                self._room.queues.close()
        finally:
            if self._control is not None:
                self._control.close()
            self.database.close()

    def __enter__(self) -> Warren:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    @contextmanager
    def _hold_now(self) -> Iterator[StoreReader]:
        view = self.database.view_now()
        try:
            yield view
        finally:
            if self.database.log.owner.is_this:
                view.close()

    def _number_of(self, raw: bytes) -> int | None:
        with self._hold_now() as reading:
            found = reading.get(NAMES, raw)
        return None if found is None else int.from_bytes(found.value, "little")

    def _make(self, raw: bytes) -> None:
        """Take a position in the log as the number, then name it, unless another thread was first."""
        with self._writing.session() as session:
            session.add_storage(NAMES)
        number = session.first_lsn
        assert number is not None, "an ended session has a position"

        def name_it(session: Session) -> None:
            session.put(NAMES, raw, number.to_bytes(_NUMBER_BYTES, "little"))
            session.add_storage(number)

        self._writing.if_so(lambda: self._number_of(raw) is None, name_it)


class StoreMoment:
    """The whole database as of one moment; it does not change."""

    def __init__(self, view: ReadView, owner: OwningProcess) -> None:
        self._view = view
        self._owner = owner

    def kv(self, name: str) -> ReadKeyValues:
        self._owner.check()
        found = self._view.get(NAMES, _name(name))
        if found is None:
            raise KeyError(name)
        return ReadKeyValues(int.from_bytes(found.value, "little"), name, self._hold)

    def close(self) -> None:
        if self._owner.is_this:
            self._view.close()

    def __enter__(self) -> StoreMoment:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    @contextmanager
    def _hold(self) -> Iterator[StoreReader]:
        self._owner.check()
        yield self._view


def _check_settings(settings: Mapping[str, object]) -> None:
    """Each has a known name and is an instance of the class in its annotation."""
    known = OpenOptions.__annotations__
    for name, value in settings.items():
        if name not in known:
            close = get_close_matches(name, known, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise Misuse(f"warren.open has no setting {name!r}", f"{meant}it takes {', '.join(sorted(known))}")
        expected = _SETTINGS_CLASS.search(str(known[name]))
        classes = {base.__name__ for base in type(value).__mro__}
        if value is not None and expected is not None and expected[0] not in classes:
            raise Misuse(f"{name} is a {expected[0]}, not {value!r}", f"pass warren.{expected[0]}(...)")


def _name(name: str) -> bytes:
    raw = name.encode()
    if not 0 < len(raw) <= _NAME_BYTES_MAX:
        raise Misuse(f"a storage's name has 1 … {_NAME_BYTES_MAX} bytes, this one {len(raw)}")
    return raw
