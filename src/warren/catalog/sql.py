"""SQL access: one connection with its transactions, the errors of SQLite and PostgreSQL, and connect strings.

`SqlDatabase` is one connection, used by one thread at a time. `SqlPlace` opens it and sets it aside: `database` has the
real ones; in the simulator a fake one loses its last transactions on purpose.

`sql_error` turns driver errors into errors of `base/errors`. PostgreSQL has a code for every error except those of
connecting; for these, and for SQLite, the text decides. An `IntegrityError` is passed on: the code that wrote the row
knows what it means.

    SqlDamage       set aside, and made again from the log
    SqlUnavailable  PostgreSQL does not answer: what needs the catalog is refused until it does, the rest continues
    OutOfRoom       SQL has no room; the log has what SQL lacks
    Locked          another process has a lock on it
    Refused         the connection or the statement is not permitted

Connect strings name a database; `shown` prints one without its password:

    sqlite:////var/lib/warren/shop.sqlite        a file
    postgresql://ann:secret@db.example/shop      shown as postgresql://ann@db.example/shop
    postgresql://ann@/shop?host=/run/postgres    a Unix socket

Invariants
* Nothing is written outside a transaction. The code that begins a transaction commits it or rolls it back.
* No message contains a part of a connect string that may hold a password, not even the error about one that cannot be
  parsed. The part after the question mark may hold one, so only its host is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from sqlalchemy import URL, Connection, Engine, RootTransaction, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import Damage, DiskFailure, Locked, Misuse, OutOfRoom, Refused, WarrenError

_DAMAGED = ("not a database", "malformed", "file is encrypted", "Could not decode to UTF-8")
_DAMAGED_CODES = ("XX001", "XX002")
_NO_ROOM_CODES = ("53100", "53200")  # disk, memory
_LOCKED_CODES = ("55P03", "55006")
_AWAY_CODES = ("08", "53300", "57P")  # connection lost or refused; too many of them; shutting down or starting

_CONNECT_HINTS = (  # by a part of the text: errors of connecting have no code
    ("authentication failed", "check user and password; a password may also be in ~/.pgpass or PGPASSWORD"),
    ("no password supplied", "put one into ~/.pgpass, PGPASSWORD or the connect string"),
    ("no pg_hba.conf entry", "allow this host in PostgreSQL's pg_hba.conf"),
    ("role ", "create that user: createuser NAME"),
    ("database ", "create it first: createdb NAME"),
)


class SqlDamage(Damage):
    """The SQL database is damaged. It is derived: it can be set aside and made again from the log."""


class SqlUnavailable(WarrenError):
    """The SQL database does not answer at present: try again later. The request is not at fault."""


@contextmanager
def sql_error(where: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise _warren_error(where, error) from error


def _warren_error(where: str, error: DBAPIError) -> WarrenError:
    text = str(error.orig).strip()
    if hasattr(error.orig, "sqlstate"):
        return _postgres_error(where, error, getattr(error.orig, "sqlstate", None) or "", text)
    if any(sign in text for sign in _DAMAGED):
        return _damaged(where, text)
    if "full" in text:
        return _full(where, text)
    return _locked(where, text) if "locked" in text else _failed(where, text)


def _postgres_error(where: str, error: DBAPIError, code: str, text: str) -> WarrenError:
    if code in _DAMAGED_CODES:
        return _damaged(where, text)
    if code in _NO_ROOM_CODES:
        return _full(where, text)
    if code in _LOCKED_CODES:
        return _locked(where, text)
    if code == "42501":
        return Refused(
            f"the SQL catalog {where} does not permit it: {text}",
            "allow the user to create schemas in this database: GRANT CREATE ON DATABASE … TO …",
        )
    if error.connection_invalidated or not code or code.startswith(_AWAY_CODES):
        return _not_connected(where, text)
    return _failed(where, text)


def _not_connected(where: str, text: str) -> WarrenError:
    for sign, hint in _CONNECT_HINTS:
        if "FATAL" in text and sign in text:
            return Refused(f"the SQL catalog {where} refuses the connection: {text}", hint)
    return SqlUnavailable(
        f"the SQL catalog {where} does not answer: {text}",
        "start PostgreSQL, or check host and port of --catalog; what is in the log is applied then",
    )


def _damaged(where: str, text: str) -> SqlDamage:
    return SqlDamage(f"the SQL catalog is damaged: {text}", where, 0, "it is made again from the log")


def _full(where: str, text: str) -> OutOfRoom:
    return OutOfRoom(f"the SQL catalog {where} has no room: {text}", "make room; what is in the log is applied then")


def _locked(where: str, text: str) -> Locked:
    return Locked(f"the SQL catalog {where} is locked by another process: {text}", "stop the process that has it open")


def _failed(where: str, text: str) -> DiskFailure:
    return DiskFailure(f"the SQL catalog {where} failed: {text}", "fix the cause; what is in the log is applied then")


class SqlDatabase:
    """One connection, open from the constructor on."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where  # for messages; without password
        self._engine = engine
        self._transaction: RootTransaction | None = None
        self.connects = 0  # number of connections so far: a new connection may find other rows
        event.listen(engine, "connect", self._connected)
        with sql_error(where):
            self.connection: Connection = engine.connect()
        call_in_children(self)

    def forked(self) -> None:
        never_destroy(self)

    @property
    def is_begun(self) -> bool:
        return self._transaction is not None

    def begin(self) -> None:
        with sql_error(self.where):
            self._transaction = self.connection.begin()

    def commit(self) -> None:
        assert self._transaction is not None, "a transaction is begun before it is committed"
        with sql_error(self.where):
            self._transaction.commit()
        self._transaction = None

    def rollback(self) -> None:
        """Afterwards no transaction is open, whatever the state was."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with suppress(SQLAlchemyError):
                transaction.rollback()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is committed at the end of the block, and rolled back on an error."""
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
        """A read-only transaction."""
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
    """Location of an SQL database."""

    where: str  # for messages; without password

    def open(self) -> SqlDatabase:
        """The existing database, or an empty one."""
        ...

    def set_aside(self) -> None:
        """Move away a database that cannot be used; the next `open` creates an empty one."""
        ...


SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_DRIVERS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgresql+psycopg": POSTGRESQL, "postgres": POSTGRESQL}
_LIKE = "like sqlite:////var/lib/warren/shop.sqlite or postgresql://user@host/shop"


def is_connect_string(text: str) -> bool:
    return "://" in text


def parsed(connect: str) -> URL:
    """The driver name is the database system; an empty string is SQLite without a file name."""
    if not connect:
        return URL.create(SQLITE)
    try:
        url = make_url(connect)
    except (ArgumentError, ValueError):
        raise Misuse("the connect string of the catalog cannot be read", _LIKE) from None  # it may contain the password
    if url.drivername not in _DRIVERS:
        raise Misuse(f"the catalog cannot be in {url.drivername!r}: there is SQLite, and PostgreSQL by psycopg", _LIKE)
    return url.set(drivername=_DRIVERS[url.drivername])


def shown(url: URL) -> str:
    """For messages: without password."""
    host = url.host or str(url.query.get("host", ""))
    port = f":{url.port}" if url.port else ""
    user = f"{url.username}@" if url.username else ""
    return f"{url.drivername}://{user}{host}{port}/{url.database or ''}"
