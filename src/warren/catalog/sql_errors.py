"""What SQL says when it cannot, in the words of the house.

SQLAlchemy wraps what the driver raises. PostgreSQL has a code for every error, but for those in connecting; of SQLite,
and of those, the text is what there is to go by. An `IntegrityError` passes: whoever wrote the row knows what it means.

    SqlDamage     set aside, and made again from the log
    SqlAway       PostgreSQL does not answer: what needs the catalog is refused until it does, everything else goes on
    OutOfRoom     SQL has no room; the log has what SQL lacks
    Locked        somebody else holds it
    Refused       it does not let us in
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError

from warren.base.errors import Damage, DiskFailure, Locked, OutOfRoom, Refused, WarrenError

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
