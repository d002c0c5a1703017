"""PostgreSQL as the catalog's SQL database: one connection, one schema `warren`, and an advisory lock per broker.

    connect ──▶ advisory lock, with a timeout ──▶ CREATE SCHEMA warren, if there is none ──▶ search_path = warren
    lost    ──▶ the next transaction connects again, and `Catalog` brings SQL up from the log before it continues

The lock is PostgreSQL's own (`pg_advisory_lock`) and belongs to the connection: a second broker on one database is
refused with the name of the first, and a dead broker leaves nothing to clean up. A pooler that uses another connection
for every transaction (PgBouncer's `transaction` mode) cannot be used, because the lock would belong to its connection.

PostgreSQL runs with `synchronous_commit = off`: a crash of its machine may take its newest transactions, each as a
whole. That costs nothing here: the log has them.

Invariant: nothing is dropped. A catalog that cannot be used is renamed to `warren_aside_…`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from warren.base.environment import Random
from warren.base.errors import Locked, Misuse
from warren.catalog.sql import SqlDatabase, shown, sql_error

SCHEMA = "warren"
LOCK = 0x57415252454E  # "WARREN"; one per database, whatever the schema is called
_LOCK_WAIT_MS = 5000
_LOCK_TIMED_OUT = "55P03"

_AT_CONNECT: Mapping[str, Any] = {
    "connect_timeout": 10,
    "application_name": "warren",
    "client_encoding": "utf8",
    # A machine that disappears is noticed within half a minute instead of two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_LOCK_OWNERS = """SELECT a.pid, a.application_name, coalesce(a.client_addr::text, 'this machine')
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.database = (
        SELECT oid FROM pg_database WHERE datname = current_database()
    ) AND (l.classid::bigint << 32 | l.objid::bigint) = %s"""
_IS_USED = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s)"


class PostgresPlace:
    """An existing PostgreSQL database. Implements `SqlPlace`."""

    def __init__(self, url: URL, rng: Random, lock_wait_ms: int = _LOCK_WAIT_MS) -> None:
        if find_spec("psycopg") is None:
            raise Misuse("PostgreSQL requires psycopg, which is not installed", "pip install 'warren[postgres]'")
        self._url = url.set(drivername="postgresql+psycopg")
        self._rng = rng
        self._lock_wait_ms = lock_wait_ms
        self.where = shown(url)

    def open(self) -> SqlDatabase:
        arguments = {name: value for name, value in _AT_CONNECT.items() if name not in self._url.query}
        engine = create_engine(self._url, poolclass=StaticPool, connect_args=arguments, hide_parameters=True)
        _prepare(engine, self.where, self._lock_wait_ms)
        try:
            return PostgresDatabase(engine, self.where)
        except BaseException:
            engine.dispose()
            raise

    def set_aside(self) -> None:
        sql = self.open()
        try:
            with sql.transaction() as connection:
                if connection.exec_driver_sql(_IS_USED, (SCHEMA,)).scalar_one():
                    name = f"{SCHEMA}_aside_{self._rng.id64():016x}"
                    connection.exec_driver_sql(f"ALTER SCHEMA {SCHEMA} RENAME TO {name}")
        finally:
            sql.close()


class PostgresDatabase(SqlDatabase):
    """Connects again after its connection was lost."""

    def begin(self) -> None:
        super().begin()
        if self._is_lost():
            self.rollback()
            super().begin()

    def _is_lost(self) -> bool:
        """Whether the connection was lost while idle. The transaction is empty: a new connection can take its place."""
        try:
            with sql_error(self.where):
                self.connection.exec_driver_sql("SELECT 1")
        except BaseException:
            if self.connection.invalidated:
                return True
            self.rollback()
            raise
        return False


def _prepare(engine: Engine, where: str, lock_wait_ms: int) -> None:
    @event.listens_for(engine, "connect", insert=True)  # SQLAlchemy queries the schema right after it
    def connected(raw: Any, record: object) -> None:
        try:
            raw.autocommit = True
            with raw.cursor() as cursor:
                _take_lock(cursor, where, lock_wait_ms)
                cursor.execute("SELECT to_regnamespace(%s)", (SCHEMA,))
                if cursor.fetchone()[0] is None:  # an existing schema needs no right to create one
                    cursor.execute(f"CREATE SCHEMA {SCHEMA}")
                cursor.execute(f"SET search_path TO {SCHEMA}")
                cursor.execute("SET synchronous_commit TO off")
            raw.autocommit = False
        except BaseException:
            raw.close()
            raise


def _take_lock(cursor: Any, where: str, wait_ms: int) -> None:
    """A broker that has just died keeps the lock for a moment. The timeout stays in force for later locks."""
    try:
        cursor.execute(f"SET lock_timeout TO {wait_ms}")
        cursor.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
    except Exception as error:
        if getattr(error, "sqlstate", None) != _LOCK_TIMED_OUT:
            raise
        cursor.execute(_LOCK_OWNERS, (LOCK,))
        owners = [f"{name} (backend {pid}, from {address})" for pid, name, address in cursor.fetchall()]
        raise Locked(
            f"the SQL catalog {where} is locked by another broker: {', '.join(owners) or 'it has just disconnected'}",
            "stop it, or name another database with --catalog",
        ) from error
