"""Catalog: vhosts, exchanges, queues, bindings, users and permissions. The log is authoritative; SQL is a projection.

    write rows in SQL ──▶ images to the log, one session ──▶ epoch durable ──▶ SQL commit, with the mark ──▶ answer
    └────────── one SQL transaction for all changes of one epoch, a savepoint for each change ───────────┘

    catalog = Catalog.open(database, place, threads)
    home = catalog.change(lambda writer: vhosts.declare(writer, "/"))
    orders = catalog.change(lambda writer: queues.declare(writer, home.id, "orders"))
    with catalog.reading() as connection:
        queues.every(connection, home.id)

SQL checks a change first, so the log never holds a change that SQL refuses. SQL commits last, so it never holds what a
power cut can take back. Several declarations in one `change` are one session: all of them, or none. Changes that arrive
while the epoch of the open transaction is being synced wait for it; then the first waiter executes all waiting changes
in its own thread, and they share the next epoch and the next transaction. An answer never waits for later changes.

A declaration also has effects in memory: a queue starts, the routing changes. It is a `CatalogChange`:

    apply(change, order)    write 1 2 3 … ──▶ in the log ──▶ durable, several at once ──▶ update_routing 1, then 2, 3 …
                            and its ticket    on_logged      start

A change that concerns several vhosts (`JoinedOrder`) has a ticket in the order of each.

Invariants
* `applied <= durable`. Reads see committed rows; a read waits for the transaction that is open.
* The log decides (decision 0024): a change whose session is durable has happened, whatever SQL does afterwards. If SQL
  fails between the log and its commit, the change returns its result, `problems` names the reason, and the next change
  or read brings SQL up from the log first. While that fails, changes and reads are refused with SQL's error and leave
  nothing in the log. After a lost connection SQL is brought up from the log as well, because its state is unknown.
* The routing follows the log in the order of changes, also when SQL's commit, `on_logged` or `start` fails. A change
  that was refused, or that the log lost, has no effects. Every ticket is released.
* An answer includes the effects of every change that was made before it.

A start asks for `queue_ids` before it reads a message. `open` sets a damaged SQL database aside, or one with a row that
differs from the log's, and makes it again from the log. What the log does not cover is refused, unless `is_forced`
(`rebuild`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

from sqlalchemy import Connection, NestedTransaction
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import Epoch, QueueId
from warren.base.threads import Condition, Threads
from warren.catalog import queues
from warren.catalog.queues import QueueRow
from warren.catalog.rebuild import (
    CatalogState,
    ForeignCatalog,
    MissingRows,
    SqlMark,
    check_rows,
    make_whole,
    rebuild_sql,
    write_mark,
)
from warren.catalog.rows import CATALOG, LAST_CHANGE, RowWriter
from warren.catalog.schema import migrate
from warren.catalog.sql import SqlDamage, SqlDatabase, SqlPlace, SqlUnavailable, sql_error
from warren.durability.timeline import Timeline
from warren.snapshot.database import Database

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_NONE = Epoch(0)
_IDS_AT_ONCE = 32  # reserved by one session; the rest of them at a stop is never used


class CatalogChange(ABC):
    """One change of the catalog and its effects in memory. `Catalog.apply` calls the methods in this order, once."""

    @abstractmethod
    def write(self, writer: RowWriter) -> None:
        """Check and write rows. An exception refuses the change: nothing of it remains."""

    def on_logged(self) -> None:  # noqa: B027  # most changes have no such effect
        """The log has the change: it can no longer be refused, and is not durable yet. Must not wait for changes."""

    def start(self) -> None:  # noqa: B027
        """The change is durable, and the routing does not have it yet. Must not wait for changes."""

    def update_routing(self) -> None:  # noqa: B027
        """All earlier changes have updated the routing. Called with the lock of the `ChangeOrder` held."""


class FunctionChange(CatalogChange, Generic[Result]):
    """A function over rows, without effects in memory. Applied in an order, a lookup: the routing has what it found."""

    result: Result

    def __init__(self, function: Callable[[RowWriter], Result]) -> None:
        self._function = function

    def write(self, writer: RowWriter) -> None:
        self.result = self._function(writer)


class ChangeOrder:
    """Tickets of the changes that one routing does not have yet, in the order of the catalog.

    Several changes become durable together, and their threads continue in any order. Without tickets a queue could be
    removed from the routing before it is added.
    """

    def __init__(self, lock: Condition) -> None:
        """`lock` guards the routing, and is held during `update_routing`."""
        self._lock = lock
        self._tickets: deque[CatalogChange] = deque()

    def take_ticket(self, change: CatalogChange) -> None:
        """Called by one thread at a time, in the order of changes."""
        with self._lock:
            self._tickets.append(change)

    def release_ticket(self, change: CatalogChange) -> None:
        """The change failed, and may have failed before it had a ticket."""
        with self._lock:
            if change in self._tickets:
                self._tickets.remove(change)
            self._lock.notify_all()

    def update_routing(self, change: CatalogChange) -> None:
        """Wait for earlier tickets. The ticket is released whatever is raised."""
        with self._lock:
            try:
                while self._tickets[0] is not change:
                    self._lock.wait()
                change.update_routing()
            finally:
                self._tickets.remove(change)
                self._lock.notify_all()


class JoinedOrder(ChangeOrder):
    """The orders of all routings that one change concerns. Each of them has a part of the change, with the effects on
    that routing. Parts wait one after the other for changes that were made earlier, so they cannot wait for each other.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[ChangeOrder, CatalogChange]] = []

    def join(self, order: ChangeOrder, part: CatalogChange) -> None:
        """Called by `write` of the change."""
        self._parts.append((order, part))

    def take_ticket(self, change: CatalogChange) -> None:
        for order, part in self._parts:
            order.take_ticket(part)

    def release_ticket(self, change: CatalogChange) -> None:
        for order, part in self._parts:
            order.release_ticket(part)

    def update_routing(self, change: CatalogChange) -> None:
        """All routings are updated, whatever one of them raises."""
        with ExitStack() as every:
            for order, part in reversed(self._parts):
                every.callback(order.update_routing, part)


