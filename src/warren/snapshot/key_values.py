"""A key-value storage with a name: a mapping of bytes to bytes that is durable, sorted, and larger than memory.

    users = db.kv("users")
    users[b"ada"] = b"countess"              durable when it returns
    users.put_many({b"alan": b"baker"})          one session: all of it, or nothing
    users.range(b"a", b"b")                  in key order, with memory for a few rows
    users.put_if(b"ada", b"lady", expected=b"countess")

Reads see everything durable that was written before them, in any thread; an iteration reads one view, for as long as it
takes. The storages of a snapshot (`db.snapshot().kv(…)`) have the same reads, at one moment, and are read-only.

Elsewhere: transactions over several storages and queues (DESIGN section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager

from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.log.session import Session
from warren.snapshot.store import StoreReader

Pairs = Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]
Hold = Callable[[], AbstractContextManager[StoreReader]]  # a view for the time of the `with`


class ReadKeyValues(Mapping[bytes, bytes]):
    """A storage, read-only."""

    def __init__(self, storage: int, name: str, hold: Hold) -> None:
        self.storage = storage
        self.name = name
        self._hold = hold

    def __repr__(self) -> str:
        return f"<key-values {self.name!r}>"

    def __getitem__(self, key: bytes) -> bytes:
        with self._hold() as reading:
            found = reading.get(self.storage, _checked(key))
        if found is None:
            raise KeyError(key)
        return found.value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The values of several keys in one view; None for a missing key."""
        with self._hold() as reading:
            found = reading.get_many(self.storage, [_checked(key) for key in keys])
        return [None if each is None else each.value for each in found]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.get_many([key]) != [None]

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self.range())

    def __reversed__(self) -> Iterator[bytes]:
        return (key for key, _ in self.range(reverse=True))

    def __len__(self) -> int:
        """The number of keys. They are counted by reading them all."""
        return sum(1 for _ in self.range())

    def __bool__(self) -> bool:
        return next(self.range(), None) is not None

    def range(
        self, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values with low <= key < high, in key order or backwards, in a view of the moment it begins."""
        with self._hold() as reading:
            for row in reading.range(self.storage, low, high, reverse):
                yield row.key, row.value

    def prefix(self, start: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values whose key has this prefix."""
        with self._hold() as reading:
            for row in reading.prefix(self.storage, start, reverse):
                yield row.key, row.value


class KeyValues(ReadKeyValues, MutableMapping[bytes, bytes]):
    """A storage that can be written. Every method that writes is durable when it returns."""

    def __init__(self, storage: int, name: str, hold: Hold, writing: WriteSession) -> None:
        super().__init__(storage, name, hold)
        self._writing = writing

    def __setitem__(self, key: bytes, value: bytes) -> None:
        with self._writing.session() as session:
            session.put(self.storage, key, value)

    put = __setitem__

    def __delitem__(self, key: bytes) -> None:
        if not self._writing.if_so(lambda: key in self, lambda session: session.remove(self.storage, key)):
            raise KeyError(key)

    def discard(self, *keys: bytes) -> None:
        """Remove keys; missing ones are ignored."""
        with self._writing.session() as session:
            session.remove_many(self.storage, keys)

    def put_many(self, pairs: Pairs) -> None:
        """Put all pairs atomically."""
        items = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
        if items:
            with self._writing.session() as session:
                session.put_many(self.storage, [key for key, _ in items], [value for _, value in items])

    def put_if(self, key: bytes, value: bytes, expected: bytes | None) -> bool:
        """Put only if the key has this value now (None: if it is missing). Whether it was put."""
        return self._writing.if_so(
            lambda: self.get(key) == expected, lambda session: session.put(self.storage, key, value)
        )

    def clear(self) -> None:
        """Remove all keys in one step."""
        with self._writing.session() as session:
            session.clear_storage(self.storage)


class WriteSession:
    """Writes of storages: sessions end one after another, so that a condition still holds when its write ends."""

    def __init__(
        self,
        begin: Callable[[], Session],
        wait: Callable[[Epoch], None],
        lock: AbstractContextManager[object],
        settle: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        """`check` raises if this process may not write."""
        self._begin = begin
        self._wait = wait
        self._lock = lock
        self._check = check
        self._settle = settle  # makes earlier writes durable, so that reads see them

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that ends under the lock and is waited for without it."""
        session = self._begin()
        try:
            yield session
        except BaseException:
            session.abort()
            raise
        self._check()
        with self._lock:
            epoch = session.end()
        self._wait(epoch)

    def if_so(self, holds: Callable[[], bool], write: Callable[[Session], None]) -> bool:
        """Write if a condition holds, with no write in between; whether it did."""
        self._check()
        with self._lock:
            self._settle()
            if not holds():
                return False
            session = self._begin()
            try:
                write(session)
            except BaseException:
                session.abort()
                raise
            epoch = session.end()
        self._wait(epoch)
        return True


def _checked(key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise Misuse(f"a key is bytes, not {type(key).__name__}", "encode it: key.encode()")
    return key
