"""The catalog, wired: SQL opened and brought to what the log says, then changed and read.

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

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from sqlalchemy import Connection

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, QueueId
from warren.base.threads import Threads
from warren.catalog import queues
from warren.catalog.bringing import CatalogState, ForeignCatalog, MissingRows, bring, check_rows
from warren.catalog.change import Change
from warren.catalog.forcing import make_whole
from warren.catalog.migrations import migrate
from warren.catalog.projection import SqlProjection
from warren.catalog.queues import QueueRow
from warren.catalog.sql_database import SqlDatabase, SqlPlace
from warren.catalog.sql_errors import SqlDamage
from warren.snapshot.database import Database

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