class _PendingChange:
    """A change and the thread that waits for it."""

    __slots__ = ("change", "epoch", "error", "is_done", "order")

    def __init__(self, change: CatalogChange, order: ChangeOrder | None) -> None:
        self.change = change
        self.order = order
        self.epoch = _NONE
        self.error: BaseException | None = None
        self.is_done = False  # set last: it is also read without the lock


class DeletedObjects(Refused):
    """The object existed and was deleted."""


class Catalog:
    """Opened by `open`. Any thread may call."""

    def __init__(
        self, database: Database, sql: SqlDatabase, lock: Condition, state: CatalogState, problems: list[str]
    ) -> None:
        """`sql` has the rows of `state`; `problems` of the opening, which are repaired."""
        self._database = database
        self._sql = sql
        self._lock = lock
        self._problems = problems
        self._last = state.last  # of the last session that went to the log
        self._applied = state.epoch  # SQL has committed this
        self._epoch = _NONE  # of the open transaction's newest session
        self._is_behind = False
        self._behind = ""  # why SQL lacks durable changes; empty if it has all of them
        self._connects = sql.connects  # the connection by which SQL was brought up
        self._waiting: deque[_PendingChange] = deque()
        self._ids: deque[int] = deque()  # reserved

    @classmethod
    def open(cls, database: Database, place: SqlPlace, threads: Threads, is_forced: bool = False) -> Catalog:
        """`is_forced`: where the log does not cover what it should, use what the log has instead of refusing."""
        problems: list[str] = []
        forgiven = (SqlDamage, ForeignCatalog, MissingRows) if is_forced else (SqlDamage,)
        try:
            sql, state = _open_sql(database, place, problems)
        except forgiven as error:
            problems.append(f"the SQL catalog was set aside and made again: {error.what}")
            if isinstance(error, MissingRows):
                problems += make_whole(database)
            place.set_aside()
            sql, state = _open_sql(database, place, problems)
        return cls(database, sql, threads.condition(), state, problems)

    @property
    def problems(self) -> list[str]:
        """What was wrong with SQL when it was opened, and is repaired; and why SQL is behind the log now."""
        return [*self._problems, *filter(None, [self._behind])]

    @property
    def applied(self) -> Epoch:
        """The epoch of the last change that SQL has."""
        return self._applied

    # -- changes -------------------------------------------------------------------------------------------------

    def change(self, function: Callable[[RowWriter], Result]) -> Result:
        """Change rows; durable when this returns, and in SQL unless SQL has failed (`problems`)."""
        result, epoch = self.submit(function)
        self.settle(epoch)
        return result

    def apply(self, change: CatalogChange, order: ChangeOrder) -> None:
        """Change rows, and then the state in memory in this order. Durable when this returns."""
        try:
            epoch = self._submit(change, order)
        except BaseException:
            order.release_ticket(change)
            raise
        try:
            change.on_logged()
        finally:
            try:
                self.settle(epoch)
            except BaseException:  # the log has failed
                order.release_ticket(change)
                raise
            try:
                change.start()
            finally:
                order.update_routing(change)

    def submit(self, function: Callable[[RowWriter], Result]) -> tuple[Result, Epoch]:
        """Change rows. The result must not be answered before its epoch is settled."""
        change = FunctionChange(function)
        epoch = self._submit(change)
        return change.result, epoch

    def settle(self, epoch: Epoch) -> None:
        """Return when the epoch is durable, and SQL has committed or has failed to. Waits without the lock: other
        changes join the epoch meanwhile."""
        self._database.log.wait(epoch)
        if self._applied < epoch:
            with self._lock:
                if self._applied < epoch:
                    try:
                        self._prepare_transaction()
                        self._commit()
                    except Exception as error:  # the log has the change: it stands, and SQL follows later
                        self._note_behind(error)

    # -- reads ---------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Committed rows, unchanged while the block runs. Changes wait meanwhile: keep it short."""
        with self._lock:
            self._prepare_transaction()
            self._commit()
            self._begin()
            try:
                with sql_error(self._sql.where):
                    yield self._sql.connection
            finally:
                self._sql.rollback()

    def queue_ids(self) -> set[QueueId]:
        """All queues. What the log has about any other queue is skipped."""
        with self.reading() as connection:
            return queues.ids(connection)

    def queue(self, id_: QueueId) -> QueueRow:
        """The queue of an id that the log names."""
        with self.reading() as connection:
            row = queues.by_id(connection, id_)
        if row is not None:
            return row
        newest = self._last.last_id
        if id_ > newest:
            what = f"the log names queue {id_}, and the newest id in the catalog is {newest}"
            raise Damage(what, hint="the catalog is older than the log: restore both from one backup")
        raise DeletedObjects(f"queue {id_} was deleted")

    def close(self) -> None:
        with self._lock:
            try:
                self._prepare_transaction()
                self._commit()
            finally:
                self._sql.close()

    # -- one change ----------------------------------------------------------------------------------------------

    def _submit(self, change: CatalogChange, order: ChangeOrder | None = None) -> Epoch:
        """Execute the change, in this thread or in another that works on all waiting changes; the epoch to settle."""
        pending = _PendingChange(change, order)
        self._waiting.append(pending)
        while not pending.is_done:
            with self._lock:
                syncing = self._syncing_epoch()
                if not syncing and not pending.is_done:
                    self._execute_waiting(pending)
            if syncing:
                self._wait_for_sync(pending, syncing)
        if pending.error is not None:
            raise pending.error
        return pending.epoch

    def _execute_waiting(self, own: _PendingChange) -> None:
        """Execute all changes that wait at this moment, `own` among them. They are done together: the first thread to
        continue would close the epoch before the last change has joined it."""
        executed: list[_PendingChange] = []
        try:
            self._prepare_transaction()
            for _ in range(len(self._waiting)):
                executed.append(self._waiting.popleft())
                self._execute(executed[-1])
        finally:
            if own not in executed:
                self._waiting.remove(own)
            for pending in executed:
                pending.is_done = True

    def _execute(self, pending: _PendingChange) -> None:
        """An error goes to the thread that waits for the change; what ends this thread ends it here as well."""
        try:
            if self._is_behind:
                self._catch_up()
            if not self._sql.is_begun:
                self._begin()
            try:
                self._write(pending)
            finally:
                if not self._epoch:  # refused, or nothing to change
                    self._sql.rollback()
            pending.epoch = self._epoch or self._applied
        except BaseException as error:
            pending.error = error
            if not isinstance(error, Exception):
                raise

    def _write(self, pending: _PendingChange) -> None:
        with sql_error(self._sql.where):
            savepoint = self._savepoint()
            try:
                writer = RowWriter(self._sql.connection, self._take_id, self._last)
                pending.change.write(writer)
                if pending.order is not None:
                    pending.order.take_ticket(pending.change)
                self._append(writer)
            except BaseException as error:
                self._undo(savepoint, error)
                raise
            try:
                savepoint.commit()
            except SQLAlchemyError as error:
                if not self._epoch:  # nothing of this transaction is in the log
                    raise
                self._fall_behind()
                self._note_behind(error)

    def _savepoint(self) -> NestedTransaction:
        try:
            return self._sql.connection.begin_nested()
        except SQLAlchemyError:
            if self._epoch:
                self._fall_behind()
            raise

    def _undo(self, savepoint: NestedTransaction, error: BaseException) -> None:
        """Back to the savepoint. After a disk error SQL may have rolled back the whole transaction, with changes that
        are in the log already."""
        try:
            is_sound = isinstance(error, IntegrityError) or not isinstance(error, SQLAlchemyError)
            savepoint.rollback()
        except SQLAlchemyError:
            is_sound = False
        if not is_sound and self._epoch:
            self._fall_behind()

    def _append(self, writer: RowWriter) -> None:
        if not writer.entries:
            return
        with_last = [*writer.entries, (LAST_CHANGE, writer.last.encode())]
        session = self._database.begin()
        try:
            for key, image in with_last:
                if image is None:
                    session.remove(CATALOG, key)
                else:
                    session.put(CATALOG, key, image)
        except BaseException:
            session.abort()
            raise
        self._epoch = session.end()
        self._last = writer.last

    def _take_id(self) -> int:
        """An id that was never used: a position of the log, which only holds an empty entry. The entries of one session
        have consecutive positions."""
        if not self._ids:
            session = self._database.begin()
            for _ in range(_IDS_AT_ONCE):
                session.add_storage(CATALOG)
            session.end()
            assert session.first_lsn is not None, "a session that has ended has a position"
            self._ids.extend(range(session.first_lsn, session.first_lsn + _IDS_AT_ONCE))
        return self._ids.popleft()

    # -- one transaction -----------------------------------------------------------------------------------------

    def _syncing_epoch(self) -> Epoch:
        """The epoch of the open transaction while it is closed and not durable yet; otherwise 0."""
        is_syncing = self._database.log.durable < self._epoch < self._database.log.commit.open_epoch
        return self._epoch if is_syncing else _NONE

    def _wait_for_sync(self, pending: _PendingChange, epoch: Epoch) -> None:
        """Without the lock, so that other changes can queue up as well."""
        try:
            self._database.log.wait(epoch)
        except BaseException:
            with self._lock:
                if not pending.is_done:
                    self._waiting.remove(pending)
            raise

    def _prepare_transaction(self) -> None:
        """Afterwards SQL is not behind, and an open transaction belongs to the open epoch."""
        if self._is_behind:
            self._catch_up()
        if self._epoch and self._epoch < self._database.log.commit.open_epoch:
            self._commit()

    def _commit(self) -> None:
        if not self._epoch:
            return
        try:
            self._database.log.wait(self._epoch)
            with sql_error(self._sql.where):
                write_mark(self._sql.connection, SqlMark(self._timeline.id, self._epoch))
            self._sql.commit()
        except SqlUnavailable:
            self._fall_behind()
            self._catch_up()  # by a new connection; if there is none, the next call tries again
            return
        except BaseException:
            self._fall_behind()
            raise
        self._applied, self._epoch = self._epoch, _NONE

    def _begin(self) -> None:
        self._sql.begin()
        if self._sql.connects != self._connects:
            self._sql.rollback()
            self._catch_up()
            self._sql.begin()

    def _fall_behind(self) -> None:
        self._is_behind = True
        self._sql.rollback()

    def _note_behind(self, error: Exception) -> None:
        what = error.what if isinstance(error, WarrenError) else repr(error)
        self._behind = f"the SQL catalog is behind the log: {what}"
        _LOG.error("SQL catalog behind the log", extra={"facts": {"where": self._sql.where, "why": what}})

    def _catch_up(self) -> None:
        self._database.log.wait(self._epoch)
        view = self._database.view_now()
        try:
            state, _ = rebuild_sql(self._sql, view, self._timeline)
        finally:
            view.close()
        self._applied, self._epoch, self._is_behind = state.epoch, _NONE, False
        self._behind = ""
        self._connects = self._sql.connects

    @property
    def _timeline(self) -> Timeline:
        return self._database.log.manifest.state.timeline


def _open_sql(database: Database, place: SqlPlace, problems: list[str]) -> tuple[SqlDatabase, CatalogState]:
    sql = place.open()
    try:
        migrate(sql)
        view = database.view_now()
        try:
            state, problem = rebuild_sql(sql, view, database.log.manifest.state.timeline)
            check_rows(sql, view)
        finally:
            view.close()
    except BaseException:
        sql.close()
        raise
    if problem:
        problems.append(problem)
    return sql, state
