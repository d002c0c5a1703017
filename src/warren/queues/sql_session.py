"""What one `IndexBatch` does to SQL-backed queues: gathered, then one SQL transaction (BQ-04).

    queue a: ack 3…5  ─┐
    queue b: publish  ─┴─▶ Changes ─▶ before_end ─▶ BEGIN … COMMIT           a move is in both queues or in neither

Queues of one database share the session of a `IndexBatch`. If nothing else takes part, that is all: nothing is written to
the log, and atomic it is because SQL is.

If the log takes part as well there are two writes. A transaction that publishes is made before the log's session, one
that only lets go after that session is durable: so whatever moves between an SQL-backed queue and one in the log is in
one of them at any time, and after a power cut between the two writes it may be in both. (A `IndexBatch` that does both to
SQL, and moves to the log besides, could lose that last move so: keep the two kinds apart.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from warren.base.ids import Epoch
from warren.base.runs import QueuePlace, Run
from warren.queue_index.changes import IndexBatch
from warren.queues.sql_store import Batch, SqlPlaceStore, SqlStore


class SqlSessionMember(Protocol):
    """A queue that takes part."""

    @property
    def place(self) -> QueuePlace: ...

    def counters(self) -> tuple[int, int, bool] | None: ...

    def written(self) -> None: ...

    def given_up(self) -> None: ...


class SqlSession:
    """Is a `Joining`."""

    def __init__(self, store: SqlStore, key: int) -> None:
        self._store = store
        self._key = key
        self._batch: Batch = {}
        self._members: list[SqlSessionMember] = []
        self._is_written = False

    @classmethod
    def of(cls, store: SqlStore, changes: IndexBatch) -> SqlSession:
        """The one of these changes."""
        with store.lock:
            found = store.sessions.get(id(changes))
            if found is None:
                found = store.sessions[id(changes)] = cls(store, id(changes))
        assert isinstance(found, SqlSession)
        changes.join(found)
        return found

    def of_member(self, member: SqlSessionMember) -> SqlPlaceStore:
        """What happens to one queue, to be added to."""
        if member not in self._members:
            self._members.append(member)
        return self._batch.setdefault(member.place, SqlPlaceStore())

    def before_end(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        if any(of_place.rows for of_place in self._batch.values()):
            self._write()

    def after_end(self, epoch: Epoch) -> None:
        try:
            if not self._is_written:
                if epoch:
                    self._store.wait(epoch)
                self._write()
        except BaseException:
            self.aborted()
            raise
        self._forget()
        for member in self._members:
            member.written()

    def aborted(self) -> None:
        self._forget()
        for member in self._members:
            member.given_up()

    def _write(self) -> None:
        for member in self._members:
            self._batch[member.place].counters = member.counters()
        self._store.write(self._batch)
        self._is_written = True

    def _forget(self) -> None:
        with self._store.lock:
            self._store.sessions.pop(self._key, None)
