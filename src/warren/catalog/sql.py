"""What SQL says when it cannot, in the words of the house.

SQLAlchemy wraps what the driver raises. PostgreSQL has a code for every error, but for those in connecting; of SQLite,
and of those, the text is what there is to go by. An `IntegrityError` passes: whoever wrote the row knows what it means.

    SqlDamage     set aside, and made again from the log
    SqlAway       PostgreSQL does not answer: what needs the catalog is refused until it does, everything else goes on
    OutOfRoom     SQL has no room; the log has what SQL lacks
    Locked        somebody else holds it
    Refused       it does not let us in

One connection to an SQL database: transactions and savepoints, for one thread at a time.

This is all that the rest of the catalog knows of SQL's whereabouts. `database` opens the real one; in the simulator
`testing/forgetful_catalog` stands in for it, and loses its last transactions on purpose.

Always true: nothing is written outside a transaction, and a transaction that was begun is committed or rolled back by
whoever began it.

Connect strings of SQL databases: which database one names, and how to speak of it without its password.

    sqlite:////var/lib/warren/shop.sqlite        a file
    postgresql://ann:secret@db.example/shop      spoken of as postgresql://ann@db.example/shop
    postgresql://ann@/shop?host=/run/postgres    a Unix socket

Always true: nothing that is said of a connect string, refusals of one that cannot be read among them, has a part of it
in which a password may stand. What follows the question mark may hold one, so of that only the host is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from sqlalchemy import URL, Connection, Engine, RootTransaction, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from warren.base.errors import Damage, DiskFailure, Locked, Misuse, OutOfRoom, Refused, WarrenError
from warren.base.process import call_in_children, never_destroy

_DAMAGED = ("not a database", "malformed", "file is encrypted", "Could not decode to UTF-8")
_DAMAGED_CODES = ("XX001", "XX002")
_NO_ROOM_CODES = ("53100", "53200")  # disk, memory
_LOCKED_CODES = ("55P03", "55006")
_AWAY_CODES = ("08", "53300", "57P")  # connection lost or not made; too many of them; shutting down or starting

_AT_THE_DOOR = (  # in what is said when no connection comes about, where there are no codes
    ("authentication failed", "check user and password; a password may stand in ~/.pgpass or PGPASSWORD as well"),
    ("no password supplied", "put one into ~/.pgpass, PGPASSWORD or the connect string"),
    ("no pg_hba.conf entry", "let this machine in, in PostgreSQL's pg_hba.conf"),
    ("role ", "make that user: createuser NAME"),
    ("database ", "make it first: createdb NAME"),
)


class SqlDamage(Damage):
    """The SQL database is not what it was. It is derived: it can be set aside and made again."""


class SqlUnavailable(WarrenError):
    """The SQL database does not answer at present: try again later. Nobody is at fault who asked."""


@contextmanager
def sql_error(where: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise _told(where, error) from error


def _told(where: str, error: DBAPIError) -> WarrenError:
    text = str(error.orig).strip()
    if hasattr(error.orig, "sqlstate"):
        return _told_by_postgres(where, error, getattr(error.orig, "sqlstate", None) or "", text)
    if any(sign in text for sign in _DAMAGED):
        return _damaged(where, text)
    if "full" in text:
        return _full(where, text)
    return _held(where, text) if "locked" in text else _failed(where, text)


def _told_by_postgres(where: str, error: DBAPIError, code: str, text: str) -> WarrenError:
    if code in _DAMAGED_CODES:
        return _damaged(where, text)
    if code in _NO_ROOM_CODES:
        return _full(where, text)
    if code in _LOCKED_CODES:
        return _held(where, text)
    if code == "42501":
        return Refused(
            f"the SQL catalog {where} does not permit it: {text}",
            "let the user make schemas in this database: GRANT CREATE ON DATABASE … TO …",
        )
    if error.connection_invalidated or not code or code.startswith(_AWAY_CODES):
        return _not_connected(where, text)
    return _failed(where, text)


def _not_connected(where: str, text: str) -> WarrenError:
    for sign, hint in _AT_THE_DOOR:
        if "FATAL" in text and sign in text:
            return Refused(f"the SQL catalog {where} does not let us in: {text}", hint)
    return SqlUnavailable(
        f"the SQL catalog {where} does not answer: {text}",
        "start PostgreSQL, or look at host and port of --catalog; what is in the log is applied then",
    )


def _damaged(where: str, text: str) -> SqlDamage:
    return SqlDamage(f"the SQL catalog is damaged: {text}", where, 0, "it is made again from the log")


def _full(where: str, text: str) -> OutOfRoom:
    return OutOfRoom(f"the SQL catalog {where} has no room: {text}", "make room; what is in the log is applied then")


def _held(where: str, text: str) -> Locked:
    return Locked(f"the SQL catalog {where} is held by somebody else: {text}", "stop whoever has it open")


def _failed(where: str, text: str) -> DiskFailure:
    return DiskFailure(f"the SQL catalog {where} cannot go on: {text}", "see to it; what is in the log is applied then")


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


SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_DRIVERS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgresql+psycopg": POSTGRESQL, "postgres": POSTGRESQL}
_LIKE = "like sqlite:////var/lib/warren/shop.sqlite or postgresql://user@host/shop"


def is_connect_string(text: str) -> bool:
    return "://" in text


def parsed(connect: str) -> URL:
    """With the name of the database system as its driver; an empty string is SQLite, and names no file."""
    if not connect:
        return URL.create(SQLITE)
    try:
        url = make_url(connect)
    except (ArgumentError, ValueError):
        raise Misuse("the connect string of the catalog cannot be read", _LIKE) from None  # it may have the password
    if url.drivername not in _DRIVERS:
        raise Misuse(f"the catalog cannot be in {url.drivername!r}: there is SQLite, and PostgreSQL by psycopg", _LIKE)
    return url.set(drivername=_DRIVERS[url.drivername])


def shown(url: URL) -> str:
    """For people."""
    host = url.host or str(url.query.get("host", ""))
    port = f":{url.port}" if url.port else ""
    user = f"{url.username}@" if url.username else ""
    return f"{url.drivername}://{user}{host}{port}/{url.database or ''}"
