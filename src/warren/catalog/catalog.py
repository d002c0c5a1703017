"""The catalog's truth is in the log; SQL is how it is worked with. This is the order in which they change (rule 16).

    work in SQL ──▶ images to the log, one session ──▶ its epoch is durable ──▶ SQL commits, with the mark ──▶ answered
    └────────── one SQL transaction for all changes of one epoch; each in a savepoint of its own ─────────┘

SQL judges first, so that nothing is in the log that SQL would refuse. SQL commits last, so that it never holds what a
power cut can take back. Changes that arrive while the epoch of the open transaction is on its way to the disk wait for
it; then whoever is first does the work of all who wait, in his own thread, so that they share the next epoch and the
next transaction. Nobody's answer is put off by those who come later.

Reads see what is committed: one that comes meanwhile waits for the transaction that is open.

The log decides: a change whose session is durable has happened, whatever SQL does afterwards. If SQL fails between the
log and its commit, the change returns its result, SQL is behind, `behind` gives the reason, and the next change or read
brings SQL up from the log first; while that fails, changes and reads are refused with SQL's error and leave nothing in
the log. A connection that was lost is made again, and SQL is brought up by it before anything else, for nobody knows
what happened to it meanwhile. Always true: `applied <= durable`.

The catalog, wired: SQL opened and brought to what the log says, then changed and read.

    catalog = Catalog.open(database, place, threads)
    home = catalog.change(lambda change: vhosts.declare(change, "/"))
    orders = catalog.change(lambda change: queues.declare(change, home.id, "orders"))
    with catalog.reading() as connection:
        queues.every(connection, home.id)

Several declarations in one `change` are one session: all of them, or none. Nothing is answered before it is durable.

A start asks it which queues there are (`queue_ids`) before it reads a message. An SQL database that is damaged, or has
a row that differs from the log's, is set aside and made again from the log. What the log does not cover is refused,
unless it is forced (`forcing`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

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
    bring,
    check_rows,
    make_whole,
    write_mark,
)
from warren.catalog.rows import CATALOG, LAST_CHANGE, Change, LastChange
from warren.catalog.schema import migrate
from warren.catalog.sql import SqlDamage, SqlDatabase, SqlPlace, SqlUnavailable, sql_error
from warren.durability.timeline import Timeline
from warren.snapshot.database import Database

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_NONE = Epoch(0)
_IDS_AT_ONCE = 32  # reserved by one session; what is left of them at a stop is never used


class _PendingChange:
    """A change that somebody waits for."""

    __slots__ = ("answered", "epoch", "error", "result", "work")

    def __init__(self, work: Callable[[Change], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.epoch = _NONE
        self.error: BaseException | None = None
        self.answered = False

    def is_answered(self) -> bool:
        return self.answered  # asked without the lock as well: it is the last thing that is set


class SqlProjection:
    """Any thread may ask. Brought up by `bring` before it begins."""

    def __init__(self, database: Database, sql: SqlDatabase, lock: Condition, truth: CatalogState) -> None:
        self._database = database
        self._sql = sql
        self._lock = lock
        self._last = truth.last  # of the last session that went to the log
        self._applied = truth.epoch  # SQL has committed this
        self._epoch = _NONE  # of the open transaction's newest session
        self._is_behind = False
        self.behind = ""  # why SQL lacks durable changes; empty if it has them all
        self._connects = sql.connects  # by which connection SQL was brought up
        self._waiting: deque[_PendingChange] = deque()
        self._ids: deque[int] = deque()  # reserved

    @property
    def applied(self) -> Epoch:
        return self._applied

    @property
    def last(self) -> LastChange:
        return self._last

    def change(self, work: Callable[[Change], Result]) -> Result:
        """Do it; durable when this returns, and in SQL unless SQL has failed (`behind`)."""
        result, epoch = self.submit(work)
        self.settle(epoch)
        return result

    def submit(self, work: Callable[[Change], Result]) -> tuple[Result, Epoch]:
        """Do it, and return what it came to and the epoch to settle before anybody may hear of it."""
        asked = _PendingChange(work)
        self._waiting.append(asked)
        while not asked.is_answered():
            with self._lock:
                barred_by = self._barred_by()
                if not barred_by and not asked.is_answered():
                    self._work_off(asked)
            if barred_by:
                self._wait_for_the_way(asked, barred_by)
        if asked.error is not None:
            raise asked.error
        return asked.result, asked.epoch

    def settle(self, epoch: Epoch) -> None:
        """Return when it is durable and SQL has committed, or has failed to. Waits without the lock: others join the
        epoch meanwhile."""
        self._database.log.wait(epoch)
        if self._applied < epoch:
            with self._lock:
                if self._applied < epoch:
                    try:
                        self._make_way()
                        self._finish()
                    except Exception as error:  # the log has the change: it stands, and SQL follows later
                        self._note_behind(error)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """What is committed, held still."""
        with self._lock:
            self._make_way()
            self._finish()
            self._begin()
            try:
                with sql_error(self._sql.where):
                    yield self._sql.connection
            finally:
                self._sql.rollback()

    def close(self) -> None:
        with self._lock:
            try:
                self._make_way()
                self._finish()
            finally:
                self._sql.close()

    # -- one change ----------------------------------------------------------------------------------------------

    def _work_off(self, own: _PendingChange) -> None:
        """Do the work of everybody who waits at this moment, oneself among them. They hear of it together: the first to
        know would close the epoch before the last one has joined it."""
        worked_off: list[_PendingChange] = []
        try:
            self._make_way()
            for _ in range(len(self._waiting)):
                worked_off.append(self._waiting.popleft())
                self._do(worked_off[-1])
        finally:
            if own not in worked_off:
                self._waiting.remove(own)
            for asked in worked_off:
                asked.answered = True

    def _do(self, asked: _PendingChange) -> None:
        """What goes wrong with it is told to whoever asked; what ends this thread ends it here as well."""
        try:
            if self._is_behind:
                self._catch_up()
            if not self._sql.is_begun:
                self._begin()
            try:
                asked.result = self._done(asked.work)
            finally:
                if not self._epoch:  # it was refused, or there was nothing to change
                    self._sql.rollback()
            asked.epoch = self._epoch or self._applied
        except BaseException as error:
            asked.error = error
            if not isinstance(error, Exception):
                raise

    def _done(self, work: Callable[[Change], Result]) -> Result:
        with sql_error(self._sql.where):
            savepoint = self._savepoint()
            try:
                change = Change(self._sql.connection, self._take_id, self._last)
                result = work(change)
                self._append(change)
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
        return result

    def _savepoint(self) -> NestedTransaction:
        try:
            return self._sql.connection.begin_nested()
        except SQLAlchemyError:
            if self._epoch:
                self._fall_behind()
            raise

    def _undo(self, savepoint: NestedTransaction, error: BaseException) -> None:
        """Back to the savepoint. After an error of its disk SQL may have rolled back all of the transaction by itself,
        with changes of others that are in the log already."""
        try:
            is_sound = isinstance(error, IntegrityError) or not isinstance(error, SQLAlchemyError)
            savepoint.rollback()
        except SQLAlchemyError:
            is_sound = False
        if not is_sound and self._epoch:
            self._fall_behind()

    def _append(self, change: Change) -> None:
        if not change.entries:
            return
        with_last = [*change.entries, (LAST_CHANGE, change.last.encode())]
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
        self._last = change.last

    def _take_id(self) -> int:
        """A place in the log that nobody else ever has. What is written there says nothing. Entries of one session
        stand one behind the other."""
        if not self._ids:
            session = self._database.begin()
            for _ in range(_IDS_AT_ONCE):
                session.add_storage(CATALOG)
            session.end()
            assert session.first_lsn is not None, "a session that has ended has a place"
            self._ids.extend(range(session.first_lsn, session.first_lsn + _IDS_AT_ONCE))
        return self._ids.popleft()

    # -- one transaction -----------------------------------------------------------------------------------------

    def _barred_by(self) -> Epoch:
        """The epoch of the open transaction, if that is on its way to the disk."""
        is_on_its_way = self._database.log.durable < self._epoch < self._database.log.commit.open_epoch
        return self._epoch if is_on_its_way else _NONE

    def _wait_for_the_way(self, asked: _PendingChange, epoch: Epoch) -> None:
        """Without the lock, so that others may come to wait as well."""
        try:
            self._database.log.wait(epoch)
        except BaseException:
            with self._lock:
                if not asked.is_answered():
                    self._waiting.remove(asked)
            raise

    def _make_way(self) -> None:
        """Nothing is behind, and a transaction that is open is of the present epoch."""
        if self._is_behind:
            self._catch_up()
        if self._epoch and self._epoch < self._database.log.commit.open_epoch:
            self._finish()

    def _finish(self) -> None:
        if not self._epoch:
            return
        try:
            self._database.log.wait(self._epoch)
            with sql_error(self._sql.where):
                write_mark(self._sql.connection, SqlMark(self._timeline.id, self._epoch))
            self._sql.commit()
        except SqlUnavailable:
            self._fall_behind()
            self._catch_up()  # by another connection; if there is none, whoever comes next tries again
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
        self.behind = f"the SQL catalog is behind the log: {what}"
        _LOG.error("SQL catalog behind the log", extra={"facts": {"where": self._sql.where, "why": what}})

    def _catch_up(self) -> None:
        self._database.log.wait(self._epoch)
        view = self._database.view_now()
        try:
            truth, _ = bring(self._sql, view, self._timeline)
        finally:
            view.close()
        self._applied, self._epoch, self._is_behind = truth.epoch, _NONE, False
        self.behind = ""
        self._connects = self._sql.connects

    @property
    def _timeline(self) -> Timeline:
        return self._database.log.manifest.state.timeline


ChangeResult = TypeVar("ChangeResult")


class DeletedObjects(Refused):
    """It was there, and is not any more."""


class Catalog:
    """Opened by `open`."""

    def __init__(self, projection: SqlProjection, problems: list[str]) -> None:
        self._projection = projection
        self._at_open = problems

    @classmethod
    def open(cls, database: Database, place: SqlPlace, threads: Threads, is_forced: bool = False) -> Catalog:
        """Forced: what would be refused because the log does not cover it is made of what the log has."""
        problems: list[str] = []
        forgiven = (SqlDamage, ForeignCatalog, MissingRows) if is_forced else (SqlDamage,)
        try:
            sql, truth = _brought(database, place, problems)
        except forgiven as error:
            problems.append(f"the SQL catalog was set aside and made again: {error.what}")
            if isinstance(error, MissingRows):
                problems += make_whole(database)
            place.set_aside()
            sql, truth = _brought(database, place, problems)
        return cls(SqlProjection(database, sql, threads.condition(), truth), problems)

    @property
    def problems(self) -> list[str]:
        """What was wrong with SQL when it was opened, and is mended; and what keeps it behind the log now."""
        return [*self._at_open, *filter(None, [self._projection.behind])]

    def change(self, work: Callable[[Change], ChangeResult]) -> ChangeResult:
        """Do it; durable when this returns. Whatever is refused in it leaves nothing of it."""
        return self._projection.change(work)

    def submit(self, work: Callable[[Change], ChangeResult]) -> tuple[ChangeResult, Epoch]:
        """Do it, and let nobody hear of it before its epoch was settled."""
        return self._projection.submit(work)

    def settle(self, epoch: Epoch) -> None:
        self._projection.settle(epoch)

    def reading(self) -> AbstractContextManager[Connection]:
        """What is committed, held still: let go of it soon."""
        return self._projection.reading()

    @property
    def applied(self) -> Epoch:
        """The epoch of the last change that SQL has."""
        return self._projection.applied

    def queue_ids(self) -> set[QueueId]:
        """The queues that there are: what the log says of another one is passed over."""
        with self.reading() as connection:
            return queues.ids(connection)

    def queue(self, id_: QueueId) -> QueueRow:
        """The queue of an id that the log names."""
        with self.reading() as connection:
            found = queues.by_id(connection, id_)
        if found is not None:
            return found
        newest = self._projection.last.last_id
        if id_ > newest:
            what = f"the log names queue {id_}, and the newest thing that the catalog knows of is {newest}"
            raise Damage(what, hint="the catalog is older than the log: restore both from one backup")
        raise DeletedObjects(f"queue {id_} was deleted")

    def close(self) -> None:
        self._projection.close()


def _brought(database: Database, place: SqlPlace, problems: list[str]) -> tuple[SqlDatabase, CatalogState]:
    sql = place.open()
    try:
        migrate(sql)
        view = database.view_now()
        try:
            truth, told = bring(sql, view, database.log.manifest.state.timeline)
            check_rows(sql, view)
        finally:
            view.close()
    except BaseException:
        sql.close()
        raise
    if told:
        problems.append(told)
    return sql, truth
