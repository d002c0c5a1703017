"""SQL database in memory that loses its last transactions: stands in for SQLite in the simulator. An `SqlPlace`.

    commit    state 4 → state 5                 the bytes of the whole database; older ones stay for the crash
    crash     the database after a power cut    any state from the first one on: SQLite syncs at any time

The engine is SQLite itself, so constraints and savepoints are the real ones; only its file is not. It may lose more
than the real one: everything, depending on the random choice. `is_broken`: the next commit fails, as on a full disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

from warren.base.environment import Random
from warren.catalog.database import prepare
from warren.catalog.sql import SqlDatabase, sql_error

_STATES_MAX = 12  # states that are kept; older ones count as on disk

AsStep = Callable[[str, Callable[[], None]], None]


class VolatileCatalog:
    where = "in memory"

    def __init__(self, states: list[bytes] | None = None) -> None:
        self.states = states if states is not None else [b""]  # the last one is the current one
        self.is_broken = False
        self.as_step: AsStep = lambda name, call: call()  # in the simulator a commit is a step like those of the disk

    def open(self) -> SqlDatabase:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        prepare(engine, ("foreign_keys = ON",))
        sql = _Remembered(self, engine, self.where)
        if self.states[-1]:
            sql.raw.deserialize(self.states[-1])
        return sql

    def set_aside(self) -> None:
        self.states = [b""]

    def crash(self, rng: Random) -> VolatileCatalog:
        """The database after a power cut. This one does not change."""
        count = random.Random(rng.id64()).randrange(len(self.states)) + 1
        return VolatileCatalog(self.states[:count])

    def lose(self, transactions: int) -> None:
        """Lose the last transactions, at most all that are kept."""
        del self.states[max(1, len(self.states) - transactions) :]


class _Remembered(SqlDatabase):
    def __init__(self, place: VolatileCatalog, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._place = place

    @property
    def raw(self) -> Any:
        return self.connection.connection.driver_connection

    def commit(self) -> None:
        self._place.as_step("commit", self._committed)

    def _committed(self) -> None:
        if self._place.is_broken:
            with sql_error(self.where):
                raise OperationalError("COMMIT", None, Exception("database or disk is full"))
        super().commit()
        self._place.states = [*self._place.states[-_STATES_MAX + 1 :], self.raw.serialize()]
