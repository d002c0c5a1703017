"""Warren inside a program: `warren.open(path)`, with no broker, no socket and no other process.

>>> import warren, tempfile
>>> with warren.open(tempfile.mkdtemp()) as db:
...     users = db.kv("users")
...     users[b"ada"] = b"countess"
...     users.put_many({b"alan": b"baker", b"grace": b"admiral"})
...     list(users.range(b"a", b"b"))
[(b'ada', b'countess'), (b'alan', b'baker')]

A storage gets its number from the log when it is first named: a place in the log, 64 bits, never given twice. Names and
numbers are entries of the log themselves, in storage 0, which is nobody else's.

`kv` storages read as of now; `snapshot()` holds a moment still; `akv` is `kv` for coroutines. `queue` and `aqueue` are
durable queues in the same directory (app/queues); what they need is opened when the first one is asked for.

One process owns the directory. In a child forked from it every operation raises `ForkedProcess`, and `close` does
nothing (base/process).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from os import PathLike
from typing import TYPE_CHECKING, Unpack

from warren.app.database import open_database
from warren.app.directories import directory_path
from warren.app.embedded_async import AsyncKeyValues
from warren.app.queue_side import QueueOpenOptions
from warren.app.reflection_control import served
from warren.base.errors import Misuse
from warren.base.process import OwningProcess
from warren.log.machine import Environment
from warren.log.session import Session
from warren.log.settings import LogSettings
from warren.log.worker import Progress
from warren.snapshot.control_socket import ControlServer
from warren.snapshot.database import Database
from warren.snapshot.key_values import KeyValues, ReadKeyValues, WriteSession
from warren.snapshot.reflection import ReflectionSettings
from warren.snapshot.snapshot_store import ReadView, StoreReader

if TYPE_CHECKING:  # a program without queues need not load what they need
    from warren.app.queue_room import OpenQueueNames, QueueOptions
    from warren.app.queues import Queue
    from warren.app.queues_async import AsyncQueue

NAMES = 0  # the storage in which names are kept
_NUMBER_BYTES = 8
_NAME_BYTES_MAX = 255
_SETTINGS_CLASS = re.compile(r"\w+Settings\b")


class OpenOptions(QueueOpenOptions, total=False):
    """What `warren.open` takes besides the path."""

    log_settings: LogSettings | None
    reflection: ReflectionSettings | None
    progress: Progress  # called with the share of the replay that is done
    retention_seconds: float | None  # with the next: in place of those of `log_settings`
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
    """Open a directory, or make one. Nobody else may have it open. Settings of queues: see `QueueOpenOptions`. The two limits
    of retention, if given, replace those of `log_settings`."""
    directory = directory_path(path)
    _check_settings({"log_settings": log_settings, "reflection": reflection, **queue_side})
    machine, settings = Environment.real(), reflection or ReflectionSettings()
    log_settings = log_settings or LogSettings()
    if retention_seconds is not None:
        log_settings = replace(log_settings, retention_seconds=retention_seconds)
    if retention_bytes is not None:
        log_settings = replace(log_settings, retention_bytes=retention_bytes)
    database = open_database(directory, machine, log_settings, settings, progress)
    try:
        return Warren(database, machine, served(database, machine, settings), queue_side)
    except BaseException:
        database.close()
        raise


class Warren:
    """An open directory. Use `warren.open`."""

    def __init__(
        self,
        database: Database,
        machine: Environment,
        control: ControlServer | None = None,
        queue_side: QueueOpenOptions | None = None,
    ) -> None:
        self.database = database
        self._machine = machine
        self._control = control
        self._queue_side: QueueOpenOptions = queue_side or {}
        self._room: OpenQueueNames | None = None
        self._room_lock = machine.threads.condition()
        self._is_closed = False
        self._writing = WriteSession(
            database.begin,
            database.log.wait,
            machine.threads.condition(),
            database.make_durable,
            database.log.owner.check,
        )

    def kv(self, name: str) -> KeyValues:
        """The storage of this name; it is made if there is none."""
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
        """The queue of this name; it is made if there is none, and refused if it was made with other options. Durable
        when it returns. Options: `app.queue_room.QueueOptions`."""
        return self.queue_room.declare(name, options)

    def aqueue(self, name: str, **options: Unpack[QueueOptions]) -> AsyncQueue:
        """The same for coroutines."""
        from warren.app.queues_async import AsyncQueue

        return AsyncQueue(self.queue(name, **options))

    def find_queue(self, name: str) -> Queue:
        """The queue of this name, however it was made; refused if there is none."""
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
        returns; how many messages."""
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
        """Everything about queues; opened when it is first asked for."""
        self.database.log.owner.check()
        room = self._room
        if room is not None and not self._is_closed:
            return room
        from warren.app.queue_assembly import OpenQueues
        from warren.app.queue_room import OpenQueueNames

        with self._room_lock:
            if self._is_closed:
                raise Misuse("the database is closed", "open it again")
            if self._room is None:
                self._room = OpenQueueNames(OpenQueues(self.database, self._machine, **self._queue_side))
            return self._room

    # -- all of it -----------------------------------------------------------------------------------------------

    def snapshot(self) -> StoreMoment:
        """Everything as of now, held still until it is closed."""
        return StoreMoment(self.database.view_now(), self.database.log.owner)

    def alarms(self) -> list[str]:
        room = self._room
        own = [*self.database.alarms(), *(room.queues.alarms() if room is not None else [])]
        return list(dict.fromkeys([*own, *self._machine.background.alarms()]))  # most tasks are in both

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
        """Take a place in the log for a number, then give it the name, unless somebody was quicker."""
        with self._writing.session() as session:
            session.add_storage(NAMES)
        number = session.first_lsn
        assert number is not None, "a session that has ended has a place"

        def name_it(session: Session) -> None:
            session.put(NAMES, raw, number.to_bytes(_NUMBER_BYTES, "little"))
            session.add_storage(number)

        self._writing.if_so(lambda: self._number_of(raw) is None, name_it)


class StoreMoment:
    """A moment of the whole database, which does not change any more."""

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
    """Each has a known name, and is an object of the class that its annotation names."""
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
