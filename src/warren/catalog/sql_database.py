"""One connection to an SQL database: transactions and savepoints, for one thread at a time.

This is all that the rest of the catalog knows of SQL's whereabouts. `database` opens the real one; in the simulator
`testing/forgetful_catalog` stands in for it, and loses its last transactions on purpose.

Always true: nothing is written outside a transaction, and a transaction that was begun is committed or rolled back by
whoever began it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.exc import SQLAlchemyError

from warren.base.process import call_in_children, never_destroy
from warren.catalog.sql_errors import sql_error


class SqlDatabase:
    """Open from the beginning on."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where  # for people; no password
        self._engine = engine
        self._begun: RootTransaction | None = None
        self.connects = 0  # how often it was connected: another connection may find other rows
        event.listen(engine, "connect", self._connected)
        with sql_error(where):
            self.connection: Connection = engine.connect()
        call_in_children(self)

    def forked(self) -> None:
        never_destroy(self)

    @property
    def is_begun(self) -> bool:
        return self._begun is not None

    def begin(self) -> None:
        with sql_error(self.where):
            self._begun = self.connection.begin()

    def commit(self) -> None:
        assert self._begun is not None, "a transaction is begun before it is committed"
        with sql_error(self.where):
            self._begun.commit()
        self._begun = None

    def rollback(self) -> None:
        """Whatever state it is in: afterwards no transaction is open."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with suppress(SQLAlchemyError):
                begun.rollback()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One that is committed at the end of the block, and rolled back if an error passes by."""
        self.begin()
        try:
            with sql_error(self.where):
                yield self.connection
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only looks."""
        self.begin()
        try:
            with sql_error(self.where):
                yield self.connection
        finally:
            self.rollback()

    def close(self) -> None:
        self.rollback()
        with suppress(SQLAlchemyError):
            self.connection.close()
            self._engine.dispose()

    def _connected(self, raw: object, record: object) -> None:
        self.connects += 1


class SqlPlace(Protocol):
    """Where an SQL database lies."""

    where: str  # for people; no password

    def open(self) -> SqlDatabase:
        """The one that is there, or an empty one."""
        ...

    def set_aside(self) -> None:
        """Put away what is there and cannot be used; the next `open` finds nothing."""
        ...
